"""The reference DRAM: fixed latency, separate channels, a bounded number of bursts in flight."""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel import fetch, load, store
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.read_addresses import accept_read
from npukit.sim.timing_kernel.state import FETCH, NOBODY, RING

__all__ = ["cycle", "see_ends"]


@njit_part
def see_ends(machine):
    """Bursts that were answered in earlier cycles leave room for others."""
    reads, writes, now = machine.reads, machine.writes, machine.clock.now
    while reads.finished < reads.answered:
        when = machine.bursts[reads.finished % RING].done + 1
        if when > now:
            sleep_until(machine.clock, when)
            break
        reads.finished += 1
    while writes.finished < writes.accepted:
        when = machine.responses[writes.finished % RING] + 1
        if when > now:
            sleep_until(machine.clock, when)
            break
        writes.finished += 1


@njit_part
def _write(machine, program):
    """Accept STORE's address, and know from it when the response comes."""
    writes = machine.writes
    if not store.may_present(machine) or writes.accepted - writes.finished >= machine.parameters.write_bursts:
        return
    index = store.started(machine, program)
    last_beat, last = store.send_burst(machine, program)
    writes.response = max(last_beat + machine.parameters.latency, writes.response + 1)
    machine.responses[writes.accepted % RING] = writes.response
    writes.accepted += 1
    if last:
        store.end(machine, program, index, writes.response, machine.store.beats)
    machine.clock.changed = True


@njit_part
def _read(machine, program):
    """Answer bursts whose consumer is there, in order."""
    reads = machine.reads
    while reads.answered < reads.accepted:
        burst = machine.bursts[reads.answered % RING]
        begin = max(burst.accepted + machine.parameters.latency, reads.channel_end + 1)
        if burst.owner == FETCH:
            reads.channel_end = fetch.take_burst(machine, program, burst, begin)
        elif load.waits_for(machine, burst):
            reads.channel_end = load.take_burst(machine, program, burst, begin)
        else:
            return
        burst.done = reads.channel_end
        reads.answered += 1
        machine.clock.changed = True


@njit_part
def cycle(machine, program):
    """What it accepts and answers in this cycle."""
    reads = machine.reads
    _write(machine, program)
    if reads.address_owner != NOBODY and reads.accepted - reads.finished < machine.parameters.read_bursts:
        accept_read(machine, program)
    _read(machine, program)
