"""Add, pools and reshapes."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npukit.compiler.exact import float32_fma
from npukit.compiler.layers import AddLayer, GlobalAverageLayer, Layer, MaxPoolLayer, QuantizedTensor
from npukit.compiler.operators.base import (
    Context,
    Match,
    Refused,
    activation,
    pair,
    quantized_output,
    window_pads,
)

__all__ = ["match_add", "match_global_average", "match_maxpool", "match_reshape"]

_MAX_PAD = 31


def _same_parameters(x: QuantizedTensor, y: QuantizedTensor, op: str) -> None:
    if (x.scale, x.zero_point, x.unsigned) != (y.scale, y.zero_point, y.unsigned):
        raise Refused(
            f"{op} changes the quantisation: scale {x.scale:g} to {y.scale:g}, zero point {x.zero_point} to "
            f"{y.zero_point}; equal parameters are supported"
        )


def match_add(context: Context, node: ir.Node) -> Match:
    """Add of two activations of one shape."""
    left, a = activation(node.inputs[0], "input")
    right, b = activation(node.inputs[1], "input")
    nodes, out, y = quantized_output(context, node, ("QLinearAdd",))
    if not a.shape == b.shape == y.shape:
        raise Refused(f"shapes {list(a.shape)} and {list(b.shape)} differ; Add without broadcasting is supported")

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        ra = np.float32(a.scale) / np.float32(y.scale)
        rb = np.float32(b.scale) / np.float32(y.scale)
        zero = [t.zero_point + (128 if t.unsigned else 0) for t in (a, b, y)]
        # ONNX Runtime's constant: F = zc - fma(ra, za, rb * zb), each step in fp32
        offset = np.float32(zero[2]) - float32_fma(float(ra), zero[0], float(rb * np.float32(zero[1])))
        return AddLayer(
            node=node.name or "",
            op=node.op_type,
            inputs=(a.name, b.name),
            output=y.name,
            ra=ra,
            rb=rb,
            offset=offset,
            unsigned=(a.unsigned, b.unsigned, y.unsigned),
        )

    return Match(node, nodes, (left, right), out, (a, b, y), build)


def match_maxpool(context: Context, node: ir.Node) -> Match:
    """A two-dimensional MaxPool within `max_window`."""
    value, x = activation(node.inputs[0], "input")
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise Refused("its second output, the indices, is used")
    nodes, out, y = quantized_output(context, node, ())
    _same_parameters(x, y, "MaxPool")
    kernel = pair(node.attributes.get_ints("kernel_shape"), 1)
    if len(x.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; MaxPool needs 4 (NCHW)")
    limit = context.config.max_window
    if max(kernel) > limit:
        raise Refused(f"kernel {kernel[0]}x{kernel[1]} exceeds max_window {limit}")
    strides = pair(node.attributes.get_ints("strides"), 1)
    dilations = pair(node.attributes.get_ints("dilations"), 1)
    pads = window_pads(node, x.view[2:], y.view[2:], kernel, strides, dilations)
    if max(pads) > _MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {_MAX_PAD}")
    window = ((kernel[0] - 1) * dilations[0] + 1) * ((kernel[1] - 1) * dilations[1] + 1)
    if window > context.config.act_depth // 2:
        raise Refused(f"one window of {window} words does not fit in half of act_depth {context.config.act_depth}")

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return MaxPoolLayer(node.name or "", node.op_type, (x.name,), y.name, kernel, strides, pads, dilations)

    return Match(node, nodes, (value,), out, (x, y), build)


def match_global_average(context: Context, node: ir.Node) -> Match:
    """GlobalAveragePool: an integer sum, then one multiplication."""
    value, x = activation(node.inputs[0], "input")
    if len(x.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; GlobalAveragePool needs 4 (NCHW)")
    nodes, out, y = quantized_output(context, node, ("QLinearGlobalAveragePool",))
    size = x.view[2] * x.view[3]
    windows = -(-x.view[2] // context.config.max_window) * -(-x.view[3] // context.config.max_window)
    if windows > context.config.acc_depth:
        raise Refused(
            f"an image of {x.view[2]}x{x.view[3]} makes {windows} partial sums; acc_depth is {context.config.acc_depth}"
        )

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        multiplier = np.float32(x.scale) / (np.float32(y.scale) * np.float32(size))
        return GlobalAverageLayer(
            node.name or "", node.op_type, (x.name,), y.name, -x.zero_point * size, multiplier, y.zero_point
        )

    return Match(node, nodes, (value,), out, (x, y), build)


def match_reshape(context: Context, node: ir.Node) -> Match:
    """Flatten, Reshape or Squeeze of NCHW to [batch, everything]: moves nothing."""
    value, x = activation(node.inputs[0], "input")
    nodes, out, y = quantized_output(context, node, ())
    _same_parameters(x, y, node.op_type)
    if len(y.shape) != 2 or y.shape[0] != x.shape[0]:
        raise Refused(f"shape {list(x.shape)} becomes {list(y.shape)}; [batch, everything else] is supported")
    return Match(node, nodes, (value,), out, (x, replace(y, storage=x.name)), None, alias=True)
