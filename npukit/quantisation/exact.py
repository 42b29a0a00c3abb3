"""Scales for which ONNX Runtime's result is one number, whatever the order in which it adds.

Where it computes a quantised operator in floats, a sum close to the middle between two results is decided by its
rounding, and the machine leaves such an operator to it. Slightly larger scales avoid that: powers of two for a
ConvTranspose, a linear Resize, and means and sums of channels, whose sums are then exact; and averages that never lie
in the middle for an AveragePool.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npukit.compiler.legality import average_problem

__all__ = ["with_exact_scales"]

_STEP = 2.0**-11
"""By which part of itself a scale grows at each attempt."""
_ATTEMPTS = 64
_MOVERS = frozenset("Flatten MaxPool Pad Reshape Resize Slice Squeeze Transpose Unsqueeze".split())


def with_exact_scales(model: onnx.ModelProto, source: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """A model in the QDQ form whose transposed convolutions and averages do not depend on the order of sums.

    Args:
        model: as the quantiser made it.
        source: the float model that it was made of.

    Returns:
        The model, and the names of the nodes around which scales were changed.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    scales = _Scales(copy, source)
    # what a ConvTranspose reads or makes keeps its power of two
    changed = [node.name for node in copy.graph.node if node.op_type == "ConvTranspose" and _exact_sums(scales, node)]
    means = [node for node in copy.graph.node if node.op_type in ("ReduceMean", "ReduceSum")]
    changed += [node.name for node in means if _exact_mean(scales, node, _reduced_elements(node, source))]
    linear = [node for node in copy.graph.node if node.op_type == "Resize" and _mode(node) == b"linear"]
    changed += [node.name for node in linear if _powers(scales, node)]
    pools = [node for node in copy.graph.node if node.op_type == "AveragePool"]
    changed += [node.name for node in pools if _no_ties(scales, node, {*_counts(node)})]
    if not changed:
        return model, ()
    scales.renew_biases()
    return copy, tuple(changed)


@dataclass(frozen=True)
class _Quantiser:
    """Names of what a QuantizeLinear or DequantizeLinear reads."""

    tensor: str
    scale: str
    zero_point: str | None
    axis: int


class _Scales:
    """The scales of a quantised model, which can be changed."""

    def __init__(self, model: onnx.ModelProto, source: onnx.ModelProto) -> None:
        self._model = model
        self.nodes = [*model.graph.node]
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._source = {tensor.name: tensor for tensor in source.graph.initializer}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._makers = {name: node for node in self.nodes for name in node.output}

    def read(self, name: str) -> _Quantiser | None:
        """The DequantizeLinear that makes a value."""
        node = self._makers.get(name)
        return _quantiser(node) if node is not None and node.op_type == "DequantizeLinear" else None

    def written(self, name: str) -> _Quantiser | None:
        """The QuantizeLinear that alone reads a value, behind a Relu or Clip perhaps."""
        while True:
            readers = self._readers.get(name, [])
            if len(readers) != 1:
                return None
            (node,) = readers
            if node.op_type == "QuantizeLinear":
                return _quantiser(node)
            if node.op_type not in ("Relu", "Clip"):
                return None
            name = node.output[0]

    def values(self, name: str) -> NDArray | None:
        """A constant."""
        return numpy_helper.to_array(self._constants[name]) if name in self._constants else None

    def put(self, name: str, values: NDArray) -> None:
        """Change a constant."""
        self._constants[name].CopyFrom(numpy_helper.from_array(np.array(values, order="C"), name))

    def put_own(self, tensor: _Quantiser, scale: NDArray) -> None:
        """Give a QuantizeLinear, and those that read its result or hand its numbers on, a scale of their own."""
        name = f"{tensor.tensor}_scale"
        while name in self._constants:
            name += "_"
        self._constants[name] = self._model.graph.initializer.add()
        self.put(name, scale)
        pending, old = [tensor.tensor], tensor.scale
        while pending:
            value = pending.pop()
            for node in self._readers.get(value, []):
                if node.op_type == "QuantizeLinear" and node.input[1] == old:
                    node.input[1] = name
                    for reader in self._readers.get(node.output[0], []):
                        if reader.op_type == "DequantizeLinear":
                            reader.input[1] = name
                            pending += self._moved(reader.output[0])

    def _moved(self, value: str) -> list[str]:
        """What operators that hand numbers on, in the same scale, make of a value."""
        return [node.output[0] for node in self._readers.get(value, []) if node.op_type in _MOVERS]

    def quantise(self, tensor: _Quantiser, real: NDArray, scale: NDArray) -> None:
        """Write a constant anew, with another scale for each index along its axis, or for all of it."""
        old = self.values(tensor.tensor)
        zero = 0 if tensor.zero_point is None else self.values(tensor.zero_point)
        assert old is not None and zero is not None
        limits = np.iinfo(old.dtype)
        found = np.rint(real / _along(scale, real.ndim, tensor.axis)) + _along(np.asarray(zero), real.ndim, tensor.axis)
        self.put(tensor.tensor, found.clip(limits.min, limits.max).astype(old.dtype))
        self.put(tensor.scale, scale.astype(np.float32))

    def real(self, tensor: _Quantiser) -> NDArray[np.float64]:
        """The numbers that a constant stands for: as the float model has them, where it has them by that name."""
        values, scale = self.values(tensor.tensor), self.values(tensor.scale)
        zero = 0 if tensor.zero_point is None else self.values(tensor.zero_point)
        assert values is not None and scale is not None and zero is not None
        given = self._source.get(tensor.tensor.removesuffix("_quantized"))
        if given is not None and tuple(given.dims) == values.shape:
            return numpy_helper.to_array(given).astype(np.float64)
        offset = _along(np.asarray(zero, np.float64), values.ndim, tensor.axis)
        return (values - offset) * _along(scale.astype(np.float64), values.ndim, tensor.axis)

    def renew_biases(self) -> None:
        """Biases are in units of the products that they are added to."""
        done: set[str] = set()
        for node in self.nodes:
            found = [self.read(name) for name in node.input[:3]]
            if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(found) < 3 or None in found:
                continue
            x, weights, bias = (one for one in found if one is not None)
            scales = [self.values(one.scale) for one in (x, weights)]
            if bias.tensor in done or any(one is None for one in scales):
                continue
            unit = np.prod(np.broadcast_arrays(*(np.asarray(one, np.float32) for one in scales)), axis=0)
            given = self.values(bias.scale)
            if given is None or unit.size not in (1, given.size):
                continue
            unit = np.broadcast_to(unit.reshape(-1), given.size).reshape(given.shape)
            if not np.array_equal(given, unit):
                done.add(bias.tensor)
                self.quantise(bias, self.real(bias), unit)


