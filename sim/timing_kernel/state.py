"""What the timing kernel computes with: a record for each unit, and arrays of records where there are several.

They are declared as classes and laid out as NumPy records, so that the same functions run over them with and without
the compiler, and change them in place. "From" in a name: the first cycle in which something may happen.
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from npukit.isa.instructions import ENGINES, Engine
from npukit.isa.registers import COUNTERS
from npukit.isa.sdram import READ_BUFFER
from npukit.isa.timing import READ_OUTSTANDING, WRITE_OUTSTANDING
from npukit.sim.dram import BANK_BITS
from numpy.typing import NDArray

__all__ = [
    "BUSY", "CLOSED", "CYCLES", "ENGINE_COUNT", "FETCH", "FETCH_STALL", "LOAD", "LOAD_DRAM", "MATRIX", "NEVER",
    "NOBODY", "PORTS", "READ_BEATS", "RING", "SLICE", "STORE", "STORE_DRAM", "VECTOR", "WRITE_BEATS", "Machine",
    "new_machine", "new_program",
]  # fmt: skip

NEVER = np.int64(1) << 60
"""A cycle that no program reaches."""
LOAD, MATRIX, VECTOR, STORE = (int(engine) for engine in (Engine.LOAD, Engine.MATRIX, Engine.VECTOR, Engine.STORE))
ENGINE_COUNT = len(ENGINES)
FETCH = ENGINE_COUNT
"""Whose burst it is, where that is no engine's."""
NOBODY = -1
PORTS = 64
"""Bits of a mask of ports."""
CLOSED = -1
"""In place of a bank's open row."""
RING = 2 * max(READ_OUTSTANDING, WRITE_OUTSTANDING, READ_BUFFER)
"""Places for what is in flight on a channel: more than there can be."""
SLICE = 2
"""Places of a register slice between an accelerator and an SDRAM controller at twice its clock."""

_NAMES = [name for name, _ in COUNTERS]
CYCLES, FETCH_STALL, READ_BEATS, WRITE_BEATS, LOAD_DRAM, STORE_DRAM = (
    _NAMES.index(name) for name in ("cycles", "fetch_stall", "read_beats", "write_beats", "load_dram", "store_dram")
)
BUSY = tuple(_NAMES.index(f"{engine.name.lower()}_busy") for engine in ENGINES)
"""Places of counters; those that are not here are sums over the schedule."""


# ---- what a program and its surroundings give


class Instruction:
    """An instruction as the kernel sees it; END has FETCH's number as its engine."""

    engine: int
    drain: int
    wait: int
    signal: int
    read_ports: int
    write_ports: int
    writes_weights: int
    """Whether it writes WGT, whose port no mask has."""
    # LOAD, STORE; sizes, strides and the address in bytes
    planes: int
    rows: int
    row_bytes: int
    plane_stride: int
    row_stride: int
    address: int
    word_bytes: int
    # LOAD: border in words and rows
    pad_top: int
    pad_bottom: int
    pad_left: int
    pad_right: int
    # MATRIX: tiles of weights, and words that stream through each
    steps: int
    words: int
    # VECTOR: words of PAR of the descriptor and of each block's parameters; cycles of a block, of a table that is read
    blocks: int
    descriptor: int
    parameters: int
    stream: int
    table: int

    # its schedule: cycles, and how long it waited for what
    queue: int
    issue: int
    start: int
    end: int
    token_wait: int
    port_wait: int
    dram_wait: int
    # from when FETCH can hand it on; when it reads for the last time
    arrival: int
    reads_end: int
    # the program's places engine by engine, each in order
    in_order: int


class Parameters:
    """Of configuration and reference DRAM; `isa/timing.py` says what those of the machine are."""

    queue_depth: int
    bus_bytes: int
    max_burst: int
    rows: int
    fetch_burst: int
    fetch_buffer: int
    matrix_latency: int
    accumulate_latency: int
    vector_latency: int
    parameter_hold: int
    store_read_latency: int
    # the reference DRAM
    latency: int
    read_bursts: int
    write_bursts: int


class Sdram:
    """Of an SDRAM and its controller, in the controller's cycles and in bits; `_wait`: what a command leaves to wait
    for."""

    present: bool
    """Whether the memory is an SDRAM; else the reference DRAM."""
    rate: int
    """Cycles of the controller in one of the accelerator."""
    first_beat: int
    """Cycles from a read's command to the one in which its beat can be taken."""
    column_wait: int
    activate_wait: int
    open_wait: int
    precharge_wait: int
    refresh_wait: int
    recovery_wait: int
    turn_wait: int
    interval: int
    late: int
    column_bits: int
    bank_bits: int
    row_bits: int
    read_buffer: int
    write_buffer: int
    phase: int
    program: int
    operands: int
    """Byte addresses (not `base`, which NumPy's records have already)."""


