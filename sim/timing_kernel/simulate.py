"""The loop over cycles."""

from npukit.sim.compiled import njit_of_parts, njit_part
from npukit.sim.timing_kernel import fetch, load, matrix, reference_memory, sdram_memory, store, vector
from npukit.sim.timing_kernel.issue import issue, see_ends
from npukit.sim.timing_kernel.read_addresses import present
from npukit.sim.timing_kernel.schedule import place
from npukit.sim.timing_kernel.state import ENGINE_COUNT, NEVER

__all__ = ["simulate"]


@njit_part
def _stuck(machine, program):
    """The first instruction that can never issue."""
    for engine in range(ENGINE_COUNT):
        state = machine.engines[engine]
        if state.issued < state.queued:
            return place(machine, program, engine, state.issued)
    return machine.fetch.dispatched


@njit_of_parts
def simulate(machine, program):
    """Run a program's timing: writes its schedule and counters.

    Returns -1, or the place of the first instruction that can never issue.
    """
    clock = machine.clock
    while True:
        clock.changed = False
        clock.wake = NEVER
        for engine in range(ENGINE_COUNT):
            see_ends(machine, program, engine)
        reference_memory.see_ends(machine)
        if fetch.dispatch(machine, program):
            return -1
        # ports are granted in the order of the engines
        load.start(machine, program)
        matrix.start(machine, program)
        vector.start(machine, program)
        store.start(machine, program)
        for engine in range(ENGINE_COUNT):
            issue(machine, program, engine)
        present(machine, program)
        if machine.sdram.present:
            sdram_memory.cycle(machine, program)
        else:
            reference_memory.cycle(machine, program)

        if clock.changed:
            clock.now += 1
        elif clock.wake == NEVER:
            return _stuck(machine, program)
        elif machine.sdram.present:
            clock.now = sdram_memory.skip(machine, clock.wake)
        else:
            clock.now = clock.wake
