"""Softmax: exponentials of a place's channels over their sum.

Tiles are turned around, so that a word holds a channel of as many places as it has lanes. Then the largest channel, the
sum, and what becomes of each channel are found in every lane by itself, word by word in the order of the channels; and
the result is turned back.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

from npukit.compiler.arithmetic import softmax_descriptor
from npukit.compiler.ir.operations import Softmax
from npukit.compiler.limits import MAX_BLOCKS, MAX_COLUMNS
from npukit.compiler.lines import descriptor_of, exponential, reciprocal
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.schedule.turning import Turned, turn
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import parts, softmax_accumulators, softmax_loops, softmax_tile_words
from npukit.isa.descriptors import TABLE_ENTRIES, Indexing
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = ["schedule_softmax", "softmax_of"]

_INDEX = {"ra": 1.0, "rb": -1.0, "offset": 127.0, "low": -128, "high": 127}
"""Of ADD: what a number is away from the largest one, as a table's source."""


def schedule_softmax(builder: Builder, layer: Softmax) -> None:
    """Emit the tasks of a softmax: some places after the other, whole tiles first."""
    softmax = softmax_of(builder, layer)
    size, places = builder.config.array, softmax.places
    whole = places // size
    for first, last in parts(whole, softmax.at_once) if whole else ():
        softmax.tiles(first * size, last * size)
    if places % size:
        softmax.tiles(whole * size, places)


def softmax_of(builder: Builder, layer: Softmax) -> "_Softmax":
    """What schedules a softmax part by part."""
    return (_FloatSoftmax if builder.config.activation.floating else _IntegerSoftmax)(builder, layer)


class _Softmax:
    """A softmax that is scheduled.

    Attributes:
        places: of the tensor. channels: of each. blocks: of channels. words: of a group of places, turned around.
        at_once: groups of a tile.
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
        self.at_once = max(1, min(MAX_BLOCKS, softmax_tile_words(builder.config) // self.words))

    def _fractions(self, numbers: Turned) -> Turned:
        """What becomes of each number; words of channels that there are not are not written."""
        raise NotImplementedError

    def tiles(self, first: int, last: int) -> None:
        """Emit the tasks of some places: whole tiles, or less than one."""
        source, result = (
            Region(tensor, self._lanes, 0, (0, self.blocks), (0, 1), (first, last))
            for tensor in (self._source, self._result)
        )
        out = self._builder.result_tile(result)
        self.take(self._builder.load_tile(source, 0), first, last, out.buffer)
        self._builder.store_result(result, out)

    def take(self, source: Buffer, first: int, last: int, out: Buffer) -> None:
        """Emit the tasks of places that are on chip, words [block][place], whose result goes to words like these."""
        builder, size, count = self._builder, self._lanes, last - first
        groups, whole = -(-count // size), count // size
        found = self._fractions(turn(builder, source, self.blocks, count, self._layer.input))
        missing = self.words - self.channels
        if missing:
            builder.fill_part(found.buffer, 0, self.channels, (1, groups, missing), (0, self.words))
        back = Vector(
            operation=Operation.TRANSPOSE, blocks=whole, height=self.blocks, width=size,
            a_stride_block=self.words, a_stride_y=size, a_stride_x=1,
            out_stride_block=size, out_stride_y=count, out_stride_x=1,
        )  # fmt: skip
        if whole:
            capture = CaptureBox(self._layer.output, first, size, self.places, 1)
            builder.vector(back, (Operand("a", found.buffer),), Operand("out", out, write=True), None, capture)
        rest, begin = count - whole * size, whole * size
        if rest:  # of the last group's words, fewer than are turned back
            tile = Buffer(Memory.ACT, self.words, self._layer.output)
            alone = replace(back, blocks=1, out_stride_y=size)
            operands = (Operand("a", found.buffer, whole * self.words),)
            builder.vector(alone, operands, Operand("out", tile, write=True))
            copy = Vector(
                operation=Operation.COPY, height=self.blocks, width=rest, a_stride_y=size, a_stride_x=1,
                out_stride_y=count, out_stride_x=1,
            )  # fmt: skip
            capture = CaptureBox(self._layer.output, first + begin, size, self.places, 1)
            target = Operand("out", out, begin, write=True)
            builder.vector(copy, (Operand("a", tile),), target, None, capture)

    @property
    def _loops(self) -> tuple[int, int]:
        """Rows and columns in which an instruction goes through a place's channels."""
        found = softmax_loops(self.channels)
        assert found is not None  # else it is not legal
        return found


class _IntegerSoftmax(_Softmax):
    """Sums of a table's exponentials, and their quotients, as ONNX Runtime's QLinearSoftmax has them."""

    def __init__(self, builder: Builder, layer: Softmax) -> None:
        super().__init__(builder, layer)
        values = softmax_descriptor(builder.graph, layer)
        table = {name: values[name] for name in (f"entry_{index}" for index in range(TABLE_ENTRIES))}
        self._sums = builder.parameters(f"{layer.node} exponentials", Operation.TABLE_SUM, table, [])
        self._quotients = builder.parameters(f"{layer.node} quotients", Operation.TABLE_DIVIDE, values, [])
        self._index = builder.parameters("distance from the largest", Operation.ADD, _INDEX, [])

    def _fractions(self, numbers: Turned) -> Turned:
        return self._quotients_of(self._distances(numbers))

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
        """What becomes of each number, by what it is away from the largest."""
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
        return Turned(out, groups, self.words)


