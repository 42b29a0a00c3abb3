"""Which words an instruction touches: one statement for the functional simulator and the validator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Generic, TypeVar

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words, parameter_words
from npukit.isa.instructions import REDUCTION_OPERATIONS, Instruction, Load, Matrix, Memory, Store, Vector
from numpy.typing import NDArray

__all__ = ["Operand", "bank_depth", "boxes", "dram_operand", "operands"]

T = TypeVar("T")
Loop = tuple[int, int]
"""(count, stride in words)"""


class _Once(Generic[T]):
    """A property that is computed once. functools' takes a lock, which here takes longer than most of what it guards;
    two threads would only compute the same twice."""

    def __init__(self, function: Callable[["Operand"], T]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: "Operand", owner: type) -> T:
        found = vars(instance)[self._name] = self._function(instance)
        return found


@dataclass(frozen=True)
class Operand:
    """Words that an instruction reads or writes in one bank (or, with memory None, in DRAM).

    `loops` are the instruction's own, outermost first, so that an index into `words()` means the
    same for all operands of an element-wise instruction.
    """

    name: str
    memory: Memory | None
    bank: int
    offset: int
    loops: tuple[Loop, ...]
    wrap: int = 0
    write: bool = False

    @_Once
    def extent(self) -> tuple[int, int]:
        """Smallest and largest word address, rings resolved."""
        low = high = self.offset
        for count, stride in self.loops:
            if stride < 0:
                low += (count - 1) * stride
            else:
                high += (count - 1) * stride
        if self.wrap:
            ring = self.offset >> self.wrap << self.wrap
            if low < ring or high >= ring + (1 << self.wrap):
                return ring, ring + (1 << self.wrap) - 1
        return low, high

    @_Once
    def wraps(self) -> bool:
        """Whether an address really passes its ring's end."""
        if not self.wrap:
            return False
        ring = self.offset >> self.wrap << self.wrap
        plain = Operand(self.name, self.memory, self.bank, self.offset, self.loops)
        low, high = plain.extent
        return low < ring or high >= ring + (1 << self.wrap)

    @_Once
    def run(self) -> tuple[int, int] | None:
        """First word and one past the last, if the words are all that lie between; None if not, or if a ring wraps."""
        if self.wrap and self.wraps:
            return None
        reach = 1
        for stride, count in sorted((abs(stride), count) for count, stride in self.loops if count > 1):
            if stride > reach:
                return None
            reach += stride * (count - 1)
        low = self.extent[0]
        return low, low + reach

    @property
    def count(self) -> int:
        """Places of the loops."""
        return prod(count for count, _ in self.loops)

    @_Once
    def repeats(self) -> bool:
        """Whether the loops come to a word twice."""
        if self.run is not None:
            return self.run[1] - self.run[0] != self.count
        low, high = self.extent
        if self.count > high - low + 1:
            return True
        if self.memory is None:  # rows of words that follow each other: there may be too many words to look at each
            rows = np.sort(self.part(len(self.loops) - 1, 0, 1).words().reshape(-1))
            return bool((np.diff(rows) < self.loops[-1][0]).any())
        return np.unique(self.words()).size != self.count

    def part(self, axis: int, first: int, end: int) -> "Operand":
        """The operand with only the passes `first` to `end` - 1 of one loop."""
        count, stride = self.loops[axis]
        if (first, end) == (0, count):
            return self
        offset = self.offset + first * stride
        if self.wrap:
            mask = (1 << self.wrap) - 1
            offset = (self.offset & ~mask) | (offset & mask)
        loops = (*self.loops[:axis], (end - first, stride), *self.loops[axis + 1 :])
        return Operand(self.name, self.memory, self.bank, offset, loops, self.wrap, self.write)

    def box(self, ranges: Sequence[tuple[int, int]]) -> "Operand":
        """The operand with only those passes of its first loops."""
        found = self
        for axis, (first, end) in enumerate(ranges):
            found = found.part(axis, first, end)
        return found

    def distinct(self) -> slice | NDArray[np.int64]:
        """The words by address, each once and in order: a slice where they follow each other, which is much faster.

        Takes time and memory by the words between the least and the greatest, however long the loops are.
        """
        if self.run is not None:
            return slice(*self.run)
        low, high = self.extent
        ring = 1 << self.wrap if self.wraps else 0
        touched = np.zeros(high - low + 1, np.bool_)
        touched[self.offset - low] = True
        for count, stride in self.loops:
            if ring:
                stride %= ring
                count = min(count, ring // gcd(stride, ring))
            elif stride == 0:
                count = 1
            done = 1
            while done < count:  # what the first passes touch, moved on, is what as many further ones do
                more = min(done, count - done)
                touched |= _moved(touched, more * stride, bool(ring))
                done += more
        return np.nonzero(touched)[0] + low

    def words(self) -> NDArray[np.int64]:
        """Word addresses, shaped by the loops."""
        address = np.zeros((1,) * len(self.loops), np.int64)
        for axis, (count, stride) in enumerate(self.loops):
            shape = [1] * len(self.loops)
            shape[axis] = count
            address = address + (np.arange(count, dtype=np.int64) * stride).reshape(shape)
        address = address + self.offset
        if self.wrap:
            mask = (1 << self.wrap) - 1
            address = (self.offset & ~mask) | (address & mask)
        return address


def boxes(counts: Sequence[int], most: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Loops in parts of at most `most` passes of the innermost, in order: the first pass of each loop, and one past the
    last."""
    inner = prod(counts[1:])
    if prod(counts) <= most:
        yield tuple((0, count) for count in counts)
        return
    step = max(1, most // inner)
    for first in range(0, counts[0], step):
        for rest in boxes(counts[1:], most):
            yield (first, min(counts[0], first + step)), *rest


def _moved(touched: NDArray[np.bool_], by: int, around: bool) -> NDArray[np.bool_]:
    """The same places further up, or down; what leaves one end comes in at the other, or is lost."""
    if around:
        return np.roll(touched, by)
    moved = np.zeros_like(touched)
    if by >= 0:
        moved[by:] = touched[: len(touched) - by]
    else:
        moved[:by] = touched[-by:]
    return moved


def bank_depth(config: NpuConfig, memory: Memory) -> tuple[int, int]:
    """(banks, words per bank) of an on-chip memory."""
    if memory == Memory.ACT:
        return config.act_banks, config.act_depth
    if memory == Memory.ACC:
        return config.acc_banks, config.acc_depth
    if memory == Memory.WGT:
        return 1, config.wgt_depth
    assert memory == Memory.PAR, memory
    return 1, config.par_depth


def _padded(load: Load) -> tuple[int, int]:
    return load.pad_top + load.rows + load.pad_bottom, load.pad_left + load.words + load.pad_right


def dram_operand(config: NpuConfig, instruction: Load | Store) -> Operand:
    """The DRAM words (of ACT size) that a LOAD reads or a STORE writes."""
    units = 1
    if isinstance(instruction, Load) and instruction.memory is Memory.PAR:
        units = config.wide_word_units
    return Operand(
        "dram",
        None,
        0,
        instruction.dram,
        (
            (instruction.planes, instruction.dram_plane_stride),
            (instruction.rows, instruction.dram_row_stride),
            (instruction.words * units, 1),
        ),
        write=isinstance(instruction, Store),
    )


def operands(config: NpuConfig, instruction: Instruction) -> tuple[Operand, ...]:
    """On-chip operands of an instruction; the DRAM operand of LOAD and STORE is `dram_operand`."""
    if isinstance(instruction, Load):
        rows, words = _padded(instruction)
        loops = (
            (instruction.planes, instruction.plane_stride),
            (rows, instruction.row_stride),
            (words, instruction.word_stride),
        )
        return (
            Operand(
                "destination", instruction.memory, instruction.bank, instruction.offset, loops,
                instruction.wrap, True,
            ),
        )  # fmt: skip
    if isinstance(instruction, Store):
        loops = (
            (instruction.planes, instruction.plane_stride),
            (instruction.rows, instruction.row_stride),
            (instruction.words, instruction.word_stride),
        )
        return (Operand("source", Memory.ACT, instruction.bank, instruction.offset, loops, instruction.wrap),)
    if isinstance(instruction, Matrix):
        return _matrix(config, instruction)
    if isinstance(instruction, Vector):
        return _vector(config, instruction)
    return ()


def _matrix(config: NpuConfig, matrix: Matrix) -> tuple[Operand, ...]:
    steps = matrix.channels * matrix.kernel_height * matrix.kernel_width
    act = Operand(
        "act",
        Memory.ACT,
        matrix.act_bank,
        matrix.act_offset,
        (
            (matrix.height, matrix.act_stride_y),
            (matrix.width, matrix.act_stride_x),
            (matrix.channels, matrix.act_stride_channel),
            (matrix.kernel_height, matrix.act_stride_kernel_y),
            (matrix.kernel_width, matrix.act_stride_kernel_x),
        ),
        matrix.act_wrap,
    )
    wgt = Operand(
        "wgt",
        Memory.WGT,
        0,
        matrix.wgt_offset,
        ((matrix.blocks, steps * config.array), (steps * config.array, 1)),
        matrix.wgt_wrap,
    )
    loops = (
        (matrix.blocks, matrix.acc_stride_block),
        (matrix.height, matrix.acc_stride_y),
        (matrix.width, matrix.acc_stride_x),
    )
    acc = Operand("acc", Memory.ACC, matrix.acc_bank, matrix.acc_offset, loops, write=True)
    if not matrix.accumulate:
        return act, wgt, acc
    return act, wgt, Operand("acc", Memory.ACC, matrix.acc_bank, matrix.acc_offset, loops), acc


def _vector(config: NpuConfig, vector: Vector) -> tuple[Operand, ...]:
    found = []
    grid = (vector.blocks, vector.height, vector.width)
    ring = vector.wrap
    if vector.operation.name != "FILL":
        loops: tuple[Loop, ...] = (
            (vector.blocks, vector.a_stride_block),
            (vector.height, vector.a_stride_y),
            (vector.width, vector.a_stride_x),
        )
        if vector.is_window:
            loops = (
                *loops[:2],
                (vector.width, vector.window_step * vector.window_stride_x),
                (vector.window_height, vector.window_stride_y),
                (vector.window_width, vector.window_stride_x),
            )
        wrap = ring if vector.a_wrap else 0
        found.append(Operand("a", vector.a_memory, vector.a_bank, vector.a_offset, loops, wrap))
    if vector.has_two_sources:
        strides = (vector.b_stride_block, vector.b_stride_y, vector.b_stride_x)
        wrap = ring if vector.b_wrap else 0
        found.append(
            Operand(
                "b",
                vector.b_memory,
                vector.b_bank,
                vector.b_offset,
                tuple(zip(grid, strides, strict=True)),
                wrap,
            )
        )
    strides = (vector.out_stride_block, vector.out_stride_y, vector.out_stride_x)
    if vector.operation in REDUCTION_OPERATIONS:
        grid = (vector.blocks, 1, 1)
    wrap = ring if vector.out_wrap else 0
    parameters = descriptor_words(config, vector) + vector.blocks * parameter_words(config, vector)
    if parameters:
        found.append(Operand("parameters", Memory.PAR, 0, vector.parameters, ((parameters, 1),)))
    found.append(
        Operand(
            "out",
            vector.out_memory,
            vector.out_bank,
            vector.out_offset,
            tuple(zip(grid, strides, strict=True)),
            wrap,
            True,
        )
    )
    return tuple(found)