# ---- what the units keep


class Clock:
    """The cycle, and which one to look at next."""

    now: int
    wake: int
    """The next cycle in which something may happen that does not follow from what happens in this one."""
    changed: bool
    """Whether something happened in this cycle."""


class EngineState:
    """Queue, issue and ends of an engine, whose instructions are numbered from 0 in their order."""

    first: int
    """Where its instructions begin in the program's `in_order`."""
    queued: int
    issued: int
    started: int
    reads_scheduled: int
    reads_ended: int
    """Seen to have ended: their read ports are free."""
    ends_scheduled: int
    ended: int
    """Seen to have ended: their tokens are there, their write ports are free."""
    issue_from: int
    room_from: int
    """From when fewer instructions are between issue and end than may be (LOAD, STORE)."""
    busy_front: bool
    """An instruction has been issued, and what begins it is not done: no other is issued."""
    held: int
    """Mask of the ports that it holds."""
    writes_weights: int
    """Instructions for which it holds the port that writes WGT."""
    last_end: int
    """Latest end, for the union of busy cycles."""


class FetchState:
    """FETCH's bursts, and what it hands on."""

    asked: int
    """Instructions asked for."""
    dispatched: int
    held: int
    """Asked for and not handed on at the beginning of this cycle."""
    ask_from: int
    dispatch_from: int


class Walk:
    """Where a LOAD's or STORE's bursts are."""

    plane: int
    row: int
    done: int
    """Bytes of the row."""


class LoadState:
    """LOAD's writer; a slot is a word or a beat, whichever is more, or a word of border."""

    ask_from: int
    active: bool
    """Whether a LOAD is being written."""
    next_slot: int
    """Cycle of the next slot, if its beat is there."""
    slots: int
    """Slots so far."""
    start_from: int


class MatrixState:
    """Weights and streams."""

    weights_from: int
    """From when a tile of the next instruction can be read."""
    first_weights: int
    """When the first tile of the issued instruction is read."""
    stream_from: int


class VectorState:
    """Parameters and streams. There are two sets of parameters: a new one replaces the older one of them, when the last
    word that uses it has streamed and `parameter_hold` cycles are over."""

    load_from: int
    """When the next words of PAR can be read."""
    ready: int
    """From when the issued instruction's descriptor and first parameters are there."""
    stream_end: int
    newer_set_end: int
    older_set_end: int


class StoreState:
    """Reads of ACT, and addresses."""

    ready: int
    """When the issued STORE can start."""
    start_from: int
    active: bool
    """Whether a STORE that started has bursts to send."""
    address_from: int
    next_beat: int
    """Cycle of the last beat, or before the first one that of the first word."""
    beats: int


class Sending:
    """STORE's burst, beat by beat (with an SDRAM)."""

    left: int
    """Beats that have not been sent."""
    beat_from: int
    first: bool
    head_words: int
    tail_words: int
    instruction: int
    last: bool
    """Whether the burst is its STORE's last."""
    accepted: int
    """Bursts of which the address was taken."""
    finished: int
    """Bursts that were written."""


class Burst:
    """A read burst."""

    owner: int
    """LOAD or FETCH."""
    number: int
    """Of the LOAD among LOADs; of FETCH's first instruction."""
    instructions: int
    accepted: int
    """Its address's cycle."""
    beats: int
    slots: int
    """Slots of the data."""
    head_words: int
    tail_words: int
    """Words in its first and in its last beat."""
    before: int
    after: int
    """Slots of border before and after the data."""
    last: bool
    """Whether it is its LOAD's last."""
    done: int
    """Cycle of the last beat."""


class ReadState:
    """Read addresses and data. Bursts are answered in the order of their addresses."""

    address_owner: int
    """Whose address is presented."""
    accepted: int
    answered: int
    """Bursts of which all beats are known."""
    finished: int
    """Seen to have been answered."""
    channel_end: int
    """Cycle of the latest beat (reference DRAM)."""
    beats_asked: int
    beats_answered: int
    """Beats that have left the controller."""
    beat: int
    """The next beat of the oldest burst (SDRAM)."""


class WriteState:
    """Write bursts and their responses (reference DRAM)."""

    accepted: int
    finished: int
    response: int
    """Cycle of the latest response."""