def _quantiser(node: onnx.NodeProto) -> _Quantiser:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    return _Quantiser(node.input[0], node.input[1], node.input[2] if len(node.input) > 2 else None, axis)


def _along(values: NDArray, dimensions: int, axis: int) -> NDArray:
    """Numbers for each index along an axis of a tensor, so that they can be combined with it."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if position == axis % dimensions else 1 for position in range(dimensions)])


def _power(scale: NDArray) -> NDArray[np.float32]:
    """The least powers of two that are no less."""
    return np.exp2(np.ceil(np.log2(scale.astype(np.float64)))).astype(np.float32)


def _exact_sums(scales: _Scales, node: onnx.NodeProto) -> bool:
    """Give a ConvTranspose powers of two."""
    x, weights, y = scales.read(node.input[0]), scales.read(node.input[1]), scales.written(node.output[0])
    if x is None or weights is None or y is None or scales.values(weights.tensor) is None:
        return False
    given = [scales.values(one.scale) for one in (x, weights, y)]
    if any(one is None for one in given):
        return False
    powers = [_power(np.asarray(one)) for one in given]
    if all(np.array_equal(np.asarray(one), power) for one, power in zip(given, powers, strict=True)):
        return False
    scales.put(x.scale, powers[0])
    scales.put(y.scale, powers[2])
    scales.quantise(weights, scales.real(weights), powers[1])
    return True


def _counts(node: onnx.NodeProto) -> Iterator[int]:
    """Elements that windows of an AveragePool may average: fewer at an edge."""
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    kernel: Sequence[int] = attributes["kernel_shape"]
    padded = any(attributes.get("pads", ())) or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if padded or attributes.get("ceil_mode", 0):
        for sizes in product(*(range(1, size + 1) for size in kernel)):
            yield int(np.prod(sizes))
    yield int(np.prod(kernel))


def _reduced_elements(node: onnx.NodeProto, source: onnx.ModelProto) -> int:
    """Elements of which a reduction makes one, or 0 where that is not known."""
    inferred = onnx.shape_inference.infer_shapes(source).graph
    original = next((one for one in source.graph.node if one.name == node.name), None)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    if original is None or not {original.input[0], original.output[0]} <= shapes.keys():
        return 0
    before, after = (int(np.prod(shapes[name])) for name in (original.input[0], original.output[0]))
    return before // after if after else 0


def _exact_mean(scales: _Scales, node: onnx.NodeProto, count: int) -> bool:
    """Give a sum of so many elements powers of two, and their mean as well where the count is one; or else the mean a
    scale without ties."""
    if not count:
        return False
    if node.op_type == "ReduceMean" and count & (count - 1):
        return _no_ties(scales, node, {count})
    return _powers(scales, node)


def _mode(node: onnx.NodeProto) -> bytes:
    return next((attribute.s for attribute in node.attribute if attribute.name == "mode"), b"")


def _powers(scales: _Scales, node: onnx.NodeProto) -> bool:
    """Give what a node reads and what it makes powers of two."""
    x, y = scales.read(node.input[0]), scales.written(node.output[0])
    if x is None or y is None:
        return False
    changed = False
    for one in (x, y):
        given = scales.values(one.scale)
        power = None if given is None else _power(np.asarray(given))
        if power is not None and not np.array_equal(np.asarray(given), power):
            scales.put(one.scale, power)
            changed = True
    return changed


def _no_ties(scales: _Scales, node: onnx.NodeProto, counts: Collection[int]) -> bool:
    """Give an average's result a scale for which no average of so many elements lies in the middle between two
    results."""
    x, y = scales.read(node.input[0]), scales.written(node.output[0])
    if x is None or y is None:
        return False
    given, result = scales.values(x.scale), scales.values(y.scale)
    if given is None or result is None:
        return False
    if np.array_equal(result, _power(result)):
        return False
    for attempt in range(_ATTEMPTS):
        scale = np.float32(float(result) * (1 + attempt * _STEP))
        if all(average_problem(float(given), float(scale), count) is None for count in counts):
            if attempt:
                scales.put_own(y, np.asarray(scale).reshape(result.shape))
            return bool(attempt)
    return False
