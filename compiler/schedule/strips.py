"""Chains of layers, strip by strip, so that what is between them never leaves the chip.

A convolution, the depthwise convolution or maximum that reads it, and often the 1x1 convolution that follows: the
blocks of MobileNets. A strip is some rows of the second layer's result. For a few channel blocks at a time, the rows of
the first layer's result that the strip looks at are computed into a buffer with a border, and the second layer reads
them there. The rows that two strips share are computed twice. When a strip has all channel blocks, the 1x1 convolution
sums over them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from npukit.compiler.arithmetic import depthwise_operation, requantize_operation, window_border
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Convolution, DepthwiseConvolution, MaxPool
from npukit.compiler.limits import MAX_BLOCKS, MAX_ROWS, MAX_STRIDE
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.conv import Piece, compute_tiles, pieces, requantize_parameters
from npukit.compiler.schedule.fusion import kept_together, take_in_place_of_store
from npukit.compiler.schedule.window import Tile, window_tasks
from npukit.compiler.tasks import Buffer, Operand
from npukit.compiler.tiling import KEEP, ConvShape, ConvTiling, depthwise_blocks, parameter_words, parts
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Matrix, Memory, Vector

__all__ = ["Chain", "plan_chain", "schedule_chain"]

_BUFFERS = 3
"""Buffers between the first two layers, used in turn."""
_WASTE = 1.6
"""How many rows may be computed for each row that is needed."""
_FULL = 0.75
"""Share of ACT that a chain of three layers may take."""
_BEHIND = 2
"""Parts of a strip that are computed before the last strip's product, so that VECTOR has work meanwhile."""


@dataclass(frozen=True)
class Chain:
    """Numbers of layers that are computed together, and how.

    first: a convolution. window: the layer that reads it. product: the 1x1 convolution that reads that, or None.
    rows: of the second layer's result in a strip. blocks: channel blocks of a buffer. tall, wide: rows and columns of
    a block in it, border included. tile_rows, tile_blocks, channels: of the convolution's tiles. words: of ACT, about.
    """

    first: int
    window: int
    product: int | None
    rows: int
    blocks: int
    tall: int
    wide: int
    tile_rows: int
    tile_blocks: int
    channels: int
    words: int


