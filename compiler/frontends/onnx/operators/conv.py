"""Conv and ConvTranspose."""

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
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized, operands_of_node
from npukit.compiler.frontends.onnx.operators.volume import as_columns, as_images, as_volume, flat_kernel
from npukit.compiler.frontends.onnx.operators.weights import constant_bias, constant_weights, name_of
from npukit.compiler.frontends.onnx.operators.windows import (
    Window,
    check_channels,
    check_image,
    plane_of,
    window_attribute,
    window_axes,
    window_pads,
)
from npukit.compiler.ir.operations import Convolution, Depth, TransposedConvolution
from npukit.compiler.ir.tensor import Constant, Tensor

__all__ = ["match_conv", "match_conv_transpose"]


def _kernels(context: Context, operand: Operand, x: Tensor, channel_axis: int) -> Constant:
    """A convolution's weights: those over one dimension have a height of 1."""
    found = constant_weights(context, operand, len(x.shape), channel_axis)
    first, second, *kernel = found.tensor.shape
    shape = first, second, *(1,) * (2 - len(kernel)), *kernel
    if len(kernel) >= 2:
        return found
    name = f"{found.tensor.name} as {'x'.join(map(str, shape))}"  # others may read them as they are
    return Constant(replace(found.tensor, name=name, shape=shape), found.data.reshape(shape))


def match_conv(context: Context, node: ir.Node) -> Match:
    """A Conv over one, two or three dimensions, of any number of groups, but for kernels of three dimensions."""
    operands = operands_of_node(node)
    value, x = source(context, operands[0])
    check_image(x, "Conv", most=3)
    weights = _kernels(context, operands[1], x, 0)
    bias = constant_bias(context, node, operands, weights.tensor.shape[0], 4)
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
    bias = constant_bias(context, node, node.inputs, of_group * groups, 4)
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
        name = name_of(found.value)
        raise Refused(f"bias {name} has another scale than the products of its input and weights")


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
