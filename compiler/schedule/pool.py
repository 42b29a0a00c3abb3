"""Window operations: maximum, and the sum over a whole image."""

from itertools import product
from math import gcd

from npukit.compiler.layers import GlobalAverageLayer, MaxPoolLayer
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import average_window, parts, window_words
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = ["schedule_global_average", "schedule_maxpool"]

_LOWEST = -128
_MOST_STEP = 16


def _phases(stride: int, dilation: int, width: int) -> tuple[int, int]:
    """(phases, window step): output columns p, p + phases, ... slide by whole window columns."""
    phases = dilation // gcd(stride, dilation)
    step = phases * stride // dilation
    if step > _MOST_STEP or phases > width:
        return width, 1
    return phases, step


def schedule_maxpool(builder: Builder, layer: MaxPoolLayer) -> None:
    """Emit a max pooling's tasks: tiles of output rows, then columns, then blocks."""
    config = builder.config
    y = builder.tensor(layer.output)
    batch, channels, height, width = y.view
    most = window_words(config)

    def reach(size: int, axis: int) -> int:
        return (size - 1) * layer.strides[axis] + (layer.kernel[axis] - 1) * layer.dilations[axis] + 1

    columns_most = max(size for size in range(1, width + 1) if reach(size, 1) * reach(1, 0) <= most and size <= 1024)
    rows_most = max(
        size for size in range(1, height + 1) if reach(size, 0) * reach(columns_most, 1) <= most and size <= 1024
    )
    plane = reach(rows_most, 0) * reach(columns_most, 1)
    for index in range(batch):
        for blocks in parts(-(-channels // config.array), min(256, max(1, most // plane))):
            for rows in parts(height, rows_most):
                for columns in parts(width, columns_most):
                    _maxpool_tile(builder, layer, index, blocks, rows, columns)


def _maxpool_tile(
    builder: Builder, layer: MaxPoolLayer, batch: int,
    blocks: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int],
) -> None:  # fmt: skip
    size = builder.config.array
    x, y = builder.tensor(layer.inputs[0]), builder.tensor(layer.output)
    height, width, count = rows[1] - rows[0], columns[1] - columns[0], blocks[1] - blocks[0]
    starts = [
        place[0] * stride - pad
        for place, stride, pad in zip((rows, columns), layer.strides, layer.pads[:2], strict=True)
    ]
    ends = [
        start + (extent - 1) * stride + (kernel - 1) * dilation + 1
        for start, extent, stride, kernel, dilation in zip(
            starts, (height, width), layer.strides, layer.kernel, layer.dilations, strict=True
        )
    ]
    region = Region(x, size, batch, blocks, (starts[0], ends[0]), (starts[1], ends[1]))
    source = builder.load_region(region, _LOWEST)
    out = Buffer(Memory.ACT, count * height * width, layer.output)
    phases, step = _phases(layer.strides[1], layer.dilations[1], width)
    for phase in range(phases):
        instruction = Vector(
            operation=Operation.MAX,
            blocks=count,
            height=height,
            width=-(-(width - phase) // phases),
            a_stride_block=region.rows * region.columns if count > 1 else 0,
            a_stride_y=layer.strides[0] * region.columns if height > 1 else 0,
            out_stride_block=height * width,
            out_stride_y=width,
            out_stride_x=phases,
            window_height=layer.kernel[0],
            window_width=layer.kernel[1],
            window_step=step,
            window_stride_y=layer.dilations[0] * region.columns if layer.kernel[0] > 1 else 0,
            window_stride_x=layer.dilations[1],
        )
        capture = CaptureBox(layer.output, batch, blocks[0], rows[0], columns[0] + phase, step_x=phases)
        builder.vector(
            instruction,
            (Operand("a", source, phase * layer.strides[1]),),
            Operand("out", out, phase, write=True),
            capture=capture,
        )
    builder.store_region(Region(y, size, batch, blocks, rows, columns), out)


def _windows(total: int, most: int) -> list[tuple[int, int, int]]:
    """(first, windows, size): `total` in windows of `most`, and one more for the rest."""
    whole, rest = divmod(total, most)
    found = [(0, whole, most)] if whole else []
    return found + ([(whole * most, 1, rest)] if rest else [])


def schedule_global_average(builder: Builder, layer: GlobalAverageLayer) -> None:
    """Emit a sum over height and width: partial sums of windows in ACC until one window remains."""
    config = builder.config
    x = builder.tensor(layer.inputs[0])
    batch, channels, height, width = x.view
    most, words = average_window(config), window_words(config)
    wide = width if most * width <= words else words // most // most * most
    strip = max(1, words // wide // most) * most
    area = min(strip, height) * wide
    partial = -(-height // most) * -(-width // most)
    per_tile = max(1, min(256, words // area, config.acc_depth // partial // 2))
    for index in range(batch):
        for blocks in parts(-(-channels // config.array), per_tile):
            _average_tile(builder, layer, index, blocks, (strip, wide))


def _sum(
    builder: Builder, source: Operand, out: Operand, size: tuple[int, int], pitch: int, plane: int,
    out_pitch: int, out_plane: int, blocks: int, out_memory: Memory,
    parameters: Buffer | None = None, capture: CaptureBox | None = None,
) -> None:  # fmt: skip
    """Sum windows over size[0] x size[1] words; results `out_pitch` apart."""
    most = average_window(builder.config)
    for row_index, (first_y, rows, tall) in enumerate(_windows(size[0], most)):
        for column_index, (first_x, columns, wide) in enumerate(_windows(size[1], most)):
            instruction = Vector(
                operation=Operation.SUM,
                blocks=blocks,
                height=rows,
                width=columns,
                a_memory=source.buffer.memory,
                a_stride_block=plane if blocks > 1 else 0,
                a_stride_y=tall * pitch if rows > 1 else 0,
                out_memory=out_memory,
                out_stride_block=out_plane if blocks > 1 else 0,
                out_stride_y=out_pitch if rows > 1 else 0,
                out_stride_x=1,
                window_height=tall,
                window_width=wide,
                window_step=wide,
                window_stride_y=pitch if tall > 1 else 0,
                window_stride_x=1,
            )
            # the rest's windows come after all whole ones
            row = row_index * (size[0] // most)
            column = column_index * (size[1] // most)
            builder.vector(
                instruction,
                (Operand("a", source.buffer, source.offset + first_y * pitch + first_x),),
                Operand("out", out.buffer, out.offset + row * out_pitch + column, write=True),
                parameters,
                capture,
            )


def _average_tile(
    builder: Builder, layer: GlobalAverageLayer, batch: int, blocks: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Average one image's blocks; `tile` is the most rows and columns to load at once."""
    config = builder.config
    most = average_window(config)
    x, y = builder.tensor(layer.inputs[0]), builder.tensor(layer.output)
    height, width = x.view[2:]
    count = blocks[1] - blocks[0]
    out = Buffer(Memory.ACT, count, layer.output)
    values = {
        "zero_point": layer.zero_point, "low": -128, "high": 127,
        "bias": layer.bias, "multiplier": layer.multiplier,
    }  # fmt: skip
    final = Operand("out", out, write=True)
    capture = CaptureBox(layer.output, batch, blocks[0], 0, 0)

    def finish(source: Operand, size: tuple[int, int]) -> None:
        parameters = builder.parameters(layer.node, Operation.SUM, values, [])
        _sum(
            builder, source, final, size, size[1], size[0] * size[1], 1, 1, count, Memory.ACT,
            parameters, capture,
        )  # fmt: skip

    if height <= most and width <= most:
        region = Region(x, config.array, batch, blocks, (0, height), (0, width))
        finish(Operand("a", builder.load_region(region, 0)), (height, width))
    else:
        size = -(-height // most), -(-width // most)
        partial = Buffer(Memory.ACC, count * size[0] * size[1], layer.output)
        for first_y, first_x in product(range(0, height, tile[0]), range(0, width, tile[1])):
            rows, columns = (
                (first_y, min(height, first_y + tile[0])),
                (first_x, min(width, first_x + tile[1])),
            )
            region = Region(x, config.array, batch, blocks, rows, columns)
            source = Operand("a", builder.load_region(region, 0))
            place = Operand("out", partial, first_y // most * size[1] + first_x // most, write=True)
            _sum(
                builder, source, place, (region.rows, region.columns), region.columns,
                region.rows * region.columns, size[1], size[0] * size[1], count, Memory.ACC,
            )  # fmt: skip
        while max(size) > most:
            smaller = -(-size[0] // most), -(-size[1] // most)
            next_partial = Buffer(Memory.ACC, count * smaller[0] * smaller[1], layer.output)
            _sum(
                builder, Operand("a", partial), Operand("out", next_partial, write=True), size, size[1],
                size[0] * size[1], smaller[1], smaller[0] * smaller[1], count, Memory.ACC,
            )  # fmt: skip
            partial, size = next_partial, smaller
        finish(Operand("a", partial), size)
    builder.store_region(Region(y, config.array, batch, blocks, (0, 1), (0, 1)), out)