class _FloatSoftmax(_Softmax):
    """Exponentials by straight lines, summed up in binary32, times the reciprocal of their sum."""

    def __init__(self, builder: Builder, layer: Softmax) -> None:
        super().__init__(builder, layer)
        config = builder.config
        # the sums of a tile's windows, and some of what its numbers are away from the largest
        self._room = softmax_accumulators(config)
        self.at_once = min(self.at_once, self._room // -(-self.channels // config.max_window))
        lines = exponential()
        unlimited = {"low": -inf, "high": inf}
        self._constants: dict[str, tuple[Operation, dict[str, Any]]] = {
            "unlimited": (Operation.ADD, unlimited),
            "negative": (Operation.SUM, {**unlimited, "multiplier": -1.0}),
            "exponentials": (
                Operation.FUNCTION, descriptor_of(lines.table, Indexing.VALUE, lines.step, lines.offset),
            ),
            "reciprocals": (Operation.FUNCTION, descriptor_of(reciprocal(), Indexing.RECIPROCAL)),
        }  # fmt: skip

    def _constant(self, name: str) -> Buffer:
        """A descriptor by its name."""
        return self._builder.parameters(f"{self._layer.node} {name}", *self._constants[name], [])

    def _fractions(self, numbers: Turned) -> Turned:
        builder, groups = self._builder, numbers.groups
        exponentials = self._exponentials_of(numbers)
        sums = self._over_windows(exponentials, Operation.SUM, Memory.ACC)
        inverse = Buffer(Memory.ACC, groups, self._layer.output)
        invert = Vector(
            operation=Operation.FUNCTION, width=groups, a_memory=Memory.ACC, a_stride_x=1,
            out_memory=Memory.ACC, out_stride_x=1,
        )  # fmt: skip
        builder.vector(
            invert, (Operand("a", sums),), Operand("out", inverse, write=True), self._constant("reciprocals")
        )
        rows, columns = self._loops
        out = Buffer(Memory.ACT, numbers.buffer.words, self._layer.output)
        instruction = Vector(
            operation=Operation.MULTIPLY, blocks=groups, height=rows, width=columns,
            a_memory=Memory.ACC, a_stride_block=1,
            b_stride_block=self.words, b_stride_y=columns, b_stride_x=1,
            out_stride_block=self.words, out_stride_y=columns, out_stride_x=1,
        )  # fmt: skip
        operands = Operand("a", inverse), Operand("b", exponentials.buffer)
        builder.vector(instruction, operands, Operand("out", out, write=True), self._constant("unlimited"))
        return Turned(out, groups, self.words)

    def _exponentials_of(self, numbers: Turned) -> Turned:
        """e to the power of what each number is away from the largest one of its place."""
        builder, groups = self._builder, numbers.groups
        largest = self._over_windows(numbers, Operation.MAX, Memory.ACT)
        negative = Buffer(Memory.ACT, groups, self._layer.output)
        negate = Vector(operation=Operation.SUM, width=groups, window_stride_x=1, out_stride_x=1)
        builder.vector(
            negate, (Operand("a", largest),), Operand("out", negative, write=True), self._constant("negative")
        )
        out = Buffer(Memory.ACT, numbers.buffer.words, self._layer.output)
        for first, last in parts(self.channels, max(1, min(self._room // groups, MAX_COLUMNS))):
            count = last - first
            distances = Buffer(Memory.ACC, groups * count, self._layer.output)
            subtract = Vector(
                operation=Operation.ADD, blocks=groups, width=count, a_stride_block=self.words, a_stride_x=1,
                b_stride_block=1, out_memory=Memory.ACC, out_stride_block=count, out_stride_x=1,
            )  # fmt: skip
            operands = Operand("a", numbers.buffer, first), Operand("b", negative)
            builder.vector(subtract, operands, Operand("out", distances, write=True), self._constant("unlimited"))
            look_up = Vector(
                operation=Operation.FUNCTION, blocks=groups, width=count, a_memory=Memory.ACC, a_stride_block=count,
                a_stride_x=1, out_stride_block=self.words, out_stride_x=1,
            )  # fmt: skip
            target = Operand("out", out, first, write=True)
            builder.vector(look_up, (Operand("a", distances),), target, self._constant("exponentials"))
        return Turned(out, groups, self.words)

    def _over_windows(self, numbers: Turned, operation: Operation, memory: Memory) -> Buffer:
        """What an operation makes of `max_window` of each place's channels after the other, and again of these, until
        one is left: a word for each group."""
        source, count = numbers, self.channels
        while True:
            most = min(count, self._builder.config.max_window)
            whole, rest = divmod(count, most)
            words = whole + (rest > 0)
            out = Turned(Buffer(memory, numbers.groups * words, self._layer.output), numbers.groups, words)
            for first, number, width in ((0, whole, most), (whole, 1, rest)):
                if not width:
                    continue
                # many results at once, as each addition takes its time
                instruction = Vector(
                    operation=operation, height=numbers.groups, width=number,
                    a_memory=source.buffer.memory, a_stride_y=source.words,
                    window_width=width, window_step=most, window_stride_x=1,
                    out_memory=memory, out_stride_y=words, out_stride_x=1,
                )  # fmt: skip
                operands = (Operand("a", source.buffer, first * most),)
                self._builder.vector(instruction, operands, Operand("out", out.buffer, first, write=True))
            if words == 1:
                return out.buffer
            source, count = out, words


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
