"""Float networks as exporters write them, with random weights that keep signals alive."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = ["Network"]

_IR_VERSION = 10


class Network:
    """A network under construction: each node is run on one input when it is added.

    Attributes:
        values: of every tensor for that input.
    """

    def __init__(
        self, name: str, inputs: Mapping[str, Sequence[int] | NDArray], seed: int = 0, opset: int = 17
    ) -> None:
        """`inputs`: shapes of inputs of random numbers, or arrays."""
        self.random = np.random.default_rng(seed)
        self.values: dict[str, NDArray] = {
            key: value if isinstance(value, np.ndarray) else self.random.random(tuple(value), np.float32)
            for key, value in inputs.items()
        }
        self.inputs = dict(self.values)
        self._name, self._opset = name, opset
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def shape(self, x: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.values[x].shape

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of an initializer."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        self.values[name] = np.asarray(value, dtype)
        return name

    def op(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or of several a list."""
        base = f"{op.lower()}_{len(self._nodes)}"
        names = [base] if outputs == 1 else [f"{base}_{number}" for number in range(outputs)]
        node = helper.make_node(op, inputs, names, name=base, **attributes)
        self._nodes.append(node)
        used = {name: self.values[name] for name in inputs if name}
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in used.items()
        ]
        graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in names])
        session = onnxruntime.InferenceSession(
            self._model(graph).SerializeToString(), providers=["CPUExecutionProvider"]
        )
        for name, value in zip(names, session.run(None, used), strict=True):
            self.values[name] = np.asarray(value)
        return names[0] if outputs == 1 else names

    def weights(self, *shape: int, fan: int) -> str:
        """Normal numbers with a variance of one over `fan`."""
        return self.constant(self.random.standard_normal(shape, np.float32) / np.float32(np.sqrt(fan)))

    def norm(self, x: str) -> str:
        """A BatchNormalization with the statistics that it would have learned of the tensor."""
        axes = (0, *range(2, len(self.shape(x))))
        mean = self.values[x].mean(axis=axes)
        variance = self.values[x].var(axis=axes) + 1e-3
        channels = len(mean)
        numbers = (
            self.random.uniform(0.7, 1.3, channels).astype(np.float32),
            self.random.normal(0.3, 0.3, channels).astype(np.float32),
            mean.astype(np.float32),
            variance.astype(np.float32),
        )
        return self.op("BatchNormalization", x, *(self.constant(one) for one in numbers))

    def conv(
        self, x: str, channels: int, kernel: int | Sequence[int] = 3, stride: int = 1, *, groups: int = 1,
        dilation: int = 1, pad: int | Sequence[int] | None = None, norm: bool = True, act: str | None = "Relu",
    ) -> str:  # fmt: skip
        """A convolution over one to three dimensions, its BatchNormalization or bias, and its activation."""
        axes = len(self.shape(x)) - 2
        sizes = list(kernel) if not isinstance(kernel, int) else [kernel] * axes
        pads = [(size - 1) * dilation // 2 for size in sizes]
        if pad is not None:
            pads = [pad] * axes if isinstance(pad, int) else list(pad)
        inner = self.shape(x)[1] // groups
        weights = self.weights(channels, inner, *sizes, fan=inner * int(np.prod(sizes)))
        bias = [] if norm else [self.constant(self.random.normal(0, 0.1, channels), np.float32)]
        y = self.op(
            "Conv", x, weights, *bias, kernel_shape=sizes, strides=[stride] * axes, group=groups,
            dilations=[dilation] * axes, pads=pads * 2,
        )  # fmt: skip
        return self.act(self.norm(y) if norm else y, act)

    def act(self, x: str, kind: str | None) -> str:
        """An activation: a name of ONNX, or Relu6 or SiLU, which exporters write as several nodes."""
        if kind is None:
            return x
        if kind == "Relu6":
            return self.op("Clip", x, self.constant(0, np.float32), self.constant(6, np.float32))
        if kind == "SiLU":
            return self.op("Mul", x, self.op("Sigmoid", x))
        return self.op(kind, x)

    def pool(self, x: str, kernel: int, stride: int, pad: int = 0, kind: str = "MaxPool") -> str:
        """A pooling over all dimensions but the first two."""
        axes = len(self.shape(x)) - 2
        return self.op(kind, x, kernel_shape=[kernel] * axes, strides=[stride] * axes, pads=[pad] * 2 * axes)

    def linear(self, x: str, features: int, act: str | None = None) -> str:
        """A product over the last dimension: Gemm of a matrix, or MatMul and Add."""
        inner = self.shape(x)[-1]
        bias = self.constant(self.random.normal(0, 0.1, features), np.float32)
        if len(self.shape(x)) == 2:
            return self.act(self.op("Gemm", x, self.weights(features, inner, fan=inner), bias, transB=1), act)
        product = self.op("MatMul", x, self.weights(inner, features, fan=inner))
        return self.act(self.op("Add", product, bias), act)

    def reshape(self, x: str, *shape: int) -> str:
        """A Reshape."""
        return self.op("Reshape", x, self.constant(shape, np.int64))

    def transpose(self, x: str, *order: int) -> str:
        """A Transpose."""
        return self.op("Transpose", x, perm=list(order))

    def resize(self, x: str, factor: int, mode: str = "nearest") -> str:
        """Twice or more as large, as torch exports nn.Upsample."""
        scales = self.constant([1, 1, factor, factor], np.float32)
        if mode == "nearest":
            attributes: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        else:
            attributes = {"coordinate_transformation_mode": "half_pixel"}
        return self.op("Resize", x, "", scales, mode=mode, **attributes)

    def classifier(self, x: str, classes: int = 100) -> str:
        """Mean over the image, and a product."""
        return self.linear(self.op("Flatten", self.op("GlobalAveragePool", x)), classes)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The network."""

        def info(name: str) -> onnx.ValueInfoProto:
            value = self.values[name]
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

        graph = helper.make_graph(
            self._nodes, self._name, [info(name) for name in self.inputs], [info(name) for name in outputs],
            self._constants,
        )  # fmt: skip
        model = self._model(graph)
        onnx.checker.check_model(model)
        return model

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=_IR_VERSION)
