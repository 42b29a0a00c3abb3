"""Convolution: tiles of output blocks, rows and columns; reductions in chunks that fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

import numpy as np
from npukit.compiler.arithmetic import requantize_descriptor, weights_of, window_border
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Convolution, DepthwiseConvolution
from npukit.compiler.limits import MAX_KERNEL
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.fusion import kept_together, take_in_place_of_store
from npukit.compiler.tasks import Buffer, Operand
from npukit.compiler.tiling import ConvShape, ConvTiling, parts
from npukit.isa.instructions import Matrix, Memory, Operation, Vector
from numpy.typing import NDArray

__all__ = [
    "Piece",
    "compute_tile",
    "pieces",
    "requantize_parameters",
    "schedule_convolution",
    "summands",
    "weight_tiles",
]

_Range = tuple[int, int]


def weight_tiles(weights: NDArray, size: int) -> NDArray:
    """[out, in, ky, kx] as tiles [out block][in block][ky][kx][in lane][out lane], padded with 0."""
    out, inner, height, width = weights.shape
    out_blocks, in_blocks = -(-out // size), -(-inner // size)
    padded = np.zeros((out_blocks * size, in_blocks * size, height, width), weights.dtype)
    padded[:out, :inner] = weights
    split = padded.reshape(out_blocks, size, in_blocks, size, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def summands(weights: NDArray) -> list[NDArray]:
    """Arrays of elements that add up to the weights: for 9 bits one int8 array, or, where needed, two or three."""
    if weights.dtype == np.uint16:
        return [weights]
    found: list[NDArray] = []
    rest = weights
    while not found or rest.any():
        part = rest.clip(-128, 127)
        found.append(part.astype(np.int8))
        rest = rest - part
    return found


@dataclass(frozen=True)
class Piece:
    """A dense convolution from some input blocks to some output blocks: a layer, or a part of a grouped one.

    tiles: the weights' summands, see `weight_tiles`.
    """

    layer: Convolution
    number: int
    first_in: int
    first_out: int
    tiles: tuple[NDArray, ...]

    @property
    def out_blocks(self) -> int:
        return self.tiles[0].shape[0]

    @property
    def in_blocks(self) -> int:
        return self.tiles[0].shape[1]


def pieces(graph: Graph, layer: Convolution, size: int) -> Iterator[Piece]:
    """Output blocks that need the same input blocks, with zeros where a group takes nothing from a channel."""
    kernel = weights_of(graph.constants[layer.weights])
    outer, inner = kernel.shape[:2]
    out_of_group = outer // layer.groups
    if layer.depth is not None:  # the channels of each image of the kernel fill words of their own
        images = kernel.reshape(outer, layer.depth.kernel, -1, *kernel.shape[2:])
        padded = np.pad(images, ((0, 0), (0, 0), (0, -images.shape[2] % size), (0, 0), (0, 0)))
        kernel = padded.reshape(outer, -1, *kernel.shape[2:])
        inner = kernel.shape[1]

    def sources(block: int) -> tuple[int, int]:
        groups = block * size // out_of_group, (min(outer, block * size + size) - 1) // out_of_group
        return groups[0] * inner // size, -(-(groups[1] + 1) * inner // size)

    runs = [(need, [*blocks]) for need, blocks in groupby(range(-(-outer // size)), sources)]
    for number, ((first_in, end_in), blocks) in enumerate(runs):
        channels = range(blocks[0] * size, min(outer, (blocks[-1] + 1) * size))
        weights = kernel[channels.start : channels.stop]
        if layer.groups > 1:
            dense = np.zeros((len(channels), (end_in - first_in) * size, *weights.shape[2:]), weights.dtype)
            for row, channel in enumerate(channels):
                start = channel // out_of_group * inner - first_in * size
                dense[row, start : start + inner] = weights[row]
            weights = dense
        tiles = tuple(weight_tiles(part, size) for part in summands(weights))
        yield Piece(layer, number, first_in, blocks[0], tiles)


def schedule_convolution(builder: Builder, layer: Convolution, follower: int | None = None) -> None:
    """Emit a convolution's tasks, and those of the layer of that number, which takes its result at once."""
    whole = ConvShape.of(builder.config, builder.graph, layer)
    for piece in pieces(builder.graph, layer, builder.config.array):
        tiling = builder.tiling(replace(whole, in_blocks=piece.in_blocks, out_blocks=piece.out_blocks))
        together = kept_together(builder, layer.output, follower)
        groups = builder.block_parts(piece.out_blocks, tiling.blocks, together, piece.first_out)
        for batch, group, rows, columns in _tiles(tiling.shape, tiling, groups):
            part, out = compute_tile(builder, piece, tiling, batch, group, rows, columns)
            if follower is None:
                builder.store_result(part, out)
                continue
            take_in_place_of_store(builder, follower, layer.output, part, out)


