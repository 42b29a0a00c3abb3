"""Where an operand lies: bank, offset, strides and ring, at random, or as far as wanted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory
from npukit.sim.addressing import Operand, bank_depth

__all__ = ["Arena", "Place", "Places", "all_different", "reach"]

_MOST_COUNTED = 70_000
"""Words that are counted one by one; strides of more are taken as they come only where a formula proves them."""


@dataclass(frozen=True)
class Arena:
    """Words of a bank that hold something from the start of a program on."""

    memory: Memory
    bank: int
    low: int
    size: int


@dataclass(frozen=True)
class Place:
    """Where the loops of an operand begin, and how they go on."""

    bank: int
    offset: int
    wrap: int
    strides: tuple[int, ...]


def reach(counts: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """(lowest, highest) distance from the first word."""
    low = sum(min(0, (count - 1) * stride) for count, stride in zip(counts, strides, strict=True))
    high = sum(max(0, (count - 1) * stride) for count, stride in zip(counts, strides, strict=True))
    return low, high


def all_different(counts: Sequence[int], strides: Sequence[int], ring: int = 0) -> bool:
    """Whether no word comes twice, as far as can be told without much work."""
    size = 1 << ring
    loops = [(count, _around(stride, size) if ring else stride) for count, stride in zip(counts, strides, strict=True)]
    span = 1
    for stride, count in sorted((abs(stride), count) for count, stride in loops if count > 1):
        if stride < span:
            break
        span += stride * (count - 1)
    else:
        if not ring or span <= size:
            return True
    operand = Operand("", Memory.ACT, 0, 0, tuple(zip(counts, strides, strict=True)), ring)
    return operand.count <= _MOST_COUNTED and np.unique(operand.words()).size == operand.count


def _around(stride: int, size: int) -> int:
    """The same step around a ring, the shorter way."""
    stride %= size
    return stride - size if stride > size // 2 else stride


class Places:
    """Chooses places in the arenas, and elsewhere for what is only written.

    Attributes:
        arenas: what may be read, by memory.
    """

    def __init__(self, config: NpuConfig, random: Random, arenas: Mapping[Memory, Sequence[Arena]]) -> None:
        self.config, self.random, self.arenas = config, random, arenas

    def choose(
        self,
        memory: Memory,
        counts: Sequence[int],
        limits: Sequence[int],
        *,
        different: bool = False,
        filled: bool = True,
        rings: bool = True,
        bank: int | None = None,
        offset: int | None = None,
        wrap: int | None = None,
        passes: bool | None = None,
        strides: Sequence[int | None] | None = None,
    ) -> Place | None:
        """A place for loops of these counts, outermost first; None when this try found none.

        Args:
            limits: bits of each stride.
            different: no word may come twice.
            filled: only in an arena; else anywhere in a bank, too.
            rings: the operand may have one.
            bank, offset, wrap, strides: as they must be; a stride that is None is free.
            passes: whether the ring's end must be passed.
        """
        random = self.random
        arena = self._arena(memory, filled, bank, offset, wrap, passes)
        if arena is None:
            return None
        given = strides if strides is not None else [None] * len(counts)
        if wrap is None and rings:
            far = any(
                stride is not None and (count - 1) * abs(stride) >= arena.size
                for count, stride in zip(counts, given, strict=True)
            )
            if far or random.random() < 0.25:
                largest = arena.size.bit_length() - 1
                wrap = random.randint(1, largest) if random.random() < 0.7 else largest
        wrap = wrap or 0
        chosen = self._strides(counts, limits, given, different, wrap if passes is not False else 0, arena.size)
        if chosen is None:
            return None
        low, high = reach(counts, chosen)
        found = self._offset(arena, low, high, wrap, passes, offset)
        if found is None:
            return None
        return Place(arena.bank, found, wrap, tuple(chosen))

    def _arena(
        self, memory: Memory, filled: bool, bank: int | None, offset: int | None, wrap: int | None, passes: bool | None
    ) -> Arena | None:
        """One that has the bank, the offset and, where it must be passed, an end of the ring."""
        banks, depth = bank_depth(self.config, memory)
        candidates = list(self.arenas.get(memory, ()))
        if not filled and (self.random.random() < 0.15 or not candidates):
            candidates = []
        least = 1 << wrap if wrap and passes else 1

        def fits(arena: Arena) -> bool:
            inside = offset is None or arena.low <= offset < arena.low + arena.size
            return bank in (None, arena.bank) and inside and arena.size >= least

        candidates = [arena for arena in candidates if fits(arena)]
        if not candidates and not filled:
            candidates = [Arena(memory, self.random.randrange(banks) if bank is None else bank, 0, depth)]
        return self.random.choice(candidates) if candidates else None

    def _strides(
        self, counts: Sequence[int], limits: Sequence[int], given: Sequence[int | None], different: bool, ring: int,
        size: int,
    ) -> list[int] | None:  # fmt: skip
        random = self.random
        strides = []
        span = 1
        for count, bits, wanted in zip(reversed(counts), reversed(limits), reversed(given), strict=True):
            if wanted is not None:
                stride = wanted
            elif count == 1 and random.random() < 0.2:  # without effect, whatever it is
                stride = random.randint(-1 << (bits - 1), (1 << (bits - 1)) - 1)
            elif different:
                stride = span + random.choice([0, 0, 0, 1, 3])
                stride *= random.choice([1, 1, 1, -1])
            elif ring and random.random() < 0.3:
                stride = random.randint(-1 << (bits - 1), (1 << (bits - 1)) - 1)
            else:
                far = size // (2 * count)
                stride = random.choice([0, 1, 1, 2, span, -1, random.randint(-8, 8), random.randint(-far, far)])
            if not -1 << (bits - 1) <= stride < 1 << (bits - 1):
                return None
            span += abs(_around(stride, 1 << ring) if ring else stride) * (count - 1)
            strides.append(stride)
        strides.reverse()
        if different and not all_different(counts, strides, ring):
            return None
        return strides

    def _offset(
        self, arena: Arena, low: int, high: int, wrap: int, passes: bool | None, offset: int | None
    ) -> int | None:
        """A first word from which lowest and highest stay in the arena, or in a ring in it."""
        random = self.random
        start, end = arena.low, arena.low + arena.size
        size = 1 << wrap
        if wrap and passes is not False:
            first, last = -(-start // size), end // size - 1
            if first <= last:
                ring = random.choice([first, last, random.randint(first, last)]) * size
                if offset is not None:
                    ring = offset // size * size
                    if not start <= ring <= end - size:
                        return None
                inside = range(ring, ring + size)
                if passes:
                    inside = [one for one in _ends(inside) if one + low < ring or one + high >= ring + size]
                    if not inside:
                        return None
                if offset is not None:
                    return offset if not passes or offset + low < ring or offset + high >= ring + size else None
                return random.choice(inside)
            if passes:
                return None
        # without a ring, or within it
        if wrap:
            part = random.randint(start // size, (end - 1) // size) if offset is None else offset // size
            start, end = max(start, part * size), min(end, (part + 1) * size)
        first, last = start - low, end - 1 - high
        if first > last:
            return None
        if offset is not None:
            return offset if first <= offset <= last else None
        return random.choice([first, last, random.randint(first, last)])


def _ends(ring: range) -> list[int]:
    """Words near both ends of a ring, and some between."""
    return list(ring) if len(ring) <= 64 else [*ring[:24], *ring[24 : -24 : max(1, len(ring) // 32)], *ring[-24:]]
