"""ADD, SUB and MUL."""

from dataclasses import replace

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.onnx.operators.binary import over_channels
from npukit.compiler.frontends.tflite.operators.activations import fused_limits
from npukit.compiler.frontends.tflite.operators.base import Node, Operand
from npukit.compiler.ir.operations import Add, Elementwise, Multiply, TensorOperation
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import FLOAT32

__all__ = ["match_add", "match_multiply", "match_subtract"]


def match_add(node: Node) -> Match:
    """ADD of two tensors, of which one may be constant, or repeat."""
    return _match(node, Add)


def match_multiply(node: Node) -> Match:
    """MUL of two tensors, of which one may be constant, or repeat."""
    return _match(node, Multiply)


def match_subtract(node: Node) -> Match:
    """SUB: an addition whose second factor is negative; in floats of the second source times -1, which is exact."""
    return _match(node, Add, subtract=True)


def _match(node: Node, kind: type[Elementwise], *, subtract: bool = False) -> Match:
    result = node.result(fused_limits(node))
    y = result.tensor
    operands = [_aligned(node.operand(position), len(y.shape)) for position in (0, 1)]
    operations: list[TensorOperation] = []
    constants: list[Constant] = []
    inner: list[Tensor] = []
    read: list[str] = []
    for position, one in enumerate(operands):
        tensor = one.tensor
        wide = None if one.value is None else over_channels(node.name, tensor, y, node.sources, node.rounding)
        if wide is not None:
            operations.append(wide.operation)
            constants.append(wide.weights)
            inner.append(tensor := wide.tensor)
        if subtract and node.floats and one.constant is not None and position == 1:
            tensor = replace(tensor, name=f"{tensor.name} negative")
            operands[1] = Operand(tensor, constant=Constant(tensor, np.negative(one.constant.data)))
        elif subtract and node.floats and position == 1:
            minus, product = _negative(node, tensor)
            operations.append(product)
            constants.append(minus)
            inner.append(tensor := replace(y, name=product.output, shape=tensor.shape))
        read.append(tensor.name)
    options = {"subtract": True} if subtract and not node.floats else {}
    operation = kind(
        output=y.name, sources=node.sources, left=read[0], right=read[1], limits=result.limits, rounding=node.rounding,
        **options,
    )  # fmt: skip
    return node.match(result, operands, [*operations, operation], constants, inner)


def _negative(node: Node, x: Tensor) -> tuple[Constant, Multiply]:
    """-1, and its product with a tensor of floats."""
    shape = (1,) * len(x.shape)
    name = f"-1 of {node.name}"
    minus = Constant(Tensor(name, shape, FLOAT32, channel_axis=len(shape) - 1), np.full(shape, -1, np.float32))
    return minus, Multiply(output=f"{x.name} negative in {node.name}", sources=node.sources, left=x.name, right=name)


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
