"""What lies between a model's inputs and outputs and its program: the conversions that firmware does itself."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npukit.firmware.errors import FirmwareError
from npukit.isa.program import Program, TensorInfo

__all__ = ["Boundary", "Port", "Quantisation", "boundary_of"]

_COPIES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that leave a tensor's elements in their order."""
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_SHOWN = 5
"""Nodes that a message names."""


@dataclass(frozen=True)
class Quantisation:
    """One scale and zero point for a whole tensor."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: the model's.
        dtype: of its elements in the model, `float32`, `int8`, `uint8` or `int32`.
        shape: the model's.
        tensor: what the program reads or writes of it.
        quantisation: what lies between the two, if something does: the model's elements are then float32, and the
            program's integers.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    tensor: TensorInfo
    quantisation: Quantisation | None = None


@dataclass(frozen=True)
class Boundary:
    """A model of one program, with its inputs and outputs in the model's order.

    An input of the model may be several of the program, quantised in several ways; it is then here several times.
    """

    program: Program
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def boundary_of(model: onnx.ModelProto, programs: Mapping[str, Program]) -> Boundary:
    """Follow the values between a compiled model's edge and its program.

    Args:
        model: compiled, with EPContext nodes.
        programs: by the names of these nodes.

    Raises:
        FirmwareError: when something stays between them that is no QuantizeLinear or DequantizeLinear of one scale, or
            there is not exactly one program.
    """
    graph = _Graph(model)
    _refuse_nodes(model, programs)
    (program,) = programs.values()
    tensors = {tensor.name: tensor for tensor in program.tensors}
    inputs = [graph.input_port(tensor) for tensor in program.tensors if tensor.role == "input"]
    order = [value.name for value in model.graph.input]
    inputs.sort(key=lambda port: order.index(port.name))
    outputs = [graph.output_port(value, tensors) for value in model.graph.output]
    if not inputs:
        raise FirmwareError("the model has no inputs, so its outputs are constants: there is nothing to run")
    return Boundary(program, tuple(inputs), tuple(outputs))


def _refuse_nodes(model: onnx.ModelProto, programs: Mapping[str, Program]) -> None:
    """Refuse what no firmware here can do, before single values are followed."""
    staying = [node for node in model.graph.node if node.op_type != "EPContext" and not _is_simple(node)]
    if not programs:
        raise FirmwareError(
            f"nothing of the model runs on the accelerator, so there is no program for firmware: {_names(staying)}; "
            "npukit check says why of each node"
        )
    if staying:
        raise FirmwareError(
            f"{len(staying)} node(s) stay on the host, which firmware does not have: {_names(staying)}; npukit check "
            "says why of each: change these nodes, or compile the part of the model without them"
        )
    if len(programs) != 1:
        raise FirmwareError(
            f"the model has {len(programs)} parts on the accelerator ({', '.join(programs)}), with nodes between them "
            "that stay on the host; firmware runs models of one part: npukit check says why the nodes stay"
        )


def _is_simple(node: onnx.NodeProto) -> bool:
    known = _COPIES | _CONVERSIONS | {"Constant"}
    return node.domain in ("", "ai.onnx") and node.op_type in known


def _names(nodes: list[onnx.NodeProto]) -> str:
    shown = ", ".join(f"{node.op_type} {node.name or node.output[0]}" for node in nodes[:_SHOWN])
    return shown + (f", and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else "")


@dataclass(frozen=True)
class _Conversion:
    """A quantiser or its inverse; `dtype` is the zero point's."""

    op: str
    quantisation: Quantisation
    dtype: str


