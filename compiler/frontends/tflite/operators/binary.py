"""ADD, SUB and MUL."""

from dataclasses import replace

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.onnx.operators.binary import over_channels
from npukit.compiler.frontends.tflite.operators.activations import fused_limits
from npukit.compiler.frontends.tflite.operators.base import Node, Operand
from npukit.compiler.ir.operations import Add, Elementwise, Multiply
from npukit.compiler.ir.tensor import Constant

__all__ = ["match_add", "match_multiply", "match_subtract"]


def match_add(node: Node) -> Match:
    """ADD of two tensors, of which one may be constant, or repeat."""
    return _match(node, Add)


def match_multiply(node: Node) -> Match:
    """MUL of two tensors, of which one may be constant, or repeat."""
    return _match(node, Multiply)


def match_subtract(node: Node) -> Match:
    """SUB: an addition whose second factor is negative; in floats with a constant, of which the sign changes."""
    return _match(node, Add, subtract=True)


def _match(node: Node, kind: type[Elementwise], *, subtract: bool = False) -> Match:
    result = node.result(fused_limits(node))
    y = result.tensor
    operands = [_aligned(node.operand(position), len(y.shape)) for position in (0, 1)]
    options = {"subtract": True} if subtract else {}
    if subtract and node.floats:
        second = operands[1]
        if second.constant is None:
            raise Refused("differences of two activations are not supported in bf16")
        negative = Constant(second.tensor, np.negative(second.constant.data))
        operands[1], options = replace(second, constant=negative), {}
    spread = [
        None if one.value is None else over_channels(node.node.name or "", one.tensor, y, node.sources, node.rounding)
        for one in operands
    ]
    left, right = (one.tensor if wide is None else wide.tensor for one, wide in zip(operands, spread, strict=True))
    operation = kind(
        output=y.name, sources=node.sources, left=left.name, right=right.name, limits=result.limits,
        rounding=node.rounding, **options,
    )  # fmt: skip
    before = [one for one in spread if one is not None]
    return node.match(
        result, operands, [*(one.operation for one in before), operation], [one.weights for one in before],
        [one.tensor for one in before],
    )  # fmt: skip


def _aligned(operand: Operand, dimensions: int) -> Operand:
    """An operand of as many dimensions; a constant may have fewer."""
    shape = operand.tensor.shape
    if len(shape) == dimensions:
        return operand
    if operand.constant is None or len(shape) > dimensions:
        raise Refused(f"input {operand.tensor.name} has {len(shape)} dimensions and the result {dimensions}")
    shape = (1,) * (dimensions - len(shape)) + shape
    tensor = replace(operand.tensor, shape=shape, channel_axis=dimensions - 1)
    return Operand(tensor, constant=Constant(tensor, operand.constant.data.reshape(shape)))
