"""The timing half of the simulator: cycles of every instruction, counters, and what was waited for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words, parameter_words
from npukit.isa.instructions import (
    ENGINES,
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
from npukit.isa.sdram import READ_BUFFER, REFRESHES_LATE, WRITE_BUFFER
from npukit.isa.timing import TABLE_LOAD_CYCLES, Timing
from npukit.sim import sdram_kernel as sdram
from npukit.sim import timing_kernel as kernel
from npukit.sim.dram import AnyDram, DramModel, SdramDram
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
    """Bit mask of a port that two engines may want; WGT and PAR have one engine on each side."""
    if memory not in (Memory.ACT, Memory.ACC):
        return 0
    return 1 << (32 * (memory is Memory.ACC) + 16 * write + bank)


def stream_cycles(config: NpuConfig, vector: Vector) -> int:
    """Cycles in which VECTOR streams one block of an instruction."""
    timing = Timing(config)
    rows, columns = vector.height, vector.width
    if vector.is_window and config.dtype == "bf16":
        return _swept_cycles(config, vector)
    if vector.is_window and vector.operation is not Operation.SUM:
        passes = -(-vector.window_width // config.vector_taps) * timing.requantise_passes
        fresh = min(vector.window_step, vector.window_width)
        first = vector.window_width + passes - 1
        later = fresh + passes - 1
        return rows * vector.window_height * (first + (columns - 1) * later)
    if vector.operation in (Operation.COPY, Operation.CONVERT, Operation.FILL):
        return rows * columns
    if vector.operation is Operation.SUM:
        window = vector.window_height * vector.window_width
        return rows * columns * window * timing.requantise_passes
    passes = timing.two_source_passes if vector.has_two_sources else timing.requantise_passes
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
        return steps * max(config.array, instruction.height * instruction.width, Timing(config).accumulate_latency)
    if isinstance(instruction, Vector):
        return instruction.blocks * stream_cycles(config, instruction)
    if isinstance(instruction, Load):
        rows = instruction.pad_top + instruction.rows + instruction.pad_bottom
        return instruction.planes * rows * (instruction.pad_left + instruction.words + instruction.pad_right)
    if isinstance(instruction, Store):
        words = instruction.planes * instruction.rows * instruction.words
        return max(words, words * config.word_bytes // config.bus_bytes)
    return 0


def _transfer(config: NpuConfig, instruction: Load | Store) -> list[int]:
    unit = config.word_bytes
    wide = isinstance(instruction, Load) and instruction.memory is Memory.PAR
    word = config.wide_word_bytes if wide else unit
    row = [
        instruction.planes,
        instruction.rows,
        instruction.words * word,
        instruction.dram_plane_stride * unit,
        instruction.dram_row_stride * unit,
        instruction.dram * unit,
        word,
    ]
    if isinstance(instruction, Load):
        row += [instruction.pad_top, instruction.pad_bottom, instruction.pad_left, instruction.pad_right]
    return row


def _row(config: NpuConfig, instruction: Instruction) -> list[int]:
    """One row of the kernel's instruction table."""
    engine = instruction.engine
    head = [
        len(ENGINES) if engine is None else int(engine),
        instruction.drain,
        instruction.wait,
        instruction.signal,
    ]
    if isinstance(instruction, Load):
        ports = [0, _port(instruction.memory, instruction.bank, True)]
        return head + ports + _transfer(config, instruction)
    if isinstance(instruction, Store):
        return head + [_port(Memory.ACT, instruction.bank, False), 0] + _transfer(config, instruction)
    if isinstance(instruction, Matrix):
        steps = instruction.channels * instruction.kernel_height * instruction.kernel_width
        written = _port(Memory.ACC, instruction.acc_bank, True)
        if instruction.accumulate or steps > 1:
            written |= _port(Memory.ACC, instruction.acc_bank, False)
        ports = [_port(Memory.ACT, instruction.act_bank, False), written]
        return head + ports + [instruction.blocks * steps, instruction.height * instruction.width]
    if isinstance(instruction, Vector):
        read = 0
        if instruction.operation is not Operation.FILL:
            read = _port(instruction.a_memory, instruction.a_bank, False)
        if instruction.has_two_sources:
            read |= _port(instruction.b_memory, instruction.b_bank, False)
        return [
            *head,
            read,
            _port(instruction.out_memory, instruction.out_bank, True),
            instruction.blocks,
            descriptor_words(config, instruction),
            parameter_words(config, instruction),
            stream_cycles(config, instruction),
            TABLE_LOAD_CYCLES if instruction.operation is Operation.TABLE else 0,
        ]
    return head


