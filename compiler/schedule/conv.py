"""Convolution: tiles of output blocks, rows and columns; reductions in chunks that fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

import numpy as np
from npukit.compiler.arithmetic import requantize_descriptor, requantize_operation, weights_of, window_border
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
    "compute_tiles",
    "convolution_steps",
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


def schedule_convolution(builder: Builder, layer: Convolution, followers: Sequence[int] = ()) -> None:
    """Emit a convolution's tasks, and those of the layers of those numbers, which take its result in turn."""
    for _ in convolution_steps(builder, layer, followers):
        pass


def convolution_steps(builder: Builder, layer: Convolution, followers: Sequence[int] = ()) -> Iterator[None]:
    """The same, a tile with each step."""
    whole = ConvShape.of(builder.config, builder.graph, layer)
    for piece in pieces(builder.graph, layer, builder.config.array):
        tiling = builder.tiling(replace(whole, in_blocks=piece.in_blocks, out_blocks=piece.out_blocks))
        together = kept_together(builder, layer.output, followers)
        groups = builder.block_parts(piece.out_blocks, tiling.blocks, together, piece.first_out)
        for images, group, rows, columns in _tiles(tiling.shape, tiling, groups):
            for part, out in compute_tiles(builder, piece, tiling, images, group, rows, columns):
                take_in_place_of_store(builder, followers, layer.output, part, out)
                yield


def _tiles(
    shape: ConvShape, tiling: ConvTiling, groups: list[_Range]
) -> Iterator[tuple[range, _Range, _Range, _Range]]:
    places = [
        (range(*images), rows, columns)
        for images in parts(shape.batch, tiling.images)
        for rows in parts(shape.out_size[0], tiling.rows)
        for columns in parts(shape.out_size[1], tiling.columns)
    ]
    if tiling.weights_outer:
        for group in groups:
            for images, rows, columns in places:
                yield images, group, rows, columns
    else:
        for images, rows, columns in places:
            for group in groups:
                yield images, group, rows, columns


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


def compute_tiles(
    builder: Builder, piece: Piece, tiling: ConvTiling, images: Sequence[int], group: _Range, rows: _Range,
    columns: _Range, where: Placed | None = None,
) -> list[tuple[Region, Placed]]:  # fmt: skip
    """Emit the tasks of a tile of each of some images, without those that store it: which part of the result each is,
    and where it lies. Several images are whole ones, which share the weights that are loaded.

    where: the place of the only tile; by default, where the builder wants it.
    """
    shape, layer = tiling.shape, piece.layer
    height, width, blocks = rows[1] - rows[0], columns[1] - columns[0], group[1] - group[0]
    target = piece.first_out + group[0], piece.first_out + group[1]
    seen = ((0, 0),) if layer.depth is None else layer.depth.seen(images[0])
    results = _sums_as_they_are if builder.tensor(layer.output).parts > 1 else _requantised
    leaving = results(builder, layer, target, [tap for tap, _ in seen])
    storage = builder.tensor(layer.input).storage
    in_line = len(images) > 1 and shape.in_line and storage not in builder.residents
    sums = _Sums.of(builder, layer, shape, (blocks, len(images), height, width), in_line)
    for index, chunk in enumerate(_chunks(builder, piece, tiling, group, seen)):
        # weights first: they wait for no earlier layer
        wgt = _weights(builder, piece, shape, chunk)
        first = chunk.blocks[0] - group[0]
        sources = [chunk.image] if layer.depth is not None else [*images]
        regions = [_input(builder, piece, shape, replace(chunk, image=image), rows, columns) for image in sources]
        if in_line:
            words = regions[0].words
            buffer = builder.load_tiles(regions, window_border(builder.graph, layer))
            act = Placed(buffer, 0, regions[0].rows * regions[0].pitch, regions[0].pitch)
            places = (len(images), shape.line, words, shape.strides[1], shape.line)
            _multiply(builder, shape, chunk, index > 0, act, 1, places, wgt, sums, first * sums.block)
            continue
        for position, region in enumerate(regions):
            act = builder.load_region(region, window_border(builder.graph, layer))
            down = _row_step(shape)[1] * act.pitch
            places = (height, width, down, shape.strides[1] * region.place, width)
            start = first * sums.block + position * sums.image
            _multiply(builder, shape, chunk, index > 0, act, region.place, places, wgt, sums, start)
    return [
        _leave(builder, layer, image + part * shape.batch, target, (rows, columns), way, sums, position, where)
        for position, image in enumerate(images)
        for part, way in enumerate(leaving)
    ]


