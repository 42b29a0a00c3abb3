"""interleave: tiles of neighbouring layers in one order, so that the engines do not wait for each other.

A layer that keeps one engine busy leaves the others idle: an addition the array, a convolution the vector lanes. The
plan comes layer by layer. Here its tiles come in the order in which, by an estimate, each could begin first; a tile
comes after all that it reads, and never before an earlier one of its own layer.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from npukit.compiler.tasks import Buffer, Plan, Task
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Engine, Load, Matrix, Memory, Store, Vector
from npukit.isa.timing import Timing
from npukit.sim.addressing import bank_depth
from npukit.sim.timing import stream_cycles

__all__ = ["InterleavePass"]

_LATENCY = 100
"""Cycles from a request to DRAM to its answer, for the estimate."""
_AHEAD = 3
"""Results that may wait in ACC until VECTOR has taken them."""


@dataclass(eq=False)
class _Unit:
    """The tasks of a tile."""

    group: int
    tasks: list[Task]
    work: dict[Engine, int]
    first_load: int = 0
    missing: int = 0
    ready: float = 0.0
    waiting: list["_Unit"] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)


@dataclass(frozen=True)
class InterleavePass:
    """`window`: layers that are open at the same time; `fill`: share of each memory that they may hold together."""

    config: NpuConfig
    window: int = 4
    fill: float = 0.6
    name = "interleave"

    def run(self, plan: Plan) -> Plan:
        """The same tasks in another order."""
        units = list(self._units(plan))
        _link(units)
        order = _Order(self, units).run()
        return Plan([task for unit in order for task in unit.tasks], plan.constants)

    def _units(self, plan: Plan) -> Iterator[_Unit]:
        for _, tasks in groupby(plan.tasks, lambda task: task.tile):
            yield self._unit([*tasks])

    def _unit(self, tasks: list[Task]) -> _Unit:
        work: dict[Engine, int] = dict.fromkeys((Engine.LOAD, Engine.MATRIX, Engine.VECTOR, Engine.STORE), 0)
        first = 0
        for task in tasks:
            cycles = self._cycles(task)
            work[task.engine] += cycles
            if task.engine is Engine.LOAD and not work[Engine.MATRIX]:
                first = work[Engine.LOAD]
        buffers = list({operand.buffer: None for task in tasks for operand in task.operands})
        return _Unit(tasks[0].group, tasks, work, first, buffers=buffers)

    def _cycles(self, task: Task) -> int:
        config, one = self.config, task.instruction
        if isinstance(one, Load):
            word = config.wide_word_bytes if one.memory is Memory.PAR else config.word_bytes
            words = one.planes * (one.rows + one.pad_top + one.pad_bottom) * one.words
            return words * max(1, word // config.bus_bytes) + 2
        if isinstance(one, Store):
            return one.planes * one.rows * one.words * max(1, config.word_bytes // config.bus_bytes) + 3
        if isinstance(one, Matrix):
            steps = one.blocks * one.channels * one.kernel_height * one.kernel_width
            return steps * max(one.height * one.width, config.array, Timing(config).accumulate_latency)
        assert isinstance(one, Vector)
        return one.blocks * stream_cycles(config, one) + 8


def _link(units: list[_Unit]) -> None:
    """Note which units come after which: through buffers, and through tensors in DRAM."""
    writer: dict[Buffer, _Unit] = {}
    stores: dict[str, list[tuple[Task, _Unit]]] = defaultdict(list)
    for unit in units:
        before: dict[_Unit, None] = {}
        for task in unit.tasks:
            for operand in task.operands:
                other = writer.setdefault(operand.buffer, unit)
                if other is not unit:
                    before[other] = None
            if task.dram is None:
                continue
            box = task.dram.box
            if task.dram.write:
                stores[task.dram.tensor].append((task, unit))
                continue
            for store, other in stores[task.dram.tensor]:
                assert store.dram is not None
                if box is None or store.dram.box is None or box.overlaps(store.dram.box):
                    before[other] = None
        for other in before:
            if other is not unit:
                other.waiting.append(unit)
                unit.missing += 1


class _Order:
    """The estimate of time as units are taken one after the other."""

    def __init__(self, settings: InterleavePass, units: list[_Unit]) -> None:
        config = settings.config
        self.window = settings.window
        self.layers: dict[int, list[_Unit]] = defaultdict(list)
        for unit in reversed(units):
            self.layers[unit.group].append(unit)  # the next one last
        self.nodes = sorted(self.layers)
        self.room = {}
        for memory in Memory:
            count, depth = bank_depth(config, memory)
            self.room[memory] = settings.fill * count * depth
        self.live = dict.fromkeys(Memory, 0)
        self.uses: dict[Buffer, int] = defaultdict(int)
        for unit in units:
            for buffer in unit.buffers:
                self.uses[buffer] += 1
        self.begun: set[Buffer] = set()
        self.clock = dict.fromkeys(Engine, 0.0)
        self.results = [0.0] * _AHEAD
        self.total = len(units)

    def run(self) -> list[_Unit]:
        order: list[_Unit] = []
        while len(order) < self.total:
            unit = self._next()
            self.layers[unit.group].pop()
            self._take(unit)
            order.append(unit)
            while self.nodes and not self.layers[self.nodes[0]]:
                self.nodes.pop(0)
        return order

    def _next(self) -> _Unit:
        best: tuple[float, _Unit] | None = None
        for number, node in enumerate(self.nodes[: self.window]):
            if not self.layers[node]:
                continue
            unit = self.layers[node][-1]
            if unit.missing or (number and not self._fits(unit)):
                continue
            start = self._times(unit)[0]
            if best is None or start < best[0]:
                best = start, unit
        assert best is not None, "the first layer's next unit is always possible"
        return best[1]

    def _fits(self, unit: _Unit) -> bool:
        more: dict[Memory, int] = defaultdict(int)
        for buffer in unit.buffers:
            if buffer not in self.begun:
                more[buffer.memory] += buffer.words
        return all(self.live[memory] + words <= self.room[memory] for memory, words in more.items())

    def _times(self, unit: _Unit) -> tuple[float, dict[Engine, float]]:
        """When the unit's main work begins, and when each engine has done its part."""
        work = unit.work
        asked = max(self.clock[Engine.LOAD], unit.ready)
        loaded = asked + work[Engine.LOAD]
        # data that is not there yet takes the latency, what comes behind does not
        first = max(asked + unit.first_load, unit.ready + _LATENCY) if unit.first_load else unit.ready
        clock = {Engine.LOAD: loaded if work[Engine.LOAD] else self.clock[Engine.LOAD]}
        start = None
        done = max(first, loaded)
        if work[Engine.MATRIX]:
            start = max(self.clock[Engine.MATRIX], first, self.results[0])
            done = max(start + work[Engine.MATRIX], loaded)
            clock[Engine.MATRIX] = done
        if work[Engine.VECTOR]:
            begin = max(self.clock[Engine.VECTOR], done)
            start = begin if start is None else start
            done = begin + work[Engine.VECTOR]
            clock[Engine.VECTOR] = done
        if work[Engine.STORE]:
            done = max(self.clock[Engine.STORE], done) + work[Engine.STORE]
            clock[Engine.STORE] = done
        return done if start is None else start, clock

    def _take(self, unit: _Unit) -> None:
        _, clock = self._times(unit)
        self.clock.update(clock)
        if unit.work[Engine.MATRIX]:
            self.results = [*self.results[1:], clock.get(Engine.VECTOR, 0.0)]
        done = max(clock.values()) + _LATENCY
        for other in unit.waiting:
            other.missing -= 1
            other.ready = max(other.ready, done)
        for buffer in unit.buffers:
            if buffer not in self.begun:
                self.begun.add(buffer)
                self.live[buffer.memory] += buffer.words
            self.uses[buffer] -= 1
            if not self.uses[buffer]:
                self.live[buffer.memory] -= buffer.words
