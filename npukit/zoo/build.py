"""Networks with synthetic weights, built layer by layer while a few images run through them.

Random weights alone let a deep network's signal die: after some layers all channels look alike. Here every
convolution is scaled and shifted, channel by channel, by what it does to the calibration images, as batch
normalisation would, so that quantised tensors use their whole range whatever the depth.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["NetworkBuilder", "images"]

OPSET = 21
IR_VERSION = 10
"""ONNX versions of the models: old enough for every current tool."""

_MARGIN = 2.0
"""Standard deviations between a channel's mean and the lower limit of the activation behind it."""


def images(count: int, shape: Sequence[int], seed: int) -> NDArray[np.float32]:
    """Synthetic images [count, channels, height, width] in 0 .. 1: noise at several scales."""
    generator = np.random.default_rng(seed)
    channels, height, width = shape
    total = np.zeros((count, channels, height, width), np.float32)
    size = 2
    while size <= 2 * max(height, width):
        noise = generator.standard_normal((count, channels, size, size), np.float32)
        rows, columns = (np.arange(extent) * size // extent for extent in (height, width))
        total += noise[:, :, rows][:, :, :, columns]
        size *= 4
    return np.clip(0.5 + (total - total.mean()) / (5 * total.std()), 0, 1)


def _coarse(values: NDArray) -> NDArray[np.float32]:
    """Rounded to 8 significant bits: the last bits of sums differ from processor to processor."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.round(mantissa * 256) / 256, exponent).astype(np.float32)


class NetworkBuilder:
    """A float model under construction, and its tensors for the calibration images.

    Methods add a node, run it, and return the name of its output.
    """

    def __init__(self, name: str, shape: Sequence[int], seed: int, calibration: int = 8) -> None:
        """`shape`: the input's, without the batch."""
        self._name = name
        self._generator = np.random.default_rng(seed)
        self._shape = list(shape)
        noise = np.random.default_rng(seed + 2).random((calibration // 4, *shape), np.float32)
        self.calibration = np.concatenate([images(calibration - len(noise), shape, seed + 1), noise])
        """Images, and a few of white noise, which random inputs are."""
        self.values: dict[str, NDArray[np.float32]] = {"image": self.calibration}
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def _add(self, op: str, inputs: Sequence[str], constants: dict[str, NDArray], attributes: dict) -> str:
        name = f"{op.lower()}_{len(self._nodes)}"
        node = helper.make_node(op, [*inputs, *constants], [name], name=name, **attributes)
        self._initializers += [numpy_helper.from_array(value, key) for key, value in constants.items()]
        self._nodes.append(node)
        self.values[name] = self._run(node, [*(self.values[one] for one in inputs), *constants.values()])
        return name

    @staticmethod
    def _run(node: onnx.NodeProto, arrays: Sequence[NDArray]) -> NDArray[np.float32]:
        """Run one node on the calibration images."""
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(node.input, arrays, strict=True)
        ]
        output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
        graph = helper.make_graph([node], "one", inputs, [output])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (result,) = session.run(None, dict(zip(node.input, arrays, strict=True)))
        return np.asarray(result, np.float32)

    def conv(
        self, source: str, channels: int, kernel: int, stride: int = 1, *, groups: int = 1,
        activation: str | None = None, beside: str | None = None, gain: float = 1.0, spread: float = 0.25,
    ) -> str:  # fmt: skip
        """A convolution with bias, and its activation (`relu` or `relu6`).

        Its channels get standard deviation `gain` and means, up to `spread` of it apart, such that the activation
        cuts few values off. With `beside`, the mean is chosen for the sum with that tensor, which an activation is
        to follow.
        """
        inner = self.values[source].shape[1] // groups
        weights = self._generator.standard_normal((channels, inner, kernel, kernel), np.float32)
        weights /= np.float32(np.sqrt(inner * kernel * kernel))
        attributes = {
            "kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [kernel // 2] * 4, "group": groups,
        }  # fmt: skip
        name = f"conv_{len(self._nodes)}"
        probe = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        raw = self._run(probe, [self.values[source], weights])
        if activation == "relu6":
            gain = gain * 3 / _MARGIN / 1.5
        scale = _coarse(gain / np.maximum(raw.std(axis=(0, 2, 3)), 1e-6))
        weights *= scale[:, None, None, None]
        offset = self._generator.uniform(-spread, spread, channels).astype(np.float32) * gain
        middle = 3.0 if activation == "relu6" else _MARGIN * gain if activation == "relu" else 0.0
        if beside is not None:
            total = raw * scale[:, None, None] + self.values[beside]
            middle = _MARGIN * total.std(axis=(0, 2, 3)) - self.values[beside].mean(axis=(0, 2, 3))
        bias = _coarse(middle - raw.mean(axis=(0, 2, 3)) * scale) + offset
        result = self._add("Conv", [source], {f"{name}_weight": weights, f"{name}_bias": bias}, attributes)
        return self.activation(result, activation)

    def activation(self, source: str, kind: str | None) -> str:
        """A ReLU, a clip to 0 .. 6, or nothing."""
        if kind is None:
            return source
        if kind == "relu":
            return self._add("Relu", [source], {}, {})
        name = f"clip_{len(self._nodes)}"
        limits = {f"{name}_low": np.array(0, np.float32), f"{name}_high": np.array(6, np.float32)}
        return self._add("Clip", [source], limits, {})

    def add(self, left: str, right: str, activation: str | None = None) -> str:
        """A sum, and its activation."""
        return self.activation(self._add("Add", [left, right], {}, {}), activation)

    def max_pool(self, source: str, kernel: int, stride: int) -> str:
        """A maximum over windows, padded by half of the kernel."""
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self._add("MaxPool", [source], {}, attributes)

    def classifier(self, source: str, classes: int) -> str:
        """Global average, flattening and a fully connected layer; logits differ from image to image."""
        pooled = self._add("GlobalAveragePool", [source], {}, {})
        flat = self._add("Flatten", [pooled], {}, {"axis": 1})
        features = self.values[flat]
        weights = self._generator.standard_normal((classes, features.shape[1]), np.float32)
        raw = features @ weights.T
        weights *= _coarse(1 / (raw - raw.mean(axis=0)).std())
        bias = _coarse(-(features @ weights.T).mean(axis=0))
        name = f"gemm_{len(self._nodes)}"
        return self._add("Gemm", [flat], {f"{name}_weight": weights, f"{name}_bias": bias}, {"transB": 1})

    def model(self, output: str) -> onnx.ModelProto:
        """The float model, batch 1, with the input `image` and the tensor `output` as its output."""
        shape = list(self.values[output].shape)
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, *self._shape])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, *shape[1:]])],
            self._initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        model.producer_name = "npukit"
        onnx.checker.check_model(model)
        return model