class AddressSlice:
    """Addresses in a register slice: taken from the accelerator, and not accepted by the controller."""

    held: int
    beat: Annotated[Any, int, SLICE]
    left: Annotated[Any, int, SLICE]
    """Of each: the beat that it begins with, and its beats, less one."""


class DataSlice:
    """Beats in a register slice."""

    held: int


class ControllerState:
    """Registers of the SDRAM controller, and what happens in this cycle."""

    valid: bool
    """Whether there is a burst."""
    settled: bool
    """Whether there was one in the cycle before."""
    is_write: bool
    beat: int
    left: int
    wait: int
    open: int
    recovery: int
    turn: int
    late: int
    interval: int
    room: int
    written: int
    # what happens
    read_accepted: bool
    write_accepted: bool
    read_goes: bool
    write_goes: bool
    last: bool
    """The beat that goes is its burst's last."""
    ticks: bool
    """The next cycle differs, although nothing new is asked for."""


class Machine:
    """All units, memories and what is in flight."""

    parameters: Parameters
    sdram: Sdram
    clock: Clock
    engines: Annotated[Any, EngineState, ENGINE_COUNT]
    tokens: Annotated[Any, int, ENGINE_COUNT, ENGINE_COUNT]
    """[from, to]."""
    holds: Annotated[Any, int, PORTS]
    """Instructions that hold a port."""
    counters: Annotated[Any, int, len(COUNTERS)]
    fetch: FetchState
    load: LoadState
    load_walk: Walk
    matrix: MatrixState
    vector: VectorState
    store: StoreState
    store_walk: Walk
    sending: Sending
    reads: ReadState
    bursts: Annotated[Any, Burst, RING]
    beat_from: Annotated[Any, int, RING]
    """The cycle from which a beat can be taken (SDRAM)."""
    burst_ends: Annotated[Any, int, RING]
    """Place of the STORE that a write burst ends, or `NOBODY`, in the order of their addresses (SDRAM)."""
    read_addresses: AddressSlice
    write_addresses: AddressSlice
    read_beats: DataSlice
    write_beats: DataSlice
    """Of an SDRAM at twice the accelerator's clock, which is behind register slices."""
    writes: WriteState
    responses: Annotated[Any, int, RING]
    """Cycles of write responses (reference DRAM)."""
    controller: ControllerState
    open_rows: Annotated[Any, int, 1 << BANK_BITS]


def record_type(declared: type) -> np.dtype:
    """The layout of a declared record; arrays in it are annotated with their element and sizes."""

    def layout(kind: Any) -> Any:
        return {int: np.int64, bool: np.bool_}.get(kind) or record_type(kind)

    fields: list[Any] = []
    for name, kind in get_type_hints(declared, include_extras=True).items():
        if get_origin(kind) is Annotated:
            _, element, *sizes = get_args(kind)
            fields.append((name, layout(element), tuple(sizes)))
        else:
            fields.append((name, layout(kind)))
    return np.dtype(fields, align=True)


def _fill(record: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        record[name] = value


def new_program(columns: Mapping[str, NDArray[np.int64]], total: int) -> Any:
    """Instruction[total] of a program in cycle 0; `columns` has what `Instruction` says of it, END last."""
    program = np.rec.array(np.zeros(total, record_type(Instruction)))
    _fill(program, columns)
    program["arrival"] = NEVER
    program["in_order"] = np.argsort(program["engine"], kind="stable")
    return program


def new_machine(parameters: Mapping[str, int], sdram: Mapping[str, int], program: Any) -> Machine:
    """A machine in cycle 0. parameters, sdram: values of `Parameters` and `Sdram`."""
    machine: Machine = np.rec.array(np.zeros(1, record_type(Machine)))[0]
    _fill(machine.parameters, parameters)
    _fill(machine.sdram, sdram)
    for engine in ENGINES:
        machine.engines[engine].first = np.count_nonzero(program["engine"] < engine)
        machine.engines[engine].last_end = -1
    machine.fetch.ask_from = 1
    never = -machine.parameters.parameter_hold  # nothing has streamed yet
    _fill(machine.vector, {"stream_end": never, "newer_set_end": never, "older_set_end": never})
    _fill(machine.reads, {"address_owner": NOBODY, "channel_end": -1})
    machine.writes.response = -1
    _fill(machine.controller, {"interval": machine.sdram.phase, "room": machine.sdram.read_buffer})
    machine.open_rows[:] = CLOSED
    return machine
