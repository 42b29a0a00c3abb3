"""What the numbers of an integer tensor mean: scales, zero points, and the nodes that quantise and dequantise."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.channels import channel_axis
from npukit.compiler.ir.tensor import Quantization, Tensor
from npukit.isa.formats import FORMATS
from numpy.typing import NDArray

__all__ = [
    "ONNX_DOMAINS",
    "Dequantized",
    "activation_shape",
    "constant",
    "dequantized",
    "is_quantiser",
    "machine_zero",
    "parameters",
    "parameters_of",
    "quantization_of",
    "static_shape",
    "tensor_of",
    "whole_numbers",
]

ONNX_DOMAINS = ("", "ai.onnx")
"""Names of ONNX's own operator set."""


@dataclass(frozen=True)
class Dequantized:
    """An integer value as real numbers.

    Attributes:
        value: the integers.
        scale, zero_point: arrays of one number, or of one for each index along `axis`.
        axis: of channels.
        name: of these real numbers: of a DequantizeLinear's result, for instance.
    """

    value: ir.Value
    scale: NDArray[np.float32]
    zero_point: NDArray[np.integer]
    axis: int
    name: str


def constant(value: ir.Value | None) -> NDArray | None:
    """The array of an initializer, or None for anything else."""
    if value is None or value.const_value is None or value.producer() is not None:
        return None
    return value.const_value.numpy()


def machine_zero(dtype: ir.DataType | None) -> int:
    """The number of int8 or uint8 that is 0 on the machine."""
    return 128 if dtype == ir.DataType.UINT8 else 0


def whole_numbers(value: ir.Value) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Scale and zero point of what a product of integers reads: numbers that stand for themselves, less that one."""
    zero = machine_zero(value.dtype)
    return np.ones((), np.float32), np.asarray(np.uint8(zero) if zero else np.int8(zero))


def static_shape(value: ir.Value) -> tuple[int, ...]:
    """The shape of a value.

    Raises:
        Refused: when it is not known.
    """
    if value.shape is None or not all(isinstance(dim, int) for dim in value.shape):
        raise Refused(f"the shape of {value.name} is not static")
    shape = tuple(int(dim) for dim in value.shape.numpy())
    if min(shape, default=1) < 1:  # ONNX's shape inference gives a window larger than its input a negative result
        raise Refused(f"{value.name} has no elements: shape {list(shape)}")
    return shape


def _integer(node: ir.Node, name: str, default: int) -> int:
    """An attribute of a quantiser; ONNX checks its type in its own domain, and not in ONNX Runtime's."""
    try:
        return node.attributes.get_int(name, default)
    except TypeError:
        raise Refused(f"the attribute {name} of {node.name} is no integer") from None


def parameters_of(node: ir.Node) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear: see `parameters`.

    Raises:
        Refused: for everything else that ONNX allows, and what it does not.
    """
    quantized = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    found = parameters(node.name or "", quantized, node.inputs[1], zero_point)
    if _integer(node, "block_size", 0):
        raise Refused(f"{node.name} quantises in blocks; per tensor or per channel is supported")
    if _integer(node, "precision", 0) not in (0, ir.DataType.FLOAT):
        raise Refused(f"{node.name} has a precision of its own; float32 is supported")
    return found


def parameters(
    name: str, quantized: ir.Value | None, scales: ir.Value | None, zero_points: ir.Value | None
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Scale and zero point of an integer value: one number each, or one for each channel.

    Args:
        name: whose they are, for messages.
        quantized: the integer value, if it is there.
        scales, zero_points: where they come from; an absent zero point is 0.

    Raises:
        Refused: they are not constant, or not what numbers can be quantised with.
    """
    scale = constant(scales)
    if scale is None:
        raise Refused(f"the scale of {name} is not constant")
    wrong = scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)
    if scale.dtype != np.float32 or wrong.size:
        value = f"{wrong[0]}" if wrong.size else f"{scale.dtype}"
        raise Refused(f"the scale of {name} must be positive float32, not {value}")
    if scale.ndim > 1 or not scale.size:
        raise Refused(f"the scale of {name} has the shape {list(scale.shape)}; one number or a vector is supported")
    dtype = quantized.dtype.numpy() if quantized is not None and quantized.dtype is not None else None
    if zero_points is None:
        return scale, np.zeros(scale.shape, dtype or np.uint8)
    zero_point = constant(zero_points)
    if zero_point is None:
        raise Refused(f"the zero point of {name} is not constant")
    if zero_point.ndim > 1 or zero_point.size != scale.size:
        raise Refused(
            f"the zero point of {name} has the shape {list(zero_point.shape)} and its scale "
            f"{list(scale.shape)}; the same shape is supported"
        )
    if dtype is not None and zero_point.dtype != dtype:
        raise Refused(f"the zero point of {name} is {zero_point.dtype} and its tensor {np.dtype(dtype)}")
    return scale, zero_point


def is_quantiser(node: ir.Node, *ops: str) -> bool:
    """Whether a node is one of `ops`, by default one of both quantisers; also of ONNX Runtime's older domain."""
    return node.op_type in (ops or ("QuantizeLinear", "DequantizeLinear")) and node.domain in (
        *ONNX_DOMAINS,
        "com.microsoft",
    )


def dequantized(value: ir.Value | None) -> Dequantized | None:
    """The DequantizeLinear that makes a value, or None."""
    node = value.producer() if value is not None else None
    if node is None or not is_quantiser(node, "DequantizeLinear") or node.inputs[0] is None:
        return None
    assert value is not None
    scale, zero_point = parameters_of(node)
    return Dequantized(node.inputs[0], scale, zero_point, _integer(node, "axis", 1), value.name or "")


def tensor_of(value: ir.Value, scale: NDArray, zero_point: NDArray) -> Tensor:
    """An activation's description.

    Raises:
        Refused: for parameters per channel, or another type than int8 and uint8.
    """
    if scale.size != 1 or zero_point.size != 1:
        raise Refused(f"{value.name} is quantised per channel; activations must be per tensor")
    if zero_point.dtype not in (np.int8, np.uint8):
        raise Refused(f"{value.name} is {zero_point.dtype}; activations must be int8 or uint8")
    return Tensor(
        value.name or "", activation_shape(value), FORMATS[zero_point.dtype.name], quantization_of(scale, zero_point),
        channel_axis=channel_axis(value),
    )  # fmt: skip


def quantization_of(scale: NDArray, zero_point: NDArray, axis: int | None = None) -> Quantization:
    """Scales and zero points as the IR has them: one of each, or one for each index along `axis`."""
    scales = tuple(float(one) for one in scale.reshape(-1))
    return Quantization(scales, tuple(int(one) for one in zero_point.reshape(-1)), axis)


def activation_shape(value: ir.Value) -> tuple[int, ...]:
    """The shape of an activation.

    Raises:
        Refused: for a number, or a vector, which has no rows.
    """
    shape = static_shape(value)
    if len(shape) < 2:
        raise Refused(f"{value.name} has {len(shape)} dimensions; 2 and more are supported")
    return shape
