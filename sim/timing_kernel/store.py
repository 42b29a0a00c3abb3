"""STORE: an address, and its data behind it, burst by burst."""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.bursts import advance, begin_walk, next_burst
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.schedule import end_instruction, end_reads, place, start_instruction
from npukit.sim.timing_kernel.state import NOBODY, RING, STORE, STORE_DRAM, WRITE_BEATS

__all__ = ["begin", "end", "may_present", "send_address", "send_beat", "send_burst", "start", "started"]


@njit_part
def begin(machine):
    """A STORE has been issued."""
    machine.store.ready = machine.clock.now + 1


@njit_part
def start(machine, program):
    """The issued STORE starts to read, behind the one before."""
    store, state, now = machine.store, machine.engines[STORE], machine.clock.now
    if store.active or not state.busy_front:
        return
    index = place(machine, program, STORE, state.started)
    if start_instruction(machine, program, STORE, index, max(store.ready, store.start_from)):
        state.busy_front = False
        state.issue_from = now + 1
        store.active = True
        store.beats = 0
        store.address_from = now + 1
        store.next_beat = now + machine.parameters.store_read_latency
        begin_walk(machine.store_walk)


@njit_part
def started(machine, program):
    """Place of the STORE that sends."""
    return place(machine, program, STORE, machine.engines[STORE].started - 1)


@njit_part
def may_present(machine):
    """Whether there is an address to present in this cycle."""
    if not machine.store.active:
        return False
    if machine.store.address_from > machine.clock.now:
        sleep_until(machine.clock, machine.store.address_from)
        return False
    return True


@njit_part
def _count(machine, instruction, size, beats):
    """A burst's address is accepted; whether it is its STORE's last burst."""
    machine.store.beats += beats
    machine.counters[WRITE_BEATS] += beats
    return advance(instruction, machine.store_walk, size)


@njit_part
def _end_reading(machine, program, cycle):
    """The last beat of a STORE is sent in that cycle."""
    machine.store.active = False
    machine.store.start_from = cycle + 1
    end_reads(machine, program, STORE, cycle)


@njit_part
def end(machine, program, index, cycle, beats):
    """The last response comes in that cycle."""
    start = program[index].start
    program[index].dram_wait = cycle - start + 1 - beats
    machine.counters[STORE_DRAM] += end_instruction(machine, program, STORE, index, cycle) - beats


@njit_part
def send_burst(machine, program):
    """A burst's address is accepted in this cycle, and each of its beats as soon as STORE has it.

    (cycle of its last beat, whether it is the STORE's last burst).
    """
    store = machine.store
    instruction = program[started(machine, program)]
    _, size, beats, head_words, _ = next_burst(machine.parameters, instruction, machine.store_walk)
    word_bytes = instruction.word_bytes
    rest = beats - 1 if word_bytes >= machine.parameters.bus_bytes else size // word_bytes - head_words
    store.next_beat = max(machine.clock.now + 1, store.next_beat + head_words) + rest
    store.address_from = machine.clock.now + 1
    last = _count(machine, instruction, size, beats)
    if last:
        _end_reading(machine, program, store.next_beat)
    return store.next_beat, last


@njit_part
def send_address(machine, program):
    """A burst's address is accepted in this cycle; its beats are sent by `send_beat`, the next address after them."""
    sending = machine.sending
    sending.instruction = started(machine, program)
    instruction = program[sending.instruction]
    _, size, beats, head_words, tail_words = next_burst(machine.parameters, instruction, machine.store_walk)
    sending.left = beats
    sending.beat_from = machine.clock.now + 1
    sending.first = True
    sending.head_words = head_words
    sending.tail_words = tail_words
    sending.last = _count(machine, instruction, size, beats)
    machine.burst_ends[sending.accepted % RING] = sending.instruction if sending.last else NOBODY
    sending.accepted += 1


@njit_part
def send_beat(machine, program, room):
    """Whether a beat is sent in this cycle, where there is room for it."""
    sending, store, now = machine.sending, machine.store, machine.clock.now
    if sending.left == 0 or sending.beat_from > now:
        return False
    if sending.first:
        words = sending.head_words
    elif sending.left == 1:
        words = sending.tail_words
    else:
        words = max(1, machine.parameters.bus_bytes // program[sending.instruction].word_bytes)
    if store.next_beat + words > now:
        sleep_until(machine.clock, store.next_beat + words)
        return False
    if not room:
        return False
    store.next_beat = now
    sending.left -= 1
    sending.first = False
    if sending.left == 0:
        store.address_from = now + 1
        if sending.last:
            _end_reading(machine, program, now)
            # the STORE's beats, until its end is known
            program[sending.instruction].dram_wait = store.beats
    return True
