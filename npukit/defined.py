"""Results that are held to a definition, where ONNX Runtime computes in float in an order that it chooses."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor, isqrt

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npukit.driver.host import names_used

__all__ = ["Definition", "definitions", "given_name", "with_given"]

_NORMALIZING = ("LayerNormalization", "RMSNormalization")
_EPSILON = 1e-5
_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Definition:
    """A normalisation of int8 or uint8, as `docs/numerics.md` defines it, in whole numbers of any size.

    Attributes:
        source: name of the tensor that is normalised, along its last dimension.
        scales, zero_points: of the source and of the result.
        gamma, beta: float32, of each channel.
        epsilon: that is added to the variance.
        centred: whether the mean is subtracted.
    """

    source: str
    scales: tuple[float, float]
    zero_points: tuple[int, int]
    gamma: NDArray[np.float32]
    beta: NDArray[np.float32]
    epsilon: float
    centred: bool

    def result(self, numbers: NDArray, dtype: np.dtype | type) -> NDArray:
        """What becomes of a source, of any shape, as int8 or uint8."""
        count = numbers.shape[-1]
        rows = numbers.reshape(-1, count).astype(np.int64) - self.zero_points[0]
        epsilon = round(Fraction(self.epsilon) * count**2 * 2**16 / Fraction(self.scales[0]) ** 2)
        normal = np.array([_normal([int(one) for one in row], epsilon, self.centred) for row in rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            multiplier = (self.gamma.astype(np.float64) / (2.0**16 * self.scales[1])).astype(np.float32)
            shift = np.rint(2.0**16 * self.beta.astype(np.float64) / self.gamma)
        shift[(self.gamma == 0) & (self.beta == 0)] = 0
        scaled = (normal + shift.astype(np.int64)).astype(np.float32) * multiplier
        limits = np.iinfo(dtype)
        result = np.clip(np.rint(scaled).astype(np.int64) + self.zero_points[1], limits.min, limits.max)
        return result.astype(dtype).reshape(numbers.shape)


def _normal(row: list[int], epsilon: int, centred: bool) -> list[int]:
    """N of each number of a place."""
    total = sum(row) if centred else 0
    variance = max(0, len(row) * sum(one * one for one in row) - total * total)
    wide = (variance << 16) + epsilon
    if not wide:
        return [0] * len(row)
    pairs = (64 - wide.bit_length()) // 2
    root = min(2**24 - 1, isqrt(2**78 // (wide << 2 * pairs >> 32)))
    unit = Fraction(root, 2 ** (31 - pairs))
    return [floor((len(row) * one - total) * unit + Fraction(1, 2)) for one in row]


def definitions(model: onnx.ModelProto) -> dict[str, Definition]:
    """Of each quantised tensor that a normalisation of a quantised tensor makes: its definition, if it has one."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    makers = {name: node for node in graph.node for name in node.output if name}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in set(names_used(node)):
            users.setdefault(name, []).append(node)
    found = {}
    for node in graph.node:
        if node.op_type not in _NORMALIZING or node.domain not in _DOMAINS:
            continue
        follower = users.get(node.output[0], [])
        before = makers.get(node.input[0])
        if len(follower) != 1 or follower[0].op_type != "QuantizeLinear" or before is None:
            continue
        if before.op_type != "DequantizeLinear":
            continue
        read, made = _parameters(before, constants), _parameters(follower[0], constants)
        vectors = [_vector(name, constants, makers) for name in node.input[1:3] if name]
        if read is None or made is None or not vectors or any(one is None for one in vectors):
            continue
        gamma, beta = vectors[0], vectors[1] if len(vectors) > 1 else None
        assert gamma is not None
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        found[follower[0].output[0]] = Definition(
            source=before.input[0], scales=(read[0], made[0]), zero_points=(read[1], made[1]),
            gamma=gamma, beta=np.zeros_like(gamma) if beta is None else beta,
            epsilon=attributes.get("epsilon", float(np.float32(_EPSILON))),
            centred=node.op_type == "LayerNormalization",
        )  # fmt: skip
    return found


def _parameters(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[float, int] | None:
    """Scale and zero point of numbers that are quantised as a whole."""
    names = [name for name in node.input[1:3] if name]
    if any(name not in constants for name in names):
        return None
    scale, *zero_point = (numpy_helper.to_array(constants[name]) for name in names)
    if any(one.size != 1 for one in (scale, *zero_point)):
        return None
    return float(scale.reshape(-1)[0]), int(zero_point[0].reshape(-1)[0]) if zero_point else 0


def _vector(
    name: str, constants: Mapping[str, onnx.TensorProto], makers: Mapping[str, onnx.NodeProto]
) -> NDArray[np.float32] | None:
    """A constant of float32, or numbers that stand for one."""
    if name in constants:
        return numpy_helper.to_array(constants[name])
    node = makers.get(name)
    if node is None or node.op_type != "DequantizeLinear" or any(one not in constants for one in node.input if one):
        return None
    raw, scale, *zero_point = (numpy_helper.to_array(constants[one]) for one in node.input if one)
    zero = zero_point[0].astype(np.int64) if zero_point else 0
    return (raw.astype(np.int64) - zero).astype(np.float32) * scale


def with_given(model: onnx.ModelProto, given: Mapping[str, NDArray]) -> onnx.ModelProto:
    """A copy of a model in which whatever reads one of these tensors reads an input, `given_name(tensor)`, instead; the
    tensors themselves are computed as before."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _read_given(copy.graph, given)
    copy.graph.input.extend(
        helper.make_tensor_value_info(given_name(name), helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    )
    return copy


def _read_given(graph: onnx.GraphProto, given: Collection[str]) -> None:
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name in given:
                node.input[position] = given_name(name)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _read_given(inner, given)


def given_name(tensor: str) -> str:
    """The input that stands for a tensor."""
    return f"{tensor} as the machine has it"
