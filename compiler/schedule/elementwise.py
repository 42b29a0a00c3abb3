"""Operations from words to words: two sources, lookup tables, and plain copies."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from npukit.compiler.layers import BinaryLayer, ConstantSource, QuantizedTensor, TableLayer
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.schedule.conv import blocked_channels
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import elementwise_words, parts
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory, Operation, Vector
from numpy.typing import NDArray

__all__ = ["elementwise_tiles", "look_up", "schedule_binary", "schedule_table"]

_Range = tuple[int, int]
_Shape = tuple[int, int, int, int]


def elementwise_tiles(config: NpuConfig, view: _Shape) -> Iterator[tuple[int, _Range, _Range, _Range]]:
    """(batch, blocks, rows, columns) of tiles small enough for two sources and a result, twice."""
    batch, channels, height, width = view
    most = elementwise_words(config)
    for index in range(batch):
        for columns in parts(width, most):
            wide = columns[1] - columns[0]
            for rows in parts(height, max(1, most // wide)):
                area = (rows[1] - rows[0]) * wide
                whole = rows == (0, height) and columns == (0, width)
                for blocks in parts(-(-channels // config.array), min(256, max(1, most // area)) if whole else 1):
                    yield index, blocks, rows, columns


def schedule_binary(builder: Builder, layer: BinaryLayer) -> None:
    """Emit the tasks of an operation with two sources."""
    config = builder.config
    y = builder.tensor(layer.output)
    sources = [_source(builder, source) for source in layer.sources]
    for batch, blocks, rows, columns in elementwise_tiles(config, y.view):
        parameters = builder.parameters(layer.node, layer.operation, dict(layer.values), [])
        height, width, count = rows[1] - rows[0], columns[1] - columns[0], blocks[1] - blocks[0]
        strides: dict[str, Any] = {}
        buffers = []
        for side, source in zip(("a", "b"), sources, strict=True):
            # a dimension of 1 repeats
            image = [wanted if source.view[axis] > 1 else (0, 1) for axis, wanted in ((2, rows), (3, columns))]
            index = batch if source.view[0] > 1 else 0
            region = Region(source, config.array, index, blocks, image[0], image[1])
            buffers.append(builder.load_tile(region, 0))
            strides[f"{side}_stride_block"] = region.rows * region.columns if count > 1 else 0
            strides[f"{side}_stride_y"] = region.columns if source.view[2] > 1 and height > 1 else 0
            strides[f"{side}_stride_x"] = 1 if source.view[3] > 1 else 0
        out = Buffer(Memory.ACT, count * height * width, layer.output)
        instruction = Vector(
            operation=layer.operation, blocks=count, height=height, width=width, **strides,
            out_stride_block=height * width, out_stride_y=width, out_stride_x=1,
        )  # fmt: skip
        builder.vector(
            instruction,
            (Operand("a", buffers[0]), Operand("b", buffers[1])),
            Operand("out", out, write=True),
            parameters,
            CaptureBox(layer.output, batch, blocks[0], rows[0], columns[0]),
        )
        builder.store_region(Region(y, config.array, batch, blocks, rows, columns), out)


def _source(builder: Builder, source: str | ConstantSource) -> QuantizedTensor:
    """A tensor in DRAM: an activation, or a constant in the same layout."""
    if isinstance(source, str):
        return builder.tensor(source)
    size = builder.config.array
    data = source.data
    name = builder.constant(
        f"{source.name} constant",
        lambda: blocked_channels(data.transpose(1, 0, 2, 3), size).transpose(2, 0, 3, 4, 1),
    )
    view = (data.shape[0], data.shape[1], data.shape[2], data.shape[3])
    return QuantizedTensor(name, view, view, 1.0, 0, False, name)


def schedule_table(builder: Builder, layer: TableLayer) -> None:
    """Emit a lookup's tasks."""
    config = builder.config
    x, y = builder.tensor(layer.inputs[0]), builder.tensor(layer.output)
    for batch, blocks, rows, columns in elementwise_tiles(config, y.view):
        source = builder.load_tile(Region(replace(x, view=y.view), config.array, batch, blocks, rows, columns), 0)
        out = Buffer(Memory.ACT, source.words, layer.output)
        capture = CaptureBox(layer.output, batch, blocks[0], rows[0], columns[0])
        shape = blocks[1] - blocks[0], rows[1] - rows[0], columns[1] - columns[0]
        look_up(builder, layer.table, source, out, shape, capture)
        builder.store_region(Region(y, config.array, batch, blocks, rows, columns), out)


def look_up(
    builder: Builder, table: NDArray, source: Buffer, out: Buffer, shape: tuple[int, int, int],
    capture: CaptureBox | None = None,
) -> None:  # fmt: skip
    """Look each element of `source` [blocks, rows, columns] up in 256 entries, that of -128 first."""
    blocks, height, width = shape
    name = builder.constant(f"table {table.tobytes().hex()}", lambda: table)
    parameters = builder.load_constant(Memory.PAR, name, name, 64 // builder.config.array, "table")
    instruction = Vector(
        operation=Operation.TABLE, blocks=blocks, height=height, width=width,
        a_stride_block=height * width, a_stride_y=width, a_stride_x=1,
        out_stride_block=height * width, out_stride_y=width, out_stride_x=1,
    )  # fmt: skip
    builder.vector(instruction, (Operand("a", source),), Operand("out", out, write=True), parameters, capture)
