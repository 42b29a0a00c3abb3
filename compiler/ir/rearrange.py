"""What a Rearrange does to memory: loops over elements that move from a channel or a place to another.

A tensor's elements are numbered by its order (outer, channel, inner): outer and inner together number a place. A
Rearrange sees the input's elements, in the model's order, as digits of a number system, and writes those digits in
another order. Where each digit lies within the channels or the places of both sides, the digit is a loop.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from npukit.compiler.ir.operations import Rearrange
from npukit.compiler.ir.tensor import Tensor

__all__ = ["Loop", "Turn", "loops_of", "moves_nothing", "turn_of"]


@dataclass(frozen=True)
class Loop:
    """A loop over elements.

    Attributes:
        size: how many.
        from_channel, to_channel: whether it moves along channels, or along places, of the input and of the result.
        source, target: by how many of them.
    """

    size: int
    from_channel: bool
    source: int
    to_channel: bool
    target: int


def loops_of(operation: Rearrange, x: Tensor, y: Tensor) -> tuple[Loop, ...] | None:
    """The loops that make the result, the outermost first; None where a digit crosses from channels to places."""
    strides = _strides(operation.sizes)
    sizes = [operation.sizes[axis] for axis in operation.permutation]
    digits: Iterable[_Digit] = [
        _Digit(size, strides[axis], target)
        for size, axis, target in zip(sizes, operation.permutation, _strides(sizes), strict=True)
    ]
    for side, order in enumerate((x.order, y.order)):
        for edge in (order[2], order[1] * order[2]):
            split = [_split(digit, edge, side) for digit in digits]
            if any(one is None for one in split):
                return None
            digits = [digit for one in split for digit in one or ()]
    found = [_loop(digit, x.order, y.order) for digit in digits if digit.size > 1]
    return tuple(_merged(found))


@dataclass(frozen=True)
class Turn:
    """A rearrangement in which all channels become places that follow each other, and as many places become channels.

    Attributes:
        matrices: loops over places around that.
    """

    matrices: tuple[Loop, ...]


def turn_of(loops: Iterable[Loop], x: Tensor, y: Tensor) -> Turn | None:
    """The loops of a rearrangement as a turn, or None."""
    matrices = []
    crossing = {True: Loop(1, True, 0, False, 0), False: Loop(1, False, 0, True, 0)}
    for loop in loops:
        if loop.from_channel != loop.to_channel:
            if crossing[loop.from_channel].size > 1:
                return None
            crossing[loop.from_channel] = loop
        elif loop.from_channel:
            return None
        else:
            matrices.append(loop)
    whole = crossing[True].size == x.order[1] and crossing[False].size == y.order[1]
    alone = all((loop.size, loop.source, loop.target) > (1, 0, 0) for loop in crossing.values())
    near = all(loop.source == loop.target == 1 for loop in crossing.values())
    return Turn(tuple(matrices)) if whole and alone and near else None


def moves_nothing(operation: Rearrange, x: Tensor, y: Tensor) -> bool:
    """Whether the result lies in memory as the input does."""
    loops = loops_of(operation, x, y)
    return loops is not None and all(
        (loop.from_channel, loop.source) == (loop.to_channel, loop.target) for loop in loops
    )


@dataclass(frozen=True)
class _Digit:
    size: int
    source: int
    """Elements of the input, in the model's order, from one to the next."""
    target: int

    def stride(self, side: int) -> int:
        return self.target if side else self.source


def _strides(sizes: Iterable[int]) -> list[int]:
    sizes = [*sizes]
    return [prod(sizes[position + 1 :]) for position in range(len(sizes))]


def _split(digit: _Digit, edge: int, side: int) -> list[_Digit] | None:
    """A digit in two, where an edge lies within what it numbers; None where it cannot be split there."""
    stride = digit.stride(side)
    if not stride < edge < stride * digit.size:
        return [digit]
    low, rest = divmod(edge, stride)
    if rest or digit.size % low:
        return None
    return [
        _Digit(digit.size // low, digit.source * low, digit.target * low),
        _Digit(low, digit.source, digit.target),
    ]


def _loop(digit: _Digit, before: tuple[int, int, int], after: tuple[int, int, int]) -> Loop:
    return Loop(digit.size, *_part(digit.source, before), *_part(digit.target, after))


def _part(stride: int, order: tuple[int, int, int]) -> tuple[bool, int]:
    """Whether a stride of elements is one of channels, and by how many of channels or places."""
    _, channels, inner = order
    if stride < inner:
        return False, stride
    if stride < inner * channels:
        return True, stride // inner
    return False, stride // (inner * channels) * inner


def _merged(loops: list[Loop]) -> Iterator[Loop]:
    """Loops of which one goes on where the next ends are one."""
    last: Loop | None = None
    for loop in loops:
        if last is not None:
            kinds = last.from_channel == loop.from_channel and last.to_channel == loop.to_channel
            if kinds and last.source == loop.source * loop.size and last.target == loop.target * loop.size:
                last = Loop(last.size * loop.size, loop.from_channel, loop.source, loop.to_channel, loop.target)
                continue
            yield last
        last = loop
    if last is not None:
        yield last
