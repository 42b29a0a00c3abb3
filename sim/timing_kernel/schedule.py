"""Which instruction is which, and its start and end."""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.clock import sleep_until
from npukit.sim.timing_kernel.ports import free, take
from npukit.sim.timing_kernel.state import BUSY

__all__ = ["end_instruction", "end_reads", "place", "start_instruction"]


@njit_part
def place(machine, program, engine, number):
    """Place in the program of an engine's instruction, counted from 0."""
    return program[machine.engines[engine].first + number].in_order


@njit_part
def start_instruction(machine, program, engine, index, when):
    """Whether an instruction starts in this cycle: from cycle `when` on, once its ports are free."""
    now = machine.clock.now
    if when > now:
        sleep_until(machine.clock, when)
        return False
    ports = program[index].read_ports | program[index].write_ports
    writes_weights = program[index].writes_weights
    if not free(machine, engine, ports, writes_weights):
        return False
    take(machine, engine, ports)
    machine.engines[engine].writes_weights += writes_weights
    program[index].start = now
    program[index].port_wait = now - when
    machine.engines[engine].started += 1
    machine.clock.changed = True
    return True


@njit_part
def end_reads(machine, program, engine, cycle):
    """The last read of the engine's next instruction is in that cycle."""
    state = machine.engines[engine]
    program[place(machine, program, engine, state.reads_scheduled)].reads_end = cycle
    state.reads_scheduled += 1


@njit_part
def end_instruction(machine, program, engine, index, cycle):
    """An instruction ends in that cycle; the cycles that it adds to those in which its engine is busy."""
    state = machine.engines[engine]
    added = cycle - max(program[index].start, state.last_end + 1) + 1
    program[index].end = cycle
    machine.counters[BUSY[engine]] += added
    state.last_end = cycle
    state.ends_scheduled += 1
    return added
