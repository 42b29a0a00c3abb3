"""Coverage of what runs at the same time: engines beside each other, queues, tokens, instructions in flight."""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import operations_of
from npukit.isa.instructions import (
    ENGINES,
    REDUCTION_OPERATIONS,
    TWO_SOURCE_OPERATIONS,
    WINDOW_OPERATIONS,
    Engine,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Vector,
)
from npukit.isa.legality import LOAD_MEMORIES, vector_memories
from npukit.isa.timing import TOKEN_LIMIT
from npukit.sim.addressing import bank_depth
from npukit.sim.timing import Schedule
from npukit.verify.points import Point

__all__ = ["engines_meanwhile", "excluded", "flow_items", "flow_points", "flow_unreachable"]

_Ports = frozenset[tuple[Memory, bool]]
"""(memory, whether it is written) of what an instruction reads and writes, each in some bank."""


# ---- engines beside each other


def engines_meanwhile(instructions: Sequence[Instruction], schedule: Schedule) -> NDArray[np.bool_]:
    """bool[instructions, engines]: between the instruction's start and end, that engine had one between the same."""
    found = np.zeros((len(instructions), len(ENGINES)), bool)
    for engine in ENGINES:
        mine = [index for index, one in enumerate(instructions) if one.engine is engine]
        starts, ends = schedule.start[mine], schedule.end[mine]
        if not mine:
            continue
        # an engine's instructions end in the order in which they start
        first = np.searchsorted(ends, schedule.start)
        there = first < len(mine)
        found[:, engine] = there & (starts[np.minimum(first, len(mine) - 1)] <= schedule.end)
    return found


def _vector_ports(operation: Operation, memories: tuple[Memory, Memory]) -> _Ports:
    source, result = memories
    ports = {(result, True)}
    if operation is not Operation.FILL:
        ports.add((source, False))
    if operation in TWO_SOURCE_OPERATIONS:
        ports.add((Memory.ACT, False))
    return frozenset(ports)


@cache
def _ways(config: NpuConfig, kind: type[Instruction], context: tuple[tuple[str, int], ...]) -> frozenset[_Ports]:
    """What instructions of a kind may read and write, in a context. (PAR is not needed by every VECTOR instruction.)"""
    given = dict(context)
    if kind is Load:
        memories = [Memory(given["memory"])] if "memory" in given else LOAD_MEMORIES
        return frozenset(frozenset({(one, True)}) for one in memories)
    if kind is Matrix:
        least = {(Memory.ACT, False), (Memory.WGT, False), (Memory.ACC, True)}
        reads = frozenset(least | {(Memory.ACC, False)})
        return frozenset({reads} if given.get("accumulate") else {frozenset(least), reads})
    if kind is not Vector:
        return frozenset({frozenset({(Memory.ACT, False)})})
    found = set()
    for operation in operations_of(config):
        properties = {
            "operation": operation, "is_window": operation in WINDOW_OPERATIONS,
            "has_two_sources": operation in TWO_SOURCE_OPERATIONS, "reads_a": operation is not Operation.FILL,
        }  # fmt: skip
        if given.get("b_wrap") and not properties["has_two_sources"]:
            continue
        if given.get("a_wrap") and not properties["reads_a"]:
            continue
        if any(given.get(name, value) != value for name, value in properties.items()):
            continue
        # each word of the result is another one
        counts = ("blocks",) if operation in REDUCTION_OPERATIONS else ("blocks", "height", "width")
        for pair in vector_memories(config, operation):
            most = max(_words(config, operation, name, given.get(name, 1)) for name in counts)
            if most > bank_depth(config, pair[1])[1]:
                continue
            if given.get("a_memory", pair[0]) == pair[0] and given.get("out_memory", pair[1]) == pair[1]:
                found.add(_vector_ports(operation, pair))
    return frozenset(found)


def _words(config: NpuConfig, operation: int | None, field: str, count: int) -> int:
    """Words that so many turns of a loop write at least: a tile that is turned around has as many as the array rows."""
    return count * (config.array if operation is Operation.TRANSPOSE and field in ("blocks", "height") else 1)


def excluded(config: NpuConfig, point: Point, engine: Engine) -> str | None:
    """Why no instruction of an engine can run while one with that point does; None if one can.

    Where a memory has several banks, two instructions can take different ones. Of one bank they can use different
    words, unless one writes them all; and an instruction holds its port for writing until it ends (but in PAR).
    """
    alone = {memory for memory in (Memory.ACT, Memory.ACC, Memory.WGT) if bank_depth(config, memory)[0] == 1}
    kinds = {one.engine: one for one in (Load, Matrix, Vector)}
    context = (*point.context, (point.field, point.value))
    words = _words(config, dict(context).get("operation"), point.field, point.value)
    whole = {memory for memory in Memory if (1, words) == bank_depth(config, memory)}
    mine = _ways(config, point.kind, context)
    theirs = _ways(config, kinds.get(engine, Instruction), ())
    assert mine and theirs, (point, engine)
    shared = [
        {memory for memory, written in one & other if written and memory in alone}
        for one, other in product(mine, theirs)
    ]
    if point.spec.bias:
        touched = [
            {
                memory
                for memory, written in one
                if written and memory in whole and memory in {place for place, _ in other}
            }
            for one, other in product(mine, theirs)
        ]
        shared = [one | other for one, other in zip(shared, touched, strict=True)]
    if all(shared):
        names = sorted({memory.name for one in shared for memory in one})
        return f"both need {' and '.join(names)}, which has one bank: they both write, or one writes all of its words"
    return None


