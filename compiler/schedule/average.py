"""Averages: sums over windows, and over whole images."""

from dataclasses import replace
from itertools import groupby, product

import numpy as np
from npukit.compiler.arithmetic import scaled_mean, sum_descriptor, window_border
from npukit.compiler.ir.operations import AveragePool, GlobalAveragePool
from npukit.compiler.limits import MAX_BLOCKS
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.window import Tile, window_region, window_tiles
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import average_window, window_counts, window_words
from npukit.isa.instructions import Memory, Operation, Vector
from numpy.typing import NDArray

__all__ = ["schedule_average", "schedule_global_average"]


def schedule_average(builder: Builder, layer: AveragePool) -> None:
    """Emit an average pooling's tasks: in each tile, one for all windows of as many elements."""
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    counts = [window_counts(layer, axis, x, y) for axis in (0, 1)]
    for tile in window_tiles(builder, layer, layer.kernel, MAX_BLOCKS):
        region = window_region(builder, layer, layer.kernel, tile)
        source = builder.load_region(region, window_border(builder.graph, layer))
        place = Region(y, builder.config.array, tile.batch, tile.blocks, tile.rows, tile.columns)
        out = builder.result_tile(place)
        for rows, columns in product(_runs(tile.rows, counts[0]), _runs(tile.columns, counts[1])):
            _average_run(builder, layer, tile, source, out, rows, columns, counts)
        builder.store_result(place, out)


def _runs(places: tuple[int, int], counts: list[int]) -> list[tuple[int, int]]:
    """Ranges of places whose windows count the same."""
    runs = [[*run] for _, run in groupby(range(*places), key=lambda place: counts[place])]
    return [(run[0], run[-1] + 1) for run in runs]


def _average_run(
    builder: Builder, layer: AveragePool, tile: Tile, source: Placed, out: Placed,
    rows: tuple[int, int], columns: tuple[int, int], counts: list[list[int]],
) -> None:  # fmt: skip
    elements = counts[0][rows[0]] * counts[1][columns[0]]
    values = sum_descriptor(builder.graph, layer, layer.kernel[0] * layer.kernel[1], elements)
    parameters = builder.parameters(f"{layer.node}, of {elements}", Operation.SUM, values, [])
    pitch = source.pitch
    row, column = rows[0] - tile.rows[0], columns[0] - tile.columns[0]
    instruction = Vector(
        operation=Operation.SUM, blocks=tile.count, height=rows[1] - rows[0], width=columns[1] - columns[0],
        a_stride_block=source.plane if tile.count > 1 else 0,
        a_stride_y=layer.strides[0] * pitch if rows[1] - rows[0] > 1 else 0,
        out_stride_block=out.plane, out_stride_y=out.pitch, out_stride_x=1,
        window_height=layer.kernel[0], window_width=layer.kernel[1], window_step=layer.strides[1],
        window_stride_y=pitch if layer.kernel[0] > 1 else 0, window_stride_x=1,
    )  # fmt: skip
    builder.vector(
        instruction,
        (source.operand("a", row * layer.strides[0] * pitch + column * layer.strides[1]),),
        out.operand("out", row * out.pitch + column, write=True),
        parameters,
        builder.capture(layer.output, tile.batch, tile.blocks[0], rows[0], columns[0]),
    )


def _windows(total: int, most: int) -> list[tuple[int, int, int]]:
    """(first, windows, size): `total` in windows of `most`, and one more for the rest."""
    whole, rest = divmod(total, most)
    found = [(0, whole, most)] if whole else []
    return found + ([(whole * most, 1, rest)] if rest else [])