class _Graph:
    """Values of a compiled model by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._inputs = {value.name: value for value in model.graph.input}
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._made: dict[str, onnx.NodeProto] = {}
        for node in model.graph.node:
            self._made |= dict.fromkeys(node.output, node)
            if node.op_type == "Constant":
                value = next((one.t for one in node.attribute if one.name == "value"), None)
                if value is not None:
                    self._constants[node.output[0]] = numpy_helper.to_array(value)

    def input_port(self, tensor: TensorInfo) -> Port:
        """From an input of the program back to one of the model."""
        name, conversions = self._walk(tensor.name, self._inputs.keys())
        if name not in self._inputs or [one.op for one in conversions] not in ([], ["QuantizeLinear"]):
            raise FirmwareError(
                f"the program's input {tensor.name} is made by {self._what(name, conversions)}, {_WAY_OUT}"
            )
        if name in self._constants:
            raise FirmwareError(
                f"input {name} has a default value, which firmware does not keep: take its initializer out of the model"
            )
        return self._port(self._inputs[name], tensor, conversions)

    def output_port(self, value: onnx.ValueInfoProto, tensors: Mapping[str, TensorInfo]) -> Port:
        """From an output of the model back to one of the program."""
        made = [tensor.name for tensor in tensors.values() if tensor.role == "output"]
        name, conversions = self._walk(value.name, made)
        if name not in made or [one.op for one in conversions] not in ([], ["DequantizeLinear"]):
            raise FirmwareError(f"output {value.name} is made by {self._what(name, conversions)}, {_WAY_OUT}")
        return self._port(value, tensors[name], conversions)

    def _walk(self, name: str, ends: Collection[str]) -> tuple[str, list["_Conversion"]]:
        """Back from a value to one of `ends`, or to what no firmware can follow, and the conversions on the way, the
        first one first."""
        conversions: list[_Conversion] = []
        while name not in ends:
            node = self._made.get(name)
            if node is None or node.op_type not in _COPIES | _CONVERSIONS:
                break
            if node.op_type in _CONVERSIONS:
                one = _Conversion(node.op_type, *self._quantisation(node))
                after = conversions[0] if conversions else None
                if after is not None and one.op == "DequantizeLinear" and after == replace(one, op="QuantizeLinear"):
                    del conversions[0]  # quantised again as it was: nothing changes
                else:
                    conversions.insert(0, one)
            name = node.input[0]
        return name, conversions

    def _port(self, value: onnx.ValueInfoProto, tensor: TensorInfo, conversions: Sequence["_Conversion"]) -> Port:
        quantisation = conversions[0].quantisation if conversions else None
        expected = tensor.dtype if quantisation is None else "float32"
        kind = value.type.tensor_type
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        if dtype != expected:
            raise FirmwareError(f"{value.name} is {dtype}; firmware has {expected} there: change the model's type")
        if prod(shape) != prod(tensor.shape):  # a shape that is left open counts as 0
            shape = tensor.shape
        return Port(value.name, dtype, shape, tensor, quantisation)

    def _quantisation(self, node: onnx.NodeProto) -> tuple[Quantisation, str]:
        """Of a node whose scale and zero point are single constants, and the zero point's type.

        Raises:
            FirmwareError: other ones.
        """
        scale = self._single(node, 1)
        zero_point = self._single(node, 2) if len(node.input) > 2 and node.input[2] else np.zeros(1, np.uint8)
        if scale.dtype != np.float32 or not np.isfinite(scale[0]) or scale[0] <= 0:
            raise FirmwareError(f"{node.op_type} {node.name} has the scale {scale[0]} of type {scale.dtype}: {_SCALE}")
        return Quantisation(float(scale[0]), int(zero_point[0])), zero_point.dtype.name

    def _single(self, node: onnx.NodeProto, position: int) -> NDArray:
        value = self._constants.get(node.input[position])
        if value is None or value.size != 1:
            found = "is not constant" if value is None else f"has {value.size} elements"
            raise FirmwareError(f"{node.op_type} {node.name}: {node.input[position]} {found}: {_SCALE}")
        return value.reshape(-1)

    def _what(self, name: str, conversions: Sequence["_Conversion"]) -> str:
        if len(conversions) > 1:
            return ", ".join(one.op for one in conversions)
        if name in self._made:
            return f"{self._made[name].op_type} {self._made[name].name or name}"
        return f"the input {name} itself" if name in self._inputs else f"the constant {name}"


_SCALE = "firmware converts with one positive float32 scale for a tensor: quantise the model's edge by tensor"
_WAY_OUT = (
    "which firmware does not do: it has one QuantizeLinear before the program and one DequantizeLinear behind it; "
    "change the model's edge"
)
