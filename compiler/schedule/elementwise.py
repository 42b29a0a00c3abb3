"""Operations from words to words: two sources, lookup tables, and plain copies."""

from collections.abc import Iterable, Iterator
from typing import Any

from npukit.compiler.arithmetic import elementwise_constant, elementwise_descriptor, lookup_table
from npukit.compiler.ir.operations import ByElement, Elementwise, PiecewiseLinear
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.compiler.limits import MAX_BLOCKS
from npukit.compiler.lines import descriptor_of
from npukit.compiler.schedule.builder import Builder, Placed, Region, blocked_channels
from npukit.compiler.tasks import Buffer, CaptureBox
from npukit.compiler.tiling import elementwise_words, parts
from npukit.isa.descriptors import Indexing
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = [
    "combine",
    "elementwise_tiles",
    "evaluate",
    "look_up",
    "operand_tensor",
    "schedule_by_element",
    "schedule_elementwise",
]

_Range = tuple[int, int]
_Shape = tuple[int, int, int, int]


def elementwise_tiles(
    builder: Builder, view: _Shape, names: Iterable[str] = ()
) -> Iterator[tuple[int, _Range, _Range, _Range]]:
    """(batch, blocks, rows, columns) of tiles small enough for two sources and a result, twice; `names`: of tensors of
    which they take parts, and which may stay on chip."""
    batch, channels, height, width = view
    config = builder.config
    most = elementwise_words(config)
    for index in range(batch):
        for columns in parts(width, most):
            wide = columns[1] - columns[0]
            for rows in parts(height, max(1, most // wide)):
                area = (rows[1] - rows[0]) * wide
                whole = rows == (0, height) and columns == (0, width)
                at_once = min(MAX_BLOCKS, max(1, most // area)) if whole else 1
                for blocks in builder.block_parts(-(-channels // config.array), at_once, names):
                    yield index, blocks, rows, columns


def schedule_elementwise(builder: Builder, layer: Elementwise) -> None:
    """Emit the tasks of an operation with two sources."""
    y = builder.tensor(layer.output)
    names = (layer.output, *builder.graph.activations(layer))
    for batch, blocks, rows, columns in elementwise_tiles(builder, y.view, names):
        part = Region(y, builder.config.array, batch, blocks, rows, columns)
        out = builder.result_tile(part)
        combine(builder, layer, part, out)
        builder.store_result(part, out)


def combine(
    builder: Builder, layer: Elementwise, part: Region, out: Placed, ready: tuple[str, Placed] | None = None
) -> None:
    """Emit the task of a part of an operation's result.

    ready: the storage of a source whose part is on chip already, and where.
    """
    rows, columns = (part.first_y, part.first_y + part.rows), part.x
    y = builder.tensor(layer.output)
    operation, values = elementwise_descriptor(builder.graph, layer)
    parameters = builder.parameters(layer.node, operation, values, [])
    strides: dict[str, Any] = {}
    operands = []
    for side, name in zip(("a", "b"), layer.operands, strict=True):
        source = operand_tensor(builder, name, y)
        if ready is not None and source.storage == ready[0]:
            placed = ready[1]
        else:
            # a dimension of 1 repeats
            image = [wanted if source.view[axis] > 1 else (0, 1) for axis, wanted in ((2, rows), (3, columns))]
            index = part.batch if source.view[0] > 1 else 0
            region = Region(source, builder.config.array, index, part.block, image[0], image[1])
            placed = builder.load_region(region, 0)
        operands.append(placed.operand(side))
        strides[f"{side}_stride_block"] = placed.plane if part.blocks > 1 else 0
        strides[f"{side}_stride_y"] = placed.pitch if source.view[2] > 1 and part.rows > 1 else 0
        strides[f"{side}_stride_x"] = 1 if source.view[3] > 1 else 0
    instruction = Vector(
        operation=operation, blocks=part.blocks, height=part.rows, width=part.columns, **strides,
        out_stride_block=out.plane, out_stride_y=out.pitch, out_stride_x=1,
    )  # fmt: skip
    capture = builder.capture(layer.output, part.batch, part.block[0], part.first_y, columns[0])
    builder.vector(instruction, tuple(operands), out.operand("out", write=True), parameters, capture)


def operand_tensor(builder: Builder, name: str, result: Tensor) -> Tensor:
    """A tensor in DRAM: an activation, or a constant in the same layout."""
    if name in builder.graph.tensors:
        return builder.tensor(name)
    constant, size = builder.graph.constants[name], builder.config.array
    data = elementwise_constant(constant, result)
    held = builder.constant(
        f"{name} constant",
        lambda: blocked_channels(data.transpose(1, 0, 2, 3), size).transpose(0, 2, 3, 4, 1),
    )
    return Tensor(held, data.shape, result.format)


def schedule_by_element(builder: Builder, layer: ByElement) -> None:
    """Emit the tasks of a function of each element."""
    config = builder.config
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    x = x.seen_as(x.storage, y.view)
    for batch, blocks, rows, columns in elementwise_tiles(builder, y.view, (layer.input, layer.output)):
        source = builder.load_region(Region(x, config.array, batch, blocks, rows, columns), 0)
        part = Region(y, config.array, batch, blocks, rows, columns)
        out = builder.result_tile(part)
        capture = builder.capture(layer.output, batch, blocks[0], rows[0], columns[0])
        evaluate(builder, layer, source, out, part, capture)
        builder.store_result(part, out)


def evaluate(
    builder: Builder, layer: ByElement, source: Placed, out: Placed, part: Region, capture: CaptureBox | None = None
) -> None:
    """Emit the task of a function of each element of `source`, as many as a part of a tensor has."""
    table = builder.graph.constants[layer.table]
    if not isinstance(layer, PiecewiseLinear):
        look_up(builder, table, source, out, part, capture)
        return
    values = descriptor_of(table.data, Indexing.VALUE, layer.step, layer.offset)
    parameters = builder.parameters(f"{layer.node} lines", Operation.FUNCTION, values, [])
    _by_element(builder, Operation.FUNCTION, parameters, source, out, part, capture)


def look_up(
    builder: Builder, table: Constant, source: Placed, out: Placed, part: Region, capture: CaptureBox | None = None
) -> None:
    """Emit the task of looking each element of `source`, as many as a part of a tensor has, up in a table."""
    entries = lookup_table(table)
    name = builder.constant(f"table {entries.tobytes().hex()}", lambda: entries)
    parameters = builder.load_constant(Memory.PAR, name, name, -(-64 // builder.config.array), "table")
    _by_element(builder, Operation.TABLE, parameters, source, out, part, capture)


def _by_element(
    builder: Builder, operation: Operation, parameters: Buffer, source: Placed, out: Placed, part: Region,
    capture: CaptureBox | None,
) -> None:  # fmt: skip
    instruction = Vector(
        operation=operation, blocks=part.blocks, height=part.rows, width=part.columns,
        a_stride_block=source.plane, a_stride_y=source.pitch, a_stride_x=1,
        out_stride_block=out.plane, out_stride_y=out.pitch, out_stride_x=1,
    )  # fmt: skip
    builder.vector(instruction, (source.operand("a"),), out.operand("out", write=True), parameters, capture)