def _tiles(shape: ConvShape, tiling: ConvTiling, groups: list[_Range]) -> Iterator[tuple[int, _Range, _Range, _Range]]:
    places = [
        (batch, rows, columns)
        for batch in range(shape.batch)
        for rows in parts(shape.out_size[0], tiling.rows)
        for columns in parts(shape.out_size[1], tiling.columns)
    ]
    if tiling.weights_outer:
        for group in groups:
            for batch, rows, columns in places:
                yield batch, group, rows, columns
    else:
        for batch, rows, columns in places:
            for group in groups:
                yield batch, group, rows, columns


@dataclass(frozen=True)
class _Chunk:
    """Part of a summand of a piece's weights: output blocks, input blocks, rows and columns of the kernel.

    image: of the input that it is multiplied with. first: which of the weights' input blocks are that image's first.
    """

    summand: int
    blocks: _Range
    channels: _Range
    kernel_rows: _Range
    kernel_columns: _Range
    image: int
    first: int

    @property
    def ranges(self) -> tuple[_Range, _Range, _Range, _Range]:
        return self.blocks, self.channels, self.kernel_rows, self.kernel_columns


def _narrow(chunk: _Chunk) -> Iterator[_Chunk]:
    """Parts of a chunk whose kernels are no wider than an instruction allows: weights of one row follow each other."""
    for channel, row in product(range(*chunk.channels), range(*chunk.kernel_rows)):
        for columns in parts(chunk.kernel_columns[1], MAX_KERNEL):
            yield replace(chunk, channels=(channel, channel + 1), kernel_rows=(row, row + 1), kernel_columns=columns)


_MOSTLY = 0.5
"""A chunk of which so many tiles have weights is computed whole."""


def _with_weights(piece: Piece, chunk: _Chunk) -> list[_Chunk]:
    """A chunk of a later summand, which has weights in few places: the tiles where it has some, or all of it."""
    found = piece.tiles[chunk.summand][tuple(slice(*one) for one in chunk.ranges)].any(axis=(4, 5))
    if found.mean() > _MOSTLY:
        return [chunk]
    firsts = [one[0] for one in chunk.ranges]
    places = [[first + int(at) for first, at in zip(firsts, place, strict=True)] for place in np.argwhere(found)]
    return [
        _Chunk(chunk.summand, *((at, at + 1) for at in place), image=chunk.image, first=chunk.first) for place in places
    ]


def compute_tile(
    builder: Builder,
    piece: Piece,
    tiling: ConvTiling,
    batch: int,
    group: _Range,
    rows: _Range,
    columns: _Range,
    where: Placed | None = None,
) -> tuple[Region, Placed]:
    """Emit the tasks of a tile, without those that store it: which part of the result, and where it lies.

    where: that place; by default, where the builder wants it.
    """
    shape, layer = tiling.shape, piece.layer
    height, width, blocks = rows[1] - rows[0], columns[1] - columns[0], group[1] - group[0]
    size = builder.config.array
    target = piece.first_out + group[0], piece.first_out + group[1]
    seen = ((0, batch),) if layer.depth is None else layer.depth.seen(batch)
    parameters = requantize_parameters(builder, layer, target, [tap for tap, _ in seen])
    acc = Buffer(Memory.ACC, blocks * height * width, layer.output)
    chunks = [
        _Chunk(summand, group, (first + low, first + high), kernel, (0, shape.kernel[1]), image, first)
        for first, image in _images(layer, shape, seen)
        for low, high in builder.block_parts(_blocks(layer, shape), tiling.channels, [layer.input], piece.first_in)
        for kernel in parts(shape.kernel[0], tiling.kernel_rows)
        for summand in range(len(piece.tiles))
    ]
    if shape.kernel[1] > MAX_KERNEL:
        chunks = [part for chunk in chunks for part in _narrow(chunk)]
    # sums over parts of a tile wait for those over all of it to be written, so they come last
    chunks = [chunk for chunk in chunks if chunk.summand == 0] + [
        part for chunk in chunks if chunk.summand > 0 for part in _with_weights(piece, chunk)
    ]
    for index, chunk in enumerate(chunks):
        # weights first: they wait for no earlier layer
        wgt = _weights(builder, piece, shape, chunk)
        region = _input(builder, piece, shape, chunk, rows, columns)
        act = builder.load_region(region, window_border(builder.graph, layer))
        pitch, place = act.pitch, region.place
        channels, kernel = chunk.channels, (chunk.kernel_rows, chunk.kernel_columns)
        count, tall, wide = (end - first for first, end in (channels, *kernel))
        instruction = Matrix(
            accumulate=int(index > 0),
            channels=count,
            kernel_height=tall,
            kernel_width=wide,
            height=height,
            width=width,
            blocks=chunk.blocks[1] - chunk.blocks[0],
            act_stride_channel=(1 if place > 1 else act.plane) if count > 1 else 0,
            act_stride_kernel_y=shape.dilations[0] * pitch if tall > 1 else 0,
            act_stride_kernel_x=shape.dilations[1] if wide > 1 else 0,
            act_stride_y=_row_step(shape)[1] * pitch if height > 1 else 0,
            act_stride_x=shape.strides[1] * place if width > 1 else 0,
            acc_stride_block=height * width,
            acc_stride_y=width,
            acc_stride_x=1,
        )
        start = kernel[1][0] * shape.dilations[1]
        if not shape.by_row:
            start += kernel[0][0] * shape.dilations[0] * pitch
        start += channels[0] if place > 1 else 0
        first = (chunk.blocks[0] - group[0]) * height * width
        builder.matrix(instruction, act.operand("act", start), Operand("wgt", wgt), acc, first)
    part = Region(builder.tensor(layer.output), size, batch, target, rows, columns)
    where = where or builder.result_tile(part)
    instruction = Vector(
        operation=Operation.REQUANTIZE,
        blocks=blocks, height=height, width=width,
        a_memory=Memory.ACC, a_stride_block=height * width, a_stride_y=width, a_stride_x=1,
        out_stride_block=where.plane, out_stride_y=where.pitch, out_stride_x=1,
    )  # fmt: skip
    capture = builder.capture(layer.output, batch, target[0], rows[0], columns[0])
    builder.vector(instruction, (Operand("a", acc),), where.operand("out", write=True), parameters, capture)
    return part, where


