"""When layers and engines were at work, in spans as fine as a picture can show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npukit.isa.instructions import ENGINES
from npukit.isa.program import Program
from npukit.profiling.layers import foreground, slice_ends
from npukit.sim.timing import Schedule

__all__ = ["LAYERS", "Span", "spans"]

LAYERS = "layers"
"""The lane of the layers that own the cycles."""


@dataclass(frozen=True)
class Span:
    """A lane is at work for a layer from cycle `start` until before `end`.

    Attributes:
        lane: an engine's name, or `LAYERS`.
        layer: number of the layer among all programs' layers; -1 for instructions of none.
        instructions: that began in it; of the lane of layers 0.
    """

    lane: str
    layer: int
    start: int
    end: int
    instructions: int


def spans(runs: Sequence[tuple[Program, Schedule]], resolution: int = 2000) -> list[Span]:
    """The spans of programs that run one after the other.

    Args:
        resolution: gaps of less than this part of all cycles are closed between spans of one layer.
    """
    least = sum(schedule.cycles for _, schedule in runs) / resolution
    found: list[Span] = []
    begin = first_layer = 0
    for program, schedule in runs:
        for one in (*_layers(program, schedule), *_engines(program, schedule)):
            layer = -1 if one.layer < 0 else first_layer + one.layer
            one = Span(one.lane, layer, begin + one.start, begin + one.end, one.instructions)
            before = found[-1] if found else None
            if before and (before.lane, before.layer) == (one.lane, layer) and one.start - before.end <= least:
                found[-1] = Span(one.lane, layer, before.start, one.end, before.instructions + one.instructions)
            else:
                found.append(one)
        begin += schedule.cycles
        first_layer += len(program.nodes)
    return found


def _layers(program: Program, schedule: Schedule) -> Iterator[Span]:
    if not program.nodes:
        return
    edges, owner = foreground(program, schedule.start, schedule.end, schedule.cycles)
    firsts = np.flatnonzero(np.diff(owner, prepend=-1))
    for first, after in zip(firsts, np.append(edges[firsts[1:]], schedule.cycles), strict=True):
        yield Span(LAYERS, int(owner[first]), int(edges[first]), int(after), 0)


def _engines(program: Program, schedule: Schedule) -> Iterator[Span]:
    """Each instruction, until it ends or the next one of its engine begins."""
    node_of = np.full(len(program.instructions), -1)
    for number, node in enumerate(program.nodes):
        for first, end in node.runs:
            node_of[first:end] = number
    ends = slice_ends(program, schedule)
    for engine in ENGINES:
        for index, one in enumerate(program.instructions):
            if one.engine is engine:
                yield Span(engine.name, int(node_of[index]), int(schedule.start[index]), int(ends[index]), 1)
