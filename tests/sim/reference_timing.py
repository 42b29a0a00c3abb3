"""An independent oracle for `npukit.sim.timing`: `docs/timing.md` executed one cycle at a time.

Every cycle is stepped, every beat, word, weight row and parameter word by itself. A decision of a
cycle reads registers only; what it changes goes through `_Machine._edge` and is seen in the next cycle.
The one combinational chain between engines is the grant of ports, in the order of the engines.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
from npukit.isa.timing import INSTRUCTION_BYTES, Timing
from npukit.sim.dram import DramModel
from npukit.sim.timing import Schedule

__all__ = ["Stuck", "reference_timing"]

Port = tuple[Memory, str, int]
PAD, BEAT, HELD = "pad", "beat", "held"


class Stuck(RuntimeError):
    """No END within the cycle limit."""


def reference_timing(
    config: NpuConfig, instructions: Sequence[Instruction], dram: DramModel, limit: int = 1_000_000
) -> Schedule:
    """The schedule of a program, by stepping each of its cycles.

    Raises:
        Stuck: when the program has not ended after `limit` cycles.
    """
    machine = _Machine(config, instructions, dram)
    while not machine.done:
        if machine.cycle == limit:
            raise Stuck(f"no END within {limit} cycles; schedule so far:\n{machine.schedule}")
        machine.step()
    columns = [machine.schedule[:, column].copy() for column in range(7)]
    return Schedule(*columns, counters=machine.counters)


# ---- what each instruction does, piece by piece


def _bursts(config: NpuConfig, start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """(first byte, bytes, beats) of each burst of one row, found by walking its beats."""
    at, first, beats = start, start, 0
    while at < start + size:
        beats += 1
        at = min((at // config.bus_bytes + 1) * config.bus_bytes, start + size)
        if beats == config.max_burst or at % 4096 == 0 or at == start + size:
            yield first, at - first, beats
            first, beats = at, 0


def _rows(config: NpuConfig) -> int:
    """Of the systolic array."""
    return config.array_rows or config.array


def _word_bytes(config: NpuConfig, instruction: Load | Store) -> int:
    wide = isinstance(instruction, Load) and instruction.memory is Memory.PAR
    return config.wide_word_bytes if wide else config.word_bytes


def _row_starts(config: NpuConfig, one: Load | Store) -> Iterator[int]:
    for plane in range(one.planes):
        for row in range(one.rows):
            yield (one.dram + plane * one.dram_plane_stride + row * one.dram_row_stride) * config.word_bytes


def _requests(config: NpuConfig, one: Load | Store) -> Iterator[tuple[int, int, int]]:
    for start in _row_starts(config, one):
        yield from _bursts(config, start, one.words * _word_bytes(config, one))


def _write_slots(config: NpuConfig, load: Load) -> Iterator[str]:
    """What LOAD's write side does, slot after slot: a pad, a new beat, a further word of the held beat."""
    word, bus = _word_bytes(config, load), config.bus_bytes
    full_row = load.pad_left + load.words + load.pad_right
    for index, start in enumerate(_row_starts(config, load)):
        row = index % load.rows
        if row == 0:
            yield from [PAD] * (load.pad_top * full_row)
        yield from [PAD] * load.pad_left
        at, end = start, start + load.words * word
        while at < end:
            yield BEAT if at == start or at % bus == 0 else HELD
            at = at + word if word < bus else (at // bus + 1) * bus
        yield from [PAD] * load.pad_right
        if row == load.rows - 1:
            yield from [PAD] * (load.pad_bottom * full_row)


def _beat_slots(config: NpuConfig, store: Store) -> Iterator[tuple[int, bool, bool]]:
    """(burst, whether this slot completes a beat, whether it is the burst's last) of STORE's data."""
    word, bus = config.word_bytes, config.bus_bytes
    for number, (first, size, _) in enumerate(_requests(config, store)):
        at, end = first, first + size
        while at < end:
            at = at + word if word < bus else (at // bus + 1) * bus
            yield number, at % bus == 0 or at >= end, at >= end


def _stream(config: NpuConfig, vector: Vector) -> int:
    """Stream cycles of one block, counted word by word."""
    lanes = config.fma_lanes if vector.has_two_sources else config.vector_lanes
    turning = vector.operation is Operation.TRANSPOSE
    plain = vector.operation in (Operation.COPY, Operation.CONVERT, Operation.FILL, Operation.PART) or turning
    passes = 1 if plain else config.array // lanes
    if vector.operation in (Operation.TABLE_SUM, Operation.TABLE_DIVIDE, Operation.FUNCTION):
        passes = config.softmax_cycles
    if vector.operation in (Operation.MOMENTS, Operation.NORMALIZE):
        passes = config.normalize_cycles
    if vector.operation is Operation.RECIPROCAL_ROOT:
        passes = 56
    if vector.is_window and config.dtype == "bf16":
        return _swept(config, vector, passes)
    cycles = config.array if turning else 0
    for _ in range(vector.height):
        for x in range(vector.width):
            if vector.operation is Operation.SUM:
                cycles += vector.window_height * vector.window_width * passes
            elif vector.is_window:
                new = vector.window_width if x == 0 else min(vector.window_step, vector.window_width)
                for _ in range(vector.window_height):
                    groups = len(range(0, vector.window_width, config.vector_taps))
                    cycles += new + groups * passes - 1
            else:
                one_port = (vector.a_memory, vector.a_bank) == (vector.b_memory, vector.b_bank)
                cycles += max(passes, 2 if vector.has_two_sources and one_port else 1)
    return cycles


def _swept(config: NpuConfig, vector: Vector, passes: int) -> int:
    """Stream cycles of a block whose window sums are floating-point numbers."""
    taps = 1 if vector.operation is Operation.SUM else config.vector_taps
    addition = 6 * config.vector_taps + 2
    chunk = next(size for size in (2**k for k in range(16)) if size >= addition)
    places = [(y, x) for y in range(vector.height) for x in range(vector.width)]
    cycles = 0
    while places:
        now, places = places[:chunk], places[chunk:]
        sweeps = [
            list(range(vector.window_width))[first : first + taps]
            for _ in range(vector.window_height)
            for first in range(0, vector.window_width, taps)
        ]
        for number, group in enumerate(sweeps):
            for place in now:
                everything = place is now[0] or place[1] == 0
                new = len(group) if everything else min(vector.window_step, len(group))
                cycles += new + passes - 1
            if number < len(sweeps) - 1:
                cycles += max(0, addition - passes * len(now))
    return cycles


def _ports(config: NpuConfig, instruction: Instruction) -> tuple[list[Port], list[Port]]:
    """Contended ports given back after the last read, and after the end."""
    read: set[Port] = set()
    end: set[Port] = set()
    if isinstance(instruction, Load):
        end.add((instruction.memory, "write", instruction.bank))
    elif isinstance(instruction, Matrix):
        read.add((Memory.ACT, "read", instruction.act_bank))
        end.add((Memory.ACC, "write", instruction.acc_bank))
        sums = instruction.channels * instruction.kernel_height * instruction.kernel_width
        if instruction.accumulate or sums > 1 or _rows(config) < config.array:
            end.add((Memory.ACC, "read", instruction.acc_bank))
    elif isinstance(instruction, Vector):
        if instruction.operation is not Operation.FILL:
            read.add((instruction.a_memory, "read", instruction.a_bank))
        if instruction.has_two_sources:
            read.add((instruction.b_memory, "read", instruction.b_bank))
        end.add((instruction.out_memory, "write", instruction.out_bank))
    elif isinstance(instruction, Store):
        read.add((Memory.ACT, "read", instruction.bank))
    return [*read], [port for port in end if port[0] is not Memory.PAR]


# ---- the machine

QUEUE, ISSUE, START, END, TOKEN, PORT, DRAM = range(7)
LOAD, MATRIX, VECTOR, STORE = ENGINES


@dataclass
class _ReadBurst:
    """A read burst between acceptance and its last beat; `owner` is FETCH (None) or LOAD."""

    owner: Engine | None
    accepted: int
    beats: int


class _Set:
    """One of VECTOR's two parameter sets."""

    def __init__(self) -> None:
        self.claimed = False  # from the load's first cycle to the last stream cycle of its last block
        self.free_from = 0  # if not claimed
        self.loaded: int | None = None  # cycle of the load's last PAR read

    def take(self) -> None:
        self.claimed, self.loaded = True, None

    def fill(self, cycle: int) -> None:
        self.loaded = cycle

    def leave(self, free_from: int) -> None:
        self.claimed, self.free_from, self.loaded = False, free_from, None


class _Machine:
    """All registers of core and DRAM; `step` is one clock cycle."""

    def __init__(self, config: NpuConfig, instructions: Sequence[Instruction], dram: DramModel) -> None:
        self.config, self.program, self.dram = config, instructions, dram
        self.timing = Timing(config)
        self.schedule = np.zeros((len(instructions), 7), np.int64)
        self.counters = {name: 0 for name, _ in COUNTERS}
        self.ports = [_ports(config, one) for one in instructions]
        self.cycle = 0
        self.done = False
        self.edges: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        # queues, tokens, ports
        self.queue: list[deque[int]] = [deque() for _ in ENGINES]
        self.flying = [0] * 4  # issued, end not yet seen
        self.running = [0] * 4  # started, end not yet seen
        self.tokens = [[0] * 4 for _ in ENGINES]  # [from][to]
        self.held: dict[Port, list[Any]] = {}  # port -> [engine, holders]
        self.ending: list[deque[tuple[int, int]]] = [deque() for _ in ENGINES]  # (cycle of the end, index)
        # FETCH
        self.fetching = False
        self.asked = self.arrived = self.dispatched = 0
        self.fetch_beats_seen = self.fetch_beats_asked = 0
        self.fetch_marks: deque[int] = deque()  # of each instruction asked for: its last beat's number
        # read channel
        self.address_owner: Engine | None | str = "none"  # holder of an address not accepted yet
        self.reads: deque[_ReadBurst] = deque()
        # LOAD
        self.load_requests: deque[tuple[int, int, int]] = deque()
        self.load_issued: deque[int] = deque()
        self.load_writing: int | None = None
        self.load_slots: deque[str] = deque()
        # MATRIX
        self.matrix_waiting: int | None = None
        self.rows_left = 0  # rows of a tile still to be read, this cycle's included
        self.tiles_left = 0  # tiles whose reading has not begun
        self.shadow = False  # the shadow registers belong to a tile whose stream has not begun
        self.gap_left = 0  # cycles until the next stream may begin
        self.steps_left = 0  # steps of the started instruction whose stream has not begun
        self.matrix_running: int | None = None
        self.words_left = 0
        # VECTOR
        self.vector_waiting: int | None = None
        self.loads: deque[tuple[int, bool]] = deque()  # (PAR cycles, whether a table) still to begin
        self.load_words_left = 0
        self.loading: _Set | None = None
        self.sets = [_Set(), _Set()]
        self.next_set = 0
        self.waiting_sets: list[_Set | None] = []  # of each block of the waiting instruction
        self.block_sets: list[_Set | None] = []  # of each block of the running instruction to come
        self.stream_left = 0
        self.stream_set: _Set | None = None
        self.last_stream = -(10**9)
        self.vector_running: int | None = None
        # STORE
        self.store_waiting: int | None = None
        self.store_running: int | None = None  # until the cycle after its last beat
        self.store_addresses: deque[tuple[int, int, int]] = deque()
        self.store_addressed = 0
        self.store_data: deque[tuple[int, bool, bool]] = deque()
        self.store_data_from = 0
        self.writes_flying = 0
        self.responses: deque[tuple[int, int | None]] = deque()  # (earliest cycle, STORE that ends with it)

    def _edge(self, change: Callable[..., Any], *arguments: Any) -> None:
        """A change of registers at the end of this cycle."""
        self.edges.append((change, arguments))

    def _set(self, **registers: Any) -> None:
        self._edge(self.__dict__.update, registers)

    def step(self) -> None:
        """One cycle."""
        started = self._start()
        stepping = self._matrix_step(started[MATRIX])
        self._dispatch()
        self._matrix_array(stepping)
        loader_free = self._vector_load()
        self._vector_stream(started[VECTOR])
        self._read_address()
        self._read_data()
        self._write_channel()
        self._issue(stepping, loader_free)
        self._ends(started)
        self.counters["cycles"] += 1
        for change, arguments in self.edges:
            change(*arguments)
        self.edges.clear()
        self.fetching = True
        self.cycle += 1

    def _note(self, index: int, column: int) -> None:
        self.schedule[index, column] = self.cycle

    # ---- FETCH

    def _dispatch(self) -> None:
        if self.dispatched == self.arrived:
            return
        index = self.dispatched
        engine = self.program[index].engine
        if engine is None:
            if not any(self.queue) and not any(self.flying):
                self.schedule[index, :TOKEN] = self.cycle
                self.done = True
        elif len(self.queue[engine]) < self.config.queue_depth:
            self._note(index, QUEUE)
            self._edge(self.queue[engine].append, index)
            self._set(dispatched=index + 1)
        else:
            self.counters["fetch_stall"] += 1

    def _fetch_wants(self) -> int:
        """Instructions that FETCH asks for in this cycle, or 0."""
        count = min(self.timing.fetch_burst, len(self.program) - self.asked)
        if not self.fetching or self.asked - self.dispatched + count > self.timing.fetch_buffer:
            return 0
        return count

    def _fetch_beat(self) -> None:
        self.fetch_beats_seen += 1
        while self.fetch_marks and self.fetch_marks[0] == self.fetch_beats_seen:
            self.fetch_marks.popleft()
            self.arrived += 1

    # ---- start: ports, in the order of the engines

    def _grant(self, index: int) -> bool:
        """Take the ports of an instruction that is otherwise ready to start, or count the wait."""
        engine = self.program[index].engine
        assert engine is not None
        ports = self.ports[index][0] + self.ports[index][1]
        if any(self.held.get(port, [engine])[0] != engine for port in ports):
            self.schedule[index, PORT] += 1
            self.counters[f"{engine.name.lower()}_port"] += 1
            return False
        for port in ports:
            self.held.setdefault(port, [engine, 0])[1] += 1
        self._note(index, START)
        return True

    def _release(self, ports: list[Port]) -> None:
        for port in ports:
            self.held[port][1] -= 1
            if self.held[port][1] == 0:
                del self.held[port]

    def _start(self) -> list[bool]:
        started = [False] * 4
        if self.load_issued and self.load_writing is None:
            index = self.load_issued[0]
            if self._grant(index):
                started[LOAD] = True
                self._edge(self.load_issued.popleft)
                self._set(load_writing=index, load_slots=deque(_write_slots(self.config, self._load(index))))
        if self.matrix_waiting is not None and self.shadow and self.gap_left <= 1:
            started[MATRIX] = self._grant(self.matrix_waiting)
        if self.vector_waiting is not None and not self.block_sets and self.stream_left <= 1:
            if self._set_ready(self.waiting_sets[0]):
                started[VECTOR] = self._grant(self.vector_waiting)
        if self.store_waiting is not None and self.store_running is None:
            index = self.store_waiting
            if self._grant(index):
                started[STORE] = True
                store = self.program[index]
                assert isinstance(store, Store)
                self._set(
                    store_waiting=None,
                    store_running=index,
                    store_addresses=deque(_requests(self.config, store)),
                    store_addressed=0,
                    store_data=deque(_beat_slots(self.config, store)),
                    store_data_from=self.cycle + 1 + self.timing.store_read_latency,
                )
        return started

    def _load(self, index: int) -> Load:
        load = self.program[index]
        assert isinstance(load, Load)
        return load

    # ---- issue

    def _issue(self, stepping: bool, loader_free: bool) -> None:
        last_tile_taken = not self.shadow or (stepping and self.matrix_waiting is None)
        front = [
            not self.load_requests,
            self.matrix_waiting is None and self.tiles_left == 0 and self.rows_left <= 1 and last_tile_taken,
            self.vector_waiting is None and loader_free,
            self.store_waiting is None,
        ]
        for engine in ENGINES:
            if not self.queue[engine] or not front[engine]:
                continue
            if engine in (LOAD, STORE) and self.flying[engine] >= self.config.queue_depth:
                continue
            index = self.queue[engine][0]
            one = self.program[index]
            needed = [other for other in ENGINES if one.wait >> other & 1]
            tokens_there = all(self.tokens[other][engine] for other in needed)
            if not tokens_there or (one.drain and self.flying[engine]):
                self.schedule[index, TOKEN] += 1
                self.counters[f"{engine.name.lower()}_token"] += 1
                continue
            self._note(index, ISSUE)
            self._edge(self._issued, index, engine, needed)

    def _issued(self, index: int, engine: Engine, needed: list[Engine]) -> None:
        self.queue[engine].popleft()
        self.flying[engine] += 1
        for other in needed:
            self.tokens[other][engine] -= 1
        one = self.program[index]
        if isinstance(one, Load):
            self.load_requests.extend(_requests(self.config, one))
            self.load_issued.append(index)
        elif isinstance(one, Matrix):
            self.matrix_waiting = index
            self.tiles_left = self._steps(one) - 1
            self.rows_left = _rows(self.config)
            self.shadow = True
        elif isinstance(one, Vector):
            self.vector_waiting = index
            head, block = descriptor_words(self.config, one), parameter_words(self.config, one)
            table = {Operation.TABLE: 64, Operation.TABLE_SUM: 256, Operation.TABLE_DIVIDE: 256 + 1}
            table[Operation.FUNCTION] = 256 + 1
            if one.operation in table:
                self.loads.append((table[one.operation], True))
            elif head + block:
                self.loads.append((head + block, False))
            if block:
                self.loads.extend([(block, False)] * (one.blocks - 1))
            # the set in which each block will find its parameters
            self.waiting_sets = [None] * one.blocks
            if head + block:
                self.waiting_sets = [self.sets[(self.next_set + b * (block > 0)) % 2] for b in range(one.blocks)]
        else:
            self.store_waiting = index

    # ---- MATRIX

    def _steps(self, matrix: Matrix) -> int:
        passes = self.config.array // _rows(self.config)
        return matrix.blocks * matrix.channels * matrix.kernel_height * matrix.kernel_width * passes

    def _matrix_step(self, starting: bool) -> bool:
        """Whether a step's stream begins in the next cycle."""
        return starting or (self.steps_left > 0 and self.shadow and self.gap_left <= 1)

    def _matrix_array(self, stepping: bool) -> None:
        # the weight reader
        tile = self.tiles_left > 0 and self.rows_left <= 1 and (not self.shadow or stepping)
        if tile:
            self._set(tiles_left=self.tiles_left - 1, rows_left=_rows(self.config), shadow=True)
        else:
            self._set(rows_left=max(self.rows_left - 1, 0))
            if stepping:
                self._set(shadow=False)
        # the activation reader
        if self.words_left > 0:
            self._set(words_left=self.words_left - 1)
            if self.words_left == 1 and self.steps_left == 0:
                index = self.matrix_running
                assert index is not None
                self._edge(self._release, self.ports[index][0])
                self.ending[MATRIX].append((self.cycle + self.timing.matrix_latency, index))
        self._set(gap_left=max(self.gap_left - 1, 0))
        if stepping:
            index, steps = self.matrix_running, self.steps_left
            if self.matrix_waiting is not None:
                index = self.matrix_waiting
                matrix = self.program[index]
                assert isinstance(matrix, Matrix)
                steps = self._steps(matrix)
                self._set(matrix_waiting=None, matrix_running=index)
            assert index is not None
            matrix = self.program[index]
            assert isinstance(matrix, Matrix)
            words = matrix.height * matrix.width
            gap = max(words, self.timing.accumulate_latency)
            self._set(words_left=words, gap_left=gap, steps_left=steps - 1)

    # ---- VECTOR

    def _vector_load(self) -> bool:
        """The PAR reader, one word a cycle; whether it has nothing left to do after this cycle."""
        left = self.load_words_left
        if left == 0 and self.loads:
            words, is_table = self.loads[0]
            chosen = self.sets[self.next_set]
            if chosen.claimed or self.cycle < chosen.free_from:
                return False
            if is_table:  # the one table is free once the pipeline is empty
                streaming = self.stream_left > 0 or self.block_sets
                if streaming or self.cycle < self.last_stream + self.timing.parameter_hold:
                    return False
            left = words
            self._edge(self.loads.popleft)
            self._set(next_set=1 - self.next_set, loading=chosen)
            self._edge(chosen.take)
            if left == 1:
                self._edge(chosen.fill, self.cycle)
            self._set(load_words_left=left - 1)
            return left == 1 and len(self.loads) == 1
        if left:
            if left == 1:
                assert self.loading is not None
                self._edge(self.loading.fill, self.cycle)
            self._set(load_words_left=left - 1)
        return left <= 1 and not self.loads

    def _set_ready(self, wanted: _Set | None) -> bool:
        """Whether a block may stream from the next cycle on: its set's last word was read 2 cycles ago."""
        return wanted is None or (wanted.loaded is not None and self.cycle >= wanted.loaded + 2)

    def _vector_stream(self, starting: bool) -> None:
        left = self.stream_left
        sets = self.waiting_sets if starting else self.block_sets
        begin = starting or (bool(sets) and left <= 1 and self._set_ready(sets[0]))
        index = self.vector_waiting if starting else self.vector_running
        if left > 0:
            self._set(stream_left=left - 1, last_stream=self.cycle)
        if left == 1:
            if self.stream_set is not None and self.stream_set not in self.block_sets[:1]:
                self._edge(self.stream_set.leave, self.cycle + self.timing.parameter_hold)
            if not self.block_sets:
                ended = self.vector_running
                assert ended is not None
                self._edge(self._release, self.ports[ended][0])
                self.ending[VECTOR].append((self.cycle + self.timing.vector_latency, ended))
        if begin:
            assert index is not None
            vector = self.program[index]
            assert isinstance(vector, Vector)
            self._set(stream_left=_stream(self.config, vector), stream_set=sets[0], block_sets=sets[1:])
            if starting:
                self._set(vector_waiting=None, vector_running=index)

    # ---- read channel and LOAD

    def _read_address(self) -> None:
        owner = self.address_owner
        count = self._fetch_wants()
        if owner == "none":
            if count:
                owner = None
            elif self.load_requests:
                owner = LOAD
            else:
                return
        if len(self.reads) >= self.dram.read_bursts:
            self._set(address_owner=owner)
            return
        self._set(address_owner="none")
        if owner is None:
            start = self.asked * INSTRUCTION_BYTES
            bursts = list(_bursts(self.config, start, count * INSTRUCTION_BYTES))
            assert len(bursts) == 1, "a FETCH burst crosses a boundary"
            beats = bursts[0][2]
            first = start // self.config.bus_bytes * self.config.bus_bytes
            for number in range(count):
                last_byte = start + (number + 1) * INSTRUCTION_BYTES - 1
                beat = (last_byte - first) // self.config.bus_bytes + 1
                self.fetch_marks.append(self.fetch_beats_asked + beat)
            self._set(asked=self.asked + count, fetch_beats_asked=self.fetch_beats_asked + beats)
        else:
            beats = self.load_requests[0][2]
            self._edge(self.load_requests.popleft)
        self._edge(self.reads.append, _ReadBurst(owner if owner is None else LOAD, self.cycle, beats))

    def _read_data(self) -> None:
        """The beat on the read channel, and LOAD's write side."""
        burst = self.reads[0] if self.reads else None
        valid = burst is not None and self.cycle >= burst.accepted + self.dram.latency
        slot = self.load_slots[0] if self.load_slots else None
        for_load = valid and burst is not None and burst.owner is LOAD
        if valid and burst is not None and (burst.owner is None or slot == BEAT):
            self.counters["read_beats"] += 1
            if burst.owner is None:
                self._edge(self._fetch_beat)
            if burst.beats == 1:
                self._edge(self.reads.popleft)
            else:
                self._edge(setattr, burst, "beats", burst.beats - 1)
        if slot is None:
            return
        index = self.load_writing
        assert index is not None
        if slot == BEAT and not for_load:
            self.counters["load_dram"] += 1
            self.schedule[index, DRAM] += 1
            return
        self._edge(self.load_slots.popleft)
        if len(self.load_slots) == 1:
            self._set(load_writing=None)
            self.ending[LOAD].append((self.cycle + 1, index))

    # ---- write channel and STORE

    def _write_channel(self) -> None:
        index = self.store_running
        if index is not None and self.store_addresses and self.writes_flying < self.dram.write_bursts:
            self._edge(self.store_addresses.popleft)
            self._set(store_addressed=self.store_addressed + 1)
            self._edge(self._flying_writes, 1)
        if self.store_data and self.cycle >= self.store_data_from:
            burst, completes, last = self.store_data[0]
            if not completes or burst < self.store_addressed:
                self._edge(self.store_data.popleft)
                if completes:
                    assert index is not None
                    self.counters["write_beats"] += 1
                    self.counters["store_dram"] -= 1
                    self.schedule[index, DRAM] -= 1
                    final = len(self.store_data) == 1
                    if last:
                        self._edge(self.responses.append, (self.cycle + self.dram.latency, index if final else None))
                    if final:
                        self._set(store_running=None)
                        self._edge(self._release, self.ports[index][0])
        if self.responses and self.cycle >= self.responses[0][0]:
            ended = self.responses[0][1]
            self._edge(self.responses.popleft)
            self._edge(self._flying_writes, -1)
            if ended is not None:
                self.ending[STORE].append((self.cycle, ended))

    def _flying_writes(self, change: int) -> None:
        self.writes_flying += change

    # ---- ends and busy counters

    def _ends(self, started: list[bool]) -> None:
        for engine in ENGINES:
            name = engine.name.lower()
            if started[engine] or self.running[engine]:
                self.counters[f"{name}_busy"] += 1
                self.counters["store_dram"] += engine is STORE
            if started[engine]:
                self._edge(self._runs, engine, 1)
            if self.ending[engine] and self.ending[engine][0][0] == self.cycle:
                index = self.ending[engine].popleft()[1]
                self._note(index, END)
                if engine is STORE:
                    self.schedule[index, DRAM] += self.cycle - self.schedule[index, START] + 1
                self._edge(self._ended, index, engine)

    def _runs(self, engine: Engine, change: int) -> None:
        self.running[engine] += change

    def _ended(self, index: int, engine: Engine) -> None:
        self.running[engine] -= 1
        self.flying[engine] -= 1
        self._release(self.ports[index][1])
        for other in ENGINES:
            if self.program[index].signal >> other & 1:
                self.tokens[engine][other] += 1
