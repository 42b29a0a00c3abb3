"""Queues, tokens, start and end: what all engines have alike."""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel import load, matrix, store, vector
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.ports import release
from npukit.sim.timing_kernel.schedule import place
from npukit.sim.timing_kernel.state import ENGINE_COUNT, LOAD, MATRIX, STORE, VECTOR

__all__ = ["issue", "see_ends"]


@njit_part
def see_ends(machine, program, engine):
    """What ended becomes visible one cycle later: ports are free, tokens are there."""
    state, now = machine.engines[engine], machine.clock.now
    while state.reads_ended < state.reads_scheduled:
        instruction = program[place(machine, program, engine, state.reads_ended)]
        when = instruction.reads_end + 1
        if when > now:
            sleep_until(machine.clock, when)
            break
        release(machine, engine, instruction.read_ports)
        state.reads_ended += 1
    while state.ended < state.ends_scheduled:
        instruction = program[place(machine, program, engine, state.ended)]
        when = instruction.end + 1
        if when > now:
            sleep_until(machine.clock, when)
            break
        release(machine, engine, instruction.write_ports)
        state.writes_weights -= instruction.writes_weights
        for other in range(ENGINE_COUNT):
            if (instruction.signal >> other) & 1:
                machine.tokens[engine, other] += 1
        state.ended += 1
        if state.issued - state.ended == machine.parameters.queue_depth - 1:
            state.room_from = when


@njit_part
def _may_issue(machine, engine, instruction):
    """Whether its tokens are there, and what it drains is done."""
    state = machine.engines[engine]
    if instruction.drain and state.ended < state.issued:
        return False
    for other in range(ENGINE_COUNT):
        if (instruction.wait >> other) & 1 and machine.tokens[other, engine] == 0:
            return False
    return True


@njit_part
def issue(machine, program, engine):
    """Issue an engine's next instruction, if it can be."""
    state, now = machine.engines[engine], machine.clock.now
    if state.issued == state.queued or state.busy_front:
        return
    instruction = program[place(machine, program, engine, state.issued)]
    when = max(instruction.queue + 1, state.issue_from)
    if engine == LOAD or engine == STORE:
        if state.issued - state.ended >= machine.parameters.queue_depth:
            return
        when = max(when, state.room_from)
    if when > now:
        sleep_until(machine.clock, when)
        return
    if not _may_issue(machine, engine, instruction):
        return
    for other in range(ENGINE_COUNT):
        if (instruction.wait >> other) & 1:
            machine.tokens[other, engine] -= 1
    instruction.issue = now
    instruction.token_wait = now - when
    state.issued += 1
    state.busy_front = True
    machine.clock.changed = True
    if engine == LOAD:
        load.begin(machine)
    elif engine == MATRIX:
        matrix.begin(machine)
    elif engine == VECTOR:
        vector.begin(machine, instruction)
    else:
        store.begin(machine)
