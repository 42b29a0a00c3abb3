"""Where the cycles of a run went: totals, counters, and a row per layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from html import escape
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npukit.driver.host import Transfers
from npukit.hw.toolchain import needs
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Engine, Load, Matrix, Memory, Store, Vector
from npukit.isa.program import Program
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.timing import Schedule, least_cycles

if TYPE_CHECKING:
    from altair import FacetChart, LayerChart
    from pandas import DataFrame

__all__ = [
    "LayerProfile",
    "Profile",
    "foreground",
    "layer_profiles",
    "peak_macs",
    "slice_ends",
    "timing_profile",
    "transfer",
]


@dataclass(frozen=True)
class LayerProfile:
    """One layer.

    Layers overlap. A cycle belongs to the layer whose MATRIX instruction is at work in it, if there is one, otherwise
    to that of VECTOR's, of STORE's, of LOAD's; if nothing is at work, to the layer that is next to begin something. So
    `cycles` add up to the program's, and a layer that hides behind another one has few.

    `elapsed` are the cycles in which an instruction of this layer was at work, whoever else was: what overlaps counts
    for several layers, so that these do not add up, and a layer moves and multiplies no more in them than the machine
    can. `utilization` is of the array's MACs in `cycles`, or in those in which the layer's MATRIX or VECTOR
    instructions were at work, where these are more, as they are for a layer that hides behind another one.

    `array`, `vector`, `dram` are the cycles for which the array streams, VECTOR streams and the bus moves data of this
    layer; `bound` names the largest, `fill` when none covers half of the cycles, and `hidden` when `cycles` are less
    than half of it. `read_bytes`, `write_bytes`: DRAM traffic; `weight_bytes`: those of `read_bytes` that are weights.
    `window`: columns of the widest window of its VECTOR instructions, 0 without VECTOR.
    """

    node: str
    op: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    macs: int
    cycles: int
    elapsed: int
    utilization: float
    bound: str
    array: int
    vector: int
    dram: int
    read_bytes: int
    write_bytes: int
    weight_bytes: int
    window: int


@dataclass
class Profile:
    """The last run of a session. Cycles sum over the accelerated subgraphs.

    Attributes:
        dram: what lies behind the accelerator.
        boundary: what went to and from the accelerator, in seconds of laying it out.
        transfers: what went to and from a GPU that runs the rest.
    """

    config: NpuConfig
    dram: AnyDram = field(default_factory=DramModel)
    cycles: int = 0
    macs: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    layers: list[LayerProfile] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    boundary: Transfers = field(default_factory=Transfers)
    transfers: Transfers = field(default_factory=Transfers)

    @property
    def utilization(self) -> float:
        """Useful MACs to the most that could have been done."""
        return self.macs / (self.peak * self.cycles) if self.cycles else 0.0

    @property
    def peak(self) -> int:
        """The most MACs a cycle: the array's, or VECTOR's where it computes layers and has more."""
        return peak_macs(self.config, on_array=not any(layer.macs and not layer.array for layer in self.layers))

    def to_dataframe(self) -> "DataFrame":
        """A row per layer, with `LayerProfile`'s fields as columns, for pandas.

        Raises:
            ToolError: pandas is not installed.
        """
        with needs("profile", "a DataFrame"):
            from pandas import DataFrame
        return DataFrame([vars(layer) for layer in self.layers], columns=[one.name for one in fields(LayerProfile)])

    def plot_roofline(self) -> "LayerChart | FacetChart":
        """The layers against what array and DRAM allow, as an Altair chart, which notebooks show.

        Raises:
            ToolError: Altair is not installed.
        """
        with needs("profile", "a plot"):
            from npukit.reports.charts import roofline
        return roofline(self)

    def _repr_html_(self) -> str:
        heads = ("layer", "operator", "MACs", "cycles", "utilisation", "bound by")
        rows = [
            (one.node, one.op, one.macs, one.cycles, f"{100 * one.utilization:.1f} %", one.bound) for one in self.layers
        ]
        rows.append(("total", "", self.macs, self.cycles, f"{100 * self.utilization:.1f} %", ""))
        lines = ["".join(f"<th>{head}</th>" for head in heads)]
        lines += ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
        return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def peak_macs(config: NpuConfig, *, on_array: bool) -> int:
    """The most MACs a cycle: the array's; or, of a layer that VECTOR computes, VECTOR's, if it has more."""
    return config.array_macs if on_array else max(config.array_macs, config.array * config.vector_taps)


def transfer(config: NpuConfig, instruction: Load | Store) -> tuple[int, int]:
    """(words, bytes) that it moves."""
    words = instruction.planes * instruction.rows * instruction.words
    wide = isinstance(instruction, Load) and instruction.memory is Memory.PAR
    return words, words * (config.wide_word_bytes if wide else config.word_bytes)


def _work(program: Program, indices: Iterable[int], dram: AnyDram) -> tuple[int, int, int, int, int, int]:
    """(array, vector, bus) cycles of some instructions, by themselves, and bytes that they (read, write, read as
    weights) in DRAM."""
    config = program.config
    rate = dram.bytes_per_cycle(config)
    array = vector = moved = weights = 0
    traffic = [0, 0]
    for instruction in (program.instructions[index] for index in indices):
        if isinstance(instruction, Matrix):
            array += least_cycles(config, instruction)
        elif isinstance(instruction, Vector):
            vector += least_cycles(config, instruction)
        elif isinstance(instruction, Load | Store):
            words, size = transfer(config, instruction)
            # a word narrower than the bus still takes LOAD or STORE a cycle
            moved += max(words, ceil(size / rate))
            traffic[isinstance(instruction, Store)] += size
            weights += size * (isinstance(instruction, Load) and instruction.memory is Memory.WGT)
    return array, vector, moved, traffic[0], traffic[1], weights


def timing_profile(config: NpuConfig, runs: Iterable[tuple[Program, Schedule]], dram: AnyDram | None = None) -> Profile:
    """What programs cost by their schedules alone, which are those with that DRAM, by default the reference one."""
    profile = Profile(config, dram or DramModel())
    for program, schedule in runs:
        profile.cycles += schedule.cycles
        profile.macs += sum(node.macs for node in program.nodes)
        for name, value in schedule.counters.items():
            profile.counters[name] = profile.counters.get(name, 0) + value
        profile.layers.extend(
            layer_profiles(program, {"start": schedule.start, "end": schedule.end}, schedule.cycles, dram)
        )
    return profile


_FOREGROUND = (Engine.MATRIX, Engine.VECTOR, Engine.STORE, Engine.LOAD)


def foreground(
    program: Program, starts: NDArray[np.int64], ends: NDArray[np.int64], cycles: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(edges of spans of cycles, the number of the node to which each span belongs, by `LayerProfile`'s rule)."""
    count = len(program.nodes)
    node_of = np.full(len(program.instructions), count - 1)
    for number, node in enumerate(program.nodes):
        for first, end in node.runs:
            node_of[first:end] = number
    edges = np.unique(np.concatenate([[0, cycles], starts, ends + 1]).clip(0, cycles))
    owner = np.full(len(edges) - 1, -1)
    engines = np.array([-1 if one.engine is None else int(one.engine) for one in program.instructions])
    low, high = np.searchsorted(edges, starts), np.searchsorted(edges, ends + 1)
    for engine in reversed(_FOREGROUND):
        for index in np.nonzero(engines == engine)[0]:
            owner[low[index] : high[index]] = node_of[index]
    # what nobody works in belongs to the next one
    following = count - 1
    for place in range(len(owner) - 1, -1, -1):
        if owner[place] < 0:
            owner[place] = following
        following = owner[place]
    return edges, owner


