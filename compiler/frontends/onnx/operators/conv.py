"""Conv, Gemm and MatMul: products with weights that are constant."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    match_of,
    match_of_several,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized, operands_of_node, operator_of
from npukit.compiler.frontends.onnx.operators.product import (
    is_activation,
    match_gemm_of_activations,
    match_matrix_product,
)
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant, quantization_of
from npukit.compiler.frontends.onnx.operators.volume import as_columns, as_images, as_volume, flat_kernel
from npukit.compiler.frontends.onnx.operators.windows import (
    Window,
    check_channels,
    check_image,
    plane_of,
    window_attribute,
    window_axes,
    window_pads,
)
from npukit.compiler.ir.operations import Convolution, Depth, FullyConnected, TransposedConvolution
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import FLOAT32, FORMATS, INT32
from numpy.typing import NDArray

__all__ = [
    "match_conv",
    "match_conv_transpose",
    "match_gemm",
    "match_matmul",
]


def _weights(context: Context, operand: Operand, dimensions: int, channel_axis: int) -> Constant:
    """A constant as the framework has it, quantised for each output channel or as a whole, or float32."""
    found = None if context.floats else as_dequantized(operand)
    value = operand.value if isinstance(operand, Dequantized) else operand
    raw = constant(value if context.floats else found.value if found is not None else None)
    name = _name(value if found is None else found.value)
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
        return Constant(Tensor(_name(value), raw.shape, FLOAT32), raw)
    axis = None
    if found.scale.size > 1:
        if not -raw.ndim <= found.axis < raw.ndim or found.axis % raw.ndim != channel_axis:
            raise Refused(f"weights {name} have scales along axis {found.axis}, not {channel_axis}")
        if found.scale.size != raw.shape[channel_axis]:
            raise Refused(f"weights {name} of shape {list(raw.shape)} have {found.scale.size} scales")
        axis = channel_axis
    quantization = quantization_of(found.scale, found.zero_point, axis)
    return Constant(Tensor(found.name, raw.shape, FORMATS[raw.dtype.name], quantization), raw)


def _kernels(context: Context, operand: Operand, x: Tensor, channel_axis: int) -> Constant:
    """A convolution's weights: those over one dimension have a height of 1."""
    found = _weights(context, operand, len(x.shape), channel_axis)
    first, second, *kernel = found.tensor.shape
    shape = first, second, *(1,) * (2 - len(kernel)), *kernel
    if len(kernel) >= 2:
        return found
    name = f"{found.tensor.name} as {'x'.join(map(str, shape))}"  # others may read them as they are
    return Constant(replace(found.tensor, name=name, shape=shape), found.data.reshape(shape))


def _bias(
    context: Context, node: ir.Node, operands: Sequence[Operand], channels: int, dimensions: int
) -> Constant | None:
    """One number for each output; that of a matrix, whose weights have two dimensions, is broadcast."""
    operand = operands[2] if len(operands) > 2 else None
    if operand is None:
        return None
    name = _name(operand) if isinstance(operand, ir.Value) else operand.name
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


