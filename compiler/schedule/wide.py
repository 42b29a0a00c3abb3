"""Depthwise convolutions of which some weights have 9 bits, where VECTOR's multipliers take 8.

The channel blocks that have such weights are computed by the array, as a convolution whose weights are a diagonal for
each tap, and what exceeds 8 bits is added in another pass over the taps where there is some.
"""

from dataclasses import replace

import numpy as np
from npukit.compiler.arithmetic import requantize_operation, weights_of
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import DepthwiseConvolution
from npukit.compiler.schedule.builder import Builder, Placed
from npukit.compiler.schedule.conv import requantize_parameters, summands, weight_tiles
from npukit.compiler.tasks import Buffer, Operand
from npukit.compiler.tiling import parts
from npukit.isa.instructions import Matrix, Memory, Vector
from numpy.typing import NDArray

__all__ = ["schedule_wide_block", "wide_blocks"]

_Range = tuple[int, int]


def wide_blocks(graph: Graph, layer: DepthwiseConvolution, size: int) -> frozenset[int]:
    """Channel blocks of `size` channels that have weights which are no int8."""
    weights = weights_of(graph.constants[layer.weights])
    if graph.tensor(layer.input).format.floating:
        return frozenset()
    outside = ((weights < -128) | (weights > 127)).reshape(len(weights), -1).any(axis=1)
    return frozenset(int(channel) // size for channel in np.flatnonzero(outside))


def schedule_wide_block(
    builder: Builder, layer: DepthwiseConvolution, batch: int, block: int, rows: _Range, columns: _Range,
    source: Placed, out: Placed,
) -> None:  # fmt: skip
    """Emit the tasks of a block of a tile.

    Args:
        builder: which they are emitted to.
        layer: the convolution.
        batch, block, rows, columns: which part of its result.
        source: where the tile's windows in this block begin.
        out: where the part begins.
    """
    depth, width = builder.config.acc_depth, columns[1] - columns[0]
    parameters = requantize_parameters(builder, layer, (block, block + 1))
    for across in parts(width, depth):
        wide = across[1] - across[0]
        for down in parts(rows[1] - rows[0], max(1, depth // wide)):
            tall = down[1] - down[0]
            acc = Buffer(Memory.ACC, tall * wide, layer.output)
            first = down[0] * layer.strides[0] * source.pitch + across[0] * layer.strides[1]
            _sum(builder, layer, block, (tall, wide), source.operand("act", first), source.pitch, acc)
            instruction = Vector(
                operation=requantize_operation(layer), height=tall, width=wide, a_memory=Memory.ACC, a_stride_y=wide,
                a_stride_x=1, out_stride_y=out.pitch, out_stride_x=1,
            )  # fmt: skip
            place = out.operand("out", down[0] * out.pitch + across[0], write=True)
            capture = builder.capture(layer.output, batch, block, rows[0] + down[0], columns[0] + across[0])
            builder.vector(instruction, (Operand("a", acc),), place, parameters, capture)


def _sum(
    builder: Builder, layer: DepthwiseConvolution, block: int, size: tuple[int, int], source: Operand, pitch: int,
    acc: Buffer,
) -> None:  # fmt: skip
    """Sums over the kernel of all elements of a part, in ACC."""
    (tall, wide), (kernel_rows, kernel_columns) = size, builder.graph.kernel(layer)
    strides, dilations, lanes = layer.strides, layer.dilations, builder.config.array
    for number, tiles in enumerate(_tiles(builder.graph, layer, block, lanes)):
        name = builder.constant(f"{layer.node} weights of block {block}.{number}", lambda tiles=tiles: tiles)
        # of the first summand all taps, of another those that have weights
        taps = [(0, kernel_rows, 0, kernel_columns)]
        if number:
            places = np.argwhere(tiles.any(axis=(2, 3)))
            taps = [(int(row), 1, int(column), 1) for row, column in places]
        for row, count_rows, column, count_columns in taps:
            wgt = builder.load_constant(
                Memory.WGT, (name, row, column), name, count_rows * count_columns * lanes, layer.node,
                offset=(row * kernel_columns + column) * lanes,
            )  # fmt: skip
            instruction = Matrix(
                accumulate=int(number > 0), kernel_height=count_rows, kernel_width=count_columns,
                height=tall, width=wide,
                act_stride_kernel_y=dilations[0] * pitch if count_rows > 1 else 0,
                act_stride_kernel_x=dilations[1] if count_columns > 1 else 0,
                act_stride_y=strides[0] * pitch if tall > 1 else 0,
                act_stride_x=strides[1] if wide > 1 else 0,
                acc_stride_y=wide, acc_stride_x=1,
            )  # fmt: skip
            start = source.offset + row * dilations[0] * pitch + column * dilations[1]
            builder.matrix(instruction, replace(source, offset=start), Operand("wgt", wgt), acc)


def _tiles(graph: Graph, layer: DepthwiseConvolution, block: int, lanes: int) -> list[NDArray]:
    """The summands of a block's weights as diagonals: [kernel rows][kernel columns][in lane][out lane] each."""
    weights = weights_of(graph.constants[layer.weights])[block * lanes : (block + 1) * lanes]
    dense = np.zeros((len(weights), len(weights), *weights.shape[2:]), weights.dtype)
    own = np.arange(len(weights))
    dense[own, own] = weights[:, 0]
    return [weight_tiles(part, lanes)[0, 0] for part in summands(dense)]
