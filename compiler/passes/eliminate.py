"""eliminate: operations that repeat an earlier one are computed once, and those that nobody reads never.

Among operations of the IR, not among the graph's nodes: what stays in ONNX Runtime is fused there, and rounded, by who
reads what, so that a node fewer on the host could change its results.
"""

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import TensorOperation, attributes_of, operands_of
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.compiler.pass_base import GraphsPass

__all__ = ["EliminatePass"]


@dataclass(frozen=True)
class EliminatePass(GraphsPass[tuple[Graph, ...]]):
    """Common subexpressions and dead code of each graph."""

    name = "eliminate"

    def run(self, graphs: tuple[Graph, ...]) -> tuple[Graph, ...]:
        """The same outputs, of operations that are all needed. A tensor that is not computed becomes an alias."""
        return tuple(_without_dead(_without_repeats(graph)) for graph in graphs)


def _without_repeats(graph: Graph) -> Graph:
    tensors = dict(graph.tensors)
    digests = {name: _digest(constant) for name, constant in graph.constants.items()}
    first: dict[Hashable, str] = {}
    operations = []
    for operation in graph.operations:
        result = tensors[operation.output]
        kept = first.setdefault(_key(operation, tensors, digests), operation.output)
        if kept == operation.output:
            operations.append(operation)
            continue
        for name, tensor in tensors.items():
            if tensor.storage == result.name:
                tensors[name] = tensor.seen_as(kept, tensor.view)
    return replace(graph, operations=tuple(operations), tensors=tensors)


def _digest(constant: Constant) -> Hashable:
    tensor = constant.tensor
    content = hashlib.sha256(constant.data.tobytes()).digest()
    return tensor.shape, tensor.format, tensor.quantization, content


def _key(operation: TensorOperation, tensors: Mapping[str, Tensor], digests: Mapping[str, Hashable]) -> Hashable:
    """What two operations share that compute the same: all but the nodes, and the names of what is read and written."""
    kind, result = type(operation), tensors[operation.output]

    def content(name: str | None) -> Hashable:
        if name is None or name in digests:
            return digests.get(name or "")
        tensor = tensors[name]
        return tensor.storage, tensor.view, tensor.format, tensor.quantization

    operands = []
    for field in operands_of(kind):
        value = getattr(operation, field)
        operands.append(tuple(map(content, value)) if isinstance(value, tuple) else content(value))
    # numbers by what they are written as: 0 and -0 differ
    attributes = tuple(repr(getattr(operation, field)) for field in attributes_of(kind))
    return kind, result.view, result.format, result.quantization, tuple(operands), attributes


def _without_dead(graph: Graph) -> Graph:
    needed = graph.outside()
    operations = []
    for operation in reversed(graph.operations):
        if operation.output in needed:
            operations.append(operation)
            needed.update(graph.tensors[name].storage for name in graph.activations(operation))
    if not operations:  # nobody reads any of it; a program has to compute something
        return graph
    inputs = tuple(name for name in graph.inputs if name in needed)
    made = {*inputs, *(operation.output for operation in operations)}
    read = {name for operation in operations for name in operation.operands}
    return replace(
        graph,
        operations=tuple(reversed(operations)),
        tensors={name: tensor for name, tensor in graph.tensors.items() if tensor.storage in made},
        constants={name: constant for name, constant in graph.constants.items() if name in read},
        inputs=inputs,
    )
