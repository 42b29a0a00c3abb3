"""lower: the matches of each accelerated part become a graph of the IR."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from npukit.compiler.frontends.onnx.operators import Match, used_values
from npukit.compiler.frontends.onnx.operators.integer import declared_quantization
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import Reinterpret, TensorOperation, operands_of
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.compiler.pass_base import GraphsPass
from npukit.driver.tflite_host import DOMAIN

__all__ = ["LowerPass"]


@dataclass(frozen=True)
class LowerPass(GraphsPass[Partition]):
    """A graph of each accelerated part."""

    name = "lower"

    def run(self, partition: Partition) -> tuple[Graph, ...]:
        """One graph per accelerated part, in the order of execution."""
        graph = partition.model.graph
        outside = {value.name for value in graph.outputs}
        for node in partition.host:
            outside.update(value.name for value in used_values(node))
        values = {value.name or "" for node in graph for value in node.outputs}
        values.update(value.name or "" for value in (*graph.inputs, *graph.initializers.values()))
        graphs = []
        for index, matches in enumerate(partition.subgraphs):
            others = {
                value.name
                for number, group in enumerate(partition.subgraphs)
                if number != index
                for match in group
                for value in match.inputs
            }
            graphs.append(_graph(f"npukit_{index}", matches, outside | others, values))
        return tuple(graphs)


def _graph(name: str, matches: tuple[Match, ...], used_outside: set[str | None], values: set[str]) -> Graph:
    """values: names that the model has, so that nothing else gets them."""
    tensors: dict[str, Tensor] = {}
    constants: dict[str, Constant] = {}
    operations: list[TensorOperation] = []
    readings: dict[str, str] = {}
    activations = {value.name or "" for match in matches for value in (*match.inputs, *match.outputs)}
    for match in matches:
        for value, read in zip(match.inputs, match.reads, strict=True):
            given = match.graph.tensors[read]
            own = value.name or ""
            quantization = given.quantization
            if quantization is not None and match.node.domain != DOMAIN:
                quantization = declared_quantization(value)
            tensors.setdefault(own, replace(given, name=own, quantization=quantization))
            if read == own or read in readings:
                continue
            # the same numbers under another quantisation: no value of the model, which has floats of that name
            again = readings[read] = free_name(f"{own} as {read}", {*values, *tensors, *constants})
            tensors[again] = replace(given, name=again)
            operations.append(Reinterpret(output=again, sources=match.graph.operations[0].sources, input=own))
        renamed = dict(readings)
        for one, constant in match.graph.constants.items():
            renamed[one] = _named(constant, {*activations, *tensors}, constants)
        results = {value.name for value in match.outputs}
        for operation in match.graph.operations:
            given = match.graph.tensors[operation.output]
            own = given.name if given.name in results else free_name(given.name, {*values, *tensors, *constants})
            renamed[given.name] = own
            tensors[own] = replace(given, name=own)
            operations.append(replace(_with_operands(operation, renamed), output=own))
    made = [operation.output for operation in operations]
    needed = {value.name for match in matches for value in match.inputs}
    return Graph(
        name=name,
        operations=tuple(operations),
        tensors=tensors,
        constants=constants,
        inputs=tuple(one for one in tensors if one in needed and one not in made),
        outputs=tuple(one for one in made if one in used_outside),
    )


def _named(constant: Constant, tensors: Collection[str], constants: dict[str, Constant]) -> str:
    """Put a constant among others, under its name or one like it that no tensor and no other constant has."""
    name = free_name(constant.tensor.name, tensors)
    while name in constants and not _same(constants[name], constant):
        name = free_name(f"{name} again", tensors)
    constants.setdefault(name, Constant(replace(constant.tensor, name=name), constant.data))
    return name


def _same(one: Constant, other: Constant) -> bool:
    facts = [(two.tensor.shape, two.tensor.format, two.tensor.quantization) for two in (one, other)]
    return facts[0] == facts[1] and (one.data is other.data or np.array_equal(one.data, other.data))


def _with_operands(operation: TensorOperation, renamed: dict[str, str]) -> TensorOperation:
    if all(old == new for old, new in renamed.items()):
        return operation
    changes: dict[str, Any] = {}
    for field in operands_of(type(operation)):
        value = getattr(operation, field)
        if isinstance(value, tuple):
            changes[field] = tuple(None if one is None else renamed.get(one, one) for one in value)
        else:
            changes[field] = renamed.get(value, value)
    return replace(operation, **changes)
