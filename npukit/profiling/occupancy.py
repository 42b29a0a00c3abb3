"""Which words of each on-chip memory hold something that is still needed, over time."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npukit.isa.instructions import Memory
from npukit.isa.program import Program
from npukit.sim.addressing import Operand, bank_depth, operands
from npukit.sim.timing import Schedule

__all__ = ["Occupancy", "occupancy"]


@dataclass(frozen=True)
class Occupancy:
    """The words of one memory that are in use.

    A word is in use from the start of the instruction that writes it to the end of the last one that reads it.

    Attributes:
        words: the memory's, of all banks.
        times: cycles in which something changes, in order.
        slices: [equal part of the memory, in the order of addresses, time]: words in use from then on.
    """

    words: int
    times: NDArray[np.int64]
    slices: NDArray[np.int64]

    @property
    def used(self) -> NDArray[np.int64]:
        """Words in use from each time on."""
        return self.slices.sum(axis=0)

    def map(self, edges: NDArray[np.int64]) -> NDArray[np.float64]:
        """[slice, window]: words in use on average in windows between edges, which rise."""
        if not len(self.times):
            return np.zeros((len(self.slices), len(edges) - 1))
        before = np.diff(self.times) * self.slices[:, :-1]
        done = np.concatenate([np.zeros((len(self.slices), 1)), np.cumsum(before, axis=1)], axis=1)
        return np.stack([np.diff(np.interp(edges, self.times, row)) for row in done]) / np.diff(edges)


def occupancy(program: Program, schedule: Schedule, slices: int = 1) -> dict[Memory, Occupancy]:
    """What is in use of each memory, apart for so many equal parts of it."""
    memories = {memory: _Words(*bank_depth(program.config, memory), slices) for memory in Memory}
    for index, instruction in enumerate(program.instructions):
        start, end = int(schedule.start[index]), int(schedule.end[index])
        found = operands(program.config, instruction)
        for access in found:
            if access.memory is not None and not access.write:
                memories[access.memory].use(access, end)
        for access in found:
            if access.memory is not None and access.write:
                memories[access.memory].write(access, start, end)
    return {memory: words.history() for memory, words in memories.items()}


class _Words:
    def __init__(self, banks: int, depth: int, slices: int) -> None:
        self.depth, self.slices = depth, slices
        self.born = np.full(banks * depth, -1, np.int64)
        self.last = np.full(banks * depth, -1, np.int64)
        self.slice_of = np.arange(banks * depth) * slices // (banks * depth)
        self.changes: dict[tuple[int, int], int] = defaultdict(int)
        """By (time, slice)."""

    def _places(self, access: Operand) -> NDArray[np.int64] | slice:
        base, run = access.bank * self.depth, access.run
        if run is not None:
            return slice(base + run[0], base + run[1])
        return np.unique(access.words()) + base

    def use(self, access: Operand, end: int) -> None:
        places = self._places(access)
        self.last[places] = np.maximum(self.last[places], end)

    def write(self, access: Operand, start: int, end: int) -> None:
        places = self._places(access)
        born, last = self.born[places], self.last[places]
        self._leave(self.slice_of[places], born, last, last < end)  # what the instruction itself reads goes on
        self.born[places] = np.where((born >= 0) & (last >= end), born, start)
        self.last[places] = np.maximum(last, end)

    def _leave(
        self, slices: NDArray[np.int64], born: NDArray[np.int64], last: NDArray[np.int64], chosen: NDArray[np.bool_]
    ) -> None:
        gone = chosen & (born >= 0)
        for times, sign in ((born[gone], 1), (last[gone] + 1, -1)):
            places, counts = np.unique(times * self.slices + slices[gone], return_counts=True)
            for place, count in zip(places.tolist(), counts.tolist(), strict=True):
                self.changes[divmod(place, self.slices)] += sign * count

    def history(self) -> Occupancy:
        self._leave(self.slice_of, self.born, self.last, self.born >= 0)
        when, where = np.array(list(self.changes), np.int64).reshape(-1, 2).T
        change = np.array(list(self.changes.values()), np.int64)
        times = np.unique(when[change != 0])
        steps = np.zeros((self.slices, len(times)), np.int64)
        steps[where[change != 0], np.searchsorted(times, when[change != 0])] = change[change != 0]
        return Occupancy(len(self.born), times, np.cumsum(steps, axis=1))
