"""Multiply-accumulates of TFLite's operators, whether or not the machine can run them."""

from collections.abc import Callable, Mapping
from math import prod

import onnx_ir as ir
from npukit.compiler.frontends.tflite.model import TfliteOperator, TfliteTensor
from npukit.compiler.frontends.tflite.reader import read_model
from npukit.driver.tflite_host import ATTRIBUTE

__all__ = ["tflite_macs"]


def tflite_macs(node: ir.Node) -> int:
    """Multiply-accumulates of a node: of convolutions and products; anything else counts as 0."""
    count = _COUNTS.get(node.op_type)
    if count is None:
        return 0
    model = read_model(node.attributes[ATTRIBUTE].as_tensor().numpy().tobytes())
    operator = model.operators[0]
    try:
        return count(operator, [model.tensors[index] for index in (*operator.inputs, operator.outputs[0])])
    except IndexError:  # it lacks inputs, or they lack dimensions
        return 0


_Count = Callable[[TfliteOperator, list[TfliteTensor]], int]
"""Of an operator, its inputs and its output."""


def _convolution(_operator: TfliteOperator, tensors: list[TfliteTensor]) -> int:
    return prod(tensors[-1].shape) * prod(tensors[1].shape[1:])


def _depthwise(_operator: TfliteOperator, tensors: list[TfliteTensor]) -> int:
    return prod(tensors[-1].shape) * prod(tensors[1].shape[1:3])


def _product(_operator: TfliteOperator, tensors: list[TfliteTensor]) -> int:
    return prod(tensors[-1].shape) * tensors[1].shape[-1]


def _transposed_convolution(_operator: TfliteOperator, tensors: list[TfliteTensor]) -> int:
    """Each element of the input, its third operand, meets the kernel."""
    return prod(tensors[2].shape) * prod(tensors[1].shape[:3])


def _batched_product(operator: TfliteOperator, tensors: list[TfliteTensor]) -> int:
    across = 2 if operator.options.get("AdjX") else 1
    return prod(tensors[-1].shape) * tensors[0].shape[-across]


_COUNTS: Mapping[str, _Count] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _product,
    "TRANSPOSE_CONV": _transposed_convolution,
    "BATCH_MATMUL": _batched_product,
}
