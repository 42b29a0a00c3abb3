"""`TimedModel`: a model's simulated timing, from which reports, traces and plots are made."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from npukit import __version__
from npukit.compiler.frontends.onnx.offload import Offload
from npukit.errors import UsageError
from npukit.hw.toolchain import needs
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.program import Program
from npukit.profiling.advice import Advice, advise
from npukit.profiling.boundary import Boundary, HostModel
from npukit.profiling.clock import Clock
from npukit.profiling.energy import Energy, energy_of
from npukit.profiling.explain import explain
from npukit.profiling.layers import LayerProfile, Profile, timing_profile
from npukit.profiling.occupancy import occupancy
from npukit.profiling.roofline import ceiling
from npukit.profiling.text import offload_json
from npukit.sim.dram import AnyDram, dram_json
from npukit.sim.timing import Schedule

if TYPE_CHECKING:
    from types import ModuleType

    from altair import Chart, FacetChart, LayerChart, VConcatChart
    from pandas import DataFrame

__all__ = ["TimedModel"]


@dataclass(frozen=True)
class TimedModel:
    """A model's programs with the timing that each has when they run one after the other.

    Attributes:
        name: the model's.
        runs: (program, its schedule) in the order of execution; empty where nothing runs on the accelerator.
        dram: what lies behind the accelerator.
        clock: at which cycles are told as milliseconds.
        host: what is assumed of the host.
        measured: advice whose changes were simulated; without it, `advice` is estimated.
        optimize: how much the compiler tried; None of a model that was compiled elsewhere.
    """

    name: str
    config: NpuConfig
    runs: Sequence[tuple[Program, Schedule]]
    dram: AnyDram
    clock: Clock
    offload: Offload
    host: HostModel = field(default_factory=HostModel)
    measured: Sequence[Advice] | None = None
    optimize: int | None = None

    @cached_property
    def profile(self) -> Profile:
        """Totals and a row per layer."""
        return timing_profile(self.config, self.runs, self.dram)

    @cached_property
    def advice(self) -> Sequence[Advice]:
        """What would make it faster, the greatest gain first."""
        return advise(self.profile, self.offload) if self.measured is None else self.measured

    @property
    def boundary(self) -> Boundary:
        """What crosses between accelerator and host, and what the host computes."""
        return Boundary.of(self.host, (program for program, _ in self.runs), self.offload)

    @cached_property
    def energies(self) -> Sequence[Energy]:
        """Of each layer, in the profile's order, by the model of `npukit.profiling.energy`."""
        return [energy_of(program, node.indices()) for program, _ in self.runs for node in program.nodes]

    @property
    def energy(self) -> Energy:
        """Of all layers."""
        return sum(self.energies, Energy())

    @property
    def label(self) -> str:
        """The configuration's name, or what it is."""
        preset = next((name for name, one in PRESETS.items() if one == self.config), None)
        return preset or f"{self.config.size} {self.config.dtype} (custom)"

    @cached_property
    def peak_words(self) -> Mapping[str, int]:
        """The most words in use at once of each memory."""
        peaks: dict[str, int] = {}
        for program, schedule in self.runs:
            for memory, found in occupancy(program, schedule).items():
                peaks[memory.name] = max(peaks.get(memory.name, 0), int(found.used.max(initial=0)))
        return peaks

    def explained(self, node: str) -> list[tuple[LayerProfile, list[str]]]:
        """The layers of a node, of which there may be several, and lines about each: how it is tiled, what it moves,
        what bounds it, and what would change that."""
        layers = iter(self.profile.layers)
        found = []
        for program, schedule in self.runs:
            for one, layer in zip(program.nodes, islice(layers, len(program.nodes)), strict=True):
                if one.name == node:
                    found.append((layer, explain(program, schedule, one, layer, self.dram)))
        return found

    def explain(self, node: str) -> str:
        """What `npukit explain` prints about a node.

        Raises:
            UsageError: no such node is on the accelerator; the message says why, or names some that are.
        """
        found = self.explained(node)
        if found:
            return "\n\n".join("\n".join(lines) for _, lines in found)
        for reason in self.offload.reasons:
            if reason.node == node:
                raise UsageError(f"{node} ({reason.op}) stays off the accelerator: {reason.reason}")
        names = [layer.node for layer in self.profile.layers]
        if not names:
            raise UsageError(f"{self.name} names no nodes: it is a program without a table of them, or all stays off")
        near = get_close_matches(node, names, 3) or names[:3]
        raise UsageError(f"{self.name} has no node {node!r} on the accelerator; there are {', '.join(near)}, ...")

    def to_dataframe(self) -> "DataFrame":
        """A row per layer, as `Profile.to_dataframe` gives it, with `energy_picojoules`."""
        return self.profile.to_dataframe().assign(energy_picojoules=[energy.total for energy in self.energies])

    def plot_roofline(self) -> "LayerChart | FacetChart":
        """The layers against what array and DRAM allow, as an Altair chart, which notebooks show; so do the others.

        Raises:
            ToolError: Altair is not installed, in this and the other plots.
        """
        return self.profile.plot_roofline()

    def plot_timeline(self) -> "Chart":
        """When each engine was at work, and for which layer."""
        return _charts().timeline(self)

    def plot_traffic(self) -> "LayerChart | FacetChart":
        """Bytes a cycle to and from DRAM over time."""
        return _charts().traffic(self)

    def plot_memory(self) -> "VConcatChart":
        """What of each on-chip memory is in use over time."""
        charts = _charts()
        return charts.stacked(list(charts.memory_map(self).values()))

    def to_html(self) -> str:
        """The report that `npukit profile` writes: one page that needs no network.

        Raises:
            ToolError: Altair or vl-convert-python is not installed.
        """
        with needs("profile", "an HTML report"):
            from npukit.reports.profile_page import profile_page
        return profile_page(self)

    def _repr_html_(self) -> str:
        cycles = self.profile.cycles
        told = f": {self.clock.text(cycles)}" if cycles else ""
        title = f"<p>{escape(self.name)} on {escape(self.label)}: {cycles} cycles{escape(told)}</p>"
        return title + self.profile._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """All but the instructions' times, as one JSON object."""
        profile, config = self.profile, self.config
        read = sum(layer.read_bytes for layer in profile.layers)
        written = sum(layer.write_bytes for layer in profile.layers)
        on_array = profile.peak == config.array_macs
        most = ceiling(config, profile.macs, read, written, self.dram, on_array)
        return {
            "schema": 1,
            "version": __version__,
            "model": self.name,
            "config": config.to_dict(),
            "optimize": self.optimize,
            "cycles": profile.cycles,
            "clock": self.clock.to_json(profile.cycles),
            "macs": profile.macs,
            "utilization": profile.utilization,
            "peaks": {
                "array_macs_per_cycle": config.array_macs,
                "vector_macs_per_cycle": config.array * config.vector_taps,
            },
            "macs_on_vector": sum(layer.macs for layer in profile.layers if layer.macs and not layer.array),
            "roofline_utilization": most / profile.peak,
            "counters": profile.counters,
            "dram": {
                "read_bytes": read,
                "write_bytes": written,
                "peak_bytes": max((program.dram_bytes for program, _ in self.runs), default=0),
            },
            "memory": dram_json(self.dram),
            "peak_words_in_use": dict(self.peak_words),
            "instructions": sum(len(program.instructions) for program, _ in self.runs),
            "boundary": self.boundary.to_json(),
            "energy_picojoules": self.energy.to_json(),
            "offload": offload_json(self.offload),
            "advice": [one.to_json() for one in self.advice],
            "layers": [
                {**asdict(layer), "energy_picojoules": energy.total}
                for layer, energy in zip(profile.layers, self.energies, strict=True)
            ],
        }


def _charts() -> "ModuleType":
    """Loaded when asked for: Altair takes half a second."""
    with needs("profile", "a plot"):
        from npukit.reports import charts
    return charts
