"""Weights and biases that are constant."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Context
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant, quantization_of
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import FLOAT32, FORMATS, INT32
from numpy.typing import NDArray

__all__ = ["constant_bias", "constant_weights", "name_of"]


def constant_weights(context: Context, operand: Operand, dimensions: int, channel_axis: int) -> Constant:
    """A constant as the framework has it, quantised for each output channel or as a whole, or float32."""
    found = None if context.floats else as_dequantized(operand)
    value = operand.value if isinstance(operand, Dequantized) else operand
    raw = constant(value if context.floats else found.value if found is not None else None)
    name = name_of(value if found is None else found.value)
    if raw is None and not context.floats:
        raise Refused(f"weights {name} are not a constant that a DequantizeLinear dequantises")
    if context.floats and (raw is None or raw.dtype != np.float32):
        raise Refused(f"weights {name} are not a float32 constant")
    assert raw is not None
    if found is not None and raw.dtype not in (np.int8, np.uint8):
        raise Refused(f"weights {name} are {raw.dtype}; int8 or uint8 is supported")
    if raw.ndim != dimensions:
        raise Refused(f"weights {name} have {raw.ndim} dimensions; {dimensions} are supported")
    if found is None:
        return Constant(Tensor(name_of(value), raw.shape, FLOAT32), raw)
    axis = None
    if found.scale.size > 1:
        if not -raw.ndim <= found.axis < raw.ndim or found.axis % raw.ndim != channel_axis:
            raise Refused(f"weights {name} have scales along axis {found.axis}, not {channel_axis}")
        if found.scale.size != raw.shape[channel_axis]:
            raise Refused(f"weights {name} of shape {list(raw.shape)} have {found.scale.size} scales")
        axis = channel_axis
    quantization = quantization_of(found.scale, found.zero_point, axis)
    return Constant(Tensor(found.name, raw.shape, FORMATS[raw.dtype.name], quantization), raw)


def constant_bias(
    context: Context, node: ir.Node, operands: Sequence[Operand], channels: int, dimensions: int
) -> Constant | None:
    """One number for each output; that of a matrix, whose weights have two dimensions, is broadcast."""
    operand = operands[2] if len(operands) > 2 else None
    if operand is None:
        return None
    name = name_of(operand) if isinstance(operand, ir.Value) else operand.name
    if context.floats:
        raw = constant(operand) if isinstance(operand, ir.Value) else None
        if raw is None or raw.dtype != np.float32:
            raise Refused(f"bias {name} is not a float32 constant")
    else:
        found = as_dequantized(operand)
        if found is None or (raw := constant(found.value)) is None or raw.dtype != np.int32:
            raise Refused(f"bias {name} is not a constant int32 that a DequantizeLinear dequantises")
    broadcast = dimensions == 2 and raw.size in (1, channels) and all(dim == 1 for dim in raw.shape[:-1])
    if raw.shape != (channels,) and not broadcast:
        raise Refused(f"bias {name} of shape {list(raw.shape)} is not one number for each of {channels} outputs")
    whole: NDArray = np.ascontiguousarray(np.broadcast_to(raw.reshape(-1), (channels,)))
    own = name if raw.shape == whole.shape else f"{name} of {node.name}"
    return Constant(Tensor(own, (channels,), FLOAT32 if context.floats else INT32), whole)


def name_of(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or "(absent)"
