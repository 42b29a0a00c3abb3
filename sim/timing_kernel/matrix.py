"""MATRIX: weights of a step are read while the step before streams."""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.schedule import end_instruction, end_reads, place, start_instruction
from npukit.sim.timing_kernel.state import MATRIX

__all__ = ["begin", "start"]


@njit_part
def begin(machine):
    """A MATRIX has been issued: it reads its first weights."""
    machine.matrix.first_weights = max(machine.clock.now + 1, machine.matrix.weights_from)


@njit_part
def start(machine, program):
    """The issued MATRIX streams, from its first step to its last."""
    state, matrix, parameters = machine.engines[MATRIX], machine.matrix, machine.parameters
    if not state.busy_front:
        return
    index, now = place(machine, program, MATRIX, state.started), machine.clock.now
    if not start_instruction(machine, program, MATRIX, index, max(matrix.first_weights, matrix.stream_from - 1)):
        return
    words = program[index].words
    gap = max(words, parameters.accumulate_latency)
    weights = matrix.first_weights
    stream = now + 1
    for _ in range(1, program[index].steps):
        weights = max(weights + parameters.rows, stream)
        stream = max(weights + 1, stream + gap)
    matrix.weights_from = max(weights + parameters.rows, stream)
    matrix.stream_from = stream + gap
    state.busy_front = False
    state.issue_from = max(matrix.weights_from - 1, now + 1)
    last = stream + words - 1
    end_reads(machine, program, MATRIX, last)
    end_instruction(machine, program, MATRIX, index, last + parameters.matrix_latency)
