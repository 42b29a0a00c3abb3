"""Normalisations that a float model computes step by step, as models older than their operators have them.

mean = ReduceMean(x);  d = x - mean;  LayerNormalization: d / sqrt(ReduceMean(d^2) + epsilon) * scale + bias
RMSNormalization: x / sqrt(ReduceMean(x^2) + epsilon) * scale
"""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir
from npukit.compiler.frontends.onnx.channels import reduced_axes
from npukit.compiler.frontends.onnx.operators.base import DecomposedNormalization, alone
from npukit.compiler.frontends.onnx.operators.quantisation import ONNX_DOMAINS, constant
from numpy.typing import NDArray

__all__ = ["decomposed_normalizations"]


def decomposed_normalizations(graph: ir.Graph, outputs: Collection[str]) -> dict[ir.Node, DecomposedNormalization]:
    """The normalisation that each node belongs to. `outputs`: names of the graph's outputs."""
    place = {node: index for index, node in enumerate(graph)}
    found: dict[ir.Node, DecomposedNormalization] = {}
    for node in graph:
        steps = _Steps(outputs)
        if not steps.begin(node):
            continue
        nodes = sorted(steps.nodes, key=lambda one: place[one], reverse=True)
        if not alone(nodes, outputs) or steps.source is None:
            continue
        one = DecomposedNormalization(
            tuple(nodes), steps.source, steps.scale, steps.bias, steps.epsilon, centred=steps.centred
        )
        found.update(dict.fromkeys(nodes, one))
    return found


class _Steps:
    """What is found of a normalisation, from its mean of squares on, forwards and backwards."""

    def __init__(self, outputs: Collection[str]) -> None:
        self._outputs = outputs
        self.nodes: set[ir.Node] = set()
        self.source: ir.Value | None = None
        self.scale: NDArray[np.float32] | None = None
        self.bias: NDArray[np.float32] | None = None
        self.epsilon, self.centred = 0.0, False

    def begin(self, node: ir.Node) -> bool:
        """Whether a node is the mean of squares of a normalisation."""
        squares = _producer(_mean_of(node))
        base = _squared(squares) if squares is not None else None
        if squares is None or base is None:
            return False
        self.nodes |= {node, squares}
        if not self._root(node.outputs[0], base):
            return False
        self._centre(base)
        return True

    def _root(self, variance: ir.Value, base: ir.Value) -> bool:
        """Follow variance, epsilon and root up to where something is divided by it."""
        user = self._user(variance)
        if user is not None and _is(user, "Add"):
            number = _number(_other(user, variance))
            if number is None:
                return False
            self.epsilon, variance = number, user.outputs[0]
            user = self._user(variance)
        if user is not None and _is(user, "Sqrt"):
            return self._divided(user.outputs[0], base)
        if user is not None and _is(user, "Pow") and user.inputs[0] is variance and _number(user.inputs[1]) == -0.5:
            return self._multiplied(user.outputs[0], base)
        return False

    def _divided(self, root: ir.Value, base: ir.Value) -> bool:
        user = self._user(root)
        if user is None:
            return False
        if _is(user, "Reciprocal") or _is(user, "Div") and user.inputs[1] is root and _number(user.inputs[0]) == 1:
            return self._multiplied(user.outputs[0], base)
        if _is(user, "Div") and user.inputs[1] is root and self._same(user.inputs[0], base):
            self._scaled(user.outputs[0])
            return True
        return False

    def _multiplied(self, inverse: ir.Value, base: ir.Value) -> bool:
        user = self._user(inverse)
        if user is not None and _is(user, "Mul") and self._same(_other(user, inverse), base):
            self._scaled(user.outputs[0])
            return True
        return False

    def _scaled(self, normal: ir.Value) -> None:
        """Take a scale and a bias along, where they follow."""
        for op in ("Mul", "Add"):
            users = [*normal.uses()]
            user = users[0].node if len(users) == 1 and normal.name not in self._outputs else None
            other = _other(user, normal) if user is not None and _is(user, op) else None
            vector = _vector(other, normal) if other is not None else None
            if user is None or vector is None:
                continue
            if op == "Mul":
                self.scale = vector
            else:
                self.bias = vector
            self.nodes.add(user)
            normal = user.outputs[0]

    def _centre(self, base: ir.Value) -> None:
        """What is normalised: `base`, or of what it is the distance from the mean."""
        self.source = base
        node = base.producer()
        if node is not None and _is(node, "Sub"):
            mean = _producer(node.inputs[1])
            if mean is not None and _mean_of(mean) is node.inputs[0]:
                self.nodes |= {node, mean}
                self.source, self.centred = node.inputs[0], True

    def _same(self, value: ir.Value | None, base: ir.Value) -> bool:
        """Whether a value is another, or made of the same as that is."""
        if value is base:
            return True
        one, other = _producer(value), base.producer()
        if one is None or other is None or not (_is(one, "Sub") and _is(other, "Sub")):
            return False
        means = [_producer(node.inputs[1]) for node in (one, other)]
        sources = [_mean_of(mean) if mean is not None else None for mean in means]
        if not (one.inputs[0] is other.inputs[0] is sources[0] is sources[1]):
            return False
        self.nodes |= {one, *(mean for mean in means if mean is not None)}
        return True

    def _user(self, value: ir.Value) -> ir.Node | None:
        """The node that alone reads a value, which then belongs to the normalisation."""
        users = [*value.uses()]
        if len(users) != 1 or value.name in self._outputs:
            return None
        self.nodes.add(users[0].node)
        return users[0].node


def _is(node: ir.Node, op: str) -> bool:
    return node.op_type == op and node.domain in ONNX_DOMAINS


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _other(node: ir.Node, value: ir.Value | None) -> ir.Value | None:
    """The other one of two inputs."""
    first, second = node.inputs
    return second if first is value else first


def _mean_of(node: ir.Node) -> ir.Value | None:
    """Of what a node is the mean along the last dimension, which stays with one element."""
    value = node.inputs[0] if node.inputs else None
    if not _is(node, "ReduceMean") or value is None or value.shape is None or value.dtype != ir.DataType.FLOAT:
        return None
    rank = len(value.shape)
    kept = node.attributes.get_int("keepdims", 1)
    return value if kept and reduced_axes(node, rank) == (rank - 1,) else None


def _squared(node: ir.Node) -> ir.Value | None:
    """Of what a node is the square."""
    if _is(node, "Pow") and _number(node.inputs[1]) == 2:
        return node.inputs[0]
    return node.inputs[0] if _is(node, "Mul") and node.inputs[0] is node.inputs[1] else None


def _number(value: ir.Value | None) -> float | None:
    """A constant number."""
    array = constant(value) if value is not None else None
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _vector(value: ir.Value, normal: ir.Value) -> NDArray[np.float32] | None:
    """A constant for each channel of a value, or one for all."""
    array = constant(value)
    if array is None or array.dtype != np.float32 or normal.shape is None:
        return None
    channels, rank = normal.shape[-1], len(normal.shape)
    fits = array.size == 1 or array.shape[-1:] == (channels,) and array.size == channels
    return array.reshape(-1) if fits and array.ndim <= rank else None