def _table(config: NpuConfig, instructions: Sequence[Instruction]) -> NDArray[np.int64]:
    table = np.zeros((len(instructions), kernel.I_COUNT), np.uint64)
    for index, instruction in enumerate(instructions):
        row = [value & 0xFFFFFFFFFFFFFFFF for value in _row(config, instruction)]
        table[index, : len(row)] = row
    return table.view(np.int64)


def _constants(config: NpuConfig, dram: AnyDram) -> NDArray[np.int64]:
    timing = Timing(config)
    values = np.zeros(kernel.C_COUNT, np.int64)
    if isinstance(dram, DramModel):
        values[kernel.C_LATENCY] = dram.latency
        values[kernel.C_READ_BURSTS] = dram.read_bursts
        values[kernel.C_WRITE_BURSTS] = dram.write_bursts
    values[kernel.C_QUEUE_DEPTH] = config.queue_depth
    values[kernel.C_BUS_BYTES] = config.bus_bytes
    values[kernel.C_MAX_BURST] = config.max_burst
    values[kernel.C_FETCH_BURST] = timing.fetch_burst
    values[kernel.C_FETCH_BUFFER] = timing.fetch_buffer
    values[kernel.C_ARRAY] = config.array
    values[kernel.C_MATRIX_LATENCY] = timing.matrix_latency
    values[kernel.C_ACCUMULATE_LATENCY] = timing.accumulate_latency
    values[kernel.C_VECTOR_LATENCY] = timing.vector_latency
    values[kernel.C_PARAMETER_HOLD] = timing.parameter_hold
    values[kernel.C_STORE_READ_LATENCY] = timing.store_read_latency
    return values


def _chip(config: NpuConfig, dram: AnyDram) -> NDArray[np.int64]:
    """The controller's parameters, as `npukit.fpga.sdram` derives them; none for the reference DRAM."""
    if not isinstance(dram, SdramDram):
        return np.zeros(0, np.int64)
    times, words = dram.chip.times(dram.megahertz), config.bus_bytes // 2
    values = np.zeros(sdram.P_COUNT, np.int64)
    values[sdram.P_FIRST_BEAT] = times.cas_latency + dram.io_cycles + words + 1
    values[sdram.P_COLUMN_WAIT] = words - 1
    values[sdram.P_ACTIVATE_WAIT] = max(times.activate_to_column, times.bank_to_bank) - 1
    values[sdram.P_OPEN_WAIT] = max(times.row_active, times.row_cycle - times.precharge) - 1
    values[sdram.P_PRECHARGE_WAIT] = times.precharge - 1
    values[sdram.P_REFRESH_WAIT] = times.refresh_cycle - 1
    values[sdram.P_RECOVERY_WAIT] = times.write_recovery + words - 2
    values[sdram.P_TURN_WAIT] = times.cas_latency + words
    values[sdram.P_INTERVAL] = times.refresh_interval
    values[sdram.P_LATE] = REFRESHES_LATE
    values[sdram.P_COLUMN_BITS] = dram.chip.column_bits - (words.bit_length() - 1)
    values[sdram.P_BANK_BITS] = dram.chip.bank_bits
    values[sdram.P_ROW_BITS] = dram.chip.row_bits
    values[sdram.P_READ_BUFFER] = READ_BUFFER
    values[sdram.P_WRITE_BUFFER] = WRITE_BUFFER
    assert dram.phase is not None
    values[sdram.P_PHASE] = times.refresh_interval - 1 - dram.phase
    values[sdram.P_PROGRAM] = dram.program
    values[sdram.P_BASE] = dram.base
    return values


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
    table = _table(config, instructions)
    schedule = np.zeros((len(instructions), kernel.S_COUNT), np.int64)
    counters = np.zeros(kernel.N_COUNT, np.int64)
    stuck = kernel.simulate(_constants(config, dram), _chip(config, dram), table, schedule, counters)
    if stuck >= 0:
        raise Deadlock(f"instruction {stuck} ({instructions[stuck].mnemonic}) waits for a token that never comes")
    for engine in Engine:
        mine = table[:, kernel.I_ENGINE] == engine
        counters[kernel.N_BUSY[engine] + 1] = schedule[mine, kernel.S_TOKEN_WAIT].sum()
        counters[kernel.N_BUSY[engine] + 2] = schedule[mine, kernel.S_PORT_WAIT].sum()
    names = [name for name, _ in COUNTERS]
    columns = [schedule[:, column].copy() for column in range(kernel.S_COUNT)]
    return Schedule(*columns, counters=dict(zip(names, counters.tolist(), strict=True)))
