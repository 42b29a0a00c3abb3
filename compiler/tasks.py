"""What scheduling produces: instructions in program order whose addresses are still open."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from npukit.compiler.ir.graph import Graph
from npukit.isa.instructions import Engine, Instruction, Memory
from numpy.typing import NDArray

__all__ = ["Allocation", "Box", "Buffer", "CaptureBox", "DramUse", "Operand", "Places", "Plan", "Task"]


@dataclass(frozen=True, eq=False)
class Buffer:
    """A stretch of on-chip words within one bank, from its first task to its last."""

    memory: Memory
    words: int
    label: str


Places = Mapping[Buffer, tuple[int, int]]
"""Bank and first word of buffers."""


@dataclass(frozen=True)
class Box:
    """A part of a tensor: half-open ranges of channel block, row and column, and the columns that a row has.

    Rows are counted through all images.
    """

    block: tuple[int, int]
    y: tuple[int, int]
    x: tuple[int, int]
    width: int

    def overlaps(self, other: "Box") -> bool:
        """Whether the two parts share a word; between rows of other lengths, whether they may."""
        if not _meet(self.block, other.block):
            return False
        if self.width == other.width:
            return _meet(self.y, other.y) and _meet(self.x, other.x)
        return _meet(self._places, other._places)

    @property
    def _places(self) -> tuple[int, int]:
        """From its first to its last word in a block."""
        return self.y[0] * self.width + self.x[0], (self.y[1] - 1) * self.width + self.x[1]


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@dataclass(frozen=True)
class Operand:
    """An instruction's operand: where in which buffer; `field` is the prefix of its address fields.

    part: of the tensor that the buffer holds; None for any of it. Words of parts that do not overlap are other words.
    """

    field: str
    buffer: Buffer
    offset: int = 0
    write: bool = False
    part: Box | None = None


@dataclass(frozen=True)
class DramUse:
    """DRAM side of a LOAD or STORE: words from the tensor's (or constant's) start, and the part used."""

    tensor: str
    offset: int
    box: Box | None
    write: bool = False


@dataclass(frozen=True)
class CaptureBox:
    """The part of a quantised tensor that a VECTOR task writes: its (block, y, x) index is the tensor's word
    `first` + block * `stride_block` + y * `stride_y` + x * `stride_x`."""

    tensor: str
    first: int
    stride_block: int
    stride_y: int
    stride_x: int


@dataclass(frozen=True, eq=False)
class Task:
    """One instruction to be, in program order; `node` is the number of its layer."""

    engine: Engine
    instruction: Instruction
    operands: tuple[Operand, ...]
    node: int
    dram: DramUse | None = None
    captures: tuple[CaptureBox, ...] = ()


@dataclass
class Plan:
    """A graph's tasks in program order, and the constants that they load (in PAR or WGT words, as bytes).

    place: of each buffer, where places are known already.
    """

    graph: Graph
    tasks: list[Task] = field(default_factory=list)
    constants: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    place: Places | None = None


@dataclass
class Allocation:
    """Where everything of a plan lies.

    place: bank and first word of a buffer; replaces: the buffers whose words it takes over; dram:
    first byte of a tensor or constant; dram_replaces: the tensors whose bytes a tensor takes over.
    """

    plan: Plan
    place: dict[Buffer, tuple[int, int]] = field(default_factory=dict)
    replaces: dict[Buffer, list[Buffer]] = field(default_factory=dict)
    dram: dict[str, int] = field(default_factory=dict)
    dram_replaces: dict[str, list[str]] = field(default_factory=dict)
    constant_bytes: int = 0
    dram_bytes: int = 0
