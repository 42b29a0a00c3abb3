"""List scheduling: an order of tasks in which an engine takes another one while its next waits for others.

Each task has those that must come before it: whoever writes what it reads, and reads or writes what it writes. Of the
tasks that are ready, an engine takes the one that comes first in the plan; it looks ahead only so far, and only where
memory is left for those before. Buffers get their places meanwhile, so that a task waits for words and for ports of
banks, and another one takes its turn.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from npukit.compiler.passes.allocate import DoesNotFit
from npukit.compiler.passes.banks import Banks
from npukit.compiler.tasks import Box, Buffer, Operand, Places, Task
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Engine, Memory

__all__ = ["list_schedule"]


def list_schedule(
    config: NpuConfig, tasks: Sequence[Task], ahead: int, room: float, cycles: Callable[[Task, Places], float],
    latency: Mapping[Engine, int],
) -> tuple[list[Task], Places]:  # fmt: skip
    """The same tasks in the order in which they would begin, and where their buffers lie: bank and first word.

    Args:
        config: whose memories they share.
        tasks: in an order that is legal.
        ahead: by how many tasks one may begin before the first that has not.
        room: share of each memory that tasks before their turn may leave in use.
        cycles: for which a task keeps its engine, with buffers in those places.
        latency: cycles from there to its last word, of each engine.

    Raises:
        DoesNotFit: what has begun leaves no room for what it waits for.
    """
    before = _dependences(tasks)
    after: list[list[tuple[int, bool]]] = [[] for _ in tasks]
    missing = [len(found) for found in before]
    for index, found in enumerate(before):
        for earlier, written in found.items():
            after[earlier].append((index, written))
    banks = Banks(config, tasks, ahead)
    ready_at = [0.0] * len(tasks)
    begun = [False] * len(tasks)
    clock = dict.fromkeys(Engine, 0.0)
    queues = {engine: _Queue() for engine in Engine}
    beyond: list[int] = []
    oldest, stuck = 0, False
    order: list[tuple[float, int]] = []
    for index, count in enumerate(missing):
        if not count:
            heappush(beyond, index)
    while len(order) < len(tasks):
        while beyond and (stuck or beyond[0] <= oldest + ahead):
            index = heappop(beyond)
            queues[tasks[index].engine].push(ready_at[index], index)
        start, index, engine = min((*queues[one].first(clock[one]), one) for one in Engine)
        if start == inf:
            if stuck:
                raise DoesNotFit(_no_room(tasks[oldest], banks.place))
            stuck = True
            for one in queues.values():
                one.retry(set(Memory))
            continue
        queue, task = queues[engine], tasks[index]
        queue.pop()
        waiting = banks.begin(task, start, None if index == oldest or stuck else room, oldest)
        if waiting is not None:
            if waiting.until < inf:
                queue.push(waiting.until, index)
            else:
                queue.hold(start, index, waiting.memory)
            continue
        stuck = False
        end = start + cycles(task, banks.place)
        clock[engine] = end
        banks.past = min(clock.values())
        begun[index] = True
        order.append((start, index))
        more = banks.end(task, end, end + latency[engine])
        for one in queues.values():
            one.retry(more)
        for later, written in after[index]:
            ready_at[later] = max(ready_at[later], end + latency[engine] if written else end)
            missing[later] -= 1
            if not missing[later]:
                heappush(beyond, later)
        while oldest < len(tasks) and begun[oldest]:
            oldest += 1
        if oldest < len(tasks):  # to which the limit does not apply any more
            queues[tasks[oldest].engine].release(oldest)
    return [tasks[index] for _, index in sorted(order)], banks.place


def _no_room(task: Task, places: Places) -> str:
    new = {operand.buffer for operand in task.operands if operand.buffer not in places}
    return (
        ", ".join(f"{one.words} words of {one.memory.name} for {one.label}" for one in new) + " beside what is in use"
    )


@dataclass
class _Queue:
    """Tasks of an engine that are ready: in `now` by their place in the plan, in `later` by when they can begin; those
    of `held` wait for a memory."""

    now: list[int] = field(default_factory=list)
    later: list[tuple[float, int]] = field(default_factory=list)
    held: dict[int, tuple[float, Memory]] = field(default_factory=dict)

    def push(self, when: float, index: int) -> None:
        heappush(self.later, (when, index))

    def first(self, clock: float) -> tuple[float, int]:
        """When the next task begins, and which: the first in the plan of those that the engine could begin then."""
        while self.later and self.later[0][0] <= clock:
            heappush(self.now, heappop(self.later)[1])
        if self.now:
            return clock, self.now[0]
        return self.later[0] if self.later else (inf, -1)

    def pop(self) -> None:
        """Take that one."""
        if self.now:
            heappop(self.now)
        else:
            heappop(self.later)

    def hold(self, when: float, index: int, memory: Memory) -> None:
        """Put a task that could begin then aside until there is more room."""
        self.held[index] = when, memory

    def retry(self, memories: set[Memory]) -> None:
        """Look again at those that wait for some memories."""
        if self.held and memories:
            for index in [index for index, (_, memory) in self.held.items() if memory in memories]:
                self.release(index)

    def release(self, index: int) -> None:
        """Look again at one, if it waits."""
        if index in self.held:
            heappush(self.later, (self.held.pop(index)[0], index))


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
