"""Window operations: maxima, and convolutions in which each channel has a kernel of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import gcd

from npukit.compiler.arithmetic import depthwise_operation, requantize_descriptor, weights_of, window_border
from npukit.compiler.ir.operations import AveragePool, DepthwiseConvolution, MaxPool
from npukit.compiler.limits import MAX_BLOCKS, MAX_COLUMNS, MAX_ROWS, MAX_STEP
from npukit.compiler.schedule.builder import Builder, Placed, Region, blocked_channels
from npukit.compiler.schedule.conv import summands
from npukit.compiler.schedule.fusion import kept_together, take_in_place_of_store
from npukit.compiler.schedule.wide import schedule_wide_block, wide_blocks
from npukit.compiler.tasks import Buffer
from npukit.compiler.tiling import depthwise_blocks, parts, window_words
from npukit.isa.descriptors import pack_taps
from npukit.isa.instructions import Operation, Vector

__all__ = [
    "Tile",
    "WindowLayer",
    "schedule_depthwise",
    "schedule_maxpool",
    "window_region",
    "window_tasks",
    "window_tiles",
]


_Range = tuple[int, int]

WindowLayer = MaxPool | DepthwiseConvolution | AveragePool
"""Layers that look at windows of their input."""


@dataclass(frozen=True)
class Tile:
    """A part of a window operation's result: half-open ranges."""

    batch: int
    blocks: _Range
    rows: _Range
    columns: _Range

    @property
    def count(self) -> int:
        """Channel blocks."""
        return self.blocks[1] - self.blocks[0]


def _phases(stride: int, dilation: int, width: int) -> tuple[int, int]:
    """(phases, window step): output columns p, p + phases, ... slide by whole window columns."""
    phases = dilation // gcd(stride, dilation)
    step = phases * stride // dilation
    if step > MAX_STEP or phases > width:
        return width, 1
    return phases, step


def schedule_maxpool(builder: Builder, layer: MaxPool, followers: Sequence[int] = ()) -> None:
    """Emit a max pooling's tasks, and those of the layers of those numbers, which take its result in turn."""
    for tile in window_tiles(builder, layer, layer.kernel, MAX_BLOCKS, followers):
        _window(builder, layer, layer.kernel, tile, followers)


def schedule_depthwise(builder: Builder, layer: DepthwiseConvolution, followers: Sequence[int] = ()) -> None:
    """Emit a depthwise convolution's tasks, and those of the layers of those numbers, which take its result in turn."""
    kernel = builder.graph.kernel(layer)
    most = depthwise_blocks(builder.config, kernel, depthwise_operation(layer))
    for tile in window_tiles(builder, layer, kernel, most, followers):
        _window(builder, layer, kernel, tile, followers)


def _depthwise_parameters(builder: Builder, layer: DepthwiseConvolution, blocks: _Range) -> Buffer:
    """Descriptor, parameters and taps of some channel blocks, in PAR."""
    size, channels = builder.config.array, builder.channels(layer)
    weights = summands(weights_of(builder.graph.constants[layer.weights]))[0]
    taps = blocked_channels(weights.reshape(len(weights), -1), size)
    return builder.parameters(
        f"{layer.node}, blocks {blocks[0]} to {blocks[1]},",
        depthwise_operation(layer),
        requantize_descriptor(builder.graph, layer),
        [
            words
            for block in range(*blocks)
            for words in (*(array[block : block + 1] for array in channels), pack_taps(builder.config, taps[block].T))
        ],
    )


