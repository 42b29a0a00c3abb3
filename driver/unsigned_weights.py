"""Weights in uint8 for activations in uint8, as ONNX Runtime's kernels need them on x86-64 without VNNI.

There they multiply uint8 by int8 two products at a time and saturate the sum of both at 16 bits. Products of uint8 by
uint8 and of int8 by int8 are exact. ONNX Runtime's own option, `session.x64quantprecision`, turns weights to uint8 as
well, but of operators of opset 10 alone, and of those on int8 activations, too, for which it then has no kernel.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["with_unsigned_weights"]

_ON_INTEGERS = {
    "QLinearConv": (2, 3, 5), "QLinearMatMul": (2, 3, 5), "QGemm": (2, 3, 5), "ConvInteger": (2, 1, 3),
    "MatMulInteger": (2, 1, 3),
}  # fmt: skip
"""Of operators on integers, the inputs that are the activation's zero point, the weights, and their zero point."""
_ON_FLOATS = ("Conv", "Gemm", "MatMul")
"""Operators that ONNX Runtime computes in integers between DequantizeLinear and QuantizeLinear."""
_SUFFIX = "_npukit_unsigned"


class _Weights:
    """The weights of a model's copy that become unsigned."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        replaceable = {value.name for value in graph.input} if model.ir_version >= 4 else set()
        self.constants = {one.name: one for one in graph.initializer if one.name not in replaceable}
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants.update((node.output[0], one.t) for one in node.attribute if one.name == "value")
        self.makers = {name: node for node in graph.node for name in node.output}
        self.kinds = {value.name: value.type.tensor_type.elem_type for value in graph.input}

    def run(self) -> onnx.ModelProto:
        nodes = []
        for node in self.model.graph.node:
            if node.op_type in _ON_INTEGERS:
                self._on_integers(node)
            elif node.op_type in _ON_FLOATS and (made := self._on_floats(node)) is not None:
                nodes.append(made)
            nodes.append(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        return self.model

    def _on_integers(self, node: onnx.NodeProto) -> None:
        activation, weights, zero = _ON_INTEGERS[node.op_type]
        kind = self._type(node.input[0], _input(node, activation))
        if kind != TensorProto.UINT8 or not self._are_signed(node.input[weights]):
            return
        while len(node.input) <= zero:
            node.input.append("")
        shifted = self._shifted_zero(node.input[zero], np.zeros((), np.int8))
        if shifted is not None:
            node.input[weights], node.input[zero] = self._shifted(node.input[weights]), shifted

    def _on_floats(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        left, right = (self.makers.get(name) for name in node.input[:2])
        if left is None or right is None or {left.op_type, right.op_type} != {"DequantizeLinear"}:
            return None
        kind = self._type(left.input[0], _input(left, 2))
        if kind != TensorProto.UINT8 or not self._are_signed(right.input[0]) or right.input[1] not in self.constants:
            return None
        scale = numpy_helper.to_array(self.constants[right.input[1]])
        shifted = self._shifted_zero(_input(right, 2), np.zeros(scale.shape, np.int8))
        if shifted is None:
            return None
        made = onnx.NodeProto()
        made.CopyFrom(right)
        made.name, made.output[0] = f"{node.name}{_SUFFIX}", f"{node.output[0]}{_SUFFIX}"
        del made.input[:]
        made.input.extend([self._shifted(right.input[0]), right.input[1], shifted])
        node.input[1] = made.output[0]
        return made

    def _type(self, tensor: str, zero: str) -> int:
        """Of an activation in integers."""
        if zero in self.constants:
            return self.constants[zero].data_type
        maker = self.makers.get(tensor)
        if maker is None:
            return self.kinds.get(tensor, TensorProto.UNDEFINED)
        if maker.op_type == "DynamicQuantizeLinear":
            return TensorProto.UINT8
        if maker.op_type == "QuantizeLinear":
            wanted = [one.i for one in maker.attribute if one.name == "output_dtype" and one.i]
            return wanted[0] if wanted else self._type("", _input(maker, 2)) or TensorProto.UINT8
        return TensorProto.UNDEFINED

    def _are_signed(self, name: str) -> bool:
        return name in self.constants and self.constants[name].data_type == TensorProto.INT8

    def _shifted_zero(self, name: str, default: np.ndarray) -> str | None:
        """The zero point of the shifted weights; None: it is none that is known."""
        if name:
            return self._shifted(name) if self._are_signed(name) else None
        return self._add(f"zero_{default.size}_{default.ndim}{_SUFFIX}", default)

    def _shifted(self, name: str) -> str:
        return self._add(f"{name}{_SUFFIX}", numpy_helper.to_array(self.constants[name]))

    def _add(self, name: str, values: np.ndarray) -> str:
        if name not in self.constants:
            shifted = (values.astype(np.int16) + 128).astype(np.uint8)
            tensor = helper.make_tensor(name, TensorProto.UINT8, values.shape, shifted.tobytes(), raw=True)
            self.constants[name] = tensor
            self.model.graph.initializer.append(tensor)
        return name


def with_unsigned_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which constant int8 weights that meet uint8 activations are uint8, by 128 more like their
    zero points: it computes the same. What graphs within nodes compute stays as it is."""
    return _Weights(model).run()


def _input(node: onnx.NodeProto, index: int) -> str:
    return node.input[index] if index < len(node.input) else ""
