"""partition: which nodes the machine computes, in which subgraphs, and why each other node stays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir
from npukit.compiler.errors import CompileError, Refused
from npukit.compiler.frontends.onnx.channels import assign_channel_axes, is_constant
from npukit.compiler.frontends.onnx.cuts import matches_in_the_way
from npukit.compiler.frontends.onnx.functions import DYNAMIC
from npukit.compiler.frontends.onnx.importer import Imported
from npukit.compiler.frontends.onnx.offload import Reason, suggestion_for
from npukit.compiler.frontends.onnx.operators import Context, Match, macs_of, match_node, used_values
from npukit.compiler.frontends.onnx.operators.decomposed import decomposed_normalizations
from npukit.compiler.frontends.onnx.operators.integer import is_integer_operator, operator_of
from npukit.compiler.frontends.onnx.operators.lines import float_chains
from npukit.compiler.frontends.onnx.operators.quantisation import ONNX_DOMAINS, is_quantiser
from npukit.compiler.frontends.onnx.operators.tables import tables_of
from npukit.compiler.frontends.onnx.operators.unary import chains_of
from npukit.compiler.frontends.onnx.oracle import GraphOracle
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.compiler.frontends.onnx.placement import earliest_stages, place_host, remove_copies
from npukit.compiler.frontends.onnx.verify import verify_partition
from npukit.compiler.frontends.tflite.operators import match_tflite
from npukit.compiler.pass_base import Pass
from npukit.driver.tflite_host import DOMAIN, is_tflite
from npukit.isa.config import NpuConfig

__all__ = ["PartitionPass"]


@dataclass(frozen=True)
class PartitionPass(Pass[Imported, Partition]):
    """Match every node.

    A subgraph of fewer than `min_macs` multiply-accumulates stays in ONNX Runtime; `all_nodes`: nothing may stay but
    quantisers at the edge.
    """

    config: NpuConfig
    min_macs: int = 0
    all_nodes: bool = False
    name = "partition"

    def run(self, imported: Imported) -> Partition:
        """Split the graph; matches that depend on each other through a host node part company.

        Raises:
            CompileError: a node stays that must not.
        """
        source, model = imported.source, imported.model
        graph = model.graph
        outputs = frozenset(value.name or "" for value in graph.outputs)
        normalizations = decomposed_normalizations(graph, outputs) if self.config.activation.floating else {}
        ends = {one.nodes[0].outputs[0]: one.source for one in normalizations.values()}
        assign_channel_axes(graph, [*ends, *ends.values()])
        oracle = GraphOracle(source)
        tflite = is_tflite(source)
        context = Context(
            self.config,
            {} if tflite else oracle.operators,
            outputs,
            dict(model.opset_imports),
        )
        if context.floats:
            lines = float_chains(graph, context.graph_outputs, context.opsets, normalizations)
            context = replace(context, lines=lines, normalizations=normalizations)
        else:
            chains = chains_of(context, graph)
            tables = tables_of(tuple(chains.values()), context.opsets)
            context = replace(context, tables=dict(zip(chains, tables, strict=True)))
        matches, refused = _match_all(context, graph)
        aliases: set[ir.Node] = set()
        while True:
            _drop_folded_images(matches, refused)
            _drop_lone_aliases(matches, refused, aliases)
            absorbed = {node: match for match in matches.values() for node in match.nodes}
            stages = earliest_stages(graph, absorbed)
            count = 1 + max((stages[match.node] for match in matches.values()), default=-1)
            groups = [
                tuple(match for node, match in matches.items() if stages[node] == stage) for stage in range(count)
            ]
            small = {match.node: macs for group in groups if (macs := _macs(group)) < self.min_macs for match in group}
            if small:  # without it, others may become one group
                for node, macs in small.items():
                    del matches[node]
                    refused[node] = f"its subgraph has {macs} MACs, fewer than the {self.min_macs} that were asked for"
                continue
            # where nothing is accelerated, the graph is ONNX Runtime's, with what leads nowhere
            needed = _needed(graph, absorbed) if matches else set(graph)
            host, copies = place_host(graph, matches.values(), needed, stages)
            in_the_way: Mapping[ir.Node, str] = {}
            # a bf16 machine has roundings of its own, and TFLite's operators run one by one
            if not (context.floats or tflite):
                in_the_way = matches_in_the_way(model, matches.values(), host, stages, oracle)
            if not in_the_way:
                break
            remove_copies(graph, copies)
            for node, reason in in_the_way.items():
                del matches[node]
                refused[node] = reason
        counts = {node: macs_of(node) for node in graph if node not in copies}
        partition = Partition(
            imported=imported,
            subgraphs=tuple(group for group in groups if group),
            host=host,
            reasons=tuple(
                Reason(
                    node.name or "",
                    node.op_type,
                    refused.get(node) or _boundary(node),
                    counts[node],
                    node in aliases or _at_the_edge(node, graph),
                )  # fmt: skip
                for node in host
                if node not in copies
            ),
            nodes_total=len((_live(graph) | set(host)) - set(copies)),
            macs=_macs(matches.values()),
            macs_total=sum(macs or 0 for macs in counts.values()),
            macs_unknown=sum(macs is None for macs in counts.values()),
            suggestion="" if _macs(matches.values()) else suggestion_for(graph, self.config),
            stages=stages,
            copies=copies,
        )
        if self.all_nodes and partition.fallback:
            raise CompileError(_staying(partition))
        return partition

    def check(self, made: Partition) -> None:
        """Raise a VerifyError where nodes would not run, or not in order, or not as they came."""
        verify_partition(made)


def _staying(partition: Partition) -> str:
    nodes = [f"{reason.op} {reason.node} ({reason.reason})" for reason in partition.fallback]
    return f"{len(nodes)} node(s) cannot run on the accelerator, and there is to be no fallback: {'; '.join(nodes)}"


def _match_all(context: Context, graph: ir.Graph) -> tuple[dict[ir.Node, Match], dict[ir.Node, str]]:
    """The match of each node that the machine could compute, and why it cannot compute others."""
    matches: dict[ir.Node, Match] = {}
    refused: dict[ir.Node, str] = {}
    taken: set[ir.Node] = set()
    for node in graph:
        try:
            match = _match(context, node)
        except Refused as reason:
            refused[node] = str(reason)
            continue
        if match is None:
            continue
        if taken & set(match.nodes):  # another match has absorbed this node
            refused[node] = "it belongs to the nodes that another one takes with it"
            continue
        taken.update(match.nodes)
        matches[node] = match
    return matches, refused


def _match(context: Context, node: ir.Node) -> Match | None:
    """The node's match; None for nodes that others absorb (quantisers)."""
    if node.domain == DOMAIN:
        return match_tflite(context, node)
    if is_quantiser(node):
        if context.floats:
            raise Refused("the configuration computes bf16; quantised tensors are for int8")
        return None
    if node.domain not in ONNX_DOMAINS and not is_integer_operator(node) and node.op_type not in DYNAMIC:
        raise Refused(f"operators of domain {node.domain} are not supported")
    return match_node(context, node)


