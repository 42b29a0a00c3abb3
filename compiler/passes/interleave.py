"""interleave: tasks in the order in which, by an estimate, they begin.

The plan comes layer by layer and tile by tile. FETCH hands instructions on in their order, and waits when a queue is
full: an instruction that comes before its time keeps others from theirs, and one that comes late leaves its engine
idle. Each engine's tasks stay in their order, unless it may look ahead for one that is ready; between engines they
move, across tiles and layers, as far as memory allows.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import prod

from npukit.compiler.cost import CostModel
from npukit.compiler.pass_base import Pass
from npukit.compiler.passes.list_scheduling import list_schedule
from npukit.compiler.tasks import Box, Buffer, Places, Plan, Task
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Engine, Memory, Vector
from npukit.isa.timing import Timing
from npukit.sim.addressing import bank_depth

__all__ = ["InterleavePass"]


@dataclass(frozen=True)
class InterleavePass(Pass[Plan, Plan]):
    """`room`: share of each memory that may be in use at once, 0 for the order that there is; banks are not looked at
    here. `ahead`: tasks by which an engine may look ahead for one that is ready; 0: its tasks stay in their order."""

    cost: CostModel
    room: float
    ahead: int = 0
    name = "interleave"

    def run(self, plan: Plan) -> Plan:
        """The same tasks in another order, which is as legal as the first."""
        if not self.room:
            return plan
        config, dram = self.cost.config, self.cost.dram
        timing = Timing(config)
        latency = {
            Engine.LOAD: dram.answer_cycles(config), Engine.MATRIX: timing.matrix_latency,
            Engine.VECTOR: timing.vector_latency, Engine.STORE: dram.response_cycles(config),
        }  # fmt: skip
        if self.ahead:
            tasks, place = list_schedule(config, plan.tasks, self.ahead, self.room, self._cycles, latency)
            return Plan(plan.graph, tasks, plan.constants, place)
        memory = _Room(config, self.room, plan.tasks)
        clock = dict.fromkeys(Engine, 0.0)
        written: dict[Buffer, float] = {}
        parts: dict[Buffer, list[tuple[Box, float]]] = defaultdict(list)
        read: dict[Buffer, float] = {}
        stores: dict[str, list[tuple[Task, float]]] = defaultdict(list)
        found: list[tuple[float, int, Task]] = []
        for index, task in enumerate(plan.tasks):
            engine = task.engine
            start = max(clock[engine], memory.take(task))
            for operand in task.operands:
                start = max(start, written.get(operand.buffer, 0.0))
                if operand.write:
                    start = max(start, read.get(operand.buffer, 0.0))
                elif operand.part is not None:
                    for part, done in reversed(parts[operand.buffer]):
                        if done <= start:
                            break
                        if part.overlaps(operand.part):
                            start = done
            if task.dram is not None and not task.dram.write:
                for store, done in stores[task.dram.tensor]:
                    assert store.dram is not None
                    mine, theirs = task.dram.box, store.dram.box
                    if done > start and (mine is None or theirs is None or mine.overlaps(theirs)):
                        start = done
            end = start + self.cost.instruction(task.instruction)
            clock[engine] = end
            done = end + latency[engine]
            for operand in task.operands:
                if operand.write and operand.part is not None:
                    parts[operand.buffer].append((operand.part, done))
                    continue
                uses, when = (written, done) if operand.write else (read, end)
                uses[operand.buffer] = max(uses.get(operand.buffer, 0.0), when)
            if engine is Engine.STORE:
                assert task.dram is not None
                stores[task.dram.tensor].append((task, done))
            memory.release(task, end)
            found.append((start, index, task))
        tasks = [task for _, _, task in sorted(found, key=lambda one: one[:2])]
        return Plan(plan.graph, tasks, plan.constants)

    def _cycles(self, task: Task, place: Places) -> float:
        instruction = task.instruction
        if isinstance(instruction, Vector) and instruction.has_two_sources:
            a, b = (operand.buffer for operand in task.operands[:2])
            if a.memory is b.memory and place[a][0] != place[b][0]:
                instruction = replace(instruction, b_bank=1)
        return self.cost.instruction(instruction)


class _Room:
    """When there is room for a task's new buffers, as earlier ones are let go."""

    def __init__(self, config: NpuConfig, share: float, tasks: list[Task]) -> None:
        self.last = {operand.buffer: task for task in tasks for operand in task.operands}
        self.free = {memory: share * prod(bank_depth(config, memory)) for memory in Memory}
        self.released: dict[Memory, list[tuple[float, int]]] = {memory: [] for memory in Memory}
        self.held: set[Buffer] = set()

    def take(self, task: Task) -> float:
        """The first cycle in which the buffers fit that the task is the first to use."""
        start = 0.0
        for operand in task.operands:
            buffer = operand.buffer
            if buffer in self.held:
                continue
            self.held.add(buffer)
            self.free[buffer.memory] -= buffer.words
            released = self.released[buffer.memory]
            while self.free[buffer.memory] < 0 and released:
                when, words = heappop(released)
                self.free[buffer.memory] += words
                start = max(start, when)
        return start

    def release(self, task: Task, end: float) -> None:
        """Let go what the task was the last to use."""
        for buffer in dict.fromkeys(operand.buffer for operand in task.operands):
            if self.last[buffer] is task:
                heappush(self.released[buffer.memory], (end, buffer.words))
