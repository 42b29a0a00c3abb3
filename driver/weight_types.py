"""Weights in the type of their activations, as ONNX Runtime's kernels need them on x86-64 without VNNI.

There they multiply uint8 by int8, either way round, two products at a time and saturate the sum of both at 16 bits.
Products of uint8 by uint8 and of int8 by int8 are exact. ONNX Runtime's own option, `session.x64quantprecision`, turns
weights to uint8 as well, but of operators of opsets below 21 alone, and of those on int8 activations, too, for which it
then has no kernel.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

__all__ = ["has_signed_activations", "with_alike_weights"]

_ON_INTEGERS = {
    "QLinearConv": (2, 3, 5), "QLinearMatMul": (2, 3, 5), "QGemm": (2, 3, 5), "ConvInteger": (2, 1, 3),
    "MatMulInteger": (2, 1, 3),
}  # fmt: skip
"""Of operators on integers, the inputs that are the activation's zero point, the weights, and their zero point."""
_ON_FLOATS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators that ONNX Runtime computes in integers between DequantizeLinear and QuantizeLinear."""
_MOVES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that may stand between weights and what they are for."""
_OTHER: dict[int, npt.DTypeLike] = {TensorProto.UINT8: np.int8, TensorProto.INT8: np.uint8}
"""By an activation's type, that of weights that are changed."""
_DOMAINS = ("", "ai.onnx", "com.microsoft")
_SUFFIX = "_npukit_alike"


class _Weights:
    """The weights of a model's copy that change their type."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        replaceable = {value.name for value in graph.input} if model.ir_version >= 4 else set()
        self.constants = {
            one.name: one for one in graph.initializer
            if one.name not in replaceable and one.data_location != TensorProto.EXTERNAL
        }  # fmt: skip
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants.update((node.output[0], one.t) for one in node.attribute if one.name == "value")
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.kinds = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        self.taken = {*self.makers, *self.kinds, *(one.name for one in graph.initializer)}
        self.changed: dict[str, str] = {}
        """Names of changed forms by those of what they are made of."""

    def run(self) -> onnx.ModelProto:
        nodes: list[onnx.NodeProto] = []
        for node in self.model.graph.node:
            if node.domain in _DOMAINS and len(node.input) >= 2:
                if node.op_type in _ON_INTEGERS:
                    self._on_integers(node)
                elif node.op_type in _ON_FLOATS:
                    self._on_floats(node, nodes)
            nodes.append(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        return self.model

    def _on_integers(self, node: onnx.NodeProto) -> None:
        activation, weights, zero = _ON_INTEGERS[node.op_type]
        kind = self._type(node.input[0], _input(node, activation))
        if kind not in _OTHER:
            return
        shifted = self._shifted(_input(node, weights), _OTHER[kind])
        shifted_zero = self._shifted_zero(_input(node, zero), np.zeros((), _OTHER[kind]))
        if shifted and shifted_zero:
            node.input.extend([""] * (zero + 1 - len(node.input)))
            node.input[weights], node.input[zero] = shifted, shifted_zero

    def _on_floats(self, node: onnx.NodeProto, nodes: list[onnx.NodeProto]) -> None:
        """`nodes` take what makes the weights."""
        left = self.makers.get(node.input[0])
        if left is not None and left.op_type == "DequantizeLinear":
            if self._type(left.input[0], _input(left, 2)) == TensorProto.UINT8:
                node.input[1] = self._dequantised(node.input[1], nodes) or node.input[1]

    def _dequantised(self, name: str, nodes: list[onnx.NodeProto]) -> str | None:
        """The same numbers from weights of uint8; None where they do not come from int8 constants."""
        if name in self.changed:
            return self.changed[name]
        maker = self.makers.get(name)
        if maker is None:
            return None
        inputs: list[str | None] = list(maker.input)
        if maker.op_type == "DequantizeLinear":
            scale = self._constant(maker.input[1])
            if scale is None:
                return None
            inputs[0] = self._shifted(maker.input[0], np.int8)
            inputs[2:] = [self._shifted_zero(_input(maker, 2), np.zeros(scale.shape, np.int8))]
        elif maker.op_type in _MOVES:
            inputs[0] = self._dequantised(maker.input[0], nodes)
        else:
            return None
        if None in inputs:
            return None
        made = onnx.NodeProto()
        made.CopyFrom(maker)
        made.name = ""
        made.output[0] = self.changed[name] = self._free(name)
        del made.input[:]
        made.input.extend(one or "" for one in inputs)
        nodes.append(made)
        return made.output[0]

    def _type(self, tensor: str, zero: str) -> int:
        """Of an activation in integers."""
        known = self._constant(zero) if zero else None
        if known is not None:
            return helper.np_dtype_to_tensor_dtype(known.dtype)
        for name in (zero, tensor):
            maker = self.makers.get(name)
            seen: set[str] = set()
            while maker is not None and maker.op_type in _MOVES and name not in seen:
                seen.add(name)  # a damaged model may go round in a circle
                name, maker = maker.input[0], self.makers.get(maker.input[0])
            if maker is None:
                if name in self.kinds:
                    return self.kinds[name]
            elif maker.op_type == "DynamicQuantizeLinear":
                return TensorProto.UINT8
            elif maker.op_type == "QuantizeLinear":
                wanted = [one.i for one in maker.attribute if one.name == "output_dtype" and one.i]
                return self._type("", _input(maker, 2)) if _input(maker, 2) else (wanted or [TensorProto.UINT8])[0]
        return TensorProto.UNDEFINED

    def _constant(self, name: str) -> np.ndarray | None:
        """A tensor's value, where it is known before anything runs."""
        if name in self.constants:
            return numpy_helper.to_array(self.constants[name])
        maker = self.makers.get(name)
        if maker is None or maker.op_type not in (*_MOVES, "QuantizeLinear") or maker.domain not in _DOMAINS[:2]:
            return None
        inputs = {one: self._constant(one) for one in maker.input if one}
        if any(value is None for value in inputs.values()):
            return None
        (value,) = ReferenceEvaluator(maker).run(None, inputs)
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return np.asarray(value)

    def _shifted_zero(self, name: str, default: np.ndarray) -> str | None:
        """The zero point of changed weights; None: it is none that is known."""
        return self._shifted(name, default.dtype) if name else self._add(f"zero of {default.shape}", default)

    def _shifted(self, name: str, dtype: npt.DTypeLike) -> str | None:
        """A constant of that type in the other one, 128 more or less; None where it is none."""
        value = self._constant(name) if name else None
        return None if value is None or value.dtype != dtype else self._add(name, value)

    def _add(self, name: str, values: np.ndarray) -> str:
        key = f"{name} as {values.dtype}"
        if key not in self.changed:
            self.changed[key] = self._free(name)
            other = np.uint8 if values.dtype == np.int8 else np.int8
            shifted = np.asarray(values.view(np.uint8) ^ np.uint8(0x80)).view(other)
            self.model.graph.initializer.append(numpy_helper.from_array(shifted, self.changed[key]))
        return self.changed[key]

    def _free(self, name: str) -> str:
        """A name that nothing has."""
        found = f"{name}{_SUFFIX}"
        while found in self.taken:
            found += "_"
        self.taken.add(found)
        return found


