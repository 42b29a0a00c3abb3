"""An SDRAM behind its controller: beats come and go one by one, and the controller decides each cycle."""

import numpy as np
from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel import fetch, load, store
from npukit.sim.timing_kernel.bursts import next_burst
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.read_addresses import accept_read
from npukit.sim.timing_kernel.sdram_controller import step
from npukit.sim.timing_kernel.state import FETCH, NOBODY, RING, SLICE

__all__ = ["cycle", "skip"]


@njit_part
def _arrived(machine):
    """Whether the beat that comes first is in the read buffer."""
    reads = machine.reads
    if reads.beats_answered == reads.beats_asked:
        return False
    there = machine.beat_from[reads.beats_answered % RING]
    if there > machine.clock.now:
        sleep_until(machine.clock, there)
        return False
    return True


@njit_part
def _take(machine, program):
    """Whether the beat that comes first, which is there, is wanted in this cycle, and so taken."""
    reads = machine.reads
    burst = machine.bursts[reads.answered % RING]
    if burst.owner == FETCH:
        fetch.take_beat(machine, program, burst, reads.beat)
    elif not load.waits_for(machine, burst) or not load.take_beat(machine, program, burst, reads.beat):
        return False
    reads.beat += 1
    if reads.beat == burst.beats:
        reads.beat = 0
        reads.answered += 1
        burst.done = machine.clock.now
        if burst.owner != FETCH:
            load.end_burst(machine, program, burst)
    return True


@njit_part
def _read_address(machine, program):
    """(beat, beats) of the read burst that is presented."""
    parameters, sdram = machine.parameters, machine.sdram
    if machine.reads.address_owner == NOBODY:
        return np.int64(0), np.int64(0)
    if machine.reads.address_owner == FETCH:
        address, beats = fetch.next_burst(machine, program)
        return (sdram.program + address) // parameters.bus_bytes, beats
    address, _, beats, _, _ = next_burst(parameters, program[load.requesting(machine, program)], machine.load_walk)
    return (sdram.operands + address) // parameters.bus_bytes, beats


@njit_part
def _write_address(machine, program):
    """(beat, beats) of STORE's next burst."""
    instruction = program[store.started(machine, program)]
    address, _, beats, _, _ = next_burst(machine.parameters, instruction, machine.store_walk)
    return (machine.sdram.operands + address) // machine.parameters.bus_bytes, beats


@njit_part
def cycle(machine, program):
    """What it accepts, answers and takes in this cycle."""
    if machine.sdram.rate == 1:
        _directly(machine, program)
    else:
        _through_slices(machine, program)


@njit_part
def _directly(machine, program):
    """With the controller at the accelerator's clock."""
    clock, sdram, controller, sending = machine.clock, machine.sdram, machine.controller, machine.sending
    popped = _arrived(machine) and _take(machine, program)
    # the address of STORE's next burst comes behind the last one's data
    idle = sending.left == 0
    pushed = store.send_beat(machine, program, controller.written < sdram.write_buffer)
    writing = idle and store.may_present(machine)
    write_beat, write_beats = np.int64(0), np.int64(0)
    if writing:
        write_beat, write_beats = _write_address(machine, program)
    reading = machine.reads.address_owner != NOBODY
    read_beat, read_beats = _read_address(machine, program)

    step(machine, reading, read_beat, read_beats - 1, writing, write_beat, write_beats - 1, popped, pushed)
    if controller.write_accepted:
        store.send_address(machine, program)
    _see(machine, program, np.int64(0))
    if controller.read_accepted:
        accept_read(machine, program)
    machine.reads.beats_answered += popped
    if controller.write_accepted or popped or pushed:
        clock.changed = True


@njit_part
def _through_slices(machine, program):
    """With the controller at twice the accelerator's clock, behind a register slice on each channel."""
    clock, sdram, controller, sending = machine.clock, machine.sdram, machine.controller, machine.sending
    read_addresses, write_addresses = machine.read_addresses, machine.write_addresses
    read_beats, write_beats = machine.read_beats, machine.write_beats
    # what crosses to the accelerator's clock or from it does so in the second of the controller's cycles
    nothing, first, second = np.int64(0), np.int64(0), np.int64(1)
    step(machine, False, nothing, nothing, False, nothing, nothing, False, False)
    _see(machine, program, first)
    # what the slices hold at the beginning of the cycle decides
    popped = read_beats.held < SLICE and _arrived(machine)
    taken = read_beats.held > 0 and _take(machine, program)
    pushed = write_beats.held > 0 and controller.written < sdram.write_buffer
    idle = sending.left == 0
    sent = store.send_beat(machine, program, write_beats.held < SLICE)
    writing = idle and write_addresses.held < SLICE and store.may_present(machine)
    reading = machine.reads.address_owner != NOBODY and read_addresses.held < SLICE

    step(
        machine, read_addresses.held > 0, read_addresses.beat[0], read_addresses.left[0], write_addresses.held > 0,
        write_addresses.beat[0], write_addresses.left[0], popped, pushed,
    )  # fmt: skip
    _see(machine, program, second)
    if controller.read_accepted:
        _drop(read_addresses)
    if controller.write_accepted:
        _drop(write_addresses)
    if reading:
        beat, beats = _read_address(machine, program)
        _put(read_addresses, beat, beats)
        accept_read(machine, program)
    if writing:
        beat, beats = _write_address(machine, program)
        _put(write_addresses, beat, beats)
        store.send_address(machine, program)
    machine.reads.beats_answered += popped
    read_beats.held += popped
    read_beats.held -= taken
    write_beats.held += sent
    write_beats.held -= pushed
    if controller.read_accepted or controller.write_accepted or writing or popped or taken or sent or pushed:
        clock.changed = True


@njit_part
def _put(addresses, beat, beats):
    """A burst's address enters its slice."""
    addresses.beat[addresses.held] = beat
    addresses.left[addresses.held] = beats - 1
    addresses.held += 1


@njit_part
def _drop(addresses):
    """The oldest address leaves its slice."""
    addresses.held -= 1
    for place in range(SLICE - 1):
        addresses.beat[place] = addresses.beat[place + 1]
        addresses.left[place] = addresses.left[place + 1]


@njit_part
def _see(machine, program, part):
    """What the controller did in that one of its cycles within the accelerator's cycle."""
    clock, sdram, controller, sending = machine.clock, machine.sdram, machine.controller, machine.sending
    if controller.read_goes:
        # the first of the accelerator's cycles whose last part is not before the beat is there
        after = (part + sdram.first_beat) // sdram.rate
        machine.beat_from[machine.reads.beats_asked % RING] = clock.now + after
        machine.reads.beats_asked += 1
    if controller.write_goes and controller.last:
        ended = machine.burst_ends[sending.finished % RING]
        sending.finished += 1
        if ended != NOBODY:
            # a slice has the response for a cycle
            end = clock.now + (part + 1) // sdram.rate + (sdram.rate - 1)
            store.end(machine, program, ended, end, program[ended].dram_wait)
    if controller.read_goes or controller.write_goes or controller.ticks:
        clock.changed = True


@njit_part
def skip(machine, cycle):
    """The cycle to go on in: that one, or an earlier one in which the refresh interval ends, as it runs on."""
    controller, after, rate = machine.controller, machine.clock.now + 1, machine.sdram.rate
    cycle = min(cycle, after + controller.interval // rate)
    controller.interval -= (cycle - after) * rate
    return cycle
