"""List scheduling: an order of tasks in which an engine takes another one while its next waits for others.

Each task has those that must come before it: whoever writes what it reads, and reads or writes what it writes. Of the
tasks that are ready, an engine takes the one that comes first in the plan; it looks ahead only so far, and only where
memory is left for those before.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, prod

from npukit.compiler.tasks import Box, Buffer, Operand, Task
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Engine, Memory
from npukit.sim.addressing import bank_depth

__all__ = ["list_schedule"]

_RESERVED = 0.25
"""Share of each memory that is left to tasks whose turn it is."""


def list_schedule(
    config: NpuConfig, tasks: Sequence[Task], ahead: int, room: float, cycles: Callable[[Task], float],
    latency: Mapping[Engine, int],
) -> list[Task]:  # fmt: skip
    """The same tasks in the order in which they would begin.

    Args:
        config: whose memories they share.
        tasks: in an order that is legal.
        ahead: by how many tasks one may begin before the first that has not.
        room: share of each memory that may be in use at once.
        cycles: for which a task keeps its engine.
        latency: cycles from there to its last word, of each engine.
    """
    before = _dependences(tasks)
    after: list[list[tuple[int, bool]]] = [[] for _ in tasks]
    missing = [len(found) for found in before]
    for index, found in enumerate(before):
        for earlier, written in found.items():
            after[earlier].append((index, written))
    memory = _Memory(config, room, tasks)
    ready_at = [0.0] * len(tasks)
    begun = [False] * len(tasks)
    clock = dict.fromkeys(Engine, 0.0)
    queues = {engine: _Queue() for engine in Engine}
    beyond: list[int] = []
    oldest = 0
    order: list[tuple[float, int]] = []
    for index, count in enumerate(missing):
        if not count:
            heappush(beyond, index)
    while len(order) < len(tasks):
        while beyond and beyond[0] <= oldest + ahead:
            index = heappop(beyond)
            queues[tasks[index].engine].push(ready_at[index], index)
        start, index, engine = min((*queues[one].first(clock[one]), one) for one in Engine)
        queue, task = queues[engine], tasks[index]
        queue.pop(index)
        if index != oldest:
            when = memory.when(task, _RESERVED)
            if when > start:
                queue.hold(when, index)
                continue
        start = max(start, memory.take(task))
        end = start + cycles(task)
        clock[engine] = end
        begun[index] = True
        order.append((start, index))
        memory.release(task, end)
        for one in Engine:
            queues[one].retry()
        for later, written in after[index]:
            ready_at[later] = max(ready_at[later], end + latency[engine] if written else end)
            missing[later] -= 1
            if not missing[later]:
                heappush(beyond, later)
        while oldest < len(tasks) and begun[oldest]:
            oldest += 1
    return [tasks[index] for _, index in sorted(order)]


@dataclass
class _Queue:
    """Tasks of an engine that are ready: in `now` by their place in the plan, in `later` by when they can begin; those
    of `held` wait for memory."""

    now: list[int] = field(default_factory=list)
    later: list[tuple[float, int]] = field(default_factory=list)
    held: list[tuple[float, int]] = field(default_factory=list)

    def push(self, when: float, index: int) -> None:
        heappush(self.later, (when, index))

    def first(self, clock: float) -> tuple[float, int]:
        """When the next task begins, and which: the first in the plan of those that the engine could begin then."""
        while self.later and self.later[0][0] <= clock:
            heappush(self.now, heappop(self.later)[1])
        if self.now:
            return clock, self.now[0]
        return self.later[0] if self.later else (inf, -1)

    def pop(self, index: int) -> None:
        """Take that one, which is the first."""
        if self.now:
            heappop(self.now)
        else:
            heappop(self.later)

    def hold(self, when: float, index: int) -> None:
        """Put a task aside until memory is free, which may be sooner than it seems now."""
        self.held.append((when, index))

    def retry(self) -> None:
        for when, index in self.held:
            heappush(self.later, (0.0 if when == inf else when, index))
        self.held.clear()


def _dependences(tasks: Sequence[Task]) -> list[dict[int, bool]]:
    """Of each task, those that must come before it: index -> whether all of it must be written, not only read."""
    found: list[dict[int, bool]] = []
    uses: dict[Buffer, list[tuple[int, Operand]]] = defaultdict(list)
    stores: dict[str, list[tuple[int, Box | None]]] = defaultdict(list)
    for index, task in enumerate(tasks):
        mine: dict[int, bool] = {}
        for operand in task.operands:
            for earlier, other in reversed(uses[operand.buffer]):
                if (operand.write or other.write) and _share(operand.part, other.part):
                    # an engine writes in the order of its tasks
                    follows = operand.write and tasks[earlier].engine is task.engine
                    mine[earlier] = mine.get(earlier, False) or other.write and not follows
                    if other.write and other.part is None:
                        break  # whatever came before that, it waited for
        for operand in task.operands:
            uses[operand.buffer].append((index, operand))
        if task.dram is not None and task.dram.write:
            stores[task.dram.tensor].append((index, task.dram.box))
        elif task.dram is not None:
            for earlier, box in stores[task.dram.tensor]:
                if _share(task.dram.box, box):
                    mine[earlier] = True
        mine.pop(index, None)
        found.append(mine)
    return found


def _share(one: Box | None, other: Box | None) -> bool:
    return one is None or other is None or one.overlaps(other)


class _Memory:
    """When there is room for a task's new buffers, as earlier ones are let go."""

    def __init__(self, config: NpuConfig, share: float, tasks: Sequence[Task]) -> None:
        self._users: dict[Buffer, int] = defaultdict(int)
        for task in tasks:
            for buffer in {operand.buffer for operand in task.operands}:
                self._users[buffer] += 1
        self._size = {memory: share * prod(bank_depth(config, memory)) for memory in Memory}
        self._free = dict(self._size)
        self._depths = {memory: bank_depth(config, memory)[1] for memory in Memory}
        self._released: dict[Memory, list[tuple[float, int]]] = {memory: [] for memory in Memory}
        self._held: set[Buffer] = set()

    def _needed(self, task: Task) -> dict[Memory, int]:
        needed: dict[Memory, int] = defaultdict(int)
        for buffer in {operand.buffer for operand in task.operands} - self._held:
            needed[buffer.memory] += self._words(buffer)
        return needed

    def _words(self, buffer: Buffer) -> int:
        """Words that nothing else has room in: a whole bank, where a buffer takes more than half of it."""
        depth = self._depths[buffer.memory]
        return depth if 2 * buffer.words > depth else buffer.words

    def when(self, task: Task, reserved: float) -> float:
        """From when on the task's new buffers leave that share of each memory free; infinity if it is not known."""
        start = 0.0
        for memory, words in self._needed(task).items():
            left = self._free[memory] - words - reserved * self._size[memory]
            for when, more in sorted(self._released[memory]):
                if left >= 0:
                    break
                left, start = left + more, max(start, when)
            if left < 0:
                return inf
        return start

    def take(self, task: Task) -> float:
        """The first cycle in which the buffers fit that the task is the first to use."""
        start = 0.0
        for memory, words in self._needed(task).items():
            self._free[memory] -= words
            released = self._released[memory]
            while self._free[memory] < 0 and released:
                when, more = heappop(released)
                self._free[memory] += more
                start = max(start, when)
        self._held.update(operand.buffer for operand in task.operands)
        return start

    def release(self, task: Task, end: float) -> None:
        """Let go what the task was the last to use."""
        for buffer in {operand.buffer for operand in task.operands}:
            self._users[buffer] -= 1
            if not self._users[buffer]:
                heappush(self._released[buffer.memory], (end, self._words(buffer)))
