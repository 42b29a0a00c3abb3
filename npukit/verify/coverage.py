"""What random programs have exercised, counted."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import operations_of, parameter_words
from npukit.isa.instructions import (
    ENGINES,
    TWO_SOURCE_OPERATIONS,
    Instruction,
    Load,
    Matrix,
    Memory,
    Store,
    Vector,
)
from npukit.isa.timing import Timing
from npukit.sim.addressing import bank_depth, dram_operand, operands
from npukit.sim.timing import Schedule

__all__ = ["cover", "cover_values", "coverage_items"]

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


def coverage_items(config: NpuConfig) -> list[str]:
    """Every item that runs on such configurations should hit."""
    floats = config.dtype == "bf16"
    return [
        *(f"operation_{one.name}" for one in operations_of(config)),
        *(f"load_{memory.name}" for memory in (Memory.ACT, Memory.WGT, Memory.PAR)),
        *(f"token_{a.name}_{b.name}" for a in ENGINES for b in ENGINES if a is not b),
        *(f"stall_{name}" for name in _STALLS),
        *(f"trait_{name}" for name in (*_TRAITS, *(_SWEPT_TRAITS if floats else ()))),
        *(f"{kind}_{name}" for kind in ("read", "stored") for name in (_SPECIAL if floats else ())),
    ]


def cover_values(kind: str, bits: NDArray[np.uint16], counts: Counter[str]) -> None:
    """Count which special values are among bfloat16 data, once each."""
    exponent, mantissa, negative = bits >> 7 & 0xFF, bits & 0x7F, bits >> 15 == 1
    found = {
        "zero": (exponent == 0) & (mantissa == 0) & ~negative,
        "negative_zero": (exponent == 0) & (mantissa == 0) & negative,
        "subnormal": (exponent == 0) & (mantissa != 0),
        "infinity": (exponent == 0xFF) & (mantissa == 0),
        "nan": (exponent == 0xFF) & (mantissa != 0),
    }
    counts.update(f"{kind}_{name}" for name, places in found.items() if places.any())


def cover(config: NpuConfig, instructions: Sequence[Instruction], schedule: Schedule, counts: Counter[str]) -> None:
    """Count each item that a program hits, once a program."""
    seen: set[str] = set()
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
        for operand in operands(config, one):
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
            if any(
                isinstance(other, Matrix) and schedule.end[index] > schedule.start[later]
                for later, other in enumerate(instructions[index + 1 :], index + 1)
            ):
                seen.add("trait_overlapping_matrix")
        elif isinstance(one, Vector):
            _cover_vector(config, one, seen)
    if len(instructions) >= 20:
        seen.add("trait_long_program")
    spans = {
        engine: [(schedule.start[i], schedule.end[i]) for i, one in enumerate(instructions) if one.engine is engine]
        for engine in ENGINES
    }
    for start, end in spans[ENGINES[0]]:
        if all(any(s <= end and e >= start for s, e in spans[engine]) for engine in ENGINES[1:]):
            seen.add("trait_all_engines_at_once")
    counts.update(seen)


def _cover_transfer(config: NpuConfig, one: Load | Store, stored: set[int], seen: set[str]) -> None:
    words = dram_operand(config, one).words()
    if isinstance(one, Store):
        stored.update(words.reshape(-1).tolist())
    else:
        seen.add(f"load_{one.memory.name}")
        if stored.intersection(words.reshape(-1).tolist()):
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
    if one.height * one.width < config.array:
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
        if config.dtype == "bf16":
            _cover_sweeps(config, one, seen)


def _cover_sweeps(config: NpuConfig, one: Vector, seen: set[str]) -> None:
    timing, results = Timing(config), one.height * one.width
    if results > timing.sweep_words:
        seen.add("trait_several_chunks")
        if timing.sweep_words % one.width:
            seen.add("trait_chunk_ends_in_row")
    if results * timing.requantise_passes < timing.sweep_cycles and one.window_height * one.window_width > 1:
        seen.add("trait_sweep_waits")
