"""cuts: which nodes the machine must leave alone, so that ONNX Runtime computes what stays as in the whole graph.

Each host stage is a graph of its own to ONNX Runtime. What it fuses there depends on what it sees around a node: a
DequantizeLinear that has one reader fewer than in the whole graph, for instance, may then be moved past a MaxPool, and
the addition behind it computed in integers. So each part is optimised as it will be when it runs, and compared with
the whole; where it sums floats, also as it is laid out in the end, when a convolution may take an addition along.
"""

from collections.abc import Collection, Iterable, Mapping

import onnx_ir as ir
from npukit.compiler.frontends.onnx.operators import Match, used_values
from npukit.compiler.frontends.onnx.operators.quantisation import is_quantiser
from npukit.compiler.frontends.onnx.oracle import GraphOracle, HostError
from npukit.driver.host import host_part, names_used

__all__ = ["matches_in_the_way"]

_EXACT = frozenset(
    "Concat DepthToSpace DequantizeLinear Expand Flatten Gather Identity MaxPool Pad QuantizeLinear Reshape Slice "
    "SpaceToDepth Split Squeeze Tile Transpose Unsqueeze".split()
)
"""Operators that move elements, and quantisers: the same bits whether ONNX Runtime moves floats or integers."""
_SUMS = frozenset("AveragePool Conv FusedConv GlobalAveragePool".split())
"""Operators on floats that may have their channels in blocks."""


def matches_in_the_way(
    model: ir.Model,
    matches: Collection[Match],
    host: Iterable[ir.Node],
    stages: Mapping[ir.Node, int],
    oracle: GraphOracle,
) -> dict[ir.Node, str]:
    """Nodes of the matches next to a node that ONNX Runtime would compute otherwise, each with the reason."""
    programs = sorted({stages[match.node] for match in matches})
    parts: dict[int, list[ir.Node]] = {}
    for node in host:
        parts.setdefault(sum(stage < stages[node] for stage in programs), []).append(node)
    if not programs or not any(_computes(nodes) for nodes in parts.values()):
        return {}
    proto = ir.to_proto(model)
    graph = proto.graph
    values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    protos = {part: [ir.to_proto(node) for node in nodes] for part, nodes in parts.items()}
    outside = {value.name for value in graph.output}
    outside.update(value.name or "" for match in matches for value in match.inputs)
    for part in sorted(part for part, nodes in parts.items() if _computes(nodes)):
        later = {name for other in protos if other > part for node in protos[other] for name in names_used(node)}
        alone = host_part(proto, protos[part], outside | later, values)
        try:
            operators, outputs = oracle.operators_of(alone)
            sums = not _SUMS.isdisjoint(operators.values())
            computed, expected_computed = (oracle.layout_of(alone), oracle.layout) if sums else ({}, {})
        except HostError as error:
            return dict.fromkeys(
                (match.node for match in matches), f"without it, ONNX Runtime refuses the rest: {error}"
            )
        values.update({name: value for name, value in outputs.items() if name not in values})
        for node in parts[part]:
            for value in node.outputs:
                name = value.name or ""
                change = _change(operators.get(name), oracle.operators.get(name), _EXACT)
                change = change or _change(computed.get(name), expected_computed.get(name))
                if change is None:
                    continue
                reason = f"without it, ONNX Runtime would compute {name} by {change}, with other roundings"
                return dict.fromkeys(_neighbours(node, matches) or [match.node for match in matches], reason)
    return {}


def _change(seen: str | None, expected: str | None, exact: Collection[str] = ()) -> str | None:
    """How a tensor is computed otherwise, if it is known on both sides; `exact`: ways that come to the same."""
    if seen is None or expected is None or seen == expected or {seen, expected} <= {*exact}:
        return None
    return f"{seen} and not by {expected}"


def _computes(nodes: Iterable[ir.Node]) -> bool:
    return any(not is_quantiser(node) for node in nodes)


def _neighbours(node: ir.Node, matches: Collection[Match]) -> list[ir.Node]:
    """Nodes of the matches that share a tensor with the floats from which a node is computed."""
    seen: set[ir.Value] = set()
    pending = [node]
    while pending:
        for value in used_values(pending.pop()):
            producer = value.producer()
            if value not in seen and producer is not None and not is_quantiser(producer, "QuantizeLinear"):
                pending.append(producer)
            seen.add(value)
    return [match.node for match in matches if not seen.isdisjoint(match.outputs) or not seen.isdisjoint(match.inputs)]
