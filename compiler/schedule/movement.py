"""Concatenation, padding, cutting out and repetition."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

from npukit.compiler.arithmetic import border, element
from npukit.compiler.ir.operations import Concatenation, Dilate, Pad, Repeat, Slice
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.elementwise import elementwise_tiles, look_up, operand_tensor
from npukit.compiler.tasks import Buffer, Operand
from npukit.compiler.tiling import elementwise_words, parts
from npukit.isa.instructions import Matrix, Memory, Operation, Vector

__all__ = ["schedule_concatenation", "schedule_dilate", "schedule_pad", "schedule_repeat", "schedule_slice"]

_Range = tuple[int, int]


def _shifted(part: _Range, by: int) -> _Range:
    return part[0] + by, part[1] + by


def schedule_pad(builder: Builder, layer: Pad) -> None:
    """Emit the tasks of an image with a border."""
    x = builder.tensor(layer.input)
    _, _, above, left = x.in_nchw(layer.before, 0)
    _move(builder, layer, (above, left), 0, element(x, layer.value))


def schedule_slice(builder: Builder, layer: Slice) -> None:
    """Emit the tasks of a part of an image: copies, or products with shifts, where its first channel is in a word."""
    _, channel, row, column = builder.tensor(layer.input).in_nchw(layer.starts, 0)
    if channel % builder.config.array:
        _shift_lanes(builder, layer, [_Part(builder.tensor(layer.input), -channel)], (row, column))
    else:
        _move(builder, layer, (-row, -column), channel, 0)


def _move(builder: Builder, layer: Pad | Slice, offset: tuple[int, int], channel: int, value: float) -> None:
    """Result (y, x) is input (y, x) - offset, or `value` where that lies outside, from that channel on."""
    size = builder.config.array
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    for batch, blocks, rows, columns in elementwise_tiles(builder, y.view):
        place = _shifted(rows, -offset[0]), _shifted(columns, -offset[1])
        source = builder.load_tile(Region(x, size, batch, _shifted(blocks, channel // size), *place), value)
        _store_copy(builder, source, Region(y, size, batch, blocks, rows, columns))


def _store_copy(builder: Builder, source: Buffer, target: Region) -> None:
    """Store a buffer as a part of a tensor. VECTOR copies it, so that what computes the tensor is a VECTOR task."""
    shape = target.blocks, target.rows, target.columns
    out = Buffer(Memory.ACT, target.words, target.tensor)
    instruction = _elementwise(Operation.COPY, shape)
    capture = builder.capture(target.tensor, target.batch, target.block[0], target.y, target.x[0])
    builder.vector(instruction, (Operand("a", source),), Operand("out", out, write=True), None, capture)
    builder.store_region(target, out)


def _elementwise(operation: Operation, shape: tuple[int, int, int], source: Memory = Memory.ACT) -> Vector:
    blocks, height, width = shape
    return Vector(
        operation=operation, blocks=blocks, height=height, width=width,
        a_memory=source, a_stride_block=height * width, a_stride_y=width, a_stride_x=1,
        out_stride_block=height * width, out_stride_y=width, out_stride_x=1,
    )  # fmt: skip


def schedule_concatenation(builder: Builder, layer: Concatenation) -> None:
    """Emit a concatenation's tasks: copies, or, where channels do not begin at a word, products with shifts."""
    size = builder.config.array
    y = builder.tensor(layer.output)
    shapes = [builder.graph.tensor(name).shape for name in layer.inputs]
    sources = [
        operand_tensor(builder, name, replace(y, shape=shape, layout=None))
        for name, shape in zip(layer.inputs, shapes, strict=True)
    ]
    axis = y.nchw_axis(layer.axis)
    starts = [0, *accumulate(x.view[axis] for x in sources)]
    if axis == 1 and any(start % size for start in starts[:-1]):
        found = zip(sources, starts, layer.tables, strict=False)
        _shift_lanes(builder, layer, [_Part(x, start, table) for x, start, table in found])
        return
    for x, start, table in zip(sources, starts, layer.tables, strict=False):
        offset = [start if one == axis else 0 for one in range(4)]
        for batch, blocks, rows, columns in elementwise_tiles(builder, x.view):
            source = _source(builder, x, table, batch, blocks, rows, columns)
            place = (_shifted(blocks, offset[1] // size), _shifted(rows, offset[2]), _shifted(columns, offset[3]))
            _store_copy(builder, source, Region(y, size, batch + offset[0], *place))


def _source(
    builder: Builder, x: Tensor, table: str | None, batch: int, blocks: _Range, rows: _Range,
    columns: _Range,
) -> Buffer:  # fmt: skip
    """A part of an input, in the result's quantisation."""
    region = Region(x, builder.config.array, batch, blocks, rows, columns)
    loaded = builder.load_tile(region, 0)
    if table is None:
        return loaded
    out = Buffer(Memory.ACT, loaded.words, x.name)
    plane, pitch = region.rows * region.pitch, region.pitch
    source, result = (Placed(one, 0, plane, pitch) for one in (loaded, out))
    look_up(builder, builder.graph.constants[table], source, result, region)
    return out


@dataclass(frozen=True)
class _Part:
    """An input, the result's channel to which its first one goes, and a table through which it goes."""

    x: Tensor
    start: int
    table: str | None = None


def _shift_lanes(
    builder: Builder, layer: Concatenation | Slice, found: list[_Part], first: tuple[int, int] = (0, 0)
) -> None:
    """Each output block is a sum of input blocks times matrices of zeros and ones that shift lanes, which is exact.

    first: row and column of the inputs with which the result begins.
    """
    config = builder.config
    size = config.array
    y = builder.tensor(layer.output)
    most = min(config.acc_depth, elementwise_words(config))
    for batch, block, rows, columns in _tiles(y, size, most):
        _lanes_tile(builder, layer, found, first, batch, block, rows, columns)


def _lanes_tile(
    builder: Builder, layer: Concatenation | Slice, found: list[_Part], first: tuple[int, int], batch: int, block: int,
    rows: _Range, columns: _Range,
) -> None:  # fmt: skip
    size, channels = builder.config.array, builder.tensor(layer.output).view[1]
    height, width = rows[1] - rows[0], columns[1] - columns[0]
    shape = 1, height, width
    acc = Buffer(Memory.ACC, height * width, layer.output)
    place = _shifted(rows, first[0]), _shifted(columns, first[1])
    begun = False
    for part in found:
        for source_block in range(-(-part.x.view[1] // size)):
            # the input's channel that comes into lane 0, counted from its block's first
            shift = block * size - part.start - source_block * size
            # what lies behind the last channel of either is left out
            lanes = min(size, part.x.view[1] - source_block * size, channels - block * size + shift)
            if shift >= lanes or shift <= -size:
                continue
            act = _source(builder, part.x, part.table, batch, (source_block, source_block + 1), *place)
            wgt = builder.moved_lanes([(lane, lane - shift) for lane in range(max(0, shift), min(lanes, size + shift))])
            instruction = Matrix(
                accumulate=int(begun), height=height, width=width,
                act_stride_y=width, act_stride_x=1, acc_stride_y=width, acc_stride_x=1,
            )  # fmt: skip
            builder.matrix(instruction, Operand("act", act), Operand("wgt", wgt), acc)
            begun = True
    out = Buffer(Memory.ACT, height * width, layer.output)
    instruction = _elementwise(Operation.CONVERT, shape, Memory.ACC)
    capture = builder.capture(layer.output, batch, block, rows[0], columns[0])
    builder.vector(instruction, (Operand("a", acc),), Operand("out", out, write=True), None, capture)
    builder.store_region(Region(builder.tensor(layer.output), size, batch, (block, block + 1), rows, columns), out)


def _tiles(tensor: Tensor, size: int, most: int) -> Iterator[tuple[int, int, _Range, _Range]]:
    """(batch, block, rows, columns) of parts of a tensor of at most so many words, one block each."""
    batches, channels, height, width = tensor.view
    for batch in range(batches):
        for columns in parts(width, most):
            for rows in parts(height, max(1, most // (columns[1] - columns[0]))):
                for block in range(-(-channels // size)):
                    yield batch, block, rows, columns


def schedule_dilate(builder: Builder, layer: Dilate) -> None:
    """Emit the tasks of a tensor with padding between its elements: tiles of padding, and the elements into them."""
    size = builder.config.array
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    for batch, block, rows, columns in _tiles(x, size, elementwise_words(builder.config) // prod(layer.factors)):
        # behind the last element there is no padding
        place = [
            (low * by, min(high * by, end))
            for (low, high), by, end in zip((rows, columns), layer.factors, y.view[2:], strict=True)
        ]
        target = Region(y, size, batch, (block, block + 1), place[0], place[1])
        source = builder.load_tile(Region(x, size, batch, (block, block + 1), rows, columns), 0)
        _spread(builder, layer, source, target, (rows[1] - rows[0], columns[1] - columns[0]))


def _spread(builder: Builder, layer: Dilate, source: Buffer, target: Region, size: tuple[int, int]) -> None:
    tall, wide = layer.factors
    out = Buffer(Memory.ACT, target.words, target.tensor)
    place = target.tensor, target.batch, target.block[0], target.y, target.x[0]
    shape = 1, target.rows, target.columns
    value = border(builder.tensor(layer.input))
    builder.fill_part(out, value, 0, shape, (0, target.columns), builder.capture(*place))
    instruction = Vector(
        operation=Operation.COPY, height=size[0], width=size[1], a_stride_y=size[1], a_stride_x=1,
        out_stride_y=tall * target.columns, out_stride_x=wide,
    )  # fmt: skip
    capture = builder.capture(*place, tall, wide)
    builder.vector(instruction, (Operand("a", source),), Operand("out", out, write=True), None, capture)
    builder.store_region(target, out)


def schedule_repeat(builder: Builder, layer: Repeat) -> None:
    """Emit a repetition's tasks: one copy for each place among an element's copies."""
    size, (tall, wide) = builder.config.array, layer.factors
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    for batch, block, rows, columns in _tiles(x, size, elementwise_words(builder.config) // (tall * wide)):
        source = builder.load_tile(Region(x, size, batch, (block, block + 1), rows, columns), 0)
        place = (rows[0] * tall, rows[1] * tall), (columns[0] * wide, columns[1] * wide)
        target = Region(y, size, batch, (block, block + 1), *place)
        _repeat(builder, layer, source, target, (rows[1] - rows[0], columns[1] - columns[0]))


def _repeat(builder: Builder, layer: Repeat, source: Buffer, target: Region, size: tuple[int, int]) -> None:
    tall, wide = layer.factors
    out = Buffer(Memory.ACT, target.words, target.tensor)
    for row in range(tall):
        for column in range(wide):
            instruction = Vector(
                operation=Operation.COPY, height=size[0], width=size[1], a_stride_y=size[1], a_stride_x=1,
                out_stride_y=tall * target.columns, out_stride_x=wide,
            )  # fmt: skip
            capture = builder.capture(
                target.tensor, target.batch, target.block[0], target.y + row, target.x[0] + column, tall, wide
            )
            start = row * target.columns + column
            builder.vector(instruction, (Operand("a", source),), Operand("out", out, start, write=True), None, capture)
    builder.store_region(target, out)