def schedule_global_average(builder: Builder, layer: GlobalAveragePool) -> None:
    """Emit a sum over height and width: partial sums of windows in ACC until one window remains."""
    config = builder.config
    x = builder.tensor(layer.input)
    batch, channels, height, width = x.view
    most, words = average_window(config), window_words(config)
    wide = width if most * width <= words else words // most // most * most
    strip = max(1, words // wide // most) * most
    area = min(strip, height) * wide
    partial = -(-height // most) * -(-width // most)
    per_tile = max(1, min(MAX_BLOCKS, words // area, config.acc_depth // partial // 2))
    for index in range(batch):
        for blocks in builder.block_parts(-(-channels // config.array), per_tile, [layer.input, layer.output]):
            _average_tile(builder, layer, index, blocks, (strip, wide))


def _sum(
    builder: Builder, source: Operand, out: Operand, size: tuple[int, int], pitch: int, plane: int,
    out_pitch: int, out_plane: int, blocks: int, out_memory: Memory,
    parameters: Buffer | None = None, capture: CaptureBox | None = None,
) -> None:  # fmt: skip
    """Sum windows over size[0] x size[1] words; results `out_pitch` apart.

    Where there is one row of windows, the channel blocks take the place of rows: sums of bf16 grow together within a
    block of an instruction only.
    """
    most = average_window(builder.config)
    for row_index, (first_y, rows, tall) in enumerate(_windows(size[0], most)):
        for column_index, (first_x, columns, wide) in enumerate(_windows(size[1], most)):
            loops = [(blocks, plane, out_plane), (rows, tall * pitch, out_pitch)]
            if rows == 1:
                loops.reverse()
            (outer, a_block, out_block), (inner, a_row, out_row) = loops
            instruction = Vector(
                operation=Operation.SUM,
                blocks=outer,
                height=inner,
                width=columns,
                a_memory=source.buffer.memory,
                a_stride_block=a_block if outer > 1 else 0,
                a_stride_y=a_row if inner > 1 else 0,
                out_memory=out_memory,
                out_stride_block=out_block if outer > 1 else 0,
                out_stride_y=out_row if inner > 1 else 0,
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
                (replace(source, offset=source.offset + first_y * pitch + first_x),),
                replace(out, offset=out.offset + row * out_pitch + column),
                parameters,
                capture,
            )


def _for_lanes(builder: Builder, number: NDArray[np.int32]) -> NDArray[np.uint32]:
    """The same parameter for all lanes of a block."""
    return np.broadcast_to(number.view(np.uint32), (1, builder.config.array))


def _average_tile(
    builder: Builder, layer: GlobalAveragePool, batch: int, blocks: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Average one image's blocks; `tile` is the most rows and columns to load at once."""
    config = builder.config
    most = average_window(config)
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    height, width = x.view[2:]
    count = blocks[1] - blocks[0]
    part = Region(y, config.array, batch, blocks, (0, 1), (0, 1))
    out = builder.result_tile(part)
    final = out.operand("out", write=True)
    capture = builder.capture(layer.output, batch, blocks[0], 0, 0, rows_are_blocks=True)

    def finish(source: Operand, size: tuple[int, int], pitch: int, plane: int) -> None:
        scaled = scaled_mean(builder.graph, layer)
        if scaled is not None:
            sums = Buffer(Memory.ACC, count, layer.output)
            place = Operand("out", sums, write=True)
            _sum(builder, source, place, size, pitch, plane, 1, 1, count, Memory.ACC)
            parameters = builder.parameters(
                layer.node, Operation.REQUANTIZE_FIXED, scaled[0], [_for_lanes(builder, one) for one in scaled[1]]
            )
            # all channel blocks have the same parameters, so that they take the place of rows
            instruction = Vector(
                operation=Operation.REQUANTIZE_FIXED, height=count, a_memory=Memory.ACC, a_stride_y=1,
                out_stride_y=out.plane if count > 1 else 0,
            )  # fmt: skip
            builder.vector(instruction, (Operand("a", sums),), final, parameters, capture)
            return
        values = sum_descriptor(builder.graph, layer, height * width, height * width)
        parameters = builder.parameters(layer.node, Operation.SUM, values, [])
        _sum(builder, source, final, size, pitch, plane, 1, out.plane, count, Memory.ACT, parameters, capture)

    if height <= most and width <= most:
        placed = builder.load_region(Region(x, config.array, batch, blocks, (0, height), (0, width)), 0)
        finish(placed.operand("a"), (height, width), placed.pitch, placed.plane)
    else:
        size = -(-height // most), -(-width // most)
        partial = Buffer(Memory.ACC, count * size[0] * size[1], layer.output)
        for first_y, first_x in product(range(0, height, tile[0]), range(0, width, tile[1])):
            rows, columns = (
                (first_y, min(height, first_y + tile[0])),
                (first_x, min(width, first_x + tile[1])),
            )
            region = Region(x, config.array, batch, blocks, rows, columns)
            placed = builder.load_region(region, 0)
            place = Operand("out", partial, first_y // most * size[1] + first_x // most, write=True)
            _sum(
                builder, placed.operand("a"), place, (region.rows, region.columns), placed.pitch,
                placed.plane, size[1], size[0] * size[1], count, Memory.ACC,
            )  # fmt: skip
        while max(size) > most:
            smaller = -(-size[0] // most), -(-size[1] // most)
            next_partial = Buffer(Memory.ACC, count * smaller[0] * smaller[1], layer.output)
            _sum(
                builder, Operand("a", partial), Operand("out", next_partial, write=True), size, size[1],
                size[0] * size[1], smaller[1], smaller[0] * smaller[1], count, Memory.ACC,
            )  # fmt: skip
            partial, size = next_partial, smaller
        finish(Operand("a", partial), size, size[1], size[0] * size[1])
    builder.store_result(part, out)
