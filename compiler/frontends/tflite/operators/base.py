"""What matchers of TFLite's operators have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Context, Match, Produced, match_of_several
from npukit.compiler.frontends.tflite.model import TfliteOperator, TfliteQuantization, TfliteTensor
from npukit.compiler.frontends.tflite.reader import read_model
from npukit.compiler.ir.operations import Limits, Rounding, SourceNode, TensorOperation
from npukit.compiler.ir.tensor import Constant, Quantization, Tensor
from npukit.driver.tflite_host import ATTRIBUTE
from npukit.isa.formats import BFLOAT16, FLOAT32, INT8, INT32, NumberFormat
from numpy.typing import NDArray

__all__ = ["Node", "Operand", "bias_of", "constant_of", "quantized", "same_quantization"]

_PARSED: WeakKeyDictionary[ir.Node, tuple[TfliteOperator, tuple[TfliteTensor, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Operand:
    """An activation and the value that holds it, or a constant."""

    tensor: Tensor
    value: ir.Value | None = None
    constant: Constant | None = None


class Node:
    """An operator of a TFLite model, and how the machine sees what it reads and makes.

    Channels lie along the last dimension of every tensor, as TFLite has them.

    Attributes:
        node: of the graph.
        context: of the matcher.
        operator: as the file has it.
    """

    def __init__(self, context: Context, node: ir.Node) -> None:
        self.context, self.node = context, node
        if node not in _PARSED:
            model = read_model(node.attributes[ATTRIBUTE].as_tensor().numpy().tobytes())
            _PARSED[node] = model.operators[0], model.tensors
        self.operator, self._tensors = _PARSED[node]

    def raw(self, position: int) -> TfliteTensor | None:
        """An input as the file has it; None where it is left out."""
        inputs = self.operator.inputs
        index = inputs[position] if position < len(inputs) else -1
        return None if index == -1 else self._tensors[index]

    def present(self, position: int) -> TfliteTensor:
        """The same. Raises Refused where it is left out."""
        found = self.raw(position)
        if found is None:
            raise Refused(f"its input {position} is left out")
        return found

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.name or ""

    @property
    def made(self) -> TfliteTensor:
        """The first output as the file has it."""
        return self._tensors[self.operator.outputs[0]]

    def option(self, name: str, default: int = 0) -> int:
        """An option that is a whole number."""
        found = self.operator.options.get(name, default)
        return int(found) if isinstance(found, int | float) else default

    @property
    def floats(self) -> bool:
        """Whether the machine computes it in bfloat16."""
        return self.context.floats

    @property
    def rounding(self) -> Rounding:
        """Whose arithmetic decides."""
        return Rounding.ONNXRUNTIME if self.floats else Rounding.TFLITE

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The provenance of its operations."""
        return (SourceNode(self.name, self.node.op_type),)

    def described(self, tensor: TfliteTensor, wanted: NumberFormat = INT8) -> Tensor:
        """An activation as the machine sees it; `wanted`: of quantised numbers.

        Raises:
            Refused: of another type than the configuration's, or with more than one scale.
        """
        axis = len(tensor.shape) - 1
        if axis < 1 and tensor.data is None:
            raise Refused(f"{tensor.name} has the shape {list(tensor.shape)}; two dimensions and more are supported")
        if axis < 0:
            raise Refused(f"{tensor.name} has no dimension")
        if self.floats:
            if tensor.type != "FLOAT32":
                raise Refused(f"{tensor.name} is {tensor.type}; the configuration computes bf16, of FLOAT32 tensors")
            return Tensor(tensor.name, tensor.shape, BFLOAT16, channel_axis=axis)
        if tensor.type != wanted.name.upper():
            advice = ": use a bf16 configuration" if tensor.type == "FLOAT32" else ""
            raise Refused(f"{tensor.name} is {tensor.type}; {wanted.name.upper()} is supported{advice}")
        return Tensor(tensor.name, tensor.shape, wanted, _quantization(tensor), channel_axis=axis)

    def activation(self, position: int) -> tuple[ir.Value, Tensor]:
        """An input that is computed.

        Raises:
            Refused: a constant, or what the machine cannot read.
        """
        tensor = self.present(position)
        if tensor.data is not None:
            raise Refused(f"input {tensor.name} is a constant; it must be an activation")
        return self._value(tensor), self.described(tensor)

    def operand(self, position: int) -> Operand:
        """An input that is computed, or a constant in the format of one."""
        tensor = self.present(position)
        found = self.described(tensor)
        if tensor.data is None:
            return Operand(found, self._value(tensor))
        if self.floats:
            found = Tensor(tensor.name, tensor.shape, FLOAT32, channel_axis=found.channel_axis)
        return Operand(found, constant=Constant(found, tensor.data))

    def _value(self, tensor: TfliteTensor) -> ir.Value:
        return next(value for value in self.node.inputs if value is not None and value.name == tensor.name)

    def result(self, limits: Limits = None) -> Produced:
        """What it makes. Raises Refused for what the machine cannot make."""
        return Produced((self.node,), self.node.outputs[0], self.described(self.made), limits)

    def integers(self, position: int) -> tuple[int, ...]:
        """A constant input of whole numbers. Raises Refused for another."""
        tensor = self.present(position)
        if tensor.data is None or tensor.type != "INT32":
            raise Refused(f"input {tensor.name} is {tensor.type}; a constant of INT32 is supported")
        return tuple(int(one) for one in tensor.data.reshape(-1))

    def match(
        self, result: Produced, operands: Sequence[Operand], operations: Sequence[TensorOperation],
        constants: Sequence[Constant | None] = (), inner: Sequence[Tensor] = (),
    ) -> Match:  # fmt: skip
        """The match of it: operations that read operands and constants, with `inner` tensors between them."""
        values = [one.value for one in operands if one.value is not None]
        tensors = [one.tensor for one in operands if one.value is not None]
        there = [one for one in (*(one.constant for one in operands), *constants) if one is not None]
        made = {id(one.tensor): one.tensor.name for one in there}
        made |= {id(one): one.name for one in (*inner, result.tensor)}
        names = [*made.values(), *{one.name for one in tensors}]
        if len(set(names)) < len(names):
            raise Refused(f"several of its tensors and constants have one name among {sorted(names)}")
        return match_of_several(self.node, [result], values, tensors, operations, there, inner)


