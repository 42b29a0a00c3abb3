"""normalise: constants become initializers; identities, repeated nodes and dead ones vanish."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, RemoveUnusedNodesPass

__all__ = ["REPEATS", "NormalisePass"]

REPEATS = "npukit.repeats"
"""Under this name the model's `meta` holds which tensor is computed in place of which: {removed: kept}."""

_STANDARD = ("", "ai.onnx")
_RANDOM = frozenset(
    {
        "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    }
)  # fmt: skip
"""Operators of which two with the same inputs give different results."""
_COPIES = frozenset({"DequantizeLinear", "Identity"})
"""Operators that cost no more than the identity that would take their place at an output."""


@dataclass(frozen=True)
class NormalisePass:
    """Lift Constant nodes to initializers, and remove what computes nothing new: identities, nodes that repeat an
    earlier one, nodes that nobody reads.

    No tensor is renamed: identities stay at a graph output, and inside of the graphs that control flow holds; an output
    that repeats another tensor becomes an identity. onnx-ir's own passes for identities and common subexpressions
    remove or rename those as well; ONNX Runtime then refuses a branch that returns an outer tensor, and what is not
    compiled would look for the old name.
    """

    name = "normalise"

    def run(self, model: ir.Model) -> ir.Model:
        """The same graph, normalised in place."""
        model = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).model
        _remove_identities(model.graph)
        model = RemoveUnusedNodesPass()(model).model
        model.meta[REPEATS] = _merge_repeated(model.graph)
        return model


def _remove_identities(graph: ir.Graph) -> None:
    for node in list(graph):
        if node.op_type != "Identity" or node.domain not in _STANDARD:
            continue
        source, result = node.inputs[0], node.outputs[0]
        if source is None or result.is_graph_output():
            continue
        source.shape = source.shape or result.shape
        source.type = source.type or result.type
        ir.convenience.replace_all_uses_with(result, source)
        graph.remove(node, safe=True)


def _merge_repeated(graph: ir.Graph) -> dict[str, str]:
    """Common subexpressions: the first of several nodes that compute the same takes the others' readers."""
    repeats: dict[str, str] = {}
    first: dict[Hashable, ir.Node] = {}
    contents: dict[ir.Value, Hashable] = {}
    for node in list(graph):
        if node.op_type in _COPIES and any(output.is_graph_output() for output in node.outputs):
            continue
        key = _key(node, contents)
        if key is None:
            continue
        earlier = first.setdefault(key, node)
        if earlier is not node:
            for one, other in zip(node.outputs, earlier.outputs, strict=True):
                if one.is_graph_output():
                    _copy_to_output(graph, node, one, other)
                elif one.name and other.name:
                    repeats[one.name] = other.name
                ir.convenience.replace_all_uses_with(one, other)
            graph.remove(node, safe=True)
    return repeats


def _copy_to_output(graph: ir.Graph, node: ir.Node, output: ir.Value, source: ir.Value) -> None:
    """An output under its own name, computed elsewhere under another."""
    copy = ir.Value(name=output.name, type=output.type, shape=output.shape)
    graph.insert_before(node, ir.node("Identity", inputs=[source], outputs=[copy], name=node.name))
    graph.outputs[:] = [copy if value is output else value for value in graph.outputs]


def _key(node: ir.Node, contents: dict[ir.Value, Hashable]) -> Hashable | None:
    """What two nodes share that compute the same; None for a node that has no equal."""
    if node.domain not in _STANDARD or node.op_type in _RANDOM:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in (
            ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING,
        ):  # fmt: skip
            attributes.append((name, attribute.type, attribute.value))
        elif attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
            attributes.append((name, attribute.type, tuple(attribute.value)))
        else:  # graphs, and tensors, which are constants by now
            return None
    inputs = tuple(_content(value, contents) for value in node.inputs)
    outputs = tuple(bool(value.name) for value in node.outputs)
    return node.op_identifier(), tuple(attributes), inputs, outputs


def _content(value: ir.Value | None, contents: dict[ir.Value, Hashable]) -> Hashable:
    """A value, or, of a constant, what is in it: exporters write the same scale many times."""
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return value
    if value not in contents:
        tensor = value.const_value
        if tensor.dtype == ir.DataType.STRING:
            contents[value] = value
        else:
            contents[value] = tensor.dtype, tuple(tensor.shape), hashlib.sha256(tensor.tobytes()).digest()
    return contents[value]
