"""MatMulInteger and ConvInteger: sums of products that leave the accelerator as they are, int32.

Models that are quantised while they run have them: scales are applied to the sums, in float, by ONNX Runtime.
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.channels import channel_axis
from npukit.compiler.frontends.onnx.operators.base import Context, Match, Produced, match_of, sources_of
from npukit.compiler.frontends.onnx.operators.integer import activation
from npukit.compiler.frontends.onnx.operators.quantisation import (
    Dequantized,
    activation_shape,
    constant,
    machine_zero,
    whole_numbers,
)
from npukit.compiler.frontends.onnx.operators.windows import check_image, plane_of, window_axes
from npukit.compiler.ir.operations import Convolution, FullyConnected
from npukit.compiler.ir.tensor import Constant, Quantization, Tensor
from npukit.isa.formats import FORMATS, INT8, INT32

__all__ = ["match_integer_convolution", "match_integer_product"]


def _input(node: ir.Node, position: int) -> ir.Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _activation(node: ir.Node) -> tuple[ir.Value, Tensor]:
    """What is multiplied. Its zero point is 0 on the machine: what another one adds is computed beside."""
    value = node.inputs[0]
    assert value is not None
    if value.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        raise Refused(f"input {value.name} is {value.dtype}; int8 or uint8 is supported")
    read = Dequantized(value, *whole_numbers(value), 1, f"{value.name} in {node.name}")
    return activation(read, "input")


def _check_zero_point(node: ir.Node) -> None:
    """Refuse another zero point than the machine's, which `zero_points` could not take out."""
    value, given = node.inputs[0], _input(node, 2)
    zero = machine_zero(value.dtype) if value is not None else 0
    found = np.zeros(1, np.int64) if given is None else constant(given)
    if found is None or not (found.astype(np.int64) == zero).all():
        raise Refused(
            f"its zero point is not {zero}, and cannot be taken out of its sums: it is not one number, or shapes or "
            "zero points of its weights are not known"
        )


def _weights(node: ir.Node, dimensions: int, axis: int) -> Constant:
    value = node.inputs[1]
    raw = constant(value)
    assert value is not None
    if raw is None:
        raise Refused(f"weights {value.name} are not a constant")
    if raw.dtype not in (np.int8, np.uint8):
        raise Refused(f"weights {value.name} are {raw.dtype}; int8 or uint8 is supported")
    if raw.ndim != dimensions:
        raise Refused(f"weights {value.name} have {raw.ndim} dimensions; {dimensions} are supported")
    given = _input(node, 3)
    zeros = np.zeros(1, raw.dtype) if given is None else constant(given)
    if zeros is None:
        raise Refused(f"the zero point of {value.name} is not constant")
    if zeros.size not in (1, raw.shape[axis]) or zeros.ndim > 1:
        raise Refused(f"weights {value.name} of shape {list(raw.shape)} have zero points of shape {list(zeros.shape)}")
    points = tuple(int(one) for one in zeros.reshape(-1))
    quantization = Quantization((1.0,) * len(points), points, axis if len(points) > 1 else None)
    name = f"{value.name} as weights of {node.name}"
    return Constant(Tensor(name, raw.shape, FORMATS[raw.dtype.name], quantization), raw)


def _sums(node: ir.Node) -> Produced:
    value = node.outputs[0]
    tensor = Tensor(
        value.name or "", activation_shape(value), INT32, channel_axis=channel_axis(value),
        parts=INT32.bits // INT8.bits,
    )  # fmt: skip
    return Produced((node,), value, tensor)


def match_integer_product(context: Context, node: ir.Node) -> Match:
    """A MatMulInteger of constant weights, the same for all matrices; its result is int32."""
    weights = _weights(node, 2, 1)
    value, x = _activation(node)
    result = _sums(node)
    y, last = result.tensor, len(x.shape) - 1
    inputs, outputs = weights.tensor.shape
    if last < 1:
        raise Refused(f"input {x.name} is a vector; matrices are supported")
    if x.channel_axis != last or y.channel_axis != last:
        raise Refused(f"words of {x.name} hold what lies along its axis {x.channel_axis}, and axis {last} is wanted")
    if y.shape != (*x.shape[:-1], outputs) or inputs != x.shape[-1]:
        raise Refused(f"input {list(x.shape)} and weights {[inputs, outputs]} do not make {list(y.shape)}")
    _check_zero_point(node)
    operation = FullyConnected(
        output=y.name, sources=sources_of(result.nodes), input=x.name, weights=weights.tensor.name
    )
    return match_of(node, result, [value], [x], operation, [weights])


def match_integer_convolution(context: Context, node: ir.Node) -> Match:
    """A ConvInteger over one or two dimensions, of any number of groups; its result is int32."""
    weights = _weights(node, len(node.inputs[0].shape or ()) if node.inputs[0] is not None else 0, 0)
    value, x = _activation(node)
    check_image(x, "ConvInteger")
    outer, inner, *kernel = weights.tensor.shape
    groups = node.attributes.get_int("group", 1)
    if groups < 1 or outer % groups or x.shape[1] != inner * groups:
        raise Refused(
            f"weights of shape {list(weights.tensor.shape)} in {groups} groups do not fit {x.shape[1]} input channels"
        )
    result = _sums(node)
    y = result.tensor
    if list(node.attributes.get_ints("kernel_shape") or kernel) != list(kernel):
        raise Refused(f"its kernel_shape is not that of its weights, {list(weights.tensor.shape)}")
    shape = outer, inner, *(1,) * (2 - len(kernel)), *kernel
    flat = replace(weights.tensor, shape=shape)
    window = plane_of(*window_axes(node, x, y, kernel))
    _check_zero_point(node)
    operation = Convolution(
        output=y.name, sources=sources_of(result.nodes), input=x.name, weights=flat.name, strides=window.strides,
        pads=window.pads, dilations=window.dilations, groups=groups,
    )  # fmt: skip
    return match_of(node, result, [value], [x], operation, [Constant(flat, weights.data.reshape(shape))])
