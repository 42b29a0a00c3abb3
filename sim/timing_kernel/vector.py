"""VECTOR: descriptor, parameters and tables are read while the instruction before streams."""

from npukit.isa.timing import READ_LATENCY
from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.schedule import end_instruction, end_reads, place, start_instruction
from npukit.sim.timing_kernel.state import VECTOR

__all__ = ["begin", "start"]


@njit_part
def begin(machine, instruction):
    """A VECTOR has been issued: it reads its descriptor and first parameters."""
    vector, hold = machine.vector, machine.parameters.parameter_hold
    vector.load_from = max(vector.load_from, machine.clock.now + 1)
    vector.ready = vector.load_from
    words = instruction.descriptor + instruction.parameters
    if words > 0:
        vector.load_from = max(vector.load_from, vector.older_set_end + hold)
        if instruction.table > 0:
            vector.load_from = max(vector.load_from, vector.stream_end + hold)
            words = instruction.table
        vector.load_from += words
        vector.ready = vector.load_from + READ_LATENCY
        vector.older_set_end = vector.newer_set_end


@njit_part
def start(machine, program):
    """The issued VECTOR streams, from its first block to its last."""
    state, vector, parameters = machine.engines[VECTOR], machine.vector, machine.parameters
    if not state.busy_front:
        return
    index, now = place(machine, program, VECTOR, state.started), machine.clock.now
    when = max(vector.ready - 1, vector.stream_end, program[index].issue + 1)
    if not start_instruction(machine, program, VECTOR, index, when):
        return
    instruction = program[index]
    uses_set = instruction.parameters + instruction.descriptor > 0
    vector.stream_end = now + instruction.stream
    if uses_set:
        vector.newer_set_end = vector.stream_end
    for _ in range(1, instruction.blocks):
        begin = vector.stream_end + 1
        if instruction.parameters > 0:
            free = vector.older_set_end + parameters.parameter_hold
            vector.load_from = max(vector.load_from, free) + instruction.parameters
            begin = max(begin, vector.load_from + READ_LATENCY)
            vector.older_set_end = vector.newer_set_end
        vector.stream_end = begin + instruction.stream - 1
        if uses_set:
            vector.newer_set_end = vector.stream_end
    state.busy_front = False
    state.issue_from = max(vector.load_from - 1, now + 1)
    end_reads(machine, program, VECTOR, vector.stream_end)
    end_instruction(machine, program, VECTOR, index, vector.stream_end + parameters.vector_latency)
