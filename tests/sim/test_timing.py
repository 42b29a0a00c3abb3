"""Schedules that can be computed by hand from `docs/timing.md`, and what holds for every program."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npukit.isa.assembly import disassemble
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import (
    ENGINES,
    End,
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
from npukit.isa.timing import Timing
from npukit.sim.dram import AnyDram, DramModel, SdramDram
from npukit.sim.timing import Deadlock, Schedule, simulate_timing, stream_cycles

LOAD, MATRIX, VECTOR, STORE = (1 << engine for engine in ENGINES)
END = End()
CONFIG = PRESETS["int8-4x4"]
"""ACT words of 4 bytes on a bus of 8: two words to a beat, PAR words of 16 bytes: two beats to a word."""
LATENCY = 100
LV = Timing(CONFIG).vector_latency


def run(*instructions: Instruction, config: NpuConfig = CONFIG, **dram: int) -> Schedule:
    return simulate_timing(config, (*instructions, END), DramModel(**dram))


def times(schedule: Schedule, index: int) -> tuple[int, int, int]:
    """(issue, start, end) relative to the queue cycle."""
    queue = int(schedule.queue[index])
    issue, start, end = (int(one[index]) - queue for one in (schedule.issue, schedule.start, schedule.end))
    return issue, start, end


# ---- FETCH


@pytest.mark.parametrize("latency", [1, 37, 100])
@pytest.mark.parametrize(("bus", "beats"), [(4, 8), (8, 4), (16, 2), (32, 1), (64, 1)])
def test_a_program_of_end_alone(bus: int, beats: int, latency: int) -> None:
    schedule = run(config=replace(CONFIG, bus_bytes=bus), latency=latency)
    # asked in 1, first beat in 1 + latency, dispatched the cycle after the last beat, done after that
    done = 1 + latency + beats
    assert schedule.queue[0] == schedule.issue[0] == schedule.start[0] == schedule.end[0] == done
    assert schedule.cycles == done + 1
    expected = dict.fromkeys((name for name, _ in COUNTERS), 0) | {"cycles": done + 1, "read_beats": beats}
    assert schedule.counters == expected


def test_instructions_arrive_one_after_the_other() -> None:
    schedule = run(*(Vector(operation=Operation.COPY) for _ in range(20)))
    # bursts of four instructions: cycles 1 and 2 ask for eight, the ninth waits for room
    assert schedule.queue[:8].tolist() == [1 + LATENCY + 4 * (i + 1) for i in range(8)]
    room = int(schedule.queue[3]) + 1
    assert schedule.queue[8] == room + LATENCY + 4
    # a bus of 64 bytes brings two instructions a beat, but one is handed on in a cycle
    wide = run(*(Load() for _ in range(4)), config=replace(CONFIG, bus_bytes=64))
    assert wide.queue[:4].tolist() == [102, 103, 104, 105]


# ---- single instructions


def test_load_of_narrow_words() -> None:
    """Words of half a beat: a slot a word."""
    for words in (1, 2, 3, 8):
        schedule = run(Load(words=words, word_stride=1))
        # address in I + 1 = 2, first beat LATENCY later; a word is written the cycle after its slot
        assert times(schedule, 0) == (1, 2, 2 + LATENCY + words)
        assert schedule.dram_wait[0] == LATENCY - 1
        assert schedule.counters["read_beats"] == 8 + -(-words // 2)
        assert schedule.counters["load_busy"] == LATENCY + words + 1


@pytest.mark.parametrize(("memory", "beats"), [(Memory.ACT, 1), (Memory.WGT, 1), (Memory.PAR, 4)])
def test_load_of_words_of_whole_beats(memory: Memory, beats: int) -> None:
    config = PRESETS["int8-8x8"]
    schedule = run(Load(memory=memory, words=5, word_stride=1), config=config)
    assert times(schedule, 0) == (1, 2, 2 + LATENCY + 5 * beats)
    assert schedule.counters["read_beats"] == 8 + 5 * beats


def test_load_borders() -> None:
    one_row: dict[str, Any] = {"words": 2, "word_stride": 1}
    # left and top border are written while the data are on the way; right and bottom border after them
    before = run(Load(**one_row, pad_left=20, pad_top=2))
    assert times(before, 0)[2] == 2 + LATENCY + 2
    assert before.dram_wait[0] == LATENCY - 1 - (20 + 2 * 22)
    after = run(Load(**one_row, pad_right=3, pad_bottom=2))
    assert times(after, 0)[2] == 2 + LATENCY + 2 + 3 + 2 * 5
    # with no latency to hide behind, everything counts: first slot in S + 1 = 3
    all_round = run(Load(**one_row, pad_left=1, pad_right=2, pad_top=3, pad_bottom=4), latency=1)
    assert times(all_round, 0)[2] == 2 + 8 * (1 + 2 + 2) + 1
    assert all_round.dram_wait[0] == 0
    planes = run(Load(planes=2, rows=3, **one_row, pad_left=1, dram_row_stride=2, dram_plane_stride=6), latency=1)
    assert times(planes, 0)[2] == 2 + 6 * 3 + 1


def test_bursts_are_cut() -> None:
    """One burst in flight, so that the next is asked when the last is there."""

    def end(**fields: Any) -> int:
        return times(run(Load(word_stride=1, **fields), config=PRESETS["int8-8x8"], read_bursts=1), 0)[2]

    # END arrives four cycles after LOAD; so the address is accepted in 4, n beats come from 4 + LATENCY,
    # and the next address is accepted the cycle after the last beat
    first = 4 + LATENCY
    assert end(words=16) == first + 16
    assert end(words=17) == first + 16 + LATENCY + 1  # max_burst is 16 beats
    assert end(words=4, dram=510) == first + 2 + LATENCY + 2  # 4 KiB lies after word 511
    assert end(words=4, dram=512) == first + 4
    assert end(words=2, rows=2, dram_row_stride=2) == first + 2 + LATENCY + 2  # rows share no burst


@pytest.mark.parametrize("name", ["int8-4x4", "int8-16x16", "bf16-8x8"])
@pytest.mark.parametrize(("steps", "words"), [(1, 1), (1, 30), (5, 1), (5, 7), (3, 100)])
def test_matrix(name: str, steps: int, words: int) -> None:
    config = PRESETS[name]
    timing = Timing(config)
    matrix = Matrix(width=words, channels=steps)
    # tile in I + 1, stream from S + 1; a step costs its words, its tile, or the accumulator's round trip
    cost = max(words, config.array, timing.accumulate_latency)
    schedule = run(matrix, config=config)
    assert times(schedule, 0) == (1, 2, 3 + (steps - 1) * cost + words - 1 + timing.matrix_latency)
    blocks = run(replace(matrix, channels=1, blocks=steps), config=config)
    assert times(blocks, 0) == times(schedule, 0)
    # the next instruction loses nothing
    two = run(matrix, matrix, config=config)
    assert two.end[1] - two.end[0] == steps * cost


def test_matrix_latency_of_the_smallest_array() -> None:
    # read 2, three rows and three columns of skew, element 1 + 2, accumulator 1
    assert Timing(CONFIG).matrix_latency == 2 + 3 + 3 + 3 + 1
    assert times(run(Matrix()), 0)[2] == 3 + 12


COPY = Vector(operation=Operation.COPY, width=6)


@pytest.mark.parametrize(
    ("vector", "loads"),
    [
        (COPY, 0),
        (replace(COPY, operation=Operation.MAX), 0),
        (replace(COPY, operation=Operation.FILL), 1),
        (replace(COPY, operation=Operation.ADD, b_bank=1), 1),
        (replace(COPY, operation=Operation.ADD_FIXED, b_bank=1), 2),  # six lanes
        (replace(COPY, operation=Operation.REQUANTIZE), 1 + 2),
        (replace(COPY, operation=Operation.REQUANTIZE_FIXED), 1 + 3),
        (replace(COPY, operation=Operation.DEPTHWISE, window_height=3), 1 + 2 + 1),
        (replace(COPY, operation=Operation.TABLE), 64),
        (replace(COPY, operation=Operation.TABLE_SUM), 256),
        (replace(COPY, operation=Operation.TABLE_DIVIDE, b_bank=1), 256 + 1),
        (replace(COPY, operation=Operation.MOMENTS), 1),
        (replace(COPY, operation=Operation.RECIPROCAL_ROOT), 1),
        (replace(COPY, operation=Operation.NORMALIZE, b_bank=1), 1),
        (replace(COPY, operation=Operation.SUM), 1),
        (replace(COPY, operation=Operation.SUM, out_memory=Memory.ACC), 0),
    ],
)
def test_vector(vector: Vector, loads: int) -> None:
    schedule = run(vector)
    # parameters from I + 1 on; the last in 1 + loads, the stream three cycles later, S one before that
    start = 1 + loads + 3 - 1 if loads else 2
    stream = stream_cycles(CONFIG, vector)
    assert times(schedule, 0) == (1, start, start + stream + LV)
    assert schedule.counters["vector_busy"] == stream + LV + 1


def test_a_function() -> None:
    """Pairs of numbers, and a word; as many cycles for a word as a softmax has."""
    config = PRESETS["bf16-4x4"]
    function = replace(COPY, operation=Operation.FUNCTION)
    assert stream_cycles(config, function) == 6 * 4
    schedule = run(function, config=config)
    start = 1 + 257 + 3 - 1
    assert times(schedule, 0) == (1, start, start + 24 + Timing(config).vector_latency)


def test_vector_parameters_of_further_blocks() -> None:
    """Two sets: block 2 must wait until block 0 has streamed, block 1 need not."""
    requantize = replace(COPY, operation=Operation.REQUANTIZE, width=1)

    def end(blocks: int, width: int) -> int:
        return times(run(replace(requantize, blocks=blocks, width=width)), 0)[2] - LV

    # loads of 3, 2, 2, ... cycles, from I + 1 = 2: 2 to 4, 5 and 6; block 0 streams in 7, block 1 from 6 + 3
    assert end(1, 1) == 7
    assert end(2, 1) == 9
    assert end(3, 1) == 16  # its load in 12 and 13, five cycles after block 0's last word in 7
    assert end(2, 10) == 16 + 10
    assert end(3, 10) == 16 + 20


@pytest.mark.parametrize(
    ("fields", "cycles"),
    [
        ({"operation": Operation.COPY}, 12),
        ({"operation": Operation.FILL}, 12),
        ({"operation": Operation.REQUANTIZE}, 12 * 4),
        ({"operation": Operation.TABLE}, 12 * 4),
        ({"operation": Operation.TABLE_SUM}, 12 * 8),
        ({"operation": Operation.TABLE_DIVIDE}, 12 * 8),
        ({"operation": Operation.MOMENTS}, 12 * 2),
        ({"operation": Operation.RECIPROCAL_ROOT}, 12 * 56),
        ({"operation": Operation.NORMALIZE, "a_memory": Memory.ACC}, 12 * 2),
        ({"operation": Operation.ADD, "b_bank": 1}, 12 * 2),
        ({"operation": Operation.MULTIPLY_FIXED, "b_bank": 1}, 12 * 2),
        ({"operation": Operation.MAX, "window_height": 2, "window_width": 3}, 3 * 2 * (3 + 3 * 1 + 4 * 3)),
        ({"operation": Operation.DEPTHWISE, "window_width": 4}, 3 * (4 + 3 * 1 + 4 * (8 - 1))),
        ({"operation": Operation.SUM, "window_width": 2, "window_step": 5}, 3 * 4 * 2 * 4),
    ],
)
def test_stream_cycles_of_few_lanes(fields: dict[str, Any], cycles: int) -> None:
    config = NpuConfig(array=16, vector_lanes=4, fma_lanes=8, softmax_cycles=8, normalize_cycles=2)
    assert stream_cycles(config, Vector(height=3, width=4, **fields)) == cycles


def test_two_sources_in_one_bank_take_two_cycles() -> None:
    add = Vector(operation=Operation.ADD, height=3, width=4)
    assert stream_cycles(CONFIG, add) == 24
    assert stream_cycles(CONFIG, replace(add, b_bank=1)) == 12
    half = replace(CONFIG, fma_lanes=1)
    assert stream_cycles(half, add) == stream_cycles(half, replace(add, b_bank=1)) == 48


def test_window_rows_cost_a_cycle_a_column() -> None:
    """The usual case: 3 cycles for an output word of a 3x3 window of stride 1."""
    window = Vector(operation=Operation.DEPTHWISE, height=5, width=20, window_height=3, window_width=3)
    assert stream_cycles(CONFIG, window) == 5 * 3 * (3 + 19)


@pytest.mark.parametrize(("words", "last"), [(1, 0), (2, 1), (3, 2), (32, 31), (33, 32)])
def test_store_of_narrow_words(words: int, last: int) -> None:
    schedule = run(Store(words=words, word_stride=1))
    # S = 2; the first word is there in S + 1 + 2, a slot a word; response LATENCY after the last beat
    assert times(schedule, 0) == (1, 2, 5 + last + LATENCY)
    beats = -(-words // 2)
    assert schedule.counters["write_beats"] == beats
    assert schedule.counters["store_busy"] == 4 + last + LATENCY
    assert schedule.counters["store_dram"] == schedule.dram_wait[0] == 4 + last + LATENCY - beats


def test_store_of_words_of_whole_beats() -> None:
    config = PRESETS["int8-16x16"]
    schedule = run(Store(words=3, word_stride=1, rows=2, dram_row_stride=8), config=config)
    assert times(schedule, 0) == (1, 2, 5 + 12 - 1 + LATENCY)
    assert schedule.counters["write_beats"] == 12


def test_writes_in_flight_are_limited() -> None:
    schedule = run(Store(rows=3, dram_row_stride=2), write_bursts=1)
    # address in 3, beat in 5, response in 105; then address in 106, beat in 107, and so on
    assert times(schedule, 0)[2] == 5 + LATENCY + 2 * (2 + LATENCY)


# ---- tokens, drains, queues


def test_a_token_is_seen_the_cycle_after_the_end() -> None:
    schedule = run(Load(signal=MATRIX), Matrix(wait=LOAD, signal=STORE), Store(wait=MATRIX))
    for earlier, later in ((0, 1), (1, 2)):
        assert schedule.issue[later] == schedule.end[earlier] + 1
        assert schedule.token_wait[later] == schedule.issue[later] - schedule.queue[later] - 1
    assert schedule.counters["matrix_token"] == schedule.token_wait[1]
    assert schedule.counters["store_token"] == schedule.token_wait[2]
    assert schedule.cycles == schedule.end[2] + 2


def test_tokens_count() -> None:
    """Two signals, two waits: the second is not satisfied by the first."""
    schedule = run(
        Load(signal=MATRIX),
        Load(words=60, word_stride=1, signal=MATRIX),
        Matrix(wait=LOAD),
        Matrix(wait=LOAD),
    )
    assert schedule.issue[2] == schedule.end[0] + 1
    assert schedule.issue[3] == schedule.end[1] + 1


def test_a_token_may_come_long_before_it_is_taken() -> None:
    schedule = run(Load(signal=VECTOR), replace(COPY, width=500), replace(COPY, wait=LOAD))
    assert schedule.end[0] < schedule.issue[2]
    assert schedule.token_wait[2] == 0


def test_drain() -> None:
    free = run(replace(COPY, width=100), COPY)
    # the next may start in the last stream cycle of the last
    assert free.start[1] == free.start[0] + 100
    drained = run(replace(COPY, width=100), replace(COPY, drain=1))
    assert drained.issue[1] == drained.end[0] + 1
    assert drained.token_wait[1] == drained.issue[1] - drained.queue[1] - 1
    first = run(replace(COPY, drain=1))
    assert times(first, 0)[0] == 1


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_queue_depth(depth: int) -> None:
    long = replace(COPY, width=300)
    schedule = run(*[long] * 12, Load(), config=replace(CONFIG, queue_depth=depth))
    for index in range(depth, 12):
        # one place is free the cycle after the issue of the instruction `depth` before
        assert schedule.queue[index] >= schedule.issue[index - depth] + 1
    assert schedule.queue[11] == schedule.issue[11 - depth] + 1
    assert schedule.counters["fetch_stall"] > 0
    assert schedule.queue[12] > schedule.queue[11]
    assert (np.diff(schedule.start[:12]) == 300).all()


def test_loads_in_flight_are_limited_by_the_queue_depth() -> None:
    wide = replace(CONFIG, queue_depth=2)
    schedule = run(*[Load() for _ in range(4)], config=wide)
    assert schedule.issue[2] == schedule.end[0] + 1
    assert run(*[Load() for _ in range(4)]).issue[2] < schedule.issue[2]


# ---- ports


def test_a_read_port_is_let_go_after_the_last_read() -> None:
    store, copy = Store(words=64, word_stride=1), replace(COPY, out_bank=1)
    schedule = run(store, copy)
    last_beat = int(schedule.end[0]) - LATENCY
    assert schedule.start[1] == last_beat + 1
    assert schedule.port_wait[1] == schedule.start[1] - schedule.issue[1] - 1 > 0
    assert schedule.counters["vector_port"] == schedule.port_wait[1]
    for elsewhere in (replace(store, bank=2), replace(store, bank=1)):  # another bank; its write port
        assert run(elsewhere, copy).port_wait[1] == 0


def test_a_write_port_is_let_go_after_the_end() -> None:
    load, copy = Load(bank=1, words=64, word_stride=1), replace(COPY, out_bank=1)
    schedule = run(load, copy)
    assert schedule.start[1] == schedule.end[0] + 1
    assert schedule.port_wait[1] == schedule.start[1] - schedule.issue[1] - 1
    for elsewhere in (replace(load, bank=0), replace(load, memory=Memory.WGT, bank=0)):
        assert run(elsewhere, copy).port_wait[1] == 0


def test_matrix_takes_the_read_port_of_the_accumulators_only_to_add() -> None:
    read_acc = Vector(operation=Operation.COPY, a_memory=Memory.ACC, out_memory=Memory.ACC, out_bank=1, width=400)
    for fields, waits in (
        ({}, False),
        ({"accumulate": 1}, True),
        ({"channels": 2}, True),
        ({"acc_bank": 2}, False),
    ):
        schedule = run(read_acc, Matrix(**fields))
        assert bool(schedule.port_wait[1]) == waits, fields
        if waits:
            assert schedule.start[1] == schedule.start[0] + 400 + 1


def test_ports_pass_on_between_instructions_of_one_engine() -> None:
    schedule = run(replace(COPY, width=100), replace(COPY, width=100), Store(bank=0, words=2, word_stride=1))
    assert schedule.start[1] == schedule.start[0] + 100  # while the first still writes to the same bank
    assert schedule.start[2] == schedule.start[1] + 100 + 1
    assert schedule.counters["store_port"] == schedule.port_wait[2]


def test_ties_go_by_the_order_of_the_engines() -> None:
    """MATRIX and STORE want the port that VECTOR lets go; STORE asked first."""
    hold = replace(COPY, width=200, out_bank=1)
    schedule = run(hold, Store(words=8, word_stride=1), Matrix(width=8))
    assert schedule.start[2] == schedule.start[0] + 200 + 1
    assert schedule.start[1] == schedule.start[2] + 8 + 1


# ---- DRAM


def test_bursts_of_consecutive_loads_overlap() -> None:
    one = Load(words=32, word_stride=1)
    schedule = run(one, one, one, config=PRESETS["int8-8x8"])
    # one empty slot between two LOADs, and the DRAM's latency only once
    assert np.diff(schedule.end[:3]).tolist() == [33, 33]
    assert schedule.dram_wait[:3].tolist() == [LATENCY - 1, 0, 0]


def test_reads_and_writes_do_not_delay_each_other() -> None:
    load, store = Load(words=64, word_stride=1), Store(bank=1, words=64, word_stride=1)
    both, alone = run(load, store), run(load)
    assert times(both, 0) == times(alone, 0)
    assert times(both, 1) == times(run(store), 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"latency": 0}, "DRAM latency must be from 1 to 100000, not 0"),
        ({"latency": 1.5}, "DRAM latency must be from 1 to 100000, not 1.5"),
        ({"read_bursts": 33}, "DRAM read_bursts must be from 1 to 32, not 33"),
        ({"write_bursts": 0}, "DRAM write_bursts must be from 1 to 32, not 0"),
    ],
)
def test_dram_parameters(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DramModel(**fields)


# ---- errors


@pytest.mark.parametrize("dram", [DramModel(), SdramDram(), SdramDram(megahertz=100.0, phase=780)])
def test_deadlocks_are_named(dram: AnyDram) -> None:
    def run(*program: Instruction) -> None:
        simulate_timing(CONFIG, (*program, END), dram)

    with pytest.raises(Deadlock, match=r"instruction 1 \(MATRIX\) waits for a token that never comes"):
        run(Load(), Matrix(wait=LOAD))
    with pytest.raises(Deadlock, match=r"instruction 0 \(VECTOR\) waits"):
        run(Vector(wait=STORE), Load(), Store(wait=VECTOR, signal=VECTOR))
    # a signal behind a full queue cannot come: the order of the program is not a legal one
    chain = [Matrix(wait=LOAD) for _ in range(10)]
    with pytest.raises(Deadlock, match=r"\(MATRIX\) waits"):
        run(*chain, *[Load(signal=MATRIX) for _ in range(10)])
    with pytest.raises(Deadlock):
        run(Matrix(), Matrix(drain=1, wait=VECTOR))


@pytest.mark.parametrize("program", [(), (Load(),), (END, Load()), (END, END)])
def test_end_comes_once_and_last(program: tuple[Instruction, ...]) -> None:
    with pytest.raises(ValueError, match="a program has exactly one END, its last instruction"):
        simulate_timing(CONFIG, program)


# ---- every program


def bursts_of(config: NpuConfig, address: int, size: int) -> list[tuple[int, int]]:
    """(beats, bytes) of the bursts of a run of bytes, beat by beat."""
    found = []
    beats = count = 0
    for place in range(address, address + size):
        new_beat = place % config.bus_bytes == 0 or count == 0
        if count and new_beat and (place % 4096 == 0 or beats == config.max_burst):
            found.append((beats, count))
            beats = count = 0
        beats += new_beat
        count += 1
    return [*found, (beats, count)]


def beats_of(config: NpuConfig, one: Load | Store) -> int:
    wide = isinstance(one, Load) and one.memory is Memory.PAR
    size = one.words * (config.wide_word_bytes if wide else config.word_bytes)
    total = 0
    for plane in range(one.planes):
        for row in range(one.rows):
            word = one.dram + plane * one.dram_plane_stride + row * one.dram_row_stride
            total += sum(beats for beats, _ in bursts_of(config, word * config.word_bytes, size))
    return total


def check_schedule(config: NpuConfig, program: tuple[Instruction, ...], schedule: Schedule) -> None:
    count = len(program) - 1
    queue, issue, start, end = schedule.queue, schedule.issue, schedule.start, schedule.end
    assert (np.diff(queue) > 0).all()
    assert (queue[:count] < issue[:count]).all()
    assert (issue[:count] < start[:count]).all() and (start[:count] < end[:count]).all()
    counters = schedule.counters
    assert all(value >= 0 for value in counters.values())
    for engine in ENGINES:
        mine = [index for index in range(count) if program[index].engine is engine]
        for times_of in (issue, start, end):
            assert (np.diff(times_of[mine]) > 0).all()
        name = engine.name.lower()
        busy = {cycle for index in mine for cycle in range(start[index], end[index] + 1)}
        assert counters[f"{name}_busy"] == len(busy) <= counters["cycles"]
        assert counters[f"{name}_token"] == schedule.token_wait[mine].sum() <= counters["cycles"]
        assert counters[f"{name}_port"] == schedule.port_wait[mine].sum() <= counters["cycles"]
        assert counters[f"{name}_dram"] <= counters[f"{name}_busy"]
    assert counters["matrix_dram"] == counters["vector_dram"] == 0
    # every token: the wait number n comes after the signal number n
    for source in ENGINES:
        for target in ENGINES:
            given = [i for i in range(count) if program[i].engine is source and program[i].signal >> target & 1]
            taken = [i for i in range(count) if program[i].engine is target and program[i].wait >> source & 1]
            for signal, wait in zip(given, taken, strict=False):
                assert issue[wait] > end[signal]
    for index, one in enumerate(program[:-1]):
        if one.drain:
            before = [i for i in range(index) if program[i].engine is one.engine]
            assert all(end[i] < issue[index] for i in before)
    assert end[count] == queue[count] == counters["cycles"] - 1
    assert (end[:count] < end[count]).all()
    code = 32 * len(program)
    fetched = -(-code // config.bus_bytes)
    loads = sum(beats_of(config, one) for one in program if isinstance(one, Load))
    assert counters["read_beats"] == fetched + loads
    assert counters["write_beats"] == sum(beats_of(config, one) for one in program if isinstance(one, Store))


CONFIGS = {
    "tiny": {},
    "one deep": {"queue_depth": 1},
    "slow": {"vector_lanes": 1, "fma_lanes": 2, "queue_depth": 2, "bus_bytes": 4, "max_burst": 8},
    "wide": {"bus_bytes": 32, "max_burst": 2, "queue_depth": 3},
}


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 40),
    name=st.sampled_from(list(CONFIGS)),
    latency=st.sampled_from([1, 7, 100]),
    bursts=st.sampled_from([1, 2, 16]),
)
def test_every_legal_program_ends(
    seed: int, length: int, name: str, latency: int, bursts: int, tiny: NpuConfig, programs: ModuleType
) -> None:
    case = programs.random_case(seed, length)
    config = replace(tiny, **CONFIGS[name])
    dram = DramModel(latency=latency, read_bursts=bursts, write_bursts=bursts)
    check_schedule(config, case.instructions, simulate_timing(config, case.instructions, dram))


@given(seed=st.integers(0, 2**32 - 1), bytes_moved=st.sampled_from([4096, 3 * 4096]))
def test_no_timing_depends_on_data_or_place(seed: int, bytes_moved: int, tiny: NpuConfig, programs: ModuleType) -> None:
    """Values enter nowhere; moving what lies in DRAM by 4 KiB, or a border's value, changes nothing."""
    case = programs.random_case(seed, 12)

    def move(one: Instruction) -> Instruction:
        if isinstance(one, Load):
            return replace(one, dram=one.dram + bytes_moved // tiny.word_bytes, pad_value=255)
        return replace(one, dram=one.dram + bytes_moved // tiny.word_bytes) if isinstance(one, Store) else one

    moved = tuple(move(one) for one in case.instructions)
    one, two = simulate_timing(tiny, case.instructions), simulate_timing(tiny, moved)
    assert one.counters == two.counters
    for name in ("queue", "issue", "start", "end", "token_wait", "port_wait", "dram_wait"):
        assert (getattr(one, name) == getattr(two, name)).all()


SCRIPT = """
import json, sys
from npukit.isa.assembly import assemble
from npukit.isa.config import NpuConfig
from npukit.sim.dram import SdramDram
from npukit.sim.timing_kernel import simulate as timing_kernel
from npukit.sim.timing import simulate_timing

assert not hasattr(timing_kernel.simulate, "py_func"), "numba is not disabled"
for config, text, rate in json.load(sys.stdin):
    schedule = simulate_timing(NpuConfig(**config), assemble(text), SdramDram(rate=rate) if rate else None)
    print(json.dumps([schedule.counters, schedule.start.tolist(), schedule.end.tolist()]))
"""


def test_the_kernel_runs_alike_without_the_compiler(tiny: NpuConfig, programs: ModuleType) -> None:
    cases = [(tiny, programs.sound().instructions, 0)]
    cases += [(tiny, programs.random_case(seed, 20).instructions, 0) for seed in range(5)]
    # with an SDRAM at the accelerator's clock, and at twice that
    cases += [(tiny, programs.random_case(seed, 12).instructions, rate) for seed in range(2) for rate in (1, 2)]
    # ports up to bit 63, which is the sign
    many = replace(tiny, acc_banks=16, act_banks=16)
    last = Vector(operation=Operation.COPY, a_memory=Memory.ACC, a_bank=15, out_memory=Memory.ACC, out_bank=15)
    cases.append((many, (last, Matrix(acc_bank=15, accumulate=1), Store(bank=15), Load(bank=15), END), 0))
    text = json.dumps([(config.to_dict(), disassemble(program), rate) for config, program, rate in cases])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=text, capture_output=True, text=True, timeout=120,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(cases)
    for line, (config, program, rate) in zip(lines, cases, strict=True):
        schedule = simulate_timing(config, program, SdramDram(rate=rate) if rate else None)
        assert json.loads(line) == [schedule.counters, schedule.start.tolist(), schedule.end.tolist()]


def test_counters_have_the_names_of_the_registers() -> None:
    schedule = run(Load())
    assert list(schedule.counters) == [name for name, _ in COUNTERS]
    assert schedule.cycles == schedule.counters["cycles"]
    assert Engine.LOAD in ENGINES
