"""An SDRAM behind its controller: beats come and go one by one, and the controller decides each cycle."""

import numpy as np
from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel import fetch, load, store
from npukit.sim.timing_kernel.bursts import next_burst
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.read_addresses import accept_read
from npukit.sim.timing_kernel.sdram_controller import step
from npukit.sim.timing_kernel.state import FETCH, NOBODY, RING

__all__ = ["cycle", "skip"]


@njit_part
def _read(machine, program):
    """Whether the beat that comes first is taken in this cycle: if it is there and wanted."""
    reads = machine.reads
    if reads.beats_taken == reads.beats_asked:
        return False
    there = machine.beat_from[reads.beats_taken % RING]
    if there > machine.clock.now:
        sleep_until(machine.clock, there)
        return False
    burst = machine.bursts[reads.answered % RING]
    if burst.owner == FETCH:
        fetch.take_beat(machine, program, burst, reads.beat)
    elif not load.waits_for(machine, burst) or not load.take_beat(machine, program, burst, reads.beat):
        return False
    reads.beats_taken += 1
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
    return (sdram.base + address) // parameters.bus_bytes, beats


@njit_part
def cycle(machine, program):
    """What it accepts, answers and takes in this cycle."""
    clock, sdram, controller, sending = machine.clock, machine.sdram, machine.controller, machine.sending
    # what crosses to the accelerator's clock or from it does so in the last of the controller's cycles
    nothing = np.int64(0)
    for part in range(sdram.rate - 1):
        step(machine, False, nothing, nothing, False, nothing, nothing, False, False)
        _see(machine, program, part)
    popped = _read(machine, program)
    # the address of STORE's next burst comes behind the last one's data
    idle = sending.left == 0
    pushed = store.send_beat(machine, program, controller.written < sdram.write_buffer)
    writing = idle and store.may_present(machine)
    write_beat, write_beats = np.int64(0), np.int64(0)
    if writing:
        instruction = program[store.started(machine, program)]
        address, _, write_beats, _, _ = next_burst(machine.parameters, instruction, machine.store_walk)
        write_beat = (sdram.base + address) // machine.parameters.bus_bytes
    reading = machine.reads.address_owner != NOBODY
    read_beat, read_beats = _read_address(machine, program)

    step(machine, reading, read_beat, read_beats - 1, writing, write_beat, write_beats - 1, popped, pushed)
    if controller.write_accepted:
        store.send_address(machine, program)
    _see(machine, program, sdram.rate - 1)
    if controller.read_accepted:
        accept_read(machine, program)
    if controller.write_accepted or popped or pushed:
        clock.changed = True


@njit_part
def _see(machine, program, part):
    """What the controller did in that one of its cycles within the accelerator's cycle."""
    clock, sdram, controller, sending = machine.clock, machine.sdram, machine.controller, machine.sending
    if controller.read_goes:
        # the first of the accelerator's cycles whose last part is not before the beat is there
        after = (part + sdram.first_beat) // sdram.rate
        machine.beat_from[machine.reads.beats_asked % RING] = clock.now + after
        machine.reads.beats_asked += 1
    if controller.write_goes and controller.last and sending.last:
        # the burst that goes is the one that was sent last: none is accepted before it is done
        end = clock.now + (part + 1) // sdram.rate
        store.end(machine, program, sending.instruction, end, program[sending.instruction].dram_wait)
    if controller.read_goes or controller.write_goes or controller.ticks:
        clock.changed = True


@njit_part
def skip(machine, cycle):
    """The cycle to go on in: that one, or an earlier one in which the refresh interval ends, as it runs on."""
    controller, after, rate = machine.controller, machine.clock.now + 1, machine.sdram.rate
    cycle = min(cycle, after + controller.interval // rate)
    controller.interval -= (cycle - after) * rate
    return cycle
