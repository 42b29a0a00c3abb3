"""The timing half of the simulator: cycles of every instruction, counters, and what was waited for."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words, parameter_words
from npukit.isa.instructions import (
    WHOLE_WORD_OPERATIONS,
    Engine,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)
from npukit.isa.registers import COUNTERS
from npukit.isa.sdram import READ_BUFFER, REFRESHES_LATE, ROW_SPACING, WRITE_BUFFER
from npukit.isa.timing import Timing
from npukit.sim.dram import AnyDram, DramModel, SdramDram
from npukit.sim.timing_kernel import state
from npukit.sim.timing_kernel.simulate import simulate
from numpy.typing import NDArray

__all__ = ["Deadlock", "Schedule", "least_cycles", "simulate_timing", "stream_cycles"]


class Deadlock(RuntimeError):
    """A program in which an instruction waits for a token that never comes."""


@dataclass(frozen=True)
class Schedule:
    """When each instruction was queued, issued, started and ended, in cycles from the start.

    Arrays are int64[instructions], in program order; `counters` has the names of `isa.registers`.
    """

    queue: NDArray[np.int64]
    issue: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    token_wait: NDArray[np.int64]
    port_wait: NDArray[np.int64]
    dram_wait: NDArray[np.int64]
    counters: dict[str, int]

    @property
    def cycles(self) -> int:
        """Cycles from the start to done."""
        return self.counters["cycles"]


def _port(memory: Memory, bank: int, write: bool) -> int:
    """Bit mask of a port of ACT or ACC; of the others, only WGT's to write is one that two engines may want."""
    if memory not in (Memory.ACT, Memory.ACC):
        return 0
    return 1 << (state.PORTS // 2 * (memory is Memory.ACC) + state.PORTS // 4 * write + bank)


def stream_cycles(config: NpuConfig, vector: Vector) -> int:
    """Cycles in which VECTOR streams one block of an instruction."""
    timing = Timing(config)
    rows, columns = vector.height, vector.width
    if vector.is_window and timing.sweeps:
        return _swept_cycles(config, vector)
    if vector.is_window and vector.operation is not Operation.SUM:
        passes = -(-vector.window_width // config.vector_taps) * timing.requantise_passes
        fresh = min(vector.window_step, vector.window_width)
        first = vector.window_width + passes - 1
        later = fresh + passes - 1
        return rows * vector.window_height * (first + (columns - 1) * later)
    if vector.operation in WHOLE_WORD_OPERATIONS:
        return (rows + (vector.operation is Operation.TRANSPOSE)) * columns
    if vector.operation is Operation.SUM:
        window = vector.window_height * vector.window_width
        return rows * columns * window * timing.requantise_passes
    passes = timing.two_source_passes if vector.has_two_sources else timing.requantise_passes
    passes = timing.word_cycles(vector.operation) or passes
    if vector.has_two_sources and (vector.a_memory, vector.a_bank) == (vector.b_memory, vector.b_bank):
        passes = max(passes, 2)
    return rows * columns * passes


def _swept_cycles(config: NpuConfig, vector: Vector) -> int:
    """Cycles of a block whose results grow together, `sweep_words` at a time."""
    timing = Timing(config)
    outputs, columns = vector.height * vector.width, vector.width
    begins = np.arange(0, outputs, timing.sweep_words)
    ends = np.minimum(begins + timing.sweep_words, outputs)
    # the first result of a sweep and of a row reads all columns of its group
    whole = -(-ends // columns) - -(-begins // columns) + (begins % columns != 0)
    step, taps = vector.window_step, 1 if vector.operation is Operation.SUM else config.vector_taps
    sweeps = []
    for first in range(0, vector.window_width, taps):
        group = min(taps, vector.window_width - first)
        words = whole * group + (ends - begins - whole) * min(step, group)
        sweeps.append(words + (ends - begins) * (timing.requantise_passes - 1))
    # the next sweep waits for the sums of a short one, but nothing waits for the last one's
    gaps = np.maximum(0, timing.sweep_cycles - (ends - begins) * timing.requantise_passes)
    return int((vector.window_height * sum(sweep + gaps for sweep in sweeps) - gaps).sum())


def least_cycles(config: NpuConfig, instruction: Instruction) -> int:
    """Cycles for which an instruction keeps its engine at work, at the least."""
    if isinstance(instruction, Matrix):
        steps = instruction.blocks * instruction.channels * instruction.kernel_height * instruction.kernel_width
        passes = steps * config.row_passes
        return passes * max(config.rows, instruction.height * instruction.width, Timing(config).accumulate_latency)
    if isinstance(instruction, Vector):
        return instruction.blocks * stream_cycles(config, instruction)
    if isinstance(instruction, Load):
        rows = instruction.pad_top + instruction.rows + instruction.pad_bottom
        return instruction.planes * rows * (instruction.pad_left + instruction.words + instruction.pad_right)
    if isinstance(instruction, Store):
        words = instruction.planes * instruction.rows * instruction.words
        return max(words, words * config.word_bytes // config.bus_bytes)
    return 0


def _transfer(config: NpuConfig, instruction: Load | Store) -> dict[str, int]:
    unit = config.word_bytes
    wide = isinstance(instruction, Load) and instruction.memory is Memory.PAR
    word = config.wide_word_bytes if wide else unit
    return {
        "planes": instruction.planes,
        "rows": instruction.rows,
        "row_bytes": instruction.words * word,
        "plane_stride": instruction.dram_plane_stride * unit,
        "row_stride": instruction.dram_row_stride * unit,
        "address": instruction.dram * unit,
        "word_bytes": word,
    }


def _own(config: NpuConfig, instruction: Instruction) -> dict[str, int]:
    """What the kernel wants to know of an instruction of a certain engine."""
    if isinstance(instruction, Load):
        border = ("pad_top", "pad_bottom", "pad_left", "pad_right")
        return {
            "write_ports": _port(instruction.memory, instruction.bank, True),
            "writes_weights": int(instruction.memory is Memory.WGT),
            **_transfer(config, instruction),
            **{name: getattr(instruction, name) for name in border},
        }
    if isinstance(instruction, Store):
        return {"read_ports": _port(Memory.ACT, instruction.bank, False), **_transfer(config, instruction)}
    if isinstance(instruction, Matrix):
        steps = instruction.channels * instruction.kernel_height * instruction.kernel_width * config.row_passes
        written = _port(Memory.ACC, instruction.acc_bank, True)
        if instruction.accumulate or steps > 1:
            written |= _port(Memory.ACC, instruction.acc_bank, False)
        return {
            "read_ports": _port(Memory.ACT, instruction.act_bank, False),
            "write_ports": written,
            "steps": instruction.blocks * steps,
            "words": instruction.height * instruction.width,
        }
    if isinstance(instruction, Vector):
        read = 0
        if instruction.operation is not Operation.FILL:
            read = _port(instruction.a_memory, instruction.a_bank, False)
        if instruction.has_two_sources:
            read |= _port(instruction.b_memory, instruction.b_bank, False)
        return {
            "read_ports": read,
            "write_ports": _port(instruction.out_memory, instruction.out_bank, True),
            "writes_weights": int(instruction.out_memory is Memory.WGT),
            "blocks": instruction.blocks,
            "descriptor": descriptor_words(config, instruction),
            "parameters": parameter_words(config, instruction),
            "stream": stream_cycles(config, instruction),
            "table": Timing.table_cycles(instruction.operation),
        }
    return {}


def _program(config: NpuConfig, instructions: Sequence[Instruction]) -> Any:
    """The kernel's view of a program."""
    total = len(instructions)
    columns: dict[str, NDArray[np.uint64]] = defaultdict(lambda: np.zeros(total, np.uint64))
    for index, instruction in enumerate(instructions):
        engine = instruction.engine
        values = {
            "engine": state.FETCH if engine is None else int(engine),
            "drain": instruction.drain,
            "wait": instruction.wait,
            "signal": instruction.signal,
            **_own(config, instruction),
        }
        for name, value in values.items():
            columns[name][index] = value & 0xFFFFFFFFFFFFFFFF  # masks have 64 bits
    return state.new_program({name: column.view(np.int64) for name, column in columns.items()}, total)


def _parameters(config: NpuConfig, dram: AnyDram) -> dict[str, int]:
    timing = Timing(config)
    memory = {}
    if isinstance(dram, DramModel):
        memory = {"latency": dram.latency, "read_bursts": dram.read_bursts, "write_bursts": dram.write_bursts}
    of_config = ("queue_depth", "bus_bytes", "max_burst", "rows")
    of_timing = (
        "fetch_burst", "fetch_buffer", "matrix_latency", "accumulate_latency", "vector_latency", "parameter_hold",
        "store_read_latency",
    )  # fmt: skip
    return (
        {name: getattr(config, name) for name in of_config}
        | {name: getattr(timing, name) for name in of_timing}
        | memory
    )


def _sdram(config: NpuConfig, dram: AnyDram) -> dict[str, int]:
    """The controller's parameters, as `npukit.fpga.sdram` derives them; none for the reference DRAM."""
    if not isinstance(dram, SdramDram):
        return {}
    times, words = dram.times, config.bus_bytes // 2
    assert dram.phase is not None and dram.io_cycles is not None
    return {
        "present": 1,
        "rate": dram.rate,
        "first_beat": times.cas_latency + dram.io_cycles + words + 1,
        "column_wait": words - 1,
        "activate_wait": max(times.activate_to_column, times.bank_to_bank, ROW_SPACING) - 1,
        "open_wait": max(times.row_active, times.row_cycle - times.precharge) - 1,
        "precharge_wait": max(times.precharge, ROW_SPACING) - 1,
        "refresh_wait": times.refresh_cycle - 1,
        "recovery_wait": times.write_recovery + words - 2,
        "turn_wait": times.cas_latency + words,
        "interval": times.refresh_interval,
        "late": REFRESHES_LATE,
        "column_bits": dram.chip.column_bits - (words.bit_length() - 1),
        "bank_bits": dram.chip.bank_bits,
        "row_bits": dram.chip.row_bits,
        "read_buffer": READ_BUFFER,
        "write_buffer": WRITE_BUFFER,
        "phase": times.refresh_interval - 1 - dram.phase,
        "program": dram.program,
        "operands": dram.base,
    }


def simulate_timing(config: NpuConfig, instructions: Sequence[Instruction], dram: AnyDram | None = None) -> Schedule:
    """The schedule of a program that ends with END, on the reference DRAM unless another one is given.

    Raises:
        Deadlock: when an instruction can never issue.
        ValueError: when the last instruction, and only it, is not END; a DRAM that does not go with the configuration.
    """
    dram = dram or DramModel()
    dram.check(config)
    if [i for i, one in enumerate(instructions) if one.engine is None] != [len(instructions) - 1]:
        raise ValueError("a program has exactly one END, its last instruction")
    program = _program(config, instructions)
    machine = state.new_machine(_parameters(config, dram), _sdram(config, dram), program)
    stuck = simulate(machine, program)
    if stuck >= 0:
        raise Deadlock(f"instruction {stuck} ({instructions[stuck].mnemonic}) waits for a token that never comes")
    cycles = {one.name: program[one.name].copy() for one in fields(Schedule) if one.name != "counters"}
    counters = {name: int(value) for (name, _), value in zip(COUNTERS, machine.counters, strict=True)}
    for engine in Engine:
        mine = program["engine"] == engine
        for cause in ("token", "port"):
            counters[f"{engine.name.lower()}_{cause}"] = int(cycles[f"{cause}_wait"][mine].sum())
    return Schedule(**cycles, counters=counters)