def with_alike_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which constant int8 weights that meet uint8 activations are uint8, by 128 more like their
    zero points, and those of operators on integers the other way, too: it computes the same. What graphs within nodes
    compute stays as it is, and so does a model whose nodes or constants are damaged."""
    try:
        return _Weights(model).run()
    except Exception:  # whatever onnx raises of damaged tensors; ONNX Runtime says what is wrong with the model
        return model


def has_signed_activations(model: onnx.ModelProto) -> bool:
    """Whether any node of a model quantises activations to int8, as far as its constants say it."""
    constants = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    nodes = [*_nodes(model.graph.node), *(node for function in model.functions for node in _nodes(function.node))]
    for node in nodes:
        if node.op_type == "Constant" and node.output:
            constants.update((node.output[0], one.t.data_type) for one in node.attribute if one.name == "value")
        for attribute in node.attribute:
            constants.update((tensor.name, tensor.data_type) for tensor in attribute.g.initializer)
    zeros = [_input(node, 2) for node in nodes if node.op_type == "QuantizeLinear" or node.op_type in _ON_INTEGERS]
    wanted = [one.i for node in nodes for one in node.attribute if one.name == "output_dtype"]
    return TensorProto.INT8 in (*wanted, *(constants.get(name, TensorProto.INT8 if name else 0) for name in zeros))


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """They, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _input(node: onnx.NodeProto, index: int) -> str:
    return node.input[index] if index < len(node.input) else ""