def _drop_folded_images(matches: dict[ir.Node, Match], refused: dict[ir.Node, str]) -> None:
    """An image flattened where it lies is a matrix to Gemm and MatMul alone, which make its rows their kernel."""
    while True:
        folded: dict[str | None, ir.Node] = {}
        for node, match in matches.items():
            source, result = (match.graph.tensors[name] for name in (match.reads[0], match.graph.outputs[0]))
            if match.alias and (source.order[1] != result.order[1] or match.inputs[0].name in folded):
                folded[match.outputs[0].name] = node
        for node, match in matches.items():
            if match.alias or operator_of(node) in ("Gemm", "MatMul"):
                continue
            # an operand may come twice
            images = dict.fromkeys(folded[value.name] for value in match.inputs if value.name in folded)
            for image in images:
                del matches[image]
                refused[image] = f"its result goes to {node.op_type} {node.name}, which would have to move it"
            if images:
                break
        else:
            return


def _drop_lone_aliases(matches: dict[ir.Node, Match], refused: dict[ir.Node, str], dropped: set[ir.Node]) -> None:
    """A reshape costs nothing only between two accelerated nodes; adds the others to `dropped`."""
    while True:
        made = {value.name for match in matches.values() for value in match.outputs}
        used = {value.name for match in matches.values() for value in match.inputs}
        lone = [
            node
            for node, match in matches.items()
            if match.alias and not (match.inputs[0].name in made and match.outputs[0].name in used)
        ]
        if not lone:
            return
        dropped.update(lone)
        for node in lone:
            del matches[node]
            refused[node] = "a reshape alone at the accelerator's edge stays, because it moves nothing"


def _macs(matches: Iterable[Match]) -> int:
    return sum(macs_of(match.node) or 0 for match in matches)


def _predecessors(node: ir.Node) -> Iterable[ir.Node]:
    for value in used_values(node):
        producer = value.producer()
        if producer is not None:
            yield producer


def _needed(graph: ir.Graph, absorbed: dict[ir.Node, Match]) -> set[ir.Node]:
    """Nodes outside of every match that a graph output, or another such node, needs, and what else reads them."""
    needed: set[ir.Node] = set()

    def need(pending: list[ir.Node | None]) -> None:
        while pending:
            node = pending.pop()
            if node is None or node in needed or node in absorbed:
                continue
            needed.add(node)
            pending.extend(_predecessors(node))

    need([value.producer() for value in graph.outputs])
    need([value.producer() for match in absorbed.values() for value in match.inputs])
    # ONNX Runtime counts readers that lead nowhere, too, before it fuses a node with a quantiser and rounds differently
    for node in graph:
        if node not in absorbed and any(one in needed and not is_quantiser(one) for one in _predecessors(node)):
            need([node])
    return needed


def _live(graph: ir.Graph) -> set[ir.Node]:
    """Nodes on which an output of the graph depends."""
    found: set[ir.Node] = set()
    pending = [value.producer() for value in graph.outputs]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending.extend(_predecessors(node))
    return found


def _at_the_edge(node: ir.Node, graph: ir.Graph) -> bool:
    """Whether a node that stays computes nothing; see `Reason`."""
    if is_quantiser(node):
        return True
    if node.domain not in ONNX_DOMAINS:
        return False
    if node.op_type == "Gather":
        table, indices = node.inputs[:2]
        return table is not None and is_constant(table) and indices in graph.inputs
    return node.op_type == "Identity"


def _boundary(node: ir.Node) -> str:
    if node.op_type == "QuantizeLinear":
        return "quantises a float tensor at the accelerator's edge"
    if node.op_type == "DequantizeLinear":
        return "gives a float tensor to a node that stays, or to the outside"
    return "feeds nodes that stay"
