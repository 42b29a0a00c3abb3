"""allocate: addresses for every buffer on chip and every tensor in DRAM."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, prod

from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.pass_base import Pass
from npukit.compiler.tasks import Allocation, Buffer, Plan
from npukit.compiler.verify import verify_allocation
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory
from npukit.sim.addressing import bank_depth

__all__ = ["AllocatePass", "DoesNotFit"]

_DRAM_ALIGNMENT = 256
"""Bytes: a multiple of every beat, and of every memory word whose size is a power of two."""


class DoesNotFit(Exception):
    """Buffers that must live together exceed a memory; fewer must be kept."""


@dataclass
class _Segment:
    low: int
    high: int
    owner: Buffer
    last: int


@dataclass(frozen=True)
class AllocatePass(Pass[Plan, Allocation]):
    """First use to last use decides who may share words; the least recently used words go first.

    `compact`: the lowest words instead, which leaves the longest free stretches for what comes, and makes more tasks
    wait for each other.
    """

    config: NpuConfig
    compact: bool = False
    name = "allocate"

    def run(self, plan: Plan) -> Allocation:
        """Addresses for all buffers, constants and tensors.

        Raises:
            DoesNotFit: when buffers that live together do not fit.
        """
        allocation = Allocation(plan)
        self._on_chip(plan, allocation)
        self._in_dram(plan, allocation)
        return allocation

    def check(self, made: Allocation) -> None:
        """Raise a VerifyError where buffers that live at the same time share words."""
        verify_allocation(self.config, made)

    def _on_chip(self, plan: Plan, allocation: Allocation) -> None:
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for index, task in enumerate(plan.tasks):
            for operand in task.operands:
                first.setdefault(operand.buffer, index)
                last[operand.buffer] = index
        banks: dict[tuple[Memory, int], list[_Segment]] = {}
        recent: dict[tuple[Memory, int], int] = {}
        for buffer, index in first.items():
            if plan.place is not None:
                bank, offset = allocation.place[buffer] = plan.place[buffer]
                segments = banks.setdefault((buffer.memory, bank), [])
                new = _Segment(offset, offset + buffer.words, buffer, last[buffer])
                allocation.replaces[buffer] = _take(segments, new)
                continue
            count, depth = bank_depth(self.config, buffer.memory)
            best: tuple[int, int, int, int] | None = None
            # banks that rested longest are likely best, and then few places of the others need a second look
            for rest, bank in sorted((recent.get((buffer.memory, bank), -1), bank) for bank in range(count)):
                segments = banks.setdefault((buffer.memory, bank), [])
                if self.compact:
                    offset = _lowest(segments, buffer.words, depth, index - 1)
                    found = None if offset is None else (offset, offset)
                else:
                    found = _place(segments, buffer.words, depth, index - 1 if best is None else best[0])
                if found is not None:
                    score = (found[0], rest, bank, found[1])
                    best = score if best is None else min(best, score)
            if best is None:
                raise DoesNotFit(
                    f"{buffer.words} words for {buffer.label} do not fit in {count} {buffer.memory.name} banks of "
                    f"{depth} words beside what is in use"
                )
            bank, offset = best[2], best[3]
            segments = banks[buffer.memory, bank]
            allocation.place[buffer] = (bank, offset)
            allocation.replaces[buffer] = _take(segments, _Segment(offset, offset + buffer.words, buffer, last[buffer]))
            recent[buffer.memory, bank] = index

    def _in_dram(self, plan: Plan, allocation: Allocation) -> None:
        at = 0
        for name, image in plan.constants.items():
            allocation.dram[name] = at
            at += self._aligned(image.size)
        allocation.constant_bytes = at
        lives = _dram_lives(plan)
        placed: list[tuple[int, int, str]] = []
        size = {name: self._aligned(self._bytes(plan.graph.tensors[name])) for name in lives}
        for name in sorted(lives, key=lambda one: lives[one]):
            born, _ = lives[name]
            taken = sorted((low, high) for low, high, other in placed if lives[other][1] >= born)
            offset = at
            for low, high in taken:
                if low - offset >= size[name]:
                    break
                offset = max(offset, high)
            end = offset + size[name]
            allocation.dram[name] = offset
            allocation.dram_replaces[name] = [other for low, high, other in placed if low < end and high > offset]
            placed.append((offset, end, name))
            allocation.dram_bytes = max(allocation.dram_bytes, end)
        allocation.dram_bytes = max(allocation.dram_bytes, at)

    def _bytes(self, tensor: Tensor) -> int:
        batch, channels, height, width = tensor.view
        blocks = -(-channels // self.config.array)
        return prod((batch, blocks, height, width)) * self.config.word_bytes

    def _aligned(self, size: int) -> int:
        """A size at whose end another image may begin: at a multiple of PAR's words, too."""
        unit = lcm(_DRAM_ALIGNMENT, self.config.wide_word_bytes)
        return -(-size // unit) * unit


def _place(segments: Sequence[_Segment], words: int, depth: int, limit: int) -> tuple[int, int] | None:
    """(latest use of what lies there, offset) of the best place in a bank that was not used after `limit`, or None.

    The least recently used place is best; of several, the first. `segments` lie in order and do not overlap, so that
    a place at rising offsets is a window that moves over them; of those in the window, `latest` keeps the ones that no
    later one outlives, in order.
    """
    if not _has_room(segments, words, depth, limit):
        return None
    best: tuple[int, int] | None = None
    latest: deque[_Segment] = deque()
    coming = 0
    for start in (0, *(segment.high for segment in segments)):  # further to the left, a place is never worse
        end = start + words
        if end > depth:
            break
        while coming < len(segments) and segments[coming].low < end:
            while latest and latest[-1].last <= segments[coming].last:
                latest.pop()
            latest.append(segments[coming])
            coming += 1
        while latest and latest[0].high <= start:
            latest.popleft()
        use = latest[0].last if latest else -1
        if use < limit or use == limit and best is None:
            best, limit = (use, start), use
    return best


def _has_room(segments: Sequence[_Segment], words: int, depth: int, limit: int) -> bool:
    """Whether there are so many words in a row that were not used after `limit`."""
    return _lowest(segments, words, depth, limit) is not None


def _lowest(segments: Sequence[_Segment], words: int, depth: int, limit: int) -> int | None:
    """The first of the lowest so many words in a row that were not used after `limit`, or None."""
    start = 0
    for segment in segments:
        if segment.last > limit:
            if segment.low - start >= words:
                return start
            start = segment.high
    return start if depth - start >= words else None


def _take(segments: list[_Segment], new: _Segment) -> list[Buffer]:
    """Put a segment in its place; what it covers is cut back. Returns the owners that it covers, in order."""
    begin = bisect_right(segments, new.low, key=lambda one: one.high)
    end = bisect_left(segments, new.high, begin, key=lambda one: one.low)
    covered = segments[begin:end]
    left = [_Segment(one.low, new.low, one.owner, one.last) for one in covered[:1] if one.low < new.low]
    right = [_Segment(new.high, one.high, one.owner, one.last) for one in covered[-1:] if one.high > new.high]
    segments[begin:end] = [*left, new, *right]
    return [one.owner for one in covered]


def _dram_lives(plan: Plan) -> dict[str, tuple[int, int]]:
    """First and last task that touch each tensor; inputs live from before, outputs to the end."""
    graph = plan.graph
    lives: dict[str, tuple[int, int]] = {}
    for index, task in enumerate(plan.tasks):
        if task.dram is not None and task.dram.tensor in graph.tensors:
            born, _ = lives.get(task.dram.tensor, (index, index))
            lives[task.dram.tensor] = (born, index)
    end = len(plan.tasks)
    for name in graph.inputs:
        lives[name] = (-1, lives.get(name, (-1, -1))[1])
    for name in graph.outputs:
        storage = graph.tensors[name].storage
        lives[storage] = (lives[storage][0], end)
    return lives
