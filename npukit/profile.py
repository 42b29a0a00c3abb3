"""Where the cycles of a run went: totals, counters, and a row per layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Load, Matrix, Memory, Store, Vector
from npukit.isa.program import Program
from npukit.isa.timing import Timing
from npukit.sim.timing import stream_cycles

__all__ = ["LayerProfile", "Profile", "layer_profiles"]


@dataclass(frozen=True)
class LayerProfile:
    """One layer: `cycles` from the end of the layer before it to its own end.

    `array`, `vector`, `dram` are the cycles for which the array streams, VECTOR streams and the bus
    moves data of this layer; `bound` names the largest, or `fill` when none covers half of the cycles.
    """

    node: str
    op: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    macs: int
    cycles: int
    utilization: float
    bound: str
    array: int
    vector: int
    dram: int


@dataclass
class Profile:
    """The last run of a session. Cycles sum over the accelerated subgraphs."""

    config: NpuConfig
    cycles: int = 0
    macs: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    layers: list[LayerProfile] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    boundary_bytes: int = 0

    @property
    def utilization(self) -> float:
        """Useful MACs / (array size * cycles)."""
        return self.macs / (self.config.array**2 * self.cycles) if self.cycles else 0.0


def _work(program: Program, first: int, last: int) -> tuple[int, int, int]:
    """(array, vector, bus) cycles of a range of instructions, by themselves."""
    config, timing = program.config, Timing(program.config)
    array = vector = moved = 0
    for instruction in program.instructions[first:last]:
        if isinstance(instruction, Matrix):
            steps = instruction.channels * instruction.kernel_height * instruction.kernel_width
            words = instruction.height * instruction.width
            array += instruction.blocks * steps * max(config.array, words, timing.accumulate_latency)
        elif isinstance(instruction, Vector):
            vector += instruction.blocks * stream_cycles(config, instruction)
        elif isinstance(instruction, Load | Store):
            wide = isinstance(instruction, Load) and instruction.memory is Memory.PAR
            word = config.wide_word_bytes if wide else config.word_bytes
            words = instruction.planes * instruction.rows * instruction.words
            # a word narrower than the bus still takes LOAD or STORE a cycle
            moved += max(words, -(-words * word // config.bus_bytes))
    return array, vector, moved


def layer_profiles(program: Program, ends: NDArray[np.int64] | None, cycles: int) -> Iterable[LayerProfile]:
    """A row per node, from each instruction's end; without them (a device that does not tell)
    the last row gets the whole program's cycles."""
    before = 0
    for position, node in enumerate(program.nodes):
        array, vector, moved = _work(program, node.first, node.last)
        end = cycles
        if ends is not None and position + 1 < len(program.nodes):
            end = max(before, int(ends[node.first : node.last].max()) + 1)
        spent = end - before
        before = end
        work = {"array": array, "vector": vector, "dram": moved}
        bound = max(work, key=lambda name: work[name])
        if 2 * work[bound] < spent:
            bound = "fill"
        peak = program.config.array**2 * spent
        yield LayerProfile(
            node.name, node.op, node.inputs, node.output, node.macs, spent,
            node.macs / peak if spent else 0.0, bound, array, vector, moved,
        )  # fmt: skip