Matcher = Callable[[Node], Match]


def _quantization(tensor: TfliteTensor) -> Quantization:
    if tensor.quantization is None:
        raise Refused(f"{tensor.name} is {tensor.type} and has no scale")
    if len(tensor.quantization.scale) != 1:
        raise Refused(f"{tensor.name} has {len(tensor.quantization.scale)} scales; one is supported")
    (zero_point,) = tensor.quantization.zero_point
    stored = np.iinfo(np.uint8 if tensor.type == "UINT8" else np.int8)
    if not stored.min <= zero_point <= stored.max:
        raise Refused(f"{tensor.name} is {tensor.type} and has the zero point {zero_point}")
    return Quantization(tensor.quantization.scale, tensor.quantization.zero_point)


def same_quantization(x: Tensor, y: Tensor) -> None:
    """Refuse an operator that would have to scale what it hands on."""
    if x.quantization != y.quantization:
        raise Refused(
            f"{x.name} and {y.name} have different scales or zero points, which TensorFlow Lite does not scale"
        )


def constant_of(node: Node, position: int, what: str) -> TfliteTensor:
    """A constant input. Raises Refused for one that is computed."""
    tensor = node.present(position)
    if tensor.data is None:
        raise Refused(f"{what} {tensor.name} are no constant")
    wanted = "FLOAT32" if node.floats else "INT8"
    if tensor.type != wanted:
        raise Refused(f"{what} {tensor.name} are {tensor.type}; {wanted} is supported")
    return tensor


def quantized(node: Node, tensor: TfliteTensor, values: NDArray, axis: int) -> Constant:
    """Weights as the IR has them, of whose axis 0 each output has a scale, or all the same; in the file, `axis` has."""
    if node.floats:
        return Constant(Tensor(tensor.name, values.shape, FLOAT32), np.ascontiguousarray(values))
    found: TfliteQuantization | None = tensor.quantization
    if found is None:
        raise Refused(f"weights {tensor.name} have no scale")
    if len(found.scale) == 1:
        quantization = Quantization(found.scale, found.zero_point)
    elif found.axis != axis or len(found.scale) != values.shape[0]:
        raise Refused(f"weights {tensor.name} have scales along axis {found.axis}, and axis {axis} is wanted")
    else:
        quantization = Quantization(found.scale, found.zero_point, 0)
    if any(found.zero_point):
        raise Refused(f"weights {tensor.name} have zero points; symmetric ones are supported")
    return Constant(Tensor(tensor.name, values.shape, INT8, quantization), np.ascontiguousarray(values))


def bias_of(node: Node, position: int, outputs: int) -> Constant | None:
    """What is added to each output. Raises Refused for what the machine does not add."""
    tensor = node.raw(position)
    if tensor is None:
        return None
    wanted = "FLOAT32" if node.floats else "INT32"
    if tensor.data is None or tensor.type != wanted or tensor.data.size != outputs:
        raise Refused(f"bias {tensor.name} is not a constant {wanted} for each of {outputs} outputs")
    found = FLOAT32 if node.floats else INT32
    return Constant(Tensor(tensor.name, (outputs,), found), np.ascontiguousarray(tensor.data.reshape(-1)))
