"""`npukit.report`: what of a compiled module runs on the machine, why the rest does not, and what it takes."""

from dataclasses import asdict, dataclass
from typing import Any

from npukit.compiler.frontends.onnx.offload import Offload
from npukit.errors import UsageError
from npukit.profiling.clock import clock_of
from npukit.profiling.layers import Profile
from npukit.profiling.text import layer_table, offload_json, offload_text, thousands
from npukit.pytorch.backend import graphs_of
from npukit.pytorch.graph import AcceleratedGraph, profile_of
from npukit.pytorch.module import CompiledModule, CompiledProgram
from npukit.pytorch.quantised import CompiledQuantised
from npukit.session import Session

__all__ = ["Report", "report"]


@dataclass(frozen=True)
class Report:
    """What a compiled module does.

    Attributes:
        offload: which ATen operators run on the machine, and why the others do not.
        profile: where the cycles of the last run went; before all runs, what the programs take.
        graphs: how many `torch.compile` cut the module into; of `npukit.compile` 1.
        parts: how many models for the machine these are.
        megahertz: the clock that `milliseconds` assumes.
    """

    offload: Offload
    profile: Profile
    graphs: int
    parts: int
    megahertz: float

    @property
    def cycles(self) -> int:
        """Cycles of the machine."""
        return self.profile.cycles

    @property
    def milliseconds(self) -> float:
        """Those cycles at that clock."""
        return self.cycles / self.megahertz / 1e3

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {
            "schema": 1,
            "config": self.profile.config.to_dict(),
            "graphs": self.graphs,
            "parts": self.parts,
            "cycles": self.cycles,
            "megahertz": self.megahertz,
            "milliseconds": self.milliseconds,
            "macs": self.profile.macs,
            "utilization": self.profile.utilization,
            "seconds": self.profile.seconds,
            "offload": offload_json(self.offload, self.profile),
            "counters": self.profile.counters,
            "layers": [asdict(layer) for layer in self.profile.layers],
        }

    def __str__(self) -> str:
        """Offload, reasons, a line for each layer, and the sums, as `npukit run` prints them."""
        profile, config = self.profile, self.profile.config
        lines = [offload_text(self.offload)]
        if profile.layers:
            lines.append(layer_table(profile))
        lines.append(
            f"{thousands(self.cycles)} cycles in {self.parts} part(s) of {self.graphs} graph(s), "
            f"{self.milliseconds:.2f} ms at {self.megahertz:g} MHz, {100 * profile.utilization:.1f} % of "
            f"{config.size} MACs"
        )
        return "\n".join(lines)


def report(compiled: Any, megahertz: float | None = None) -> Report:
    """What of a compiled module runs on the machine, and what it takes.

    Args:
        compiled: of `npukit.compile`, or of `torch.compile` with the backend npukit, which has been called.
        megahertz: the clock to assume; by default the SDRAM's, the configuration's board's, or the ULX3S's.

    Raises:
        UsageError: it is something else, or not compiled yet.
    """
    if isinstance(compiled, CompiledQuantised):
        return _of_session(compiled.session, megahertz)
    if isinstance(compiled, CompiledModule | CompiledProgram):
        graphs = () if compiled.latest is None else (compiled.latest,)
    else:
        graphs = graphs_of(compiled)
    if not graphs:
        raise UsageError(
            f"nothing of this {type(compiled).__name__} has been compiled for npukit: give what npukit.compile "
            'returned, or what torch.compile(module, backend="npukit") returned, once it has been called; where it '
            "has, torch.compile has captured no graph of it, and TORCH_LOGS=graph_breaks says why"
        )
    config = graphs[0].config
    if any(graph.config != config for graph in graphs):
        raise UsageError(
            "its graphs are for several configurations, float and quantised ones: give torch.compile "
            'options={"config": NAME}'
        )
    sessions = [session for graph in graphs for session in graph.sessions]
    clock = clock_of(config, megahertz, sessions[0].dram if sessions else None)
    return Report(_together(graphs), profile_of(config, sessions), len(graphs), len(sessions), clock.megahertz)


def _of_session(session: Session, megahertz: float | None) -> Report:
    profile, clock = profile_of(session.config, [session]), clock_of(session.config, megahertz, session.dram)
    return Report(session.offload, profile, 1, len(session.programs), clock.megahertz)


def _together(graphs: tuple[AcceleratedGraph, ...]) -> Offload:
    parts = [graph.offload for graph in graphs]
    return Offload(
        reasons=tuple(reason for one in parts for reason in one.reasons),
        nodes_total=sum(one.nodes_total for one in parts),
        macs=sum(one.macs for one in parts),
        macs_total=sum(one.macs_total for one in parts),
        macs_unknown=sum(one.macs_unknown for one in parts),
        suggestion=""
        if any(one.macs for one in parts)
        else next((one.suggestion for one in parts if one.suggestion), ""),
    )
