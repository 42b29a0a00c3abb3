"""What quantising costs: each quantised tensor, and each output, beside the float model's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log10

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npukit.driver.host import open_session, quantises, quantized_tensors, reference_model, run_session

__all__ = ["Loss", "losses_of"]


@dataclass(frozen=True)
class Loss:
    """How far a tensor is from the float model's.

    Attributes:
        tensor: its name in the float model.
        node, op: what makes it there.
        sqnr: signal to quantisation noise, 10 log10 of the sum of squares over the sum of squared differences, in dB.
        largest: the largest difference.
        range: from the least to the greatest number of the float model.
    """

    tensor: str
    node: str
    op: str
    sqnr: float
    largest: float
    range: float


class _Sums:
    """Over all samples of a tensor."""

    def __init__(self) -> None:
        self.signal = self.noise = self.largest = 0.0
        self.least, self.most = inf, -inf

    def add(self, want: NDArray, got: NDArray) -> None:
        wide, other = want.astype(np.float64), got.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(wide - other)
        self.signal += float((wide**2).sum())
        self.noise += float((apart**2).sum())
        self.largest = float(np.maximum(self.largest, apart.max(initial=0)))  # not a number, if one is none
        self.least, self.most = min(self.least, float(wide.min())), max(self.most, float(wide.max()))

    def loss(self, tensor: str, node: str, op: str) -> Loss:
        sqnr = inf if not self.noise else -inf if not self.signal else 10 * log10(self.signal / self.noise)
        return Loss(tensor, node, op, sqnr, self.largest, self.most - self.least)


def losses_of(
    model: onnx.ModelProto, quantised: onnx.ModelProto, samples: Sequence[Mapping[str, NDArray]]
) -> tuple[tuple[Loss, ...], tuple[Loss, ...]]:
    """The losses of quantised tensors that the float model has as well, and of the outputs, over samples."""
    makers = {name: node for node in model.graph.node for name in node.output}
    outputs = [value.name for value in model.graph.output]
    readings = _readings(quantised)
    pairs: dict[str, str] = {}
    kept = {node.name for node in quantised.graph.node}
    limits = {node.input[0]: node for node in model.graph.node if node.op_type in ("Relu", "Clip")}
    for name in quantized_tensors(quantised):
        own = name.removesuffix("_QuantizeLinear_Output").removesuffix("_quantized")
        own = own.removesuffix("_QuantizeLinear_Input")
        if own in limits and limits[own].name not in kept:  # quantising has made a Relu of its limits
            own = limits[own].output[0]
        if own in makers and name in readings:
            pairs[name] = own
    exact = _with_outputs(model, [name for name in dict.fromkeys(pairs.values()) if name not in outputs])
    sessions = open_session(exact), open_session(reference_model(quantised))
    inner, outer = {name: _Sums() for name in pairs}, {name: _Sums() for name in outputs if name in makers}
    for sample in samples:
        want = run_session(sessions[0], list(dict.fromkeys([*outputs, *pairs.values()])), sample)
        got = run_session(sessions[1], list(dict.fromkeys([*outputs, *pairs])), sample)
        for name, own in pairs.items():
            scale, zero_point = readings[name]
            inner[name].add(want[own], (got[name].astype(np.float64) - zero_point) * scale)
        for name in list(outer):
            # what has no numbers, or as many as it happens to find, is not compared
            arrays = [found[name] for found in (want, got)]
            numbers = all(isinstance(one, np.ndarray) and one.dtype.kind in "fiub" and one.size for one in arrays)
            if numbers and arrays[0].shape == arrays[1].shape:
                outer[name].add(*arrays)
            else:
                del outer[name]
    return (
        tuple(inner[name].loss(own, makers[own].name, makers[own].op_type) for name, own in pairs.items()),
        tuple(
            sums.loss(name, makers[name].name, makers[name].op_type) for name, sums in outer.items() if name in makers
        ),
    )


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return copy


def _readings(model: onnx.ModelProto) -> dict[str, tuple[float, int]]:
    """Scale and zero point of each tensor that a quantiser or an operator on integers writes."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if not quantises(node):
            continue
        # of operators on integers, the result's scale is the second of the last two, or comes before a bias
        names = {"QuantizeLinear": node.input[1:3], "QLinearConv": node.input[6:8], "QLinearConcat": node.input[:2]}
        given = names.get(node.op_type, node.input[-2:])
        if len(given) == 2 and all(name in constants for name in given):
            scale, zero_point = (numpy_helper.to_array(constants[name]) for name in given)
            if scale.size == 1:
                found[node.output[0]] = float(scale.reshape(-1)[0]), int(zero_point.reshape(-1)[0])
    return found
