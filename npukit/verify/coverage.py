"""What random programs have exercised.

The table has five parts: values at the ends of each declared field (`npukit.verify.points`), those with each other
engine at work meanwhile and the state of queues and tokens (`concurrency`), numbers and parameters (`observed`),
registers (`placement`), and here, traits of programs. It is made for a configuration; what no legal program of it can
reach is listed with the reason.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import operations_of, parameter_words
from npukit.isa.instructions import (
    ENGINES,
    TWO_SOURCE_OPERATIONS,
    Engine,
    Instruction,
    Load,
    Matrix,
    Memory,
    Store,
    Vector,
)
from npukit.isa.timing import Timing
from npukit.sim.addressing import Operand, bank_depth, dram_operand, operands
from npukit.sim.timing import Schedule
from npukit.verify.concurrency import engines_meanwhile, excluded, flow_items, flow_points, flow_unreachable
from npukit.verify.generator import RandomProgram, Target
from npukit.verify.observed import many_results, parameter_points, total_points, value_items, value_unreachable
from npukit.verify.placement import placement_items, placement_points
from npukit.verify.points import Point, field_points, points, unreachable

__all__ = ["common_items", "cover", "coverage_items", "coverage_targets", "coverage_unreachable"]

_STALLS = (
    *(f"{engine.name.lower()}_{cause}" for engine in ENGINES for cause in ("token", "port")),
    "load_dram",
    "store_dram",
    "fetch_stall",
)
_TRAITS = (
    "drain", "ring", "bank_end", "page_crossing", "burst_split", "border", "negative_stride", "zero_stride",
    "load_of_stored", "accumulate", "reduction", "several_blocks", "step_shorter_than_array", "same_bank_sources",
    "parameters_per_block", "window_step", "window_wider_than_taps", "overlapping_matrix",
    "all_engines_at_once", "long_program",
)  # fmt: skip


_SWEPT_TRAITS = ("several_chunks", "sweep_waits", "chunk_ends_in_row")
_SPECIAL = ("zero", "negative_zero", "subnormal", "infinity", "nan")


@cache
def common_items(config: NpuConfig) -> tuple[str, ...]:
    """Items that random programs hit again and again."""
    floats = config.activation.floating
    return (
        *(f"operation_{one.name}" for one in operations_of(config)),
        *(f"load_{memory.name}" for memory in (Memory.ACT, Memory.WGT, Memory.PAR)),
        *(f"token_{a.name}_{b.name}" for a in ENGINES for b in ENGINES if a is not b),
        *(f"stall_{name}" for name in _STALLS),
        *(f"trait_{name}" for name in (*_TRAITS, *(_SWEPT_TRAITS if floats else ()))),
        *(f"{kind}_{name}" for kind in ("read", "stored") for name in (_SPECIAL if floats else ())),
    )


@cache
def coverage_items(config: NpuConfig) -> tuple[str, ...]:
    """Every item that programs of a configuration can hit."""
    return (
        *common_items(config),
        *(point.name for point in points(config)),
        *(_beside(point, engine) for point, engine, reason in _pairs(config) if reason is None),
        *flow_items(config),
        *value_items(config),
        *placement_items(),
    )


def coverage_unreachable(config: NpuConfig) -> dict[str, str]:
    """What can be written down, and no legal program of a configuration has -> why."""
    pairs = {_beside(point, engine): reason for point, engine, reason in _pairs(config) if reason is not None}
    return {**unreachable(config), **pairs, **flow_unreachable(config), **value_unreachable(config)}


@cache
def coverage_targets(config: NpuConfig) -> dict[str, Target]:
    """Items at which programs can be directed."""
    found = {point.name: Target(point) for point in points(config) if point.kind.engine is not None}
    for point, engine, reason in _pairs(config):
        if reason is None:
            found[_beside(point, engine)] = Target(point, beside=engine)
    found |= {
        name: Target(parameters=(operation, ((field, bits),)))
        for name, (operation, field, bits) in parameter_points(config).items()
    }
    found |= {name: Target(total=total) for name, total in total_points(config).items()}
    found |= {name: Target(many=operation) for name, operation in many_results(config).items()}
    for name in flow_items(config):
        for engine in ENGINES:
            if name.startswith(f"tokens_{engine.name}_"):
                found[name] = Target(tokens=engine)
            elif name.startswith((f"queue_{engine.name}", f"in_flight_{engine.name}")):
                found[name] = Target(queue=engine)
            elif name.startswith(f"waiting_{engine.name}"):
                found[name] = Target(waiting=engine)
    return found


def _beside(point: Point, engine: Engine) -> str:
    return f"{point.name} beside {engine.name}"


@cache
def _pairs(config: NpuConfig) -> tuple[tuple[Point, Engine, str | None], ...]:
    """Points at ends with each other engine, and why they cannot meet, if so."""
    return tuple(
        (point, engine, excluded(config, point, engine))
        for point in points(config)
        for engine in ENGINES
        if point.extreme and point.kind.engine not in (None, engine)
    )


def _special_values(kind: str, bits: NDArray[np.uint16]) -> Iterator[str]:
    """Which special values are among bfloat16 data."""
    exponent, mantissa, negative = bits >> 7 & 0xFF, bits & 0x7F, bits >> 15 == 1
    found = {
        "zero": (exponent == 0) & (mantissa == 0) & ~negative,
        "negative_zero": (exponent == 0) & (mantissa == 0) & negative,
        "subnormal": (exponent == 0) & (mantissa != 0),
        "infinity": (exponent == 0xFF) & (mantissa == 0),
        "nan": (exponent == 0xFF) & (mantissa != 0),
    }
    return (f"{kind}_{name}" for name, places in found.items() if places.any())


def cover(made: RandomProgram, schedule: Schedule, observed: set[str], after: NDArray[np.uint8]) -> set[str]:
    """The items that a program hits.

    Args:
        observed: what an `Observer` found.
        after: the DRAM image as the program left it.
    """
    config, instructions = made.config, made.instructions
    accesses = [operands(config, one) for one in instructions]
    seen = set(observed)
    _cover_fields(made, schedule, accesses, seen)
    seen |= flow_points(config, instructions, schedule)
    seen |= placement_points(config, made.placement, instructions, made.memory.size)
    _cover_program(config, instructions, accesses, schedule, seen)
    if config.activation.floating:
        read, stored = made.memory.view(np.uint16), after.view(np.uint16)
        seen.update(_special_values("read", read))
        seen.update(_special_values("stored", stored[stored != read]))
    return seen


def _cover_fields(
    made: RandomProgram, schedule: Schedule, accesses: Sequence[Sequence[Operand]], seen: set[str]
) -> None:
    beside = engines_meanwhile(made.instructions, schedule)
    for index, (one, touched) in enumerate(zip(made.instructions, accesses, strict=True)):
        for point in field_points(made.config, one, touched, made.placement.shift):
            seen.add(point.name)
            if point.extreme:
                seen.update(_beside(point, engine) for engine in ENGINES if beside[index, engine])


def _cover_program(
    config: NpuConfig, instructions: Sequence[Instruction], accesses: Sequence[Sequence[Operand]],
    schedule: Schedule, seen: set[str],
) -> None:  # fmt: skip
    for name in _STALLS:
        if schedule.counters[name]:
            seen.add(f"stall_{name}")
    stored: set[int] = set()
    for index, one in enumerate(instructions):
        if one.engine is None:
            continue
        if one.drain:
            seen.add("trait_drain")
        seen.update(f"token_{one.engine.name}_{other.name}" for other in ENGINES if one.signal >> other & 1)
        for operand in accesses[index]:
            assert operand.memory is not None
            if operand.wraps:
                seen.add("trait_ring")
            if operand.extent[1] == bank_depth(config, operand.memory)[1] - 1:
                seen.add("trait_bank_end")
            strides = [stride for count, stride in operand.loops if count > 1]
            seen.update(["trait_negative_stride"] if min(strides, default=0) < 0 else [])
            seen.update(["trait_zero_stride"] if 0 in strides else [])
        if isinstance(one, Load | Store):
            _cover_transfer(config, one, stored, seen)
        elif isinstance(one, Matrix):
            _cover_matrix(config, one, seen)
        elif isinstance(one, Vector):
            _cover_vector(config, one, seen)
    if len(instructions) >= 20:
        seen.add("trait_long_program")
    _cover_spans(instructions, schedule, seen)


def _cover_spans(instructions: Sequence[Instruction], schedule: Schedule, seen: set[str]) -> None:
    """Which instructions overlap in time."""
    spans = {
        engine: [(schedule.start[i], schedule.end[i]) for i, one in enumerate(instructions) if one.engine is engine]
        for engine in ENGINES
    }
    matrix = spans[Engine.MATRIX]
    if any(end > start for (_, end), (start, _) in pairwise(matrix)):
        seen.add("trait_overlapping_matrix")
    for start, end in spans[ENGINES[0]]:
        if all(any(s <= end and e >= start for s, e in spans[engine]) for engine in ENGINES[1:]):
            seen.add("trait_all_engines_at_once")
            break


def _cover_transfer(config: NpuConfig, one: Load | Store, stored: set[int], seen: set[str]) -> None:
    words = dram_operand(config, one).words()
    if isinstance(one, Store):
        stored.update(words.reshape(-1).tolist())
    else:
        seen.add(f"load_{one.memory.name}")
        if "trait_load_of_stored" not in seen and stored.intersection(words.reshape(-1).tolist()):
            seen.add("trait_load_of_stored")
        if one.pad_top or one.pad_bottom or one.pad_left or one.pad_right:
            seen.add("trait_border")
    rows = words.reshape(-1, words.shape[-1])
    first, last = rows[:, 0] * config.word_bytes, (rows[:, -1] + 1) * config.word_bytes - 1
    if (first // 4096 != last // 4096).any():
        seen.add("trait_page_crossing")
    if (last - first >= config.max_burst * config.bus_bytes).any():
        seen.add("trait_burst_split")


def _cover_matrix(config: NpuConfig, one: Matrix, seen: set[str]) -> None:
    if one.accumulate:
        seen.add("trait_accumulate")
    if one.channels * one.kernel_height * one.kernel_width > 1:
        seen.add("trait_reduction")
    if one.blocks > 1:
        seen.add("trait_several_blocks")
    if one.height * one.width < config.rows:
        seen.add("trait_step_shorter_than_array")


def _cover_vector(config: NpuConfig, one: Vector, seen: set[str]) -> None:
    seen.add(f"operation_{one.operation.name}")
    if one.operation in TWO_SOURCE_OPERATIONS and one.a_bank == one.b_bank:
        seen.add("trait_same_bank_sources")
    if one.blocks > 1 and parameter_words(config, one):
        seen.add("trait_parameters_per_block")
    if one.is_window:
        if one.window_step > 1:
            seen.add("trait_window_step")
        if one.window_width > config.vector_taps:
            seen.add("trait_window_wider_than_taps")
        if Timing(config).sweeps:
            _cover_sweeps(config, one, seen)


def _cover_sweeps(config: NpuConfig, one: Vector, seen: set[str]) -> None:
    timing, results = Timing(config), one.height * one.width
    if results > timing.sweep_words:
        seen.add("trait_several_chunks")
        if timing.sweep_words % one.width:
            seen.add("trait_chunk_ends_in_row")
    if results * timing.requantise_passes < timing.sweep_cycles and one.window_height * one.window_width > 1:
        seen.add("trait_sweep_waits")
