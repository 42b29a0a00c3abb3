"""What partitioning makes of a model: subgraphs for the machine, and what stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
from npukit.compiler.frontends.onnx.importer import Imported
from npukit.compiler.frontends.onnx.operators import Match

__all__ = ["Partition", "Reason"]


@dataclass(frozen=True)
class Reason:
    """A node that stays in ONNX Runtime, and why."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True)
class Partition:
    """The model, the matches of each accelerated subgraph in graph order, and what stays.

    `host` are the nodes that stay, with copies of those that several stages read; a DequantizeLinear that both sides
    use counts as staying. `reasons` has each once. `nodes_total` counts those nodes and those on which an
    output depends.
    """

    imported: Imported
    subgraphs: tuple[tuple[Match, ...], ...]
    host: tuple[ir.Node, ...]
    reasons: tuple[Reason, ...]
    nodes_total: int
    macs: int
    macs_total: int
    stages: dict[ir.Node, int] = field(default_factory=dict)
    copies: Mapping[ir.Node, ir.Node] = field(default_factory=dict)
    """Of each copy among `host`, the node that it is a copy of."""

    @property
    def model(self) -> ir.Model:
        """The graph that was split."""
        return self.imported.model

    @property
    def fallback(self) -> tuple[Reason, ...]:
        """Those of `reasons` that are about computing, not about quantising at the edge."""
        return tuple(reason for reason in self.reasons if reason.op not in ("QuantizeLinear", "DequantizeLinear"))

    @property
    def nodes(self) -> int:
        """Nodes that the machine takes over."""
        return self.nodes_total - len(self.reasons)