def slice_ends(program: Program, schedule: Schedule) -> NDArray[np.int64]:
    """The cycle after each instruction's last one, or that in which the next of its engine begins, if that is before:
    an instruction drains while the next one is at work, and does no more then."""
    end = schedule.end + 1
    for engine in ENGINES:
        mine = [index for index, one in enumerate(program.instructions) if one.engine is engine]
        end[mine[:-1]] = np.minimum(end[mine[:-1]], schedule.start[mine[1:]])
    return np.maximum(end, schedule.start + 1)


def _union(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """Cycles that are in one of the spans from a start to an end, both included."""
    order = np.argsort(starts)
    starts, reached = starts[order], np.maximum.accumulate(ends[order] + 1)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int((reached - np.maximum(starts, before)).clip(0).sum())


def layer_profiles(
    program: Program, events: dict[str, NDArray[np.int64]] | None, cycles: int, dram: AnyDram | None = None
) -> Iterable[LayerProfile]:
    """A row per node, from each instruction's start and end; without them (a device that does not tell) the last row
    gets the whole program's cycles."""
    if not program.nodes:
        return
    if events is None:
        spent_by = np.zeros(len(program.nodes), np.int64)
        spent_by[-1] = cycles
    else:
        edges, owner = foreground(program, events["start"], events["end"], cycles)
        spent_by = np.bincount(owner, weights=np.diff(edges), minlength=len(program.nodes)).astype(np.int64)
    for node, spent in zip(program.nodes, spent_by.tolist(), strict=True):
        indices = list(node.indices())
        elapsed = busy = spent
        if events is not None:
            computing = [one for one in indices if isinstance(program.instructions[one], Matrix | Vector)]
            elapsed, busy = (_union(events["start"][some], events["end"][some]) for some in (indices, computing))
        array, vector, moved, read, written, weights = _work(program, indices, dram or DramModel())
        mine = (program.instructions[one] for one in indices)
        window = max((one.window_width for one in mine if isinstance(one, Vector)), default=0)
        work = {"array": array, "vector": vector, "dram": moved}
        bound = max(work, key=lambda name: work[name])
        if 2 * spent < work[bound]:
            bound = "hidden"
        elif 2 * work[bound] < spent:
            bound = "fill"
        peak = peak_macs(program.config, on_array=array > 0) * max(spent, busy)
        yield LayerProfile(
            node.name, node.op, node.inputs, node.output, node.macs, spent, elapsed,
            node.macs / peak if peak else 0.0, bound, array, vector, moved, read, written, weights, window,
        )  # fmt: skip
