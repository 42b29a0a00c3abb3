"""LOAD: requests run ahead of the writer, which puts one slot a cycle into a memory."""

import numpy as np
from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.bursts import advance, begin_walk, next_burst
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.schedule import end_instruction, place, start_instruction
from npukit.sim.timing_kernel.state import LOAD, LOAD_DRAM, READ_BEATS

__all__ = ["ask", "begin", "end_burst", "present", "requesting", "start", "take_beat", "take_burst", "waits_for"]


@njit_part
def begin(machine):
    """A LOAD has been issued: it asks for its rows from the next cycle on."""
    machine.load.ask_from = machine.clock.now + 1
    begin_walk(machine.load_walk)


@njit_part
def start(machine, program):
    """The writer starts the next LOAD, in order."""
    load, state = machine.load, machine.engines[LOAD]
    if load.active or state.started == state.issued:
        return
    index = place(machine, program, LOAD, state.started)
    if start_instruction(machine, program, LOAD, index, max(load.start_from, program[index].issue + 1)):
        load.active = True
        load.next_slot = machine.clock.now + 1
        load.slots = 0


@njit_part
def requesting(machine, program):
    """Place of the LOAD that asks for its rows."""
    return place(machine, program, LOAD, machine.engines[LOAD].issued - 1)


@njit_part
def present(machine):
    """Present the address of the next burst."""
    if machine.engines[LOAD].busy_front:
        if machine.load.ask_from > machine.clock.now:
            sleep_until(machine.clock, machine.load.ask_from)
        else:
            machine.reads.address_owner = LOAD


@njit_part
def ask(machine, program, burst):
    """The presented burst's address is accepted."""
    state, walk = machine.engines[LOAD], machine.load_walk
    instruction = program[requesting(machine, program)]
    _, size, beats, head_words, tail_words = next_burst(machine.parameters, instruction, walk)
    word_bytes = instruction.word_bytes
    burst.owner = LOAD
    burst.number = state.issued - 1
    burst.beats = beats
    burst.slots = beats if word_bytes >= machine.parameters.bus_bytes else size // word_bytes
    burst.head_words = head_words
    burst.tail_words = tail_words
    machine.counters[READ_BEATS] += beats

    row_slots = instruction.pad_left + instruction.row_bytes // word_bytes + instruction.pad_right
    before, after = np.int64(0), np.int64(0)
    if walk.done == 0:
        before = instruction.pad_left
        if walk.row == 0:
            before += instruction.pad_top * row_slots
    row = walk.row
    burst.last = advance(instruction, walk, size)
    if walk.done == 0:
        after = instruction.pad_right
        if row == instruction.rows - 1:
            after += instruction.pad_bottom * row_slots
    burst.before = before
    burst.after = after
    machine.load.ask_from = machine.clock.now + 1
    if burst.last:
        state.busy_front = False
        state.issue_from = machine.clock.now + 1


@njit_part
def waits_for(machine, burst):
    """Whether the burst is the written LOAD's."""
    return machine.load.active and burst.number == machine.engines[LOAD].started - 1


@njit_part
def take_burst(machine, program, burst, begin):
    """The burst's beats are there one a cycle from cycle `begin` on; the cycle in which the last one is taken."""
    load = machine.load
    begin = max(begin, load.next_slot + burst.before)
    load.next_slot = begin + burst.slots
    load.slots += burst.before + burst.slots
    end_burst(machine, program, burst)
    return begin + burst.slots - burst.tail_words


@njit_part
def take_beat(machine, program, burst, beat):
    """Whether the writer takes a beat that is there in this cycle, and writes its words."""
    load, now = machine.load, machine.clock.now
    if beat == 0 and burst.before > 0:
        load.next_slot += burst.before
        load.slots += burst.before
        burst.before = 0
    if load.next_slot > now:
        sleep_until(machine.clock, load.next_slot)
        return False
    words = burst.tail_words
    if beat == 0:
        words = burst.head_words
    elif beat < burst.beats - 1:
        instruction = program[place(machine, program, LOAD, burst.number)]
        words = max(1, machine.parameters.bus_bytes // instruction.word_bytes)
    load.next_slot = now + words
    load.slots += words
    return True


@njit_part
def end_burst(machine, program, burst):
    """The border behind a burst; a LOAD whose last one it was ends."""
    load = machine.load
    load.next_slot += burst.after
    load.slots += burst.after
    if burst.last:
        index = place(machine, program, LOAD, burst.number)
        end = load.next_slot  # the last slot is in the cycle before
        waited = end - 1 - program[index].start - load.slots
        program[index].dram_wait = waited
        machine.counters[LOAD_DRAM] += waited
        end_instruction(machine, program, LOAD, index, end)
        load.start_from = end
        load.active = False
