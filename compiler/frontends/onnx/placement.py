"""placement: in which stage each node that stays runs, so that ONNX Runtime computes it as in the whole graph.

Host stage s runs before accelerated stage s, which runs before host stage s + 1, and each host stage is a graph of its
own to ONNX Runtime. What it fuses in the whole graph has to come in one of them: a DequantizeLinear whose reader is in
a later stage would leave that reader a float input, and another rounding.
"""

from collections.abc import Collection, Iterable, Mapping

import onnx_ir as ir
from npukit.compiler.frontends.onnx.operators import Match, used_values
from npukit.compiler.frontends.onnx.operators.quantisation import is_quantiser

__all__ = ["earliest_stages", "place_host"]

_CARRIERS = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators past which ONNX Runtime moves a DequantizeLinear (qdq_propagation.cc): behind one they are computed on
integers, and what reads them as if it read a DequantizeLinear."""


def earliest_stages(graph: ir.Graph, absorbed: Mapping[ir.Node, Match]) -> dict[ir.Node, int]:
    """The first stage in which each node can run."""
    stages: dict[ir.Node, int] = {}
    for node in graph:
        match = absorbed.get(node)
        if match is None:
            before = [(value.producer(), value.producer() in absorbed) for value in used_values(node)]
        else:
            # the dequantisers between accelerated nodes vanish, so look at what they dequantise
            before = [(value.producer(), False) for value in match.inputs]
        stages[node] = max((stages[one] + crossing for one, crossing in before if one is not None), default=0)
    return stages


def place_host(
    graph: ir.Graph, matches: Iterable[Match], host: Collection[ir.Node], stages: dict[ir.Node, int]
) -> tuple[tuple[ir.Node, ...], dict[ir.Node, ir.Node]]:
    """Move each node of `host` to the stage of its first reader, in `stages`.

    A QuantizeLinear stays in its earliest stage, that of what it quantises, and so does what reads a sequence. A
    DequantizeLinear, and what only moves its elements, gets a copy in the graph for each stage in which it is read, as
    ONNX Runtime makes one for each reader. Returns the nodes and copies in graph order, and the original of each copy.
    """
    readers: dict[ir.Value, list[ir.Node]] = {}
    programs: dict[ir.Value, list[int]] = {}
    for match in matches:
        for value in match.inputs:
            programs.setdefault(value, []).append(stages[match.node])
    names = {value.name for node in graph.all_nodes() for value in node.outputs} | {node.name for node in graph}
    placed: list[ir.Node] = []
    originals: dict[ir.Node, ir.Node] = {}
    for node in reversed([node for node in graph if node in host]):
        copies: list[ir.Node] = []
        if not is_quantiser(node, "QuantizeLinear") and not _reads_a_sequence(node):
            mine = [one for value in node.outputs for one in readers.get(value, ())]
            accelerated = [stage for value in node.outputs for stage in programs.get(value, ())]
            stages[node] = min([stages[one] for one in mine] + accelerated, default=stages[node])
            if _is_copied(node):
                copies = _copies(graph, node, mine, stages, names)
        originals.update(dict.fromkeys(copies, node))
        for one in (node, *copies):
            for value in used_values(one):
                readers.setdefault(value, []).append(one)
        placed += [*copies, node]
    return tuple(reversed(placed)), originals


def _reads_a_sequence(node: ir.Node) -> bool:
    """Whether an input is anything but a tensor, which has to be made in the same stage."""
    return any(value.type is not None and not isinstance(value.type, ir.TensorType) for value in used_values(node))


def remove_copies(graph: ir.Graph, copies: Mapping[ir.Node, ir.Node]) -> None:
    """Undo what `place_host` did to the graph."""
    for copy, original in copies.items():
        ir.convenience.replace_all_uses_with(copy.outputs[0], original.outputs[0])
    graph.remove(list(copies))


def _is_copied(node: ir.Node) -> bool:
    """Whether a node is a DequantizeLinear, or hands on the elements of one."""
    while node.op_type in _CARRIERS and node.domain in ("", "ai.onnx") and len(node.outputs) == 1:
        producer = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if producer is None or producer.graph is not node.graph:
            return False
        node = producer
    return is_quantiser(node, "DequantizeLinear")


def _copies(
    graph: ir.Graph, node: ir.Node, readers: Iterable[ir.Node], stages: dict[ir.Node, int], names: set[str | None]
) -> list[ir.Node]:
    """A copy of a node for each later stage in which it is read, and its readers there reading that."""
    (result,) = node.outputs
    made: dict[int, ir.Node] = {}
    for reader in readers:
        stage = stages[reader]
        places = [position for position, value in enumerate(reader.inputs) if value is result]
        if stage == stages[node] or not places:  # what reads it inside of a graph of its own is not fused
            continue
        if stage not in made:
            made[stage] = copy = ir.Node(
                node.domain, node.op_type, node.inputs, node.attributes, overload=node.overload, version=node.version,
                outputs=[ir.Value(name=_name(result.name, stage, names), shape=result.shape, type=result.type)],
                name=_name(node.name, stage, names),
            )  # fmt: skip
            stages[copy] = stage
            graph.insert_after(node, copy)
        for position in places:
            reader.replace_input_with(position, made[stage].outputs[0])
    return list(made.values())


def _name(name: str | None, stage: int, taken: set[str | None]) -> str:
    found = f"{name}_stage{stage}"
    while found in taken:
        found += "_"
    taken.add(found)
    return found