# ---- queues, tokens, instructions in flight


def flow_items(config: NpuConfig) -> list[str]:
    """Names of the points of `flow_points` that programs can reach."""
    found = [f"tokens_{a.name}_{b.name}={TOKEN_LIMIT}" for a in ENGINES for b in ENGINES if a is not b]
    levels = sorted({1, config.queue_depth - 1} - {0})
    for engine in ENGINES:
        found += [f"queue_{engine.name}={config.queue_depth}", f"queue_{engine.name} filled anew"]
        if config.queue_depth > 1:
            found += [f"queue_{engine.name} in and out at {level}" for level in levels]
    for engine in (Engine.LOAD, Engine.STORE):
        found.append(f"in_flight_{engine.name}={config.queue_depth}")
    found.append(f"waiting_LOAD={config.queue_depth}")
    return [*found, *(f"waiting_LOAD in and out at {level}" for level in levels if config.queue_depth > 1)]


def flow_unreachable(config: NpuConfig) -> dict[str, str]:
    """What queues and counters of instructions cannot do -> why."""
    reason = "a full queue takes nothing: a place is free in the cycle after it was left"
    found = {f"queue_{engine.name} in and out at {config.queue_depth}": reason for engine in ENGINES}
    reason = "an instruction issues in the cycle after it was queued at the earliest"
    found |= {f"queue_{engine.name} in and out at 0": reason for engine in ENGINES}
    reason = "they issue one after the other as they start: `docs/timing.md`, section 12"
    return found | {
        f"in_flight_{engine.name}={config.queue_depth}": reason for engine in (Engine.MATRIX, Engine.VECTOR)
    }


def flow_points(config: NpuConfig, instructions: Sequence[Instruction], schedule: Schedule) -> set[str]:
    """What a program's queues, tokens and instructions in flight came to."""
    found: set[str] = set()
    depth = config.queue_depth
    for engine in ENGINES:
        mine = [index for index, one in enumerate(instructions) if one.engine is engine]
        queued, issued, ended = schedule.queue[mine], schedule.issue[mine], schedule.end[mine]
        places = np.arange(len(mine))
        # in the cycle after an instruction came: with it, without those that have left
        after = places + 1 - np.searchsorted(issued, queued, side="right")
        if (after == depth).any():
            found.add(f"queue_{engine.name}={depth}")
            left = np.searchsorted(queued, issued + 1)
            came = (left < len(mine)) & (queued[np.minimum(left, len(mine) - 1)] == issued + 1)
            full = np.searchsorted(queued, issued) - places == depth
            if (came & full).any():
                found.add(f"queue_{engine.name} filled anew")
        before = places - np.searchsorted(issued, queued)
        both = np.isin(queued, issued)
        found.update(f"queue_{engine.name} in and out at {level}" for level in np.unique(before[both]).tolist())
        flying = places + 1 - np.searchsorted(ended, issued)
        if (flying >= depth).any():
            found.add(f"in_flight_{engine.name}={depth}")
        started = schedule.start[mine]
        if (places + 1 - np.searchsorted(started, issued, side="right") >= depth).any():
            found.add(f"waiting_{engine.name}={depth}")
        waiting = places - np.searchsorted(started, issued)
        both = np.isin(issued, started)
        found.update(f"waiting_{engine.name} in and out at {level}" for level in np.unique(waiting[both]).tolist())
    found |= _full_tokens(instructions, schedule)
    return found


def _full_tokens(instructions: Sequence[Instruction], schedule: Schedule) -> set[str]:
    """Pairs of engines between which as many tokens were as the counters hold."""
    found = set()
    for source in ENGINES:
        givers = [index for index, one in enumerate(instructions) if one.engine is source and one.signal]
        if len(givers) < TOKEN_LIMIT:
            continue
        for target in ENGINES:
            given = [schedule.end[i] + 1 for i in givers if instructions[i].signal >> target & 1]
            if len(given) < TOKEN_LIMIT:
                continue
            taken = [
                schedule.issue[i] + 1
                for i, one in enumerate(instructions)
                if one.engine is target and one.wait >> source & 1
            ]
            cycles = np.array(given + taken)
            change = np.repeat([1, -1], [len(given), len(taken)])
            when, place = np.unique(cycles, return_inverse=True)
            level = np.cumsum(np.bincount(place, change, len(when)))
            if (level == TOKEN_LIMIT).any():
                found.add(f"tokens_{source.name}_{target.name}={TOKEN_LIMIT}")
    return found
