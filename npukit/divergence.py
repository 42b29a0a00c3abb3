"""The first tensor of a run that differs from the reference: where in it, and which instructions made it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npukit.isa.assembly import format_instruction
from npukit.isa.program import NodeInfo, Program

__all__ = ["Divergence", "Made", "made_by"]

_AROUND = 40
"""Instructions of a node that are shown before and after the one that wrote an element."""


@dataclass(frozen=True)
class Divergence:
    """A tensor that differs.

    Attributes:
        tensor: its name.
        expected, actual: its values, of the same shape.
        unequal: of each element, whether it differs.
        index: of the first element that does.
    """

    tensor: str
    expected: NDArray
    actual: NDArray
    unequal: NDArray[np.bool_]
    index: tuple[int, ...]


@dataclass(frozen=True)
class Made:
    """What made a tensor on the accelerator.

    Attributes:
        program: its name.
        node: the layer.
        instruction: number of the one that wrote the first element that differs; None where that is not known.
        tile: of each element, whether that instruction writes it; None where that is not known.
        lines: (number, text) of the node's instructions, those around `instruction` where there are many.
        left_out: how many more there are.
    """

    program: str
    node: NodeInfo
    instruction: int | None
    tile: NDArray[np.bool_] | None
    lines: tuple[tuple[int, str], ...]
    left_out: int


def made_by(programs: Mapping[str, Program], found: Divergence, instruction: int | None) -> Made | None:
    """The layer that wrote a tensor; None for one that the host made.

    Args:
        instruction: that wrote the first element that differs, if it is known.
    """
    for name, program in programs.items():
        captured = program.captured.get(found.tensor)
        if captured is None:
            continue
        writers = [one for one in program.captures if one.tensor == captured.source]
        if instruction is None:
            node = next(node for node in program.nodes if writers[0].instruction in node.indices())
            return Made(name, node, None, None, *_lines(program, node, node.first))
        tile = np.zeros(found.unequal.shape, bool)
        outer, channel, inner = np.unravel_index(np.arange(tile.size), captured.order)
        parts = program.config.activation.parts_of(captured.dtype)
        block = channel // program.config.array * parts
        for one in writers:
            if one.instruction == instruction:
                words = one.words(program.instructions[instruction])  # pyright: ignore[reportArgumentType]  # VECTOR's
                for part in range(parts):
                    place = ((block + part) * captured.order[0] + outer) * captured.order[2] + inner
                    tile |= np.isin(place, words).reshape(tile.shape)
        node = next(node for node in program.nodes if instruction in node.indices())
        return Made(name, node, instruction, tile, *_lines(program, node, instruction))
    return None


def _lines(program: Program, node: NodeInfo, around: int) -> tuple[tuple[tuple[int, str], ...], int]:
    indices = node.indices()
    place = indices.index(around)
    shown = indices[max(0, place - _AROUND) : place + _AROUND + 1]
    lines = tuple((one, format_instruction(program.instructions[one])) for one in shown)
    return lines, len(indices) - len(shown)
