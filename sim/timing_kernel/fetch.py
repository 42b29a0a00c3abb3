"""FETCH: bursts of instructions, of which it hands on one a cycle."""

from npukit.isa.timing import INSTRUCTION_BYTES
from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.state import CYCLES, ENGINE_COUNT, FETCH, FETCH_STALL, NEVER, READ_BEATS

__all__ = ["ask", "dispatch", "next_burst", "present", "take_beat", "take_burst"]


@njit_part
def _beats_through(parameters, instructions):
    """Beats up to the end of so many instructions."""
    return (instructions * INSTRUCTION_BYTES + parameters.bus_bytes - 1) // parameters.bus_bytes


@njit_part
def dispatch(machine, program):
    """Hand one instruction to its queue; whether it was END, to which all others have ended."""
    fetch, now = machine.fetch, machine.clock.now
    fetch.held = fetch.asked - fetch.dispatched
    if fetch.held == 0 or program[fetch.dispatched].arrival == NEVER:
        return False
    index = fetch.dispatched
    when = max(program[index].arrival, fetch.dispatch_from)
    if when > now:
        sleep_until(machine.clock, when)
        return False
    scheduled = program[index]
    engine = program[index].engine
    if engine == FETCH:
        ended = 0
        for other in range(ENGINE_COUNT):
            ended += machine.engines[other].ended
        if ended < index:
            return False
        scheduled.queue = now
        scheduled.issue = now
        scheduled.start = now
        scheduled.end = now
        machine.counters[CYCLES] = now + 1
        return True
    state = machine.engines[engine]
    if state.queued - state.issued < machine.parameters.queue_depth:
        scheduled.queue = now
        machine.counters[FETCH_STALL] += now - when
        state.queued += 1
        fetch.dispatched += 1
        fetch.dispatch_from = now + 1
        machine.clock.changed = True
    return False


@njit_part
def _wanted(machine, program):
    """Instructions of the next burst."""
    return min(machine.parameters.fetch_burst, program.shape[0] - machine.fetch.asked)


@njit_part
def next_burst(machine, program):
    """(address from the program's, beats) of the next burst."""
    return machine.fetch.asked * INSTRUCTION_BYTES, _beats_through(machine.parameters, _wanted(machine, program))


@njit_part
def present(machine, program):
    """Present the address of the next burst, if there is room for its instructions."""
    fetch, count = machine.fetch, _wanted(machine, program)
    if count > 0 and fetch.held + count <= machine.parameters.fetch_buffer:
        if fetch.ask_from > machine.clock.now:
            sleep_until(machine.clock, fetch.ask_from)
        else:
            machine.reads.address_owner = FETCH


@njit_part
def ask(machine, program, burst):
    """The presented burst's address is accepted."""
    fetch = machine.fetch
    burst.owner = FETCH
    burst.number = fetch.asked
    burst.instructions = _wanted(machine, program)
    _, burst.beats = next_burst(machine, program)
    machine.counters[READ_BEATS] += burst.beats
    fetch.asked += burst.instructions
    fetch.ask_from = machine.clock.now + 1


@njit_part
def take_burst(machine, program, burst, begin):
    """The burst's beats come one a cycle from cycle `begin` on; the cycle of the last one."""
    for step in range(burst.instructions):
        program[burst.number + step].arrival = begin + _beats_through(machine.parameters, step + 1)
    return begin + burst.beats - 1


@njit_part
def take_beat(machine, program, burst, beat):
    """A beat of a burst is taken in this cycle, with the instructions that end in it."""
    for step in range(burst.instructions):
        if _beats_through(machine.parameters, step + 1) - 1 == beat:
            program[burst.number + step].arrival = machine.clock.now + 1
