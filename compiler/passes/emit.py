"""emit: tasks with addresses become instructions with tokens, and a program."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from npukit.compiler.errors import CompileError
from npukit.compiler.pass_base import Pass
from npukit.compiler.tasks import Allocation, Box, Buffer, Operand, Plan, Task
from npukit.isa.config import NpuConfig
from npukit.isa.formats import UINT8
from npukit.isa.instructions import ENGINES, End, Engine, Instruction, InstructionError, Matrix, encode, with_fields
from npukit.isa.layout import blocked, blocked_parts
from npukit.isa.program import Capture, CapturedTensor, NodeInfo, Program, TensorInfo

__all__ = ["EmitPass"]

_SYNCHRONISE = 200
"""Instructions by which one engine may run ahead of another before it waits for it (counters hold 255)."""


@dataclass(frozen=True)
class EmitPass(Pass[Allocation, Program]):
    """Instructions of one subgraph. The validator looks at them in a pass of its own, because a search makes programs
    that nobody will run."""

    config: NpuConfig
    name = "emit"

    def run(self, allocation: Allocation) -> Program:
        """The finished program; the validator is to look at it.

        Raises:
            CompileError: a node whose sizes do not fit the instructions.
        """
        plan, graph = allocation.plan, allocation.plan.graph
        tasks = plan.tasks
        waits, signals, drains = _Tokens(tasks, allocation).run()
        instructions: list[Instruction] = []
        for index, task in enumerate(tasks):
            fields: dict[str, Any] = {
                "wait": waits[index],
                "signal": signals[index],
                "drain": int(drains[index]),
            }
            for operand in task.operands:
                bank, offset = allocation.place[operand.buffer]
                if operand.field == "parameters":
                    fields["parameters"] = offset + operand.offset
                    continue
                prefix = f"{operand.field}_" if operand.field else ""
                fields[f"{prefix}offset"] = offset + operand.offset
                if operand.field != "wgt":
                    fields[f"{prefix}bank"] = bank
            if task.dram is not None:
                fields["dram"] = allocation.dram[task.dram.tensor] // self.config.word_bytes + task.dram.offset
            instruction = with_fields(task.instruction, fields)
            try:
                encode(instruction)
            except InstructionError as error:
                node = graph.operations[task.node].node
                raise CompileError(f"{node} exceeds an instruction's field: {error}") from None
            instructions.append(instruction)
        return Program(
            config=self.config,
            instructions=(*instructions, End()),
            constants=self._constants(allocation),
            dram_bytes=allocation.dram_bytes,
            tensors=self._tensors(allocation),
            nodes=_nodes(plan),
            captures=tuple(
                Capture(index, *vars(box).values()) for index, task in enumerate(tasks) for box in task.captures
            ),
            captured={
                tensor.name: CapturedTensor(tensor.storage, tensor.order, tensor.shape, tensor.host_type)
                for tensor in graph.tensors.values()
                if tensor.shown and tensor.storage not in graph.inputs
            },
            name=graph.name,
        )

    def _constants(self, allocation: Allocation) -> bytes:
        image = np.zeros(allocation.constant_bytes, np.uint8)
        for name, data in allocation.plan.constants.items():
            image[allocation.dram[name] : allocation.dram[name] + data.size] = data
        return image.tobytes()

    def _tensors(self, allocation: Allocation) -> tuple[TensorInfo, ...]:
        graph = allocation.plan.graph
        found = []
        roles = [(name, "input") for name in graph.inputs]
        roles += [(name, "output") for name in graph.outputs]
        for name, role in roles:
            tensor = graph.tensors[name]
            layout = tensor.folded or blocked(tensor.order, self.config.array)
            if tensor.parts > 1:
                layout = blocked_parts(tensor.order, self.config.array, tensor.parts)
            found.append(
                TensorInfo(
                    name,
                    role,
                    tensor.host_type,
                    tensor.shape,
                    allocation.dram[tensor.storage],
                    layout,
                    tensor.format is UINT8,
                )
            )
        return tuple(found)


def _nodes(plan: Plan) -> tuple[NodeInfo, ...]:
    graph = plan.graph
    found = []
    runs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    start = 0
    for number, tasks in groupby(plan.tasks, lambda task: task.node):
        end = start + len([*tasks])
        runs[number].append((start, end))
        start = end
    tensors = graph.tensors
    for number, layer in enumerate(graph.operations):
        found.append(
            NodeInfo(
                layer.node,
                layer.op,
                tuple(tensors[name].shape for name in graph.activations(layer)),
                tensors[layer.output].shape,
                graph.macs(layer),
                tuple(runs[number]),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class _Walk:
    """How a MATRIX task goes over its sums. Those that go alike meet each word after as many cycles, which is long
    enough for a sum to be written; those that do not must wait for each other."""

    first: int
    loops: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, instruction: Matrix, operand: Operand) -> "_Walk":
        """Of a task that writes that operand."""
        loops = (
            (instruction.blocks, instruction.acc_stride_block),
            (instruction.height, instruction.acc_stride_y),
            (instruction.width, instruction.acc_stride_x),
        )
        return cls(operand.offset, loops)

    def meets(self, other: "_Walk") -> bool:
        """Whether another one comes to the same words, and otherwise than this one."""
        return self != other and self.first <= other.last and other.first <= self.last

    @property
    def last(self) -> int:
        """The last word."""
        return self.first + sum((count - 1) * stride for count, stride in self.loops)


class _Tokens:
    """Finds what each task depends on, and adds the tokens and drains that order does not imply yet.

    `known[i][e]`: how many instructions of engine e have ended for sure when task i issues.
    """

    def __init__(self, tasks: list[Task], allocation: Allocation) -> None:
        self.tasks = tasks
        self.allocation = allocation
        self.number: list[int] = []
        self.known: list[list[int]] = []
        self.waits = [0] * len(tasks)
        self.signals = [0] * len(tasks)
        self.drains = [False] * len(tasks)
        self.of_engine: list[list[int]] = [[] for _ in ENGINES]
        self.buffer_reads: dict[Buffer, dict[Engine, int]] = defaultdict(dict)
        self.buffer_writes: dict[Buffer, dict[Engine, int]] = defaultdict(dict)
        self.part_writes: dict[Buffer, list[tuple[Box | None, int]]] = defaultdict(list)
        """Of each buffer: who wrote which part of the tensor in it."""
        self.sums: dict[Buffer, dict[_Walk, int]] = defaultdict(dict)
        """Of each buffer in ACC: the last number of the MATRIX tasks that walked it so."""
        self.stores: dict[str, list[int]] = defaultdict(list)
        self.dram_uses: dict[str, dict[Engine, int]] = defaultdict(dict)

    def run(self) -> tuple[list[int], list[int], list[bool]]:
        """(wait masks, signal masks, drains) of all tasks."""
        for index, task in enumerate(self.tasks):
            engine = task.engine
            mine = self.of_engine[engine]
            known = list(self.known[mine[-1]]) if mine else [0] * len(ENGINES)
            self.known.append(known)
            self.number.append(len(mine))
            needs, own = self._dependencies(index, task)
            if own >= known[engine]:
                self.drains[index] = True
                known[engine] = len(mine)
            # one order at most per engine, for the wait takes one token
            for other in ENGINES:
                latest = self._latest_if_far(index, other)
                if latest is not None:
                    needs[other] = latest
            # the latest task first: it may know of the others, and they cannot know of it
            for other, earlier in sorted(needs.items(), key=lambda need: -need[1]):
                self._order(index, other, earlier)
            mine.append(index)
            self._record(index, task)
        return self.waits, self.signals, self.drains

    def _order(self, index: int, other: Engine, earlier: int) -> None:
        """Make task `index` wait for task `earlier` of engine `other`, unless that is implied."""
        known = self.known[index]
        if self.number[earlier] < known[other]:
            return
        self.waits[index] |= 1 << other
        self.signals[earlier] |= 1 << self.tasks[index].engine
        for engine in ENGINES:
            known[engine] = max(known[engine], self.known[earlier][engine])
        known[other] = max(known[other], self.number[earlier] + 1)

    def _latest_if_far(self, index: int, other: Engine) -> int | None:
        """The last task of an engine, when this one is so far ahead of it that a token counter could overflow."""
        engine = self.tasks[index].engine
        if other is engine or not self.of_engine[other]:
            return None
        latest = self.of_engine[other][-1]
        if self.number[latest] < self.known[index][other]:
            return None
        # tokens of instructions that an ended instruction of the other engine knew of are taken
        done = self.known[index][other]
        taken = self.known[self.of_engine[other][done - 1]][engine] if done else 0
        return latest if self.number[index] - taken >= _SYNCHRONISE else None

    def _dependencies(self, index: int, task: Task) -> tuple[dict[Engine, int], int]:
        """Latest task of each other engine that must have ended, and the own engine's to drain for."""
        needs: dict[Engine, int] = {}
        own = -1

        def add(uses: dict[Engine, int]) -> None:
            for engine, earlier in uses.items():
                if engine is not task.engine:
                    needs[engine] = max(needs.get(engine, -1), earlier)

        for operand in task.operands:
            buffer = operand.buffer
            written = self.buffer_writes[buffer]
            if operand.part is not None and not operand.write:
                written = self._writers_of_part(index, operand)
            add(written)
            if not operand.write:
                # MATRIX never reads what it writes, but through its accumulate path, in order
                if task.engine in written:
                    own = max(own, self.number[written[task.engine]])
                continue
            if isinstance(task.instruction, Matrix) and task.instruction.accumulate:
                walk = _Walk.of(task.instruction, operand)
                others = (number for one, number in self.sums[buffer].items() if one.meets(walk))
                own = max(own, *others, -1)
            add(self.buffer_reads[buffer])
            if not written and not self.buffer_reads[buffer]:
                for older in self.allocation.replaces[buffer]:
                    add(self.buffer_reads[older])
                    add(self.buffer_writes[older])
        if task.dram is not None:
            if not task.dram.write:
                earlier = self._overlapping_store(index, task)
                if earlier is not None:
                    add({Engine.STORE: earlier})
            elif task.dram.tensor not in self.dram_uses:
                for older in self.allocation.dram_replaces.get(task.dram.tensor, ()):
                    add(self.dram_uses[older])
        return needs, own

    def _writers_of_part(self, index: int, operand: Operand) -> dict[Engine, int]:
        """The last task that wrote some of a part, if it is not known to have ended. VECTOR alone writes parts."""
        assert operand.part is not None
        for part, earlier in reversed(self.part_writes[operand.buffer]):
            engine = self.tasks[earlier].engine
            if self.number[earlier] < self.known[index][engine]:
                break
            if part is None or part.overlaps(operand.part):
                return {engine: earlier}
        return {}

    def _overlapping_store(self, index: int, task: Task) -> int | None:
        """The last store of a part of what the task loads, of those that are not known to have ended."""
        assert task.dram is not None
        ended = self.known[index][Engine.STORE]
        for earlier in reversed(self.stores[task.dram.tensor]):
            if self.number[earlier] < ended:
                break
            dram = self.tasks[earlier].dram
            assert dram is not None
            if task.dram.box is None or dram.box is None or dram.box.overlaps(task.dram.box):
                return earlier
        return None

    def _record(self, index: int, task: Task) -> None:
        for operand in task.operands:
            uses = self.buffer_writes if operand.write else self.buffer_reads
            uses[operand.buffer][task.engine] = index
            if operand.write:
                self.part_writes[operand.buffer].append((operand.part, index))
            if operand.write and isinstance(task.instruction, Matrix):
                self.sums[operand.buffer][_Walk.of(task.instruction, operand)] = self.number[index]
        if task.dram is not None:
            self.dram_uses[task.dram.tensor][task.engine] = index
            if task.dram.write:
                self.stores[task.dram.tensor].append(index)
