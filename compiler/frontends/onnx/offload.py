"""What of a model the machine takes over, what stays, and what a user can do about it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import onnx_ir as ir
from npukit.compiler.frontends.onnx.functions import DYNAMIC
from npukit.compiler.frontends.onnx.operators.integer import is_integer_operator
from npukit.compiler.frontends.onnx.operators.macs import macs_of
from npukit.compiler.frontends.onnx.operators.quantisation import is_quantiser
from npukit.isa.config import PRESETS, NpuConfig

__all__ = ["Offload", "Reason", "suggestion_for"]


_NAME = re.compile(r"\S*[0-9_/]\S*")
"""A word with a digit, an underscore or a slash: the name of a node or tensor, or a number."""


@dataclass(frozen=True)
class Reason:
    """A node that stays in ONNX Runtime, and why.

    Attributes:
        node: its name.
        op: its operator.
        reason: why it stays.
        macs: its multiply-accumulates, or None where they are not known.
        edge: whether it only prepares what the machine reads, or hands on what it makes, and computes nothing: as a
            quantiser does, a copy, and a lookup of a constant table's rows that the model's inputs name.
    """

    node: str
    op: str
    reason: str
    macs: int | None = 0
    edge: bool = False


@dataclass(frozen=True, kw_only=True)
class Offload:
    """How many nodes and multiply-accumulates the machine takes over, and why the others stay.

    Attributes:
        reasons: one for each node that stays.
        nodes_total: those, and nodes on which an output depends.
        macs: multiply-accumulates on the machine.
        macs_total: of all nodes whose multiply-accumulates are known.
        macs_unknown: nodes whose multiply-accumulates are not known.
        suggestion: what to do where no multiply-accumulate runs on the machine, if that is known.
    """

    reasons: tuple[Reason, ...]
    nodes_total: int
    macs: int
    macs_total: int
    macs_unknown: int = 0
    suggestion: str = ""

    @property
    def nodes(self) -> int:
        """Nodes that the machine takes over."""
        return self.nodes_total - len(self.reasons)

    def grouped(self) -> list[list[Reason]]:
        """Nodes that stay for the same reason, names and numbers apart, together; those with the most MACs first."""
        groups: dict[tuple[str, str], list[Reason]] = {}
        for reason in self.reasons:
            groups.setdefault((reason.op, _NAME.sub("*", reason.reason)), []).append(reason)
        return sorted(groups.values(), key=lambda alike: -sum(one.macs or 0 for one in alike))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(alike[0].op)}</td><td>{len(alike)}</td><td>{escape(alike[0].reason)}</td></tr>"
            for alike in self.grouped()
        )
        return (
            f"<p>On the accelerator: {self.nodes} of {self.nodes_total} nodes, {self.macs} of {self.macs_total} "
            "multiply-accumulates.</p>"
            + (f"<table><tr><th>operator</th><th>nodes</th><th>why they stay</th></tr>{rows}</table>" if rows else "")
        )

    @property
    def fallback(self) -> tuple[Reason, ...]:
        """Those of `reasons` that are about computing, not about what happens at the accelerator's edge."""
        return tuple(reason for reason in self.reasons if not reason.edge)


def suggestion_for(graph: ir.Graph, config: NpuConfig) -> str:
    """What to do about a model of which no product runs on a machine of that configuration; empty where there is no
    better advice than the nodes' own reasons."""
    nodes: Sequence[ir.Node] = list(graph.all_nodes())
    floating = config.activation.floating
    others = [
        name for name, one in PRESETS.items() if one.activation.floating != floating and one.array == config.array
    ]
    other = f"--config {others[0]}" if others else f"a configuration of {'int8' if floating else 'bf16'}"
    kinds = {node.op_type for node in nodes} & DYNAMIC
    sums = bool(kinds & {"ConvInteger", "MatMulInteger"})
    dynamic = min(kinds) if kinds and not sums else None
    static = any(is_quantiser(node) or is_integer_operator(node) for node in nodes)
    if dynamic is not None and not static and not floating:
        return (
            f"the model is quantised while it runs ({dynamic}), and the machine needs scales that are constant: "
            "quantise the float model with npukit quantize"
        )
    if (static or sums) and floating:
        return f"the model is quantised, and the configuration computes bf16: take {other}"
    if not static and not floating and any(macs_of(node) for node in nodes):
        return (
            "the model is float, and the configuration computes int8: quantise it with npukit quantize, or take "
            f"{other}, which computes it in bfloat16"
        )
    return ""