def _blocks(layer: Convolution, shape: ConvShape) -> int:
    """Channel blocks of an image of the input that a piece takes."""
    return shape.in_blocks // (1 if layer.depth is None else layer.depth.kernel)


def _images(layer: Convolution, shape: ConvShape, seen: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of each image that a result sees: its first block among the weights' input blocks, and the image."""
    return ((tap * _blocks(layer, shape), image) for tap, image in seen)


def requantize_parameters(
    builder: Builder, layer: Convolution | DepthwiseConvolution, blocks: _Range, taps: Sequence[int] = (0,)
) -> Buffer:
    """REQUANTIZE's descriptor, and the parameters of some output blocks, in PAR.

    taps: which images of a kernel of three dimensions see the input.
    """
    deep = isinstance(layer, Convolution) and layer.depth is not None
    label = f" images {' '.join(map(str, taps))}," if deep else ""
    arrays = builder.channels(layer, tuple(taps) if deep else None)
    return builder.parameters(
        f"{layer.node}, blocks {blocks[0]} to {blocks[1]},{label}",
        Operation.REQUANTIZE,
        requantize_descriptor(builder.graph, layer),
        [array[block : block + 1] for block in range(*blocks) for array in arrays],
    )


def _row_step(shape: ConvShape) -> tuple[int, int]:
    """From one row of a tile's result to the next: rows of the image between two that are loaded, and of those."""
    return (shape.strides[0], 1) if shape.kernel[0] == 1 or shape.by_row else (1, shape.strides[0])


def _input(builder: Builder, piece: Piece, shape: ConvShape, chunk: _Chunk, rows: _Range, columns: _Range) -> Region:
    layer = piece.layer
    first_y = rows[0] * shape.strides[0] - layer.pads[0]
    if shape.by_row:
        first_y += chunk.kernel_rows[0] * shape.dilations[0]
    first_x = columns[0] * shape.strides[1] - layer.pads[1]
    step, _ = _row_step(shape)
    last_y = first_y + (shape.input_rows(rows[1] - rows[0]) - 1) * step + 1
    last_x = first_x + shape.input_columns(columns[1] - columns[0])
    x = builder.tensor(layer.input)
    first, end = (piece.first_in + block - chunk.first for block in chunk.channels)
    return Region(x, builder.config.array, chunk.image, (first, end), (first_y, last_y), (first_x, last_x), step)


def _weights(builder: Builder, piece: Piece, shape: ConvShape, chunk: _Chunk) -> Buffer:
    size, (blocks, channels, rows, columns) = builder.config.array, chunk.ranges
    tiles = piece.tiles[chunk.summand]
    name = builder.constant(f"{piece.layer.node} weights {piece.number}.{chunk.summand}", lambda: tiles)
    kernel_row = shape.kernel[1] * size
    block = shape.kernel[0] * kernel_row
    if rows[1] - rows[0] == shape.kernel[0] and columns[1] - columns[0] == shape.kernel[1]:
        run = (channels[1] - channels[0]) * block
    else:
        run = (rows[1] - rows[0]) * (columns[1] - columns[0]) * size
    return builder.load_constant(
        Memory.WGT,
        (name, *chunk.ranges),
        name,
        run,
        piece.layer.node,
        planes=blocks[1] - blocks[0],
        offset=(blocks[0] * shape.in_blocks + channels[0]) * block + rows[0] * kernel_row + columns[0] * size,
        plane_stride=shape.in_blocks * block,
    )