def window_tiles(
    builder: Builder, layer: WindowLayer, kernel: tuple[int, int], most_blocks: int, followers: Sequence[int] = ()
) -> Iterator[Tile]:
    """Tiles of blocks, then rows, then columns, whose sources have `window_words` at most."""
    config = builder.config
    batch, channels, height, width = builder.tensor(layer.output).view
    most = window_words(config)

    def reach(size: int, axis: int) -> int:
        return (size - 1) * layer.strides[axis] + (kernel[axis] - 1) * layer.dilations[axis] + 1

    columns_most = max(
        size for size in range(1, width + 1) if reach(size, 1) * reach(1, 0) <= most and size <= MAX_COLUMNS
    )
    rows_most = max(
        size for size in range(1, height + 1) if reach(size, 0) * reach(columns_most, 1) <= most and size <= MAX_ROWS
    )
    plane = reach(rows_most, 0) * reach(columns_most, 1)
    for index in range(batch):
        at_once = min(MAX_BLOCKS, most_blocks, max(1, most // plane))
        names = layer.input, *kept_together(builder, layer.output, followers)
        for blocks in builder.block_parts(-(-channels // config.array), at_once, names):
            for rows in parts(height, rows_most):
                for columns in parts(width, columns_most):
                    yield Tile(index, blocks, rows, columns)


def window_region(builder: Builder, layer: WindowLayer, kernel: tuple[int, int], tile: Tile) -> Region:
    """What a tile's windows cover."""
    extents = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
    starts = [
        place[0] * stride - pad
        for place, stride, pad in zip((tile.rows, tile.columns), layer.strides, layer.pads[:2], strict=True)
    ]
    ends = [
        start + (extent - 1) * stride + (taps - 1) * dilation + 1
        for start, extent, stride, taps, dilation in zip(
            starts, extents, layer.strides, kernel, layer.dilations, strict=True
        )
    ]
    x = builder.tensor(layer.input)
    return Region(x, builder.config.array, tile.batch, tile.blocks, (starts[0], ends[0]), (starts[1], ends[1]))


def _window(
    builder: Builder, layer: MaxPool | DepthwiseConvolution, kernel: tuple[int, int], tile: Tile,
    followers: Sequence[int],
) -> None:  # fmt: skip
    region = window_region(builder, layer, kernel, tile)
    source = builder.load_region(region, window_border(builder.graph, layer))
    place = Region(builder.tensor(layer.output), builder.config.array, tile.batch, tile.blocks, tile.rows, tile.columns)
    out = builder.result_tile(place)
    window_tasks(builder, layer, kernel, tile, source, out)
    take_in_place_of_store(builder, followers, layer.output, place, out)


def window_tasks(
    builder: Builder, layer: MaxPool | DepthwiseConvolution, kernel: tuple[int, int], tile: Tile, source: Placed,
    out: Placed,
) -> None:  # fmt: skip
    """Emit a tile's tasks, without those that store it, from where its windows lie to where its result is to be."""
    wide: frozenset[int] = frozenset()
    if isinstance(layer, DepthwiseConvolution):
        wide = wide_blocks(builder.graph, layer, builder.config.array)
    for is_wide, run in groupby(range(*tile.blocks), wide.__contains__):
        blocks = [*run]
        first = blocks[0] - tile.blocks[0]
        begin, end = source.behind(first * source.plane), out.behind(first * out.plane)
        if not is_wide:
            part = replace(tile, blocks=(blocks[0], blocks[-1] + 1))
            _vector_tasks(builder, layer, kernel, part, begin, end)
            continue
        assert isinstance(layer, DepthwiseConvolution)
        for number, block in enumerate(blocks):
            a, result = begin.behind(number * source.plane), end.behind(number * out.plane)
            schedule_wide_block(builder, layer, tile.batch, block, tile.rows, tile.columns, a, result)


def _vector_tasks(
    builder: Builder, layer: MaxPool | DepthwiseConvolution, kernel: tuple[int, int], tile: Tile, source: Placed,
    out: Placed,
) -> None:  # fmt: skip
    """Emit VECTOR's tasks for blocks of a tile, which begin at `source` and `out`."""
    parameters, operation = None, Operation.MAX
    if isinstance(layer, DepthwiseConvolution):
        parameters, operation = _depthwise_parameters(builder, layer, tile.blocks), depthwise_operation(layer)
    height, width, count = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0], tile.count
    plane, pitch = source.plane, source.pitch
    phases, step = _phases(layer.strides[1], layer.dilations[1], width)
    for phase in range(phases):
        instruction = Vector(
            operation=operation,
            blocks=count,
            height=height,
            width=-(-(width - phase) // phases),
            a_stride_block=plane if count > 1 else 0,
            a_stride_y=layer.strides[0] * pitch if height > 1 else 0,
            out_stride_block=out.plane,
            out_stride_y=out.pitch,
            out_stride_x=phases,
            window_height=kernel[0],
            window_width=kernel[1],
            window_step=step,
            window_stride_y=layer.dilations[0] * pitch if kernel[0] > 1 else 0,
            window_stride_x=layer.dilations[1],
        )
        place = tile.batch, tile.blocks[0], tile.rows[0], tile.columns[0] + phase
        builder.vector(
            instruction,
            (source.operand("a", phase * layer.strides[1]),),
            out.operand("out", phase, write=True),
            parameters,
            builder.capture(layer.output, *place, step_x=phases),
        )