@dataclass(frozen=True)
class _Sums:
    """Sums of a tile in ACC: words from one image, one channel block, and one row to the next."""

    buffer: Buffer
    image: int
    block: int
    row: int

    @classmethod
    def of(
        cls, builder: Builder, layer: Convolution, shape: ConvShape, sizes: tuple[int, int, int, int], in_line: bool
    ) -> "_Sums":
        """Room for the sums of so many blocks, images, rows and columns."""
        blocks, images, height, width = sizes
        if in_line:
            image, pitch = shape.line, shape.input_columns(width)
            return cls(Buffer(Memory.ACC, blocks * images * image, layer.output), image, images * image, pitch)
        place = height * width
        return cls(Buffer(Memory.ACC, images * blocks * place, layer.output), blocks * place, place, width)


def _chunks(
    builder: Builder, piece: Piece, tiling: ConvTiling, group: _Range, seen: Sequence[tuple[int, int]]
) -> list[_Chunk]:
    """What is multiplied one after the other, for some output blocks."""
    shape, layer = tiling.shape, piece.layer
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
    return [chunk for chunk in chunks if chunk.summand == 0] + [
        part for chunk in chunks if chunk.summand > 0 for part in _with_weights(piece, chunk)
    ]


def _multiply(
    builder: Builder, shape: ConvShape, chunk: _Chunk, accumulate: bool, act: Placed, place: int,
    places: tuple[int, int, int, int, int], wgt: Buffer, sums: _Sums, first: int,
) -> None:  # fmt: skip
    """Emit a MATRIX task.

    Args:
        builder, shape, chunk: what is computed.
        accumulate: whether it adds to what is there.
        act: where the input lies, of `place` words for each place.
        places: rows and columns of the result, words of the input from one to the next of each, and words of ACC from
            one row to the next.
        wgt: the weights.
        sums, first: where the sums go, from which word on.
    """
    height, width, down, across, row = places
    pitch = act.pitch
    channels, kernel = chunk.channels, (chunk.kernel_rows, chunk.kernel_columns)
    count, tall, wide = (end - start for start, end in (channels, *kernel))
    instruction = Matrix(
        accumulate=int(accumulate),
        channels=count,
        kernel_height=tall,
        kernel_width=wide,
        height=height,
        width=width,
        blocks=chunk.blocks[1] - chunk.blocks[0],
        act_stride_channel=(1 if place > 1 else act.plane) if count > 1 else 0,
        act_stride_kernel_y=shape.dilations[0] * pitch if tall > 1 else 0,
        act_stride_kernel_x=shape.dilations[1] if wide > 1 else 0,
        act_stride_y=down if height > 1 else 0,
        act_stride_x=across if width > 1 else 0,
        acc_stride_block=sums.block,
        acc_stride_y=row,
        acc_stride_x=1,
    )
    start = kernel[1][0] * shape.dilations[1]
    if not shape.by_row:
        start += kernel[0][0] * shape.dilations[0] * pitch
    start += channels[0] if place > 1 else 0
    builder.matrix(instruction, act.operand("act", start), Operand("wgt", wgt), sums.buffer, first)


_Leaving = tuple[Operation, Buffer]
"""The operation that takes sums out of ACC, and its parameters."""


def _requantised(builder: Builder, layer: Convolution, blocks: _Range, taps: Sequence[int]) -> list[_Leaving]:
    return [(requantize_operation(layer), requantize_parameters(builder, layer, blocks, taps))]


def _sums_as_they_are(builder: Builder, layer: Convolution, blocks: _Range, taps: Sequence[int]) -> list[_Leaving]:
    return [
        (Operation.PART, builder.parameters(f"part {part}", Operation.PART, {"part": part}, []))
        for part in range(builder.tensor(layer.output).parts)
    ]


def _leave(
    builder: Builder, layer: Convolution, image: int, target: _Range, places: tuple[_Range, _Range],
    way: _Leaving, sums: _Sums, position: int, where: Placed | None,
) -> tuple[Region, Placed]:  # fmt: skip
    """Emit a VECTOR task of a tile of an image of the result."""
    (rows, columns), (operation, parameters) = places, way
    part = Region(builder.tensor(layer.output), builder.config.array, image, target, rows, columns)
    where = where or builder.result_tile(part)
    instruction = Vector(
        operation=operation,
        blocks=target[1] - target[0], height=rows[1] - rows[0], width=columns[1] - columns[0],
        a_memory=Memory.ACC, a_stride_block=sums.block, a_stride_y=sums.row, a_stride_x=1,
        out_stride_block=where.plane, out_stride_y=where.pitch, out_stride_x=1,
    )  # fmt: skip
    capture = builder.capture(layer.output, image, target[0], rows[0], columns[0])
    source = Operand("a", sums.buffer, position * sums.image)
    builder.vector(instruction, (source,), where.operand("out", write=True), parameters, capture)
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
        requantize_operation(layer),
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
