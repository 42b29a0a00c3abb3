"""The read address channel: FETCH before LOAD; an address that is not accepted yet stays (AXI)."""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel import fetch, load
from npukit.sim.timing_kernel.state import FETCH, NOBODY, RING

__all__ = ["accept_read", "present"]


@njit_part
def present(machine, program):
    """Choose whose address is presented."""
    reads = machine.reads
    if reads.address_owner == NOBODY:
        fetch.present(machine, program)
    if reads.address_owner == NOBODY:
        load.present(machine)


@njit_part
def accept_read(machine, program):
    """The presented address is accepted in this cycle."""
    reads = machine.reads
    burst = machine.bursts[reads.accepted % RING]
    burst.accepted = machine.clock.now
    if reads.address_owner == FETCH:
        fetch.ask(machine, program, burst)
    else:
        load.ask(machine, program, burst)
    reads.accepted += 1
    reads.address_owner = NOBODY
    machine.clock.changed = True
