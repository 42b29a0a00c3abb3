"""Softmax: exponentials of a place's channels over their sum.

Tiles are turned around, so that a word holds a channel of as many places as it has lanes. Then the largest channel, the
sum, and what becomes of each channel are found in every lane by itself, word by word in the order of the channels; and
the result is turned back.
"""

from collections.abc import Iterator

from npukit.compiler.arithmetic import softmax_descriptor
from npukit.compiler.ir.operations import Softmax
from npukit.compiler.limits import MAX_BLOCKS
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.schedule.turning import Turned, turn
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import parts, softmax_loops, softmax_tile_words
from npukit.isa.descriptors import TABLE_ENTRIES
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = ["schedule_softmax"]

_INDEX = {"ra": 1.0, "rb": -1.0, "offset": 127.0, "low": -128, "high": 127}
"""Of ADD: what a number is away from the largest one, as a table's source."""


def schedule_softmax(builder: Builder, layer: Softmax) -> None:
    """Emit the tasks of a softmax: some places after the other, whole tiles first."""
    softmax = _Softmax(builder, layer)
    size, places = builder.config.array, softmax.places
    whole = places // size
    at_once = max(1, min(MAX_BLOCKS, softmax_tile_words(builder.config) // softmax.words))
    for first, last in parts(whole, at_once) if whole else ():
        softmax.tiles(first * size, last * size)
    if places % size:
        softmax.tiles(whole * size, places)


class _Softmax:
    """A softmax that is scheduled.

    Attributes:
        places: of the tensor. channels: of each. blocks: of channels. words: of a group of places, turned around.
    """

    def __init__(self, builder: Builder, layer: Softmax) -> None:
        self._builder, self._layer = builder, layer
        x, y = builder.tensor(layer.input), builder.tensor(layer.output)
        images, self.channels, height, width = y.view
        self.places = images * height * width
        self._lanes = size = builder.config.array
        self.blocks = -(-self.channels // size)
        self.words = self.blocks * size
        row = (1, self.channels, 1, self.places)
        self._source, self._result = x.seen_as(x.storage, row), y.seen_as(y.storage, row)
        values = softmax_descriptor(builder.graph, layer)
        table = {name: values[name] for name in (f"entry_{index}" for index in range(TABLE_ENTRIES))}
        self._sums = builder.parameters(f"{layer.node} exponentials", Operation.TABLE_SUM, table, [])
        self._quotients = builder.parameters(f"{layer.node} quotients", Operation.TABLE_DIVIDE, values, [])
        self._index = builder.parameters("distance from the largest", Operation.ADD, _INDEX, [])

    def tiles(self, first: int, last: int) -> None:
        """Emit the tasks of some places: whole tiles, or less than one."""
        builder, size, count = self._builder, self._lanes, last - first
        groups = -(-count // size)
        source = Region(self._source, size, 0, (0, self.blocks), (0, 1), (first, last))
        result = Region(self._result, size, 0, (0, self.blocks), (0, 1), (first, last))
        numbers = turn(builder, builder.load_tile(source, 0), self.blocks, count, self._layer.input)
        found = self._quotients_of(self._distances(numbers))
        whole = groups * size == count
        out = builder.result_tile(result)
        back = out.buffer if whole else Buffer(Memory.ACT, self.words, self._layer.output)
        capture = CaptureBox(self._layer.output, first, size, self.places, 1)
        plane = groups * size
        instruction = Vector(
            operation=Operation.TRANSPOSE, blocks=groups, height=self.blocks, width=size,
            a_stride_block=self.words, a_stride_y=size, a_stride_x=1,
            out_stride_block=size, out_stride_y=plane, out_stride_x=1,
        )  # fmt: skip
        builder.vector(
            instruction, (Operand("a", found.buffer),), Operand("out", back, write=True), None,
            capture if whole else None,
        )  # fmt: skip
        if not whole:
            copy = Vector(
                operation=Operation.COPY, height=self.blocks, width=count, a_stride_y=plane, a_stride_x=1,
                out_stride_y=count, out_stride_x=1,
            )  # fmt: skip
            builder.vector(copy, (Operand("a", back),), Operand("out", out.buffer, write=True), None, capture)
        builder.store_result(result, out)

    def _distances(self, numbers: Turned) -> Turned:
        """What each number is away from the largest of its place, as sources of the table."""
        largest = self._largest(numbers)
        rows, columns = self._loops
        out = Buffer(Memory.ACT, numbers.buffer.words, self._layer.output)
        instruction = Vector(
            operation=Operation.ADD, blocks=numbers.groups, height=rows, width=columns,
            a_stride_block=self.words, a_stride_y=columns, a_stride_x=1, b_stride_block=1,
            out_stride_block=self.words, out_stride_y=columns, out_stride_x=1,
        )  # fmt: skip
        operands = Operand("a", numbers.buffer), Operand("b", largest)
        self._builder.vector(instruction, operands, Operand("out", out, write=True), self._index)
        return Turned(out, numbers.groups, self.words)

    @property
    def _loops(self) -> tuple[int, int]:
        """Rows and columns in which an instruction goes through a place's channels."""
        found = softmax_loops(self.channels)
        assert found is not None  # else it is not legal
        return found

    def _largest(self, numbers: Turned) -> Buffer:
        """The largest of each place's channels, a word for each group: of windows, and again of these, until one is
        left."""
        source, count = numbers, self.channels
        while True:
            windows = [*_windows(count, self._builder.config.max_window)]
            words = sum(number for _, number, _ in windows)
            out = Turned(Buffer(Memory.ACT, numbers.groups * words, self._layer.output), numbers.groups, words)
            at = 0
            for first, number, (height, width) in windows:
                instruction = Vector(
                    operation=Operation.MAX, blocks=numbers.groups, height=number,
                    a_stride_block=source.words, a_stride_y=height * width,
                    window_height=height, window_width=width, window_stride_y=width, window_stride_x=1,
                    out_stride_block=words, out_stride_y=1,
                )  # fmt: skip
                target = Operand("out", out.buffer, at, write=True)
                self._builder.vector(instruction, (Operand("a", source.buffer, first),), target)
                at += number
            if words == 1:
                return out.buffer
            source, count = out, words

    def _quotients_of(self, distances: Turned) -> Turned:
        """What becomes of each number; words of channels that there are not are 0."""
        builder, groups = self._builder, distances.groups
        rows, columns = self._loops
        sums = Buffer(Memory.ACC, groups, self._layer.output)
        summing = Vector(
            operation=Operation.TABLE_SUM, blocks=groups, height=rows, width=columns,
            a_stride_block=self.words, a_stride_y=columns, a_stride_x=1,
            out_memory=Memory.ACC, out_stride_block=1,
        )  # fmt: skip
        source = Operand("a", distances.buffer)
        builder.vector(summing, (source,), Operand("out", sums, write=True), self._sums)
        out = Buffer(Memory.ACT, distances.buffer.words, self._layer.output)
        dividing = Vector(
            operation=Operation.TABLE_DIVIDE, blocks=groups, height=rows, width=columns,
            a_memory=Memory.ACC, a_stride_block=1,
            b_stride_block=self.words, b_stride_y=columns, b_stride_x=1,
            out_stride_block=self.words, out_stride_y=columns, out_stride_x=1,
        )  # fmt: skip
        operands = Operand("a", sums), Operand("b", distances.buffer)
        builder.vector(dividing, operands, Operand("out", out, write=True), self._quotients)
        missing = self.words - self.channels
        if missing:
            builder.fill_part(out, 0, self.channels, (1, groups, missing), (0, self.words))
        return Turned(out, groups, self.words)


def _windows(count: int, most: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Windows that cover so many words: the first word, how many follow each other, and their height and width."""
    first = 0
    while first < count:
        rest = count - first
        width = min(rest, most)
        height = min(rest // width, most)
        number = rest // (height * width)
        yield first, number, (height, width)
        first += number * height * width
