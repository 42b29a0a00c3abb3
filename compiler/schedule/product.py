"""Products of two activations: tiles of one are the weights.

The sums of int8 are of numbers with their zero points, and less what is too much:

    sum((a - x) * (b - y)) = sum(a * b) + sum(-x * b) + sum(a * -y) + inner * x * y

The second and the third sum are products as well, one with a word that is -x everywhere, one with tiles that are -y;
the last term is REQUANTIZE's bias. The second is the same for all rows: it is made once for a block of columns, and
copied to where the sums of all rows begin.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
from npukit.compiler.arithmetic import border, product_parameters, requantize_descriptor, zero_point
from npukit.compiler.ir.operations import MatrixProduct
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.limits import MAX_CHANNELS, MAX_COLUMNS
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.tasks import Buffer, Operand
from npukit.compiler.tiling import parts
from npukit.isa.instructions import Matrix, Memory, Operation, Vector
from numpy.typing import NDArray

__all__ = ["Product", "schedule_product"]

_Range = tuple[int, int]


def schedule_product(builder: Builder, layer: MatrixProduct) -> None:
    """Emit the tasks of a product: matrix by matrix, and of each a block of columns after the other."""
    product = Product(builder, layer)
    for index in range(product.matrices):
        for rows in parts(product.rows, product.most_rows):
            product.some_rows(index, rows)


class Product:
    """A product that is scheduled.

    Attributes:
        rows, inner, columns: of each matrix. blocks: of columns.
        matrices: how many the result has.
        most_rows: of a tile.
    """

    def __init__(self, builder: Builder, layer: MatrixProduct) -> None:
        self._builder, self._layer = builder, layer
        config = builder.config
        left, right, result = (builder.tensor(name) for name in (layer.left, layer.right, layer.output))
        self._lanes = size = config.array
        self.rows, self.inner = left.shape[-2:]
        self.columns = right.shape[-1]
        self.blocks, self._steps = -(-self.columns // size), -(-self.inner // size)
        self._sides = _matrices(left.shape[:-2], right.shape[:-2], result.shape[:-2])
        self.matrices = len(self._sides)
        self._turned = right.channel_axis == len(right.shape) - 2
        """Whether the words of the right side hold what is summed up."""
        self._left = _as_rows(left, self.rows)
        self._right = _as_rows(right, self.columns if self._turned else self.inner)
        self._result = _as_rows(result, self.rows)
        self._zeros = (0, 0) if left.format.floating else (zero_point(left), zero_point(right))
        self._firsts: tuple[int, dict[int, Buffer]] = (-1, {})
        # few banks hold both sides, the result and the next tile's
        bank = config.act_depth if config.act_banks > 2 else config.act_depth // 4
        sums = config.acc_depth if config.acc_banks > 2 else max(1, config.acc_depth // 4)
        self.most_rows = min(self.rows, sums, MAX_COLUMNS, bank // 2)
        room = bank // max(self.most_rows, size), config.wgt_depth // (4 * size)
        self._chunk = max(1, min(self._steps, MAX_CHANNELS, *room))
        self._words = product_parameters(builder.graph, layer, size)
        self._for_all = None if layer.bias is not None else self._load_parameters(f"{layer.node} product", self._words)

    def some_rows(self, index: int, rows: _Range, left: Placed | None = None, out: Placed | None = None) -> None:
        """Emit the tasks of some rows of a matrix, a block of columns after the other.

        Args:
            index: of the matrix, in the result.
            rows: which.
            left: where those of the left side are on chip; None: where the tensor is.
            out: where on chip those of the result are to be, which then are not stored; None: where the tensor is.
        """
        sums = self._begin(index, rows, 0)
        for block in range(self.blocks):
            # what the next block begins with is made meanwhile
            following = self._begin(index, rows, block + 1) if block + 1 < self.blocks else sums
            self._tile(index, rows, block, sums, left, out)
            sums = following

    def _begin(self, index: int, rows: _Range, block: int) -> Buffer:
        """Room for the sums of some rows of a block of columns; and emit the tasks of what they begin with."""
        builder, count = self._builder, rows[1] - rows[0]
        sums = Buffer(Memory.ACC, count, self._layer.output)
        if not self._same_for_rows(count):
            return sums
        first = self._first_of(self._sides[index][1], block)
        copy = Vector(operation=Operation.COPY, width=count, a_memory=Memory.ACC, out_memory=Memory.ACC, out_stride_x=1)
        builder.vector(copy, (Operand("a", first),), Operand("out", sums, write=True))
        return sums

    def _first_of(self, right: int, block: int) -> Buffer:
        """What the left side's zero point adds to a block of columns: the same for all rows of a matrix."""
        if self._firsts[0] != right:
            self._firsts = right, {}
        known = self._firsts[1]
        if block not in known:
            known[block] = first = Buffer(Memory.ACC, 1, self._layer.output)
            begun = False
            for steps in parts(self._steps, self._chunk):
                tiles = self._tiles(right, block, steps)
                for value in _as_elements(-self._zeros[0]):
                    self._multiply(self._word(value), tiles, steps, 1, first, begun)
                    begun = True
        return known[block]

    def _tile(
        self, index: int, rows: _Range, block: int, sums: Buffer, left: Placed | None, out: Placed | None
    ) -> None:
        """Emit the tasks of some rows of a block of columns, into sums that may have begun."""
        builder, layer, count = self._builder, self._layer, rows[1] - rows[0]
        begun = self._same_for_rows(count)
        matrix, right = self._sides[index]
        for steps in parts(self._steps, self._chunk):
            if left is not None:
                act = left.behind(steps[0] * left.plane)
            else:
                act = builder.load_region(Region(self._left, self._lanes, 0, steps, (matrix, matrix + 1), rows), 0)
            tiles = self._tiles(right, block, steps)
            for source, weights in self._terms(act, tiles, steps, count):
                self._multiply(source, weights, steps, count, sums, begun)
                begun = True
        part = Region(self._result, self._lanes, 0, (block, block + 1), (index, index + 1), rows)
        where = builder.result_tile(part) if out is None else out.behind(block * out.plane)
        requantise = Vector(
            operation=Operation.REQUANTIZE, width=count, a_memory=Memory.ACC, a_stride_x=1, out_stride_x=1
        )
        capture = builder.capture(layer.output, 0, block, 0, index * self.rows + rows[0])
        builder.vector(
            requantise, (Operand("a", sums),), where.operand("out", write=True), self._parameters(block), capture
        )
        if out is None:
            builder.store_result(part, where)

    def _parameters(self, block: int) -> Buffer:
        """REQUANTIZE's of a block of columns."""
        if self._for_all is not None:
            return self._for_all
        words = [one[block : block + 1] for one in self._words]
        return self._load_parameters(f"{self._layer.node} product {block}", words)

    def _load_parameters(self, name: str, words: list[NDArray]) -> Buffer:
        descriptor = requantize_descriptor(self._builder.graph, self._layer)
        return self._builder.parameters(name, Operation.REQUANTIZE, descriptor, words)

    def _same_for_rows(self, count: int) -> bool:
        """Whether what the left side's zero point adds is made once for so many rows, which pays from a tile's on."""
        return self._zeros[0] != 0 and count > self._lanes

    def _multiply(
        self, source: Placed, weights: Buffer, steps: _Range, count: int, sums: Buffer, accumulate: bool
    ) -> None:
        """Emit a MATRIX task for so many rows."""
        instruction = Matrix(
            accumulate=int(accumulate), channels=steps[1] - steps[0], width=count,
            act_stride_channel=source.plane, act_stride_x=source.pitch, acc_stride_x=1,
        )  # fmt: skip
        self._builder.matrix(instruction, source.operand("act"), Operand("wgt", weights), sums)

    def _word(self, value: int) -> Placed:
        """A word of one number, which is that of all rows and of all that is summed up."""
        buffer = self._builder.resident(
            Memory.ACT, ("word", value), 1, f"{value} everywhere",
            lambda buffer: self._builder.fill_part(buffer, value, 0, (1, 1, 1), (0, 0)),
        )  # fmt: skip
        return Placed(buffer, 0, 0, 0)

    def _terms(self, act: Placed, tiles: Buffer, steps: _Range, count: int) -> Iterator[tuple[Placed, Buffer]]:
        """What is multiplied with what for so many rows, words of `pitch` 0 being the same for all of them."""
        yield Placed(act.buffer, act.offset, act.plane, 1), tiles
        if not self._same_for_rows(count):
            for value in _as_elements(-self._zeros[0]):
                yield self._word(value), tiles
        for value in _as_elements(-self._zeros[1]):
            yield Placed(act.buffer, act.offset, act.plane, 1), self._constant_tiles(value, steps)

    def _constant_tiles(self, value: int, steps: _Range) -> Buffer:
        """Tiles of one number, in as many rows as numbers are summed up."""
        size = self._lanes

        def rows() -> NDArray[np.int8]:
            found = np.zeros((self._steps * size, size), np.int8)
            found[: self.inner] = value
            return found

        name = self._builder.constant(f"{self._layer.node} weights of {value}", rows)
        words = (steps[1] - steps[0]) * size
        return self._builder.load_constant(Memory.WGT, (name, steps), name, words, name, offset=steps[0] * size)

    def _tiles(self, matrix: int, block: int, steps: _Range) -> Buffer:
        """Tiles of the right side: a block of its columns, some blocks of what is summed up."""
        size = self._lanes
        words = (steps[1] - steps[0]) * size
        empty = max(0, steps[1] * size - self.inner)
        """Rows of the last tile that sum nothing up."""

        def fill(buffer: Buffer) -> None:
            if self._turned:
                self._turn(buffer, matrix, block, steps)
            else:
                inner = steps[0] * size, min(self.inner, steps[1] * size)
                row = Region(self._right, size, 0, (block, block + 1), (matrix, matrix + 1), inner)
                self._builder.load_weights(row, 0, buffer)
            if empty:
                self._builder.fill_part(buffer, 0, words - empty, (1, 1, empty), (0, 0))

        key = ("tiles", self._layer.output, matrix, block, steps)
        return self._builder.resident(Memory.WGT, key, words, f"{self._right.storage} as weights", fill)

    def _turn(self, buffer: Buffer, matrix: int, block: int, steps: _Range) -> None:
        """Emit what turns tiles around on their way to WGT."""
        size = self._lanes
        columns = block * size, block * size + size
        region = Region(self._right, size, 0, steps, (matrix, matrix + 1), columns)
        source = self._builder.load_region(region, border(self._right))
        instruction = Vector(
            operation=Operation.TRANSPOSE, blocks=steps[1] - steps[0], width=size,
            a_stride_block=source.plane, a_stride_x=1, out_memory=Memory.WGT, out_stride_block=size, out_stride_x=1,
        )  # fmt: skip
        self._builder.vector(instruction, (source.operand("a"),), Operand("out", buffer, write=True))


def _as_rows(tensor: Tensor, places: int) -> Tensor:
    """A tensor as an image with a row for each matrix."""
    channels = tensor.view[1]
    return tensor.seen_as(tensor.storage, (1, channels, prod(tensor.shape) // channels // places, places))


def _matrices(left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]) -> list[tuple[int, int]]:
    """Of each matrix of the result, in order, which of both sides it is made of."""
    numbers = (np.arange(prod(shape)).reshape(shape) for shape in (left, right))
    both = [np.broadcast_to(one, result).reshape(-1) for one in numbers]
    return [(int(one), int(other)) for one, other in zip(*both, strict=True)]


def _as_elements(value: int) -> list[int]:
    """int8 numbers that add up to a number that may have a bit more; none for 0."""
    if value == 0:
        return []
    return [value] if value <= 127 else [value // 2, value - value // 2]
