"""What goes over the bus and through the multipliers, over time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npukit.isa.instructions import Load, Matrix, Store, Vector
from npukit.isa.program import Program
from npukit.profiling.layers import slice_ends, transfer
from npukit.sim.timing import Schedule

__all__ = ["Activity", "activity"]


@dataclass(frozen=True)
class Activity:
    """Work in windows of equal length, of which the last one may be shorter.

    Attributes:
        edges: cycles in which windows begin, and the program's cycles; one more than windows.
        read, written: bytes in DRAM, and macs, in each window. They add up to the program's. What an instruction does
            is spread evenly over the cycles in which it is at work, until the next one of its engine begins, and a
            node's MACs over its MATRIX instructions, or over its VECTOR instructions where it has none.
    """

    edges: NDArray[np.int64]
    read: NDArray[np.float64]
    written: NDArray[np.float64]
    macs: NDArray[np.float64]


def activity(program: Program, schedule: Schedule, windows: int) -> Activity:
    """The activity of a program in at most so many windows."""
    length = max(1, -(-schedule.cycles // windows))
    edges = np.unique(np.append(np.arange(0, schedule.cycles, length), schedule.cycles))
    instructions = program.instructions
    count = len(instructions)
    read, written, macs = np.zeros(count), np.zeros(count), np.zeros(count)
    for index, one in enumerate(instructions):
        if isinstance(one, Load | Store):
            _, (read if isinstance(one, Load) else written)[index] = transfer(program.config, one)
    end = slice_ends(program, schedule)
    duration = end - schedule.start
    for node in program.nodes:
        if not node.macs:
            continue
        indices = list(node.indices())
        computing = [one for one in indices if isinstance(instructions[one], Matrix)]
        computing = computing or [one for one in indices if isinstance(instructions[one], Vector)]
        macs[computing] += node.macs * duration[computing] / duration[computing].sum()
    return Activity(edges, *(_windowed(schedule.start, end, amount, edges) for amount in (read, written, macs)))


def _windowed(
    starts: NDArray[np.int64], ends: NDArray[np.int64], amounts: NDArray[np.float64], edges: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What instructions do in each window, from what each does in all."""
    busy = amounts > 0
    start, end = starts[busy], ends[busy]
    rates = amounts[busy] / (end - start)
    times = np.concatenate([start, end])
    changes = np.concatenate([rates, -rates])
    order = np.argsort(times, kind="stable")
    times, rate = times[order], np.cumsum(changes[order])
    if not len(times):
        return np.zeros(len(edges) - 1)
    done = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])
    return np.diff(np.interp(edges, times, done))
