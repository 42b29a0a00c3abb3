"""Functions of one element, by table: any chain of elementwise operators between two quantised tensors."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.functions import MORE_INPUTS, ONE_INPUT
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    Produced,
    match_of,
    quantized_output,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import (
    activation,
    integer_result,
    is_integer_operator,
    operands_of_node,
    operator_of,
)
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant, dequantized
from npukit.compiler.frontends.onnx.operators.tables import Chain, entries_of, table_constant
from npukit.compiler.ir.operations import Lookup
from numpy.typing import NDArray

__all__ = ["UNARY", "SeveralTensors", "chains_of", "is_function", "match_unary"]

UNARY = ONE_INPUT | MORE_INPUTS
"""Operators that a table may hold: those of several inputs where all but one tensor are single numbers."""


class SeveralTensors(Refused):
    """A chain that is not a function of one tensor."""


@dataclass(frozen=True)
class _Found:
    """A chain, the nodes that it is, and the values that it lies between."""

    chain: Chain
    nodes: tuple[ir.Node, ...]
    quantized: ir.Value
    out: ir.Value


def match_unary(context: Context, node: ir.Node) -> Match:
    """Any chain of these between two quantised tensors that is a function of one element, by a table of 256 entries."""
    found = _find(context, node)
    x, y = found.chain.x, found.chain.y
    table = table_constant(x, y, entries_of(context.tables[node]))
    operation = Lookup(output=y.name, sources=sources_of(found.nodes), input=x.name, table=table.tensor.name)
    return match_of(node, Produced(found.nodes, found.out, y), [found.quantized], [x], operation, [table])


def is_function(node: ir.Node) -> bool:
    """Whether a node may be, or end, a function of one element."""
    if is_integer_operator(node):
        return operator_of(node) in ONE_INPUT
    return node.op_type in UNARY and node.domain in ("", "ai.onnx")


def chains_of(context: Context, graph: ir.Graph) -> dict[ir.Node, Chain]:
    """The chain that ends in each node that has one."""
    chains = {}
    for node in graph:
        if is_function(node):
            with suppress(Refused):
                chains[node] = _find(context, node).chain
    return chains


def _find(context: Context, node: ir.Node) -> _Found:
    """The chain that ends in a node. Raises Refused where there is none."""
    if is_integer_operator(node):
        return _integer_function(node)
    chain: list[ir.Node] = []
    sources: dict[str, ir.Value] = {}
    constants: dict[str, NDArray] = {}
    _collect(context, node, chain, sources, constants)
    if len(sources) != 1:
        raise SeveralTensors(f"it combines {', '.join(sources) or 'constants'}; a table is a function of one tensor")
    for inner in chain:
        for value in inner.outputs:
            if inner is not node and (
                value.name in context.graph_outputs or any(use.node not in chain for use in value.uses())
            ):
                raise Refused(f"its float operand {value.name} is used elsewhere, too")
    nodes, out, y = quantized_output(context, node, (), absorb=False)
    (source,) = sources.values()
    quantized, x = activation(source, "input")
    if x.shape != y.shape:
        raise Refused(f"it turns the shape {list(x.shape)} into {list(y.shape)}")
    chain = [one for one in chain if one not in nodes]
    dequantiser = source.producer()
    assert dequantiser is not None
    for one in (dequantiser, nodes[-1]):
        for value in one.inputs[1:]:
            if value is not None and (array := constant(value)) is not None:
                constants[value.name or ""] = array
    # the same operators, which ONNX Runtime is to run on all values
    protos = _protos([dequantiser, *reversed(chain), *nodes], constants)
    return _Found(
        Chain(protos, constants, quantized.name or "", out.name or "", x, y), (*nodes, *chain), quantized, out
    )


def _integer_function(node: ir.Node) -> _Found:
    """A chain of one operator on integers."""
    (operand,) = operands_of_node(node)
    quantized, x = activation(operand, "input")
    y, out = integer_result(node), node.outputs[0]
    assert y is not None
    parameters = {value.name or "": constant(value) for value in node.inputs[1:] if value is not None}
    constants = {name: array for name, array in parameters.items() if array is not None}
    chain = Chain((ir.to_proto(node),), constants, quantized.name or "", out.name or "", x, y)
    return _Found(chain, (node,), quantized, out)


def _collect(
    context: Context, node: ir.Node, chain: list[ir.Node], sources: dict[str, ir.Value], constants: dict[str, NDArray]
) -> None:
    """Walk from a node to what it is computed from."""
    if node in chain:
        chain.remove(node)  # it must come before both of its users
    chain.append(node)
    for value in node.inputs:
        if value is None or value.name == "":
            continue
        array = constant(value)
        found = dequantized(value) if array is None else None
        producer = value.producer()
        if array is not None:
            if array.size != 1:
                raise Refused(f"constant {value.name} has {array.size} elements; a table takes single numbers")
            constants[value.name or ""] = array
        elif found is not None and constant(found.value) is None:
            earlier = sources.setdefault(found.value.name or "", value)
            if not _alike(found, dequantized(earlier)):
                raise Refused(f"it reads {found.value.name} through two different DequantizeLinears")
        elif producer is not None and producer.op_type in UNARY and producer.domain in ("", "ai.onnx"):
            _collect(context, producer, chain, sources, constants)
        else:
            raise Refused(f"input {value.name} is float: it does not come from a DequantizeLinear; quantise the model")


def _alike(one: Dequantized, other: Dequantized | None) -> bool:
    return (
        other is not None
        and np.array_equal(one.scale, other.scale)
        and np.array_equal(one.zero_point, other.zero_point)
        and one.zero_point.dtype == other.zero_point.dtype
    )


def _protos(nodes: Sequence[ir.Node], constants: Mapping[str, NDArray]) -> tuple[onnx.NodeProto, ...]:
    """A chain's nodes, of which the first dequantises; those that read another dequantiser of its tensor read it."""
    protos = [ir.to_proto(node) for node in nodes]
    made = {name for proto in protos for name in proto.output}
    for proto in protos[1:]:
        for position, name in enumerate(proto.input):
            if name and name not in made and name not in constants:
                proto.input[position] = protos[0].output[0]
    return tuple(protos)
