"""What partitioning makes of a model: subgraphs for the machine, and what stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
from npukit.compiler.frontends.onnx.importer import Imported
from npukit.compiler.frontends.onnx.offload import Offload
from npukit.compiler.frontends.onnx.operators import Match

__all__ = ["Partition"]


@dataclass(frozen=True, kw_only=True)
class Partition(Offload):
    """The model, the matches of each accelerated subgraph in graph order, and what stays.

    Attributes:
        imported: the model.
        subgraphs: the matches of each accelerated part.
        host: the nodes that stay, with copies of those that several stages read; a DequantizeLinear that both sides
            use counts as staying. `reasons` has each once.
        stages: when each node runs: see `place_host`.
        copies: of each copy among `host`, the node that it is a copy of.
    """

    imported: Imported
    subgraphs: tuple[tuple[Match, ...], ...]
    host: tuple[ir.Node, ...]
    stages: dict[ir.Node, int] = field(default_factory=dict)
    copies: Mapping[ir.Node, ir.Node] = field(default_factory=dict)

    @property
    def model(self) -> ir.Model:
        """The graph that was split."""
        return self.imported.model