def _name(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or "(absent)"


def match_conv(context: Context, node: ir.Node) -> Match:
    """A Conv over one, two or three dimensions, of any number of groups, but for kernels of three dimensions."""
    operands = operands_of_node(node)
    value, x = source(context, operands[0])
    check_image(x, "Conv", most=3)
    weights = _kernels(context, operands[1], x, 0)
    bias = _bias(context, node, operands, weights.tensor.shape[0], 4)
    groups = _groups(node, x, weights.tensor)
    result = produced(context, node, ("QLinearConv",))
    y = result.tensor
    kernel = weights.tensor.shape[max(2, 6 - len(x.shape)) :]
    if list(node.attributes.get_ints("kernel_shape") or kernel) != list(kernel):
        raise Refused(f"its kernel_shape is not that of its weights, {list(weights.tensor.shape)}")
    axes = window_axes(node, x, y, kernel)

    def convolution(source: str, name: str, weights: Constant, window: Window, depth: Depth | None) -> Convolution:
        return Convolution(
            output=name, sources=sources_of(result.nodes), input=source, weights=weights.tensor.name,
            bias=None if bias is None else bias.tensor.name, strides=window.strides, pads=window.pads,
            dilations=window.dilations, groups=groups, limits=result.limits, depth=depth,
        )  # fmt: skip

    if len(axes) == 2:
        operation = convolution(x.name, y.name, weights, plane_of(*axes), None)
        return match_of(node, result, [value], [x], operation, [weights] if bias is None else [weights, bias])
    weights, window, depth, columns = flat_kernel(weights, axes, x, y, groups)
    inner, to_inner = (as_columns if columns else as_images)(x, result)
    # of which the result is another view, too
    like, _ = (as_columns if columns else as_images)(y, result)
    made = replace(like, name=f"{y.name} in {'columns' if columns else 'images'}")
    operations = [to_inner, convolution(inner.name, made.name, weights, window, depth), as_volume(made, y, result)]
    constants = [weights] if bias is None else [weights, bias]
    return match_of_several(node, [result], [value], [x], operations, constants, [inner, made])


def match_conv_transpose(context: Context, node: ir.Node) -> Match:
    """A ConvTranspose over one or two dimensions, of any number of groups: a convolution of its input among zeros.

    In int8 only where ONNX Runtime, which computes it in float, does not round: with scales that are powers of two.
    """
    value, x = source(context, node.inputs[0])
    check_image(x, "ConvTranspose")
    weights = _kernels(context, node.inputs[1], x, 1)
    inner, of_group, *kernel = weights.tensor.shape
    groups = node.attributes.get_int("group", 1)
    if groups < 1 or inner % groups or x.shape[1] != inner:
        raise Refused(
            f"weights of shape {list(weights.tensor.shape)} in {groups} groups do not fit {x.shape[1]} input channels"
        )
    bias = _bias(context, node, node.inputs, of_group * groups, 4)
    if bias is not None and not context.floats:
        _check_bias(node, x, weights.tensor, groups)
    result = produced(context, node)
    own = kernel[4 - len(x.shape) :]
    if list(node.attributes.get_ints("kernel_shape") or own) != own:
        raise Refused(f"its kernel_shape is not that of its weights, {list(weights.tensor.shape)}")
    check_channels(result.tensor, "ConvTranspose")
    strides, pads, dilations = _transposed_window(node, x, result.tensor, kernel)
    operation = TransposedConvolution(
        output=result.tensor.name, sources=sources_of(result.nodes), input=x.name, weights=weights.tensor.name,
        bias=None if bias is None else bias.tensor.name, strides=strides, pads=pads, dilations=dilations,
        groups=groups, limits=result.limits,
    )  # fmt: skip
    return match_of(node, result, [value], [x], operation, [weights] if bias is None else [weights, bias])


def _check_bias(node: ir.Node, x: Tensor, weights: Tensor, groups: int) -> None:
    """Refuse a bias in other units than the products': here, ONNX Runtime dequantises it with its own scale."""
    found = as_dequantized(node.inputs[2])
    assert found is not None and weights.quantization is not None
    outputs = weights.shape[1] * groups
    scales = np.float32(x.scale) * np.array(weights.quantization.scale, np.float32)
    products = np.tile(scales, groups) if scales.size > 1 else scales
    given = found.scale.reshape(-1)
    alike = given.size in (1, outputs) and (np.broadcast_to(given, outputs) == np.broadcast_to(products, outputs)).all()
    if not alike or found.zero_point.any():
        raise Refused(f"bias {_name(found.value)} has another scale than the products of its input and weights")


def _transposed_window(
    node: ir.Node, x: Tensor, y: Tensor, kernel: Sequence[int]
) -> tuple[tuple[int, int], tuple[int, int, int, int], tuple[int, int]]:
    """Strides, pads and dilations, whose result has the size that ONNX's shape inference sees."""
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID"):
        raise Refused(f"auto_pad is {mode}; NOTSET and VALID are supported")
    if node.attributes.get_ints("output_shape"):
        raise Refused("it has an output_shape; pads and output_padding are supported")
    axes = len(x.shape) - 2
    strides = window_attribute("strides", node.attributes.get_ints("strides"), axes, 1)
    dilations = window_attribute("dilations", node.attributes.get_ints("dilations"), axes, 1)
    more = window_attribute("output_padding", node.attributes.get_ints("output_padding"), axes, 0, default=0)
    pads = window_pads(node.attributes.get_ints("pads") if mode == "NOTSET" else None, axes)
    for axis in (0, 1):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        size = (x.view[2 + axis] - 1) * strides[axis] + reach + more[axis] - pads[axis] - pads[2 + axis]
        if len(y.shape) != len(x.shape) or size != y.view[2 + axis]:
            raise Refused(
                f"kernel {kernel[0]}x{kernel[1]} with strides {list(strides)}, dilations {list(dilations)}, pads "
                f"{list(pads)} and output_padding {list(more)} does not make {list(y.shape)} of {list(x.shape)}"
            )
    top, left, bottom, right = pads
    return (strides[0], strides[1]), (top, left, bottom, right), (dilations[0], dilations[1])


def _groups(node: ir.Node, x: Tensor, weights: Tensor) -> int:
    """The number of a Conv's groups, which divides its channels, and gives each what its weights take."""
    groups = node.attributes.get_int("group", 1)
    outer, inner = weights.shape[:2]
    if groups < 1 or outer % groups or x.shape[1] != inner * groups:
        raise Refused(
            f"weights of shape {list(weights.shape)} in {groups} groups do not fit {x.shape[1]} input channels"
        )
    return groups


def match_gemm(context: Context, node: ir.Node) -> Match:
    """A Gemm with constant weights, a convolution whose kernel is the whole flattened image, or of two activations."""
    if is_activation(operands_of_node(node)[1]):
        return match_gemm_of_activations(context, node)
    beta = node.attributes.get_float("beta", 1.0)
    if beta != 1.0 and len(node.inputs) > 2 and node.inputs[2] is not None:
        raise Refused(f"beta is {beta}; 1 is supported")
    if node.attributes.get_int("transA", 0):
        raise Refused("transA is 1; 0 is supported")
    alpha = node.attributes.get_float("alpha", 1.0)
    return _product(context, node, "QGemm", bool(node.attributes.get_int("transB", 0)), alpha)


def match_matmul(context: Context, node: ir.Node) -> Match:
    """A MatMul of constant weights, the same for all matrices, or of two activations."""
    if is_activation(operands_of_node(node)[1]):
        return match_matrix_product(context, node)
    return _product(context, node, "QLinearMatMul", False, 1.0)


def _product(context: Context, node: ir.Node, operator: str, transposed: bool, alpha: float) -> Match:
    operands = operands_of_node(node)
    value, x = source(context, operands[0])
    if operator_of(node) == "Gemm" and len(x.shape) != 2:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {node.op_type} needs 2")
    last = len(x.shape) - 1
    if x.channel_axis != last:
        raise Refused(f"words of {x.name} hold what lies along its axis {x.channel_axis}, and axis {last} is wanted")
    weights = _weights(context, operands[1], 2, 0 if transposed else 1)
    inputs, outputs = weights.tensor.shape[::-1] if transposed else weights.tensor.shape
    bias = _bias(context, node, operands, outputs, 2)
    result = produced(context, node, (operator,))
    y = result.tensor
    if y.shape != (*x.shape[:-1], outputs) or inputs != x.shape[-1] or y.channel_axis != last:
        raise Refused(f"input {list(x.shape)} and weights {[inputs, outputs]} do not make {list(y.shape)}")
    operation = FullyConnected(
        output=y.name,
        sources=sources_of(result.nodes),
        input=x.name,
        weights=weights.tensor.name,
        bias=None if bias is None else bias.tensor.name,
        transposed=transposed,
        alpha=alpha,
        limits=result.limits,
    )
    return match_of(node, result, [value], [x], operation, [weights] if bias is None else [weights, bias])
