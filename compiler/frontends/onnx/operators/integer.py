"""ONNX Runtime's operators on integers: those that quantise by themselves (QLinearConv), and those that move numbers.

A model in the QOperator form is of these. Each computes what ONNX Runtime makes of the same operator between a
DequantizeLinear and a QuantizeLinear, so that the matchers see both alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.quantisation import (
    ONNX_DOMAINS,
    Dequantized,
    constant,
    dequantized,
    is_quantiser,
    parameters,
    parameters_of,
    quantization_of,
    tensor_of,
    whole_numbers,
)
from npukit.compiler.ir.tensor import Quantization, Tensor
from numpy.typing import NDArray

__all__ = [
    "Operand",
    "activation",
    "as_dequantized",
    "declared_quantization",
    "integer_result",
    "is_integer_operator",
    "operands_of_node",
    "operator_of",
]

Operand = ir.Value | Dequantized | None
"""What a node reads: a value, or integers that stand for real numbers."""


@dataclass(frozen=True)
class _IntegerOperator:
    """Where an operator has what belongs to its operands.

    Attributes:
        op: the operator on real numbers that it is.
        operands: positions of integer operands; behind each come its scale and zero point.
        result: the position of its result's scale, before the zero point.
        bias: the position of a bias of int32, in units of both operands' scales, if it may have one.
        others: from this position on there are more operands, each of three inputs.
    """

    op: str
    operands: tuple[int, ...]
    result: int
    bias: int | None = None
    others: int | None = None


_INTEGER_OPERATORS: Mapping[tuple[str, str], _IntegerOperator] = {
    ("", "QLinearConv"): _IntegerOperator("Conv", (0, 3), 6, bias=8),
    ("", "QLinearMatMul"): _IntegerOperator("MatMul", (0, 3), 6),
    ("com.microsoft", "QGemm"): _IntegerOperator("Gemm", (0, 3), 7, bias=6),
    ("com.microsoft", "QLinearAdd"): _IntegerOperator("Add", (0, 3), 6),
    ("com.microsoft", "QLinearAveragePool"): _IntegerOperator("AveragePool", (0,), 3),
    ("com.microsoft", "QLinearConcat"): _IntegerOperator("Concat", (), 0, others=2),
    ("com.microsoft", "QLinearGlobalAveragePool"): _IntegerOperator("GlobalAveragePool", (0,), 3),
    ("com.microsoft", "QLinearLeakyRelu"): _IntegerOperator("LeakyRelu", (0,), 3),
    ("com.microsoft", "QLinearMul"): _IntegerOperator("Mul", (0, 3), 6),
    ("com.microsoft", "QLinearSigmoid"): _IntegerOperator("Sigmoid", (0,), 3),
    ("com.microsoft", "QLinearSoftmax"): _IntegerOperator("Softmax", (0,), 3),
}
_MOVERS = frozenset(
    "Concat DepthToSpace Flatten MaxPool Pad Reshape Resize Slice SpaceToDepth Split Squeeze Transpose Unsqueeze "
    "Upsample".split()
)
"""Operators that hand numbers on, whatever they mean, so that they may come between integer operators as they are."""

_SUMS = ("ConvInteger", "MatMulInteger")
"""Operators whose result is sums of products of integers."""


def is_integer_operator(node: ir.Node) -> bool:
    """Whether a node quantises its result by itself."""
    return _integer_operator(node) is not None


def operator_of(node: ir.Node) -> str:
    """The operator on real numbers that a node is."""
    found = _integer_operator(node)
    return node.op_type if found is None else found.op


def _integer_operator(node: ir.Node) -> _IntegerOperator | None:
    return _INTEGER_OPERATORS.get(("" if node.domain in ONNX_DOMAINS else node.domain, node.op_type))


def _input(node: ir.Node, position: int) -> ir.Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def operands_of_node(node: ir.Node) -> tuple[Operand, ...]:
    """What a node reads, as the operator on real numbers that it is would.

    Raises:
        Refused: a scale or zero point is none that numbers can be quantised with, or not constant.
    """
    found = _integer_operator(node)
    if found is None:
        if not _moves_integers(node):
            return tuple(node.inputs)
        # numbers that come together are read as the first of them are
        quantization = declared_quantization(_first(node))
        return tuple(_as_it_is(node, value, quantization) for value in node.inputs)
    if node.attributes.get_int("channels_last", 0):
        raise Refused("channels_last is 1: its channels are innermost; NCHW is supported")
    read: list[Operand] = [_read(node, position) for position in _positions(found, node)]
    if found.bias is not None and (bias := _input(node, found.bias)) is not None:
        scale = np.float32(1)
        for position, one in enumerate(read):
            assert isinstance(one, Dequantized)
            if position == 0 and one.scale.size != 1:
                raise Refused(f"{one.value.name} is quantised per channel; activations must be per tensor")
            scale = scale * one.scale.reshape(-1)
        scales = np.asarray(scale, np.float32)
        read.append(Dequantized(bias, scales, np.zeros(scales.shape, np.int32), 0, bias.name or ""))
    return tuple(read)


def _positions(found: _IntegerOperator, node: ir.Node) -> Sequence[int]:
    return found.operands if found.others is None else range(found.others, len(node.inputs), 3)


def _parameters_read(node: ir.Node, position: int) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    value = _input(node, position)
    name = value.name if value is not None else f"input {position} of {node.name}"
    return parameters(f"{name}", value, _input(node, position + 1), _input(node, position + 2))


def _read(node: ir.Node, position: int) -> Dequantized:
    value = _input(node, position)
    if value is None:
        raise Refused(f"its input {position} is absent")
    scale, zero_point = _parameters_read(node, position)
    # scales of weights are for each column, those of a convolution's for each kernel
    rows = node.op_type == "QLinearConv" or node.attributes.get_int("transB", 0)
    # the same integers may come twice, each time with another scale
    return Dequantized(value, scale, zero_point, 0 if rows else 1, f"{value.name} as input {position} of {node.name}")


def integer_result(node: ir.Node, output: int = 0) -> Tensor | None:
    """The description of what an integer operator makes, or of integers that a node hands on; None of any other.

    Raises:
        Refused: as `operands_of_node`.
    """
    found = _integer_operator(node)
    value = node.outputs[output]
    if found is not None:
        scale = _input(node, found.result)
        if scale is None:
            raise Refused(f"its result {value.name} is not quantised: it has no scale")
        return tensor_of(value, *parameters(f"{value.name}", value, scale, _input(node, found.result + 1)))
    if not _moves_integers(node):
        return None
    quantization = declared_quantization(value)
    return tensor_of(value, *_arrays(value, quantization))


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _is_integer(value: ir.Value | None) -> bool:
    return value is not None and value.dtype in (ir.DataType.INT8, ir.DataType.UINT8)


def _moves_integers(node: ir.Node) -> bool:
    return node.op_type in _MOVERS and node.domain in ONNX_DOMAINS and bool(node.inputs) and _is_integer(node.inputs[0])


def _as_it_is(node: ir.Node, value: ir.Value | None, quantization: Quantization) -> Operand:
    """Integers that are handed on."""
    if value is None or not _is_integer(value):
        return value
    return Dequantized(value, *_arrays(value, quantization), 1, f"{value.name} read by {node.name}")


def _arrays(value: ir.Value, quantization: Quantization) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    assert value.dtype is not None
    return np.array(quantization.scale[0], np.float32), np.array(quantization.zero_point[0], value.dtype.numpy())


def as_dequantized(operand: Operand) -> Dequantized | None:
    """What an operand is as integers, or None."""
    return operand if isinstance(operand, Dequantized) else dequantized(operand)


def activation(operand: Operand, role: str) -> tuple[ir.Value, Tensor]:
    """The integer value that a node reads, and its description.

    The description has the integer value's name, or, where this is another reading of its numbers, one of its own.

    Raises:
        Refused: when the operand is not a dequantised activation.
    """
    found = as_dequantized(operand)
    if found is None:
        name = operand.name if isinstance(operand, ir.Value) else "(absent)"
        if isinstance(operand, ir.Value) and operand.dtype not in (None, ir.DataType.FLOAT):
            raise Refused(f"{role} {name} is {operand.dtype}; quantised tensors are int8 or uint8")
        raise Refused(f"{role} {name} is float: it does not come from a DequantizeLinear; quantise the model (QDQ)")
    if constant(found.value) is not None:
        raise Refused(f"{role} {found.value.name} is a constant; it must be an activation")
    tensor = tensor_of(found.value, found.scale, found.zero_point)
    if tensor.quantization != declared_quantization(found.value):
        tensor = replace(tensor, name=found.name)
    return found.value, tensor


def declared_quantization(value: ir.Value) -> Quantization:
    """The quantisation of an integer value: that of who makes it, or else of who reads it first, through nodes that
    hand numbers on; where nobody says what the numbers mean, they stand for themselves.

    Only quantisers with one scale count.
    """
    maker = value.producer()
    while maker is not None and _moves_integers(maker):
        value = _first(maker)
        maker = value.producer()
    for declare in chain(_made(value), _read_by(value)):
        try:
            scale, zero_point = declare()
        except Refused:  # that quantiser stays
            continue
        if scale.size == 1:
            return quantization_of(scale, zero_point)
    return Quantization((1.0,), (0,))


_Declaration = Callable[[], tuple[NDArray[np.float32], NDArray[np.integer]]]
"""Gives a scale and a zero point, or raises Refused."""


def _made(value: ir.Value) -> Iterator[_Declaration]:
    """What the node that makes a value says of it."""
    maker = value.producer()
    if maker is None:
        return
    found = _integer_operator(maker)
    if found is not None:
        yield partial(parameters, f"{value.name}", value, _input(maker, found.result), _input(maker, found.result + 1))
    elif is_quantiser(maker, "QuantizeLinear"):
        yield partial(parameters_of, maker)


def _read_by(value: ir.Value) -> Iterator[_Declaration]:
    """What the nodes say of a value that read it, or read what hands its numbers on."""
    pending, seen = [value], {value}
    while pending:
        for use in pending.pop().uses():
            found = _integer_operator(use.node)
            if found is not None and use.idx in _positions(found, use.node):
                yield partial(_parameters_read, use.node, use.idx)
            elif use.node.op_type in _SUMS and use.idx == 0:
                yield partial(whole_numbers, value)
            elif is_quantiser(use.node, "DequantizeLinear") and use.idx == 0:
                yield partial(parameters_of, use.node)
            elif _moves_integers(use.node):
                pending += [one for one in use.node.outputs if one not in seen]
                seen.update(use.node.outputs)
