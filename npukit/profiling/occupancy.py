"""How many words of each on-chip memory hold something that is still needed, over time."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from npukit.isa.instructions import Memory
from npukit.isa.program import Program
from npukit.sim.addressing import Operand, bank_depth, operands
from npukit.sim.timing import Schedule

__all__ = ["occupancy"]


def occupancy(program: Program, schedule: Schedule) -> dict[Memory, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(cycles in which it changes, words from then on) of each memory.

    A word is in use from the start of the instruction that writes it to the end of the last one that reads it.
    """
    memories = {memory: _Words(*bank_depth(program.config, memory)) for memory in Memory}
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
    def __init__(self, banks: int, depth: int) -> None:
        self.depth = depth
        self.born = np.full(banks * depth, -1, np.int64)
        self.last = np.full(banks * depth, -1, np.int64)
        self.changes: dict[int, int] = defaultdict(int)

    def _places(self, access: Operand) -> slice | NDArray[np.int64]:
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
        self._leave(born, last, last < end)  # what the instruction itself reads goes on
        self.born[places] = np.where((born >= 0) & (last >= end), born, start)
        self.last[places] = np.maximum(last, end)

    def _leave(self, born: NDArray[np.int64], last: NDArray[np.int64], chosen: NDArray[np.bool_]) -> None:
        gone = chosen & (born >= 0)
        for times, sign in ((born[gone], 1), (last[gone] + 1, -1)):
            for time, count in zip(*np.unique(times, return_counts=True), strict=True):
                self.changes[int(time)] += sign * int(count)

    def history(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        self._leave(self.born, self.last, self.born >= 0)
        times = sorted(time for time, change in self.changes.items() if change)
        changes = np.array([self.changes[time] for time in times], np.int64)
        return np.array(times, np.int64), np.cumsum(changes)
