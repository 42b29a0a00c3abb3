"""Add and Mul of two tensors, of which one may be constant, or be repeated along some dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    Produced,
    float_tensor,
    limits_of,
    match_of,
    match_of_several,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized, operands_of_node
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant, quantization_of
from npukit.compiler.ir.operations import Add, Clamp, Convolution, Elementwise, Multiply, Rounding, SourceNode
from npukit.compiler.ir.tensor import Constant, Quantization, Tensor
from npukit.isa.formats import FLOAT32, FORMATS, INT8

__all__ = ["Given", "Spread", "given", "match_add", "match_limits", "match_mul", "over_channels"]


@dataclass(frozen=True)
class Given:
    """An activation and the value that holds it, or a constant."""

    tensor: Tensor
    value: ir.Value | None = None
    constant: Constant | None = None


def match_add(context: Context, node: ir.Node) -> Match:
    """Add of two tensors, one of which may be constant, or repeat along any dimension."""
    return _match(context, node, Add, "QLinearAdd")


def match_mul(context: Context, node: ir.Node) -> Match:
    """Mul of two tensors, one of which may be constant, or repeat along any dimension."""
    return _match(context, node, Multiply, "QLinearMul")


def match_limits(context: Context, node: ir.Node) -> Match:
    """Relu or Clip by itself, in bf16: a product with 1, limited."""
    value, x = source(context, operands_of_node(node)[0])
    limits = limits_of(node)
    if limits is None:
        raise Refused("its limits are not constant")
    result = Produced((node,), node.outputs[0], float_tensor(node.outputs[0]))
    operation = Clamp(output=result.tensor.name, sources=sources_of(result.nodes), input=x.name, limits=limits)
    return match_of(node, result, [value], [x], operation)


def _match(context: Context, node: ir.Node, kind: type[Elementwise], operator: str) -> Match:
    result = produced(context, node, (operator,))
    y = result.tensor
    operands = [given(context, operand, y) for operand in operands_of_node(node)[:2]]
    # where the first operand is one number along the innermost dimension, ONNX Runtime swaps the two
    innermost = max((axis for axis in range(len(y.shape)) if y.shape[axis] > 1), default=len(y.shape) - 1)
    if _aligned(operands[0].tensor.shape, len(y.shape))[innermost] < y.shape[innermost]:
        operands.reverse()
    spread = [
        None if one.value is None else over_channels(node.name or "", one.tensor, y, sources_of(result.nodes))
        for one in operands
    ]
    left, right = (operand.tensor if one is None else one.tensor for operand, one in zip(operands, spread, strict=True))
    operation = kind(
        output=y.name, sources=sources_of(result.nodes), left=left.name, right=right.name,
        limits=result.limits,
    )  # fmt: skip
    values = [one.value for one in operands if one.value is not None]
    tensors = [one.tensor for one in operands if one.value is not None]
    constants = [one.constant for one in operands if one.constant is not None]
    before = [one for one in spread if one is not None]
    constants += [one.weights for one in before]
    operations = [*(one.operation for one in before), operation]
    return match_of_several(node, [result], values, tensors, operations, constants, [one.tensor for one in before])


@dataclass(frozen=True)
class Spread:
    """What brings a tensor of one channel to all channels of a result."""

    tensor: Tensor
    weights: Constant
    operation: Convolution


def over_channels(
    node: str, x: Tensor, y: Tensor, sources: tuple[SourceNode, ...], rounding: Rounding = Rounding.ONNXRUNTIME
) -> Spread | None:
    """A convolution whose weights are 1, where an activation repeats along a result's channels, or None; its results
    are the same numbers."""
    channels = y.view[1]
    if x.channel_axis != y.channel_axis or x.view[1] != 1 or channels == 1:
        return None
    sizes = tuple(channels if axis == x.channel_axis else size for axis, size in enumerate(x.shape))
    made = replace(x, name=f"{x.name} over channels of {node}", shape=sizes)
    shape = channels, 1, 1, 1
    name = f"ones of {x.name} in {node}"
    if x.format.floating:
        weights = Constant(Tensor(name, shape, FLOAT32), np.ones(shape, np.float32))
    else:
        weights = Constant(Tensor(name, shape, INT8, Quantization((1.0,), (0,))), np.ones(shape, np.int8))
    operation = Convolution(
        output=made.name, sources=sources, input=x.name, weights=name, strides=(1, 1), pads=(0, 0, 0, 0),
        counted=False, rounding=rounding,
    )  # fmt: skip
    return Spread(made, weights, operation)


def _aligned(shape: Sequence[int], dimensions: int) -> tuple[int, ...]:
    """A shape with the dimensions that it lacks, of 1, before its own."""
    return (1,) * (dimensions - len(shape)) + tuple(shape)


def given(context: Context, operand: Operand, y: Tensor) -> Given:
    """What a node reads for a result: an activation of as many dimensions, or a constant.

    Raises:
        Refused: when the machine cannot read it.
    """
    found = None if context.floats else as_dequantized(operand)
    value = operand.value if isinstance(operand, Dequantized) else operand
    raw = constant(value if context.floats else found.value if found is not None else None)
    if raw is None:
        read, tensor = source(context, operand)
        if len(tensor.shape) != len(y.shape):
            raise Refused(f"input {tensor.name} has {len(tensor.shape)} dimensions and the result {len(y.shape)}")
        return Given(tensor, read)
    assert value is not None
    name = value.name if found is None else found.value.name
    if found is not None and found.scale.size != 1:
        raise Refused(f"constant {name} is quantised per channel; per tensor is supported")
    if raw.dtype not in ((np.float32,) if context.floats else (np.int8, np.uint8)):
        raise Refused(
            f"constant {name} is {raw.dtype}; {'float32' if context.floats else 'int8 or uint8'} is supported"
        )
    if raw.ndim > len(y.shape) or not raw.size:
        raise Refused(f"constant {name} has the shape {list(raw.shape)} and the result {list(y.shape)}")
    if found is None:
        tensor = Tensor(value.name or "", raw.shape, FLOAT32)
    else:
        quantization = quantization_of(found.scale, found.zero_point)
        tensor = Tensor(found.name, raw.shape, FORMATS[raw.dtype.name], quantization)
    return Given(tensor, constant=Constant(tensor, raw))