def plan_chain(config: NpuConfig, graph: Graph, first: int, second: int, product: int | None) -> Chain | None:
    """How to compute layers together, or None where memories are too small or too much would be computed twice."""
    conv, window = graph.operations[first], graph.operations[second]
    assert isinstance(conv, Convolution) and isinstance(window, DepthwiseConvolution | MaxPool)
    x, e, y = (graph.tensors[name] for name in (conv.input, conv.output, window.output))
    if conv.groups > 1 or window.dilations != (1, 1) or e.view != graph.tensors[window.input].view:
        return None
    shape = ConvShape.of(config, graph, conv)
    if shape.by_row:
        return None
    kernel = graph.kernel(window)
    # every element between the two is computed, be it used or not: somebody may look
    for axis in (0, 1):
        reached = (y.view[2 + axis] - 1) * window.strides[axis] - window.pads[axis] + kernel[axis]
        if reached < e.view[2 + axis] or kernel[axis] < window.strides[axis]:
            return None
        # a window of nothing but border is left to the layers by themselves
        if window.pads[axis] >= kernel[axis] or reached - e.view[2 + axis] >= kernel[axis]:
            return None
    wide = (y.view[3] - 1) * window.strides[1] + kernel[1]
    columns = e.view[3]
    total = config.act_depth * config.act_banks
    room = min(config.act_depth, total // (2 * _BUFFERS))
    room = min(room, MAX_STRIDE)
    if columns < 1 or columns > config.acc_depth or wide > MAX_ROWS or kernel[0] * wide > room:
        return None
    height = y.view[2]
    rows = min(height, (min(room // wide, MAX_ROWS) - kernel[0]) // window.strides[0] + 1)
    if product is not None:
        # all that an output block of the product takes its weights from is there at once
        if y.view[3] > config.acc_depth or -(-y.view[1] // config.array) * config.array > config.wgt_depth // 3:
            return None
        rows = min(rows, -(-height // 3)) if rows < height else rows

    def words(rows: int) -> int:
        """Of the buffers between, the input, two strips of the second layer's result, and tiles of the product's."""
        tall = (rows - 1) * window.strides[0] + kernel[0]
        source = shape.in_blocks * shape.input_rows(min(tall, e.view[2])) * shape.input_columns(columns)
        strips = 1 if rows == height else 2
        return _BUFFERS * tall * wide + source + strips * shape.out_blocks * rows * y.view[3] + 4 * config.acc_depth

    if product is not None:
        while rows and words(rows) > _FULL * total:
            rows -= 1
        if not rows:
            return None
    rows = -(-height // -(-height // rows))
    tall = (rows - 1) * window.strides[0] + kernel[0]
    needed = min(e.view[2], (height - 1) * window.strides[0] + kernel[0])
    if -(-height // rows) * tall > _WASTE * needed + kernel[0]:
        return None

    # the convolution's tiles: rows that fit in ACC, and an input that fits in a bank
    tile_rows = min(tall, e.view[2], config.acc_depth // columns)
    plane = least = 0
    while tile_rows:
        plane = shape.input_rows(tile_rows) * shape.input_columns(columns)
        least = plane * shape.in_blocks if shape.folded else plane
        if least <= config.act_depth:
            break
        tile_rows -= 1
    if not tile_rows:
        return None
    channels = shape.in_blocks if shape.folded else min(shape.in_blocks, config.act_depth // plane)
    strip_input = shape.in_blocks * shape.input_rows(min(tall, e.view[2])) * shape.input_columns(columns)
    weights = shape.in_blocks * shape.kernel[0] * shape.kernel[1] * config.array
    if strip_input > total * KEEP / 2 or weights > config.wgt_depth // 3:
        return None
    if rows < height and weights * shape.out_blocks > config.wgt_depth * KEEP:
        return None
    most = min(room // (tall * wide), max(1, config.act_depth // 2 // (rows * y.view[3])), shape.out_blocks)
    most = min(most, max(1, (config.par_depth // 4 - 1) // shape.parameters))
    if isinstance(window, DepthwiseConvolution):
        most = min(most, depthwise_blocks(config, kernel, depthwise_operation(window)) // 2)
    most = min(most, MAX_BLOCKS)
    if most < 1 or rows * y.view[3] > config.act_depth:
        return None
    tile_blocks = min(most, config.acc_depth // (tile_rows * columns), config.wgt_depth // 3 // weights)
    blocks = max(tile_blocks, most // tile_blocks * tile_blocks)
    strips = 1 if rows == height else 2
    results = (2 * blocks if product is None else strips * shape.out_blocks) * rows * y.view[3]
    used = _BUFFERS * blocks * tall * wide + strip_input + results
    return Chain(first, second, product, rows, blocks, tall, wide, tile_rows, tile_blocks, channels, used)


def schedule_chain(builder: Builder, chain: Chain, followers: Sequence[int]) -> None:
    """Emit a chain's tasks; `followers` are the numbers of layers that take the last one's result in turn."""
    _Strips(builder, chain, followers).run()


_Range = tuple[int, int]


@dataclass
class _Between:
    """A buffer between the first two layers, and what its border is good for: rows at the top and at the bottom."""

    buffer: Buffer
    plane: int = 0
    top: int = 0
    bottom: int = 0


class _Strips:
    def __init__(self, builder: Builder, chain: Chain, followers: Sequence[int]) -> None:
        self.builder, self.chain, self.followers = builder, chain, followers
        config, layers = builder.config, builder.graph.operations
        conv, window = layers[chain.first], layers[chain.window]
        assert isinstance(conv, Convolution) and isinstance(window, DepthwiseConvolution | MaxPool)
        self.window = window
        self.e, self.y = builder.tensor(conv.output), builder.tensor(window.output)
        (self.piece,) = pieces(builder.graph, conv, config.array)
        whole = ConvShape.of(config, builder.graph, conv)
        shape = replace(whole, in_blocks=self.piece.in_blocks, out_blocks=self.piece.out_blocks)
        self.columns = self.e.view[3]
        self.tiling = ConvTiling(
            shape, chain.tile_blocks, chain.tile_rows, self.columns, chain.channels, shape.kernel[0], False
        )
        words = chain.blocks * chain.tall * chain.wide
        self.between = [_Between(Buffer(Memory.ACT, words, conv.output)) for _ in range(_BUFFERS)]
        self.turn = 0

    def run(self) -> None:
        """All strips, and in each all channel blocks; a strip's product comes when the next strip has begun."""
        waiting: Iterator[None] | None = None
        for batch in range(self.e.view[0]):
            for rows in parts(self.y.view[2], self.chain.rows):
                strip: list[tuple[_Range, Buffer]] = []
                for number, blocks in enumerate(self._block_parts()):
                    strip.append((blocks, self._part(batch, rows, blocks)))
                    if waiting is not None and number + 1 >= _BEHIND:
                        _finish(waiting)
                        waiting = None
                if waiting is not None:
                    _finish(waiting)
                waiting = self._product(batch, rows, strip) if self.chain.product is not None else None
        if waiting is not None:
            _finish(waiting)

    def _block_parts(self) -> list[_Range]:
        """Channel blocks of the second layer that are computed at once."""
        names = ()
        if self.chain.product is None:
            names = kept_together(self.builder, self.window.output, self.followers)
        return self.builder.block_parts(self.piece.out_blocks, self.chain.blocks, names)

    def _part(self, batch: int, rows: _Range, blocks: _Range) -> Buffer:
        """Some channel blocks of a strip of the second layer: their buffer, which is stored if nothing follows."""
        window, chain = self.window, self.chain
        builder = self.builder.of(chain.first)
        kernel = builder.graph.kernel(window)
        first = rows[0] * window.strides[0] - window.pads[0]
        last = (rows[1] - 1) * window.strides[0] - window.pads[0] + kernel[0]
        inside = max(first, 0), min(last, self.e.view[2])
        between = self.between[self.turn]
        self.turn = (self.turn + 1) % len(self.between)
        tall, count = last - first, blocks[1] - blocks[0]
        plane = tall * chain.wide
        self._border(between, tall, inside[0] - first, last - inside[1])
        for part in parts(inside[1] - inside[0], chain.tile_rows):
            place = inside[0] + part[0], inside[0] + part[1]
            for group in parts(count, chain.tile_blocks):
                at = group[0] * plane + (place[0] - first) * chain.wide + window.pads[1]
                where = Placed(between.buffer, at, plane, chain.wide)
                target = blocks[0] + group[0], blocks[0] + group[1]
                compute_tiles(builder, self.piece, self.tiling, (batch,), target, place, (0, self.columns), where)
        builder = self.builder.of(chain.window)
        tile = Tile(batch, blocks, rows, (0, self.y.view[3]))
        part = Region(self.y, builder.config.array, batch, blocks, rows, tile.columns)
        source = Placed(between.buffer, 0, plane, chain.wide)
        if chain.product is None:
            out = builder.result_tile(part)
            window_tasks(builder, window, kernel, tile, source, out)
            take_in_place_of_store(builder, self.followers, window.output, part, out)
        else:
            out = Placed(Buffer(Memory.ACT, part.words, part.tensor), 0, part.rows * part.pitch, part.pitch)
            window_tasks(builder, window, kernel, tile, source, out)
        return out.buffer

    def _border(self, between: _Between, tall: int, top: int, bottom: int) -> None:
        """Make the border of a buffer's blocks what the second layer expects around an image: of all of them, for the
        next part that comes here may have more."""
        builder, wide = self.builder.of(self.chain.first), self.chain.wide
        value = window_border(builder.graph, self.window)
        plane, left = tall * wide, self.window.pads[1]
        right = wide - left - self.columns
        before, between.plane = between.plane, plane
        fresh = before != plane and (not before or self.chain.blocks > 1)
        if fresh:
            for at, columns in ((0, left), (wide - right, right)):
                if columns:
                    builder.fill_part(between.buffer, value, at, (self.chain.blocks, tall, columns), (plane, wide))
        elif before < plane:
            # of rows that the last strip there did not have
            start = before // wide
            for at, columns in ((start * wide, left), (start * wide + wide - right, right)):
                if columns:
                    builder.fill_part(between.buffer, value, at, (1, tall - start, columns), (0, wide))
        if top and (fresh or between.top < top):
            builder.fill_part(between.buffer, value, 0, (self.chain.blocks, top, wide), (plane, wide))
        if bottom and (fresh or before != plane or between.bottom < bottom):
            builder.fill_part(
                between.buffer, value, (tall - bottom) * wide, (self.chain.blocks, bottom, wide), (plane, wide)
            )
        between.top, between.bottom = top, bottom

    def _product(self, batch: int, rows: _Range, strip: list[tuple[_Range, Buffer]]) -> Iterator[None]:
        """A strip of the 1x1 convolution: a tile at each step."""
        number = self.chain.product
        assert number is not None
        builder = self.builder.of(number)
        layer = builder.graph.operations[number]
        assert isinstance(layer, Convolution)
        config, z = builder.config, builder.tensor(layer.output)
        (piece,) = pieces(builder.graph, layer, config.array)
        width, size = self.y.view[3], config.array
        most = max(1, (config.par_depth // 4 - 1) // parameter_words(config, requantize_operation(layer)))
        room = min(config.acc_depth, config.act_depth)
        for part in parts(rows[1] - rows[0], max(1, min(rows[1] - rows[0], room // width))):
            height = part[1] - part[0]
            words = height * width
            weights = config.wgt_depth // 3 // (piece.in_blocks * size)
            largest = max(1, min(room // words, most, weights, MAX_BLOCKS))
            together = kept_together(builder, layer.output, self.followers)
            for group in builder.block_parts(piece.out_blocks, largest, together):
                acc = Buffer(Memory.ACC, (group[1] - group[0]) * words, layer.output)
                self._sums(builder, layer, piece, strip, group, acc, part, (rows[1] - rows[0], width))
                place = (rows[0] + part[0], rows[0] + part[1]), (0, width)
                self._take(builder, layer, acc, Region(z, size, batch, group, *place))
                yield

    def _sums(
        self, builder: Builder, layer: Convolution, piece: Piece, strip: list[tuple[_Range, Buffer]], group: _Range,
        acc: Buffer, part: _Range, size: tuple[int, int],
    ) -> None:  # fmt: skip
        """Sums of some output blocks over all channels of rows `part` of a strip; `size`: its rows and columns."""
        lanes, (tall, width) = builder.config.array, size
        words = (part[1] - part[0]) * width

        def multiply(block: int, blocks: _Range, wgt: Operand, accumulate: bool) -> None:
            held, source = next(one for one in strip if one[0][0] <= blocks[0] < one[0][1])
            count = blocks[1] - blocks[0]
            instruction = Matrix(
                accumulate=int(accumulate), channels=count, height=part[1] - part[0], width=width,
                act_stride_channel=tall * width if count > 1 else 0, act_stride_y=width, act_stride_x=1,
                acc_stride_y=width, acc_stride_x=1,
            )  # fmt: skip
            act = Operand("act", source, ((blocks[0] - held[0]) * tall + part[0]) * width)
            builder.matrix(instruction, act, wgt, acc, (block - group[0]) * words)

        for index, (blocks, _) in enumerate(strip):
            for block in range(*group):
                wgt, offset = self._weights(builder, layer, piece.tiles[0], block, group)
                multiply(block, blocks, Operand("wgt", wgt, offset + blocks[0] * lanes), index > 0)
        for number, tiles in enumerate(piece.tiles[1:], 1):  # what exceeds 8 bits, where there is some
            name = builder.constant(f"{layer.node} weights {number}", lambda tiles=tiles: tiles)
            for row, block in np.argwhere(tiles[slice(*group)].any(axis=(2, 3, 4, 5))):
                at = int((group[0] + row) * piece.in_blocks + block) * lanes
                wgt = builder.load_constant(Memory.WGT, (name, at), name, lanes, layer.node, offset=at)
                multiply(group[0] + int(row), (int(block), int(block) + 1), Operand("wgt", wgt), True)

    def _weights(
        self, builder: Builder, layer: Convolution, tiles: np.ndarray, block: int, group: _Range
    ) -> tuple[Buffer, int]:
        """The buffer that holds an output block's weights, and where in it they begin."""
        run = tiles.shape[1] * builder.config.array
        name = builder.constant(f"{layer.node} weights", lambda: tiles)
        blocks = (0, len(tiles)) if len(tiles) * run <= builder.config.wgt_depth // 4 else group
        buffer = builder.load_constant(
            Memory.WGT, (name, blocks), name, run, layer.node, planes=blocks[1] - blocks[0], offset=blocks[0] * run,
            plane_stride=run,
        )  # fmt: skip
        return buffer, (block - blocks[0]) * run

    def _take(self, builder: Builder, layer: Convolution, acc: Buffer, part: Region) -> None:
        """Requantise a tile of the 1x1 convolution, and store it, or what the followers make of it."""
        parameters = requantize_parameters(builder, layer, part.block)
        plane, width = part.rows * part.columns, part.columns
        out = builder.result_tile(part)
        instruction = Vector(
            operation=requantize_operation(layer),
            blocks=part.blocks, height=part.rows, width=width,
            a_memory=Memory.ACC, a_stride_block=plane, a_stride_y=width, a_stride_x=1,
            out_stride_block=out.plane, out_stride_y=out.pitch, out_stride_x=1,
        )  # fmt: skip
        capture = builder.capture(layer.output, part.batch, part.block[0], part.first_y, 0)
        builder.vector(instruction, (Operand("a", acc),), out.operand("out", write=True), parameters, capture)
        take_in_place_of_store(builder, self.followers, layer.output, part, out)


def _finish(tiles: Iterator[None]) -> None:
    for _ in tiles:
        pass
