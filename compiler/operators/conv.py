"""Conv and Gemm: matrix work with weights that are constant."""

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx_ir as ir
from npukit.compiler.layers import ConvLayer, DepthwiseLayer, Layer, QuantizedTensor
from npukit.compiler.operators.base import (
    MAX_PAD,
    Context,
    Match,
    Refused,
    activation,
    constant,
    dequantized,
    pair,
    quantized_output,
    ratio,
    window_pads,
)
from npukit.compiler.tiling import depthwise_blocks, kernel_problem, window_problem
from numpy.typing import NDArray

__all__ = ["conv_macs", "gemm_macs", "match_conv", "match_gemm", "match_matmul"]


def conv_macs(node: ir.Node) -> int:
    """Multiplications of a Conv, padding not counted apart."""
    out, weights = node.outputs[0].shape, node.inputs[1]
    if out is None or weights is None or weights.shape is None:
        return 0
    return prod(int(dim) for dim in out.numpy()) * prod(int(dim) for dim in weights.shape.numpy()[1:])


def gemm_macs(node: ir.Node) -> int:
    """Multiplications of a Gemm or MatMul."""
    out, a = node.outputs[0].shape, node.inputs[0]
    if out is None or a is None or a.shape is None:
        return 0
    inner = a.shape.numpy()[0 if node.attributes.get_int("transA", 0) else -1]
    return prod(int(dim) for dim in out.numpy()) * int(inner)


def _weights(value: ir.Value | None, channel_axis: int) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Weights less their zero point, and the scale per output channel (or one)."""
    found = dequantized(value)
    if found is None or (raw := constant(found.value)) is None:
        name = value.name if value is not None else "(absent)"
        raise Refused(f"weights {name} are not a constant that a DequantizeLinear dequantises")
    if raw.dtype not in (np.int8, np.uint8):
        raise Refused(f"weights {found.value.name} are {raw.dtype}; int8 or uint8 is supported")
    if found.scale.size > 1 and found.axis % raw.ndim != channel_axis:
        raise Refused(f"weights {found.value.name} have scales along axis {found.axis}, not {channel_axis}")
    shape = [1] * raw.ndim
    shape[channel_axis] = -1
    zero = found.zero_point.astype(np.int32).reshape(shape if found.zero_point.size > 1 else [1] * raw.ndim)
    return (raw.astype(np.int32) - zero).astype(np.int16), found.scale.reshape(-1)


def _bias(value: ir.Value | None, channels: int) -> NDArray[np.int32]:
    if value is None:
        return np.zeros(channels, np.int32)
    found = dequantized(value)
    if found is None or (raw := constant(found.value)) is None or raw.dtype != np.int32:
        raise Refused(f"bias {value.name} is not a constant int32 that a DequantizeLinear dequantises")
    if raw.size not in (1, channels) or any(dim != 1 for dim in raw.shape[:-1]):
        raise Refused(
            f"bias {found.value.name} of shape {list(raw.shape)} is not one number for each of {channels} outputs"
        )
    return np.broadcast_to(raw.reshape(-1), (channels,)).astype(np.int32)


def _layer(
    node: ir.Node, x: QuantizedTensor, y: QuantizedTensor, weights: NDArray[np.int16], multiplier: NDArray[np.float32],
    bias: NDArray[np.int32], strides: tuple[int, int], pads: tuple[int, int, int, int],
    dilations: tuple[int, int], macs: int, group: int = 1, kind: type[ConvLayer] = ConvLayer,
) -> ConvLayer:  # fmt: skip
    """Fold the input's zero point into the bias (wrapping)."""
    sums = weights.astype(np.int64).sum(axis=(1, 2, 3))
    folded = (bias.astype(np.int64) - x.zero_point * sums).astype(np.uint32, casting="unsafe").view(np.int32)
    return kind(
        node=node.name or "",
        op=node.op_type,
        inputs=(x.name,),
        output=y.name,
        weights=weights,
        bias=folded,
        multiplier=np.broadcast_to(multiplier, bias.shape),
        strides=strides,
        pads=pads,
        dilations=dilations,
        pad_value=x.zero_point,
        zero_point=y.zero_point,
        macs=macs,
        group=group,
    )


def match_conv(context: Context, node: ir.Node) -> Match:
    """A two-dimensional Conv of any number of groups."""
    value, x = activation(node.inputs[0], "input")
    if len(x.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; Conv needs 4 (NCHW)")
    group = node.attributes.get_int("group", 1)
    weights, scale = _weights(node.inputs[1], 0)
    bias = _bias(node.inputs[2] if len(node.inputs) > 2 else None, weights.shape[0])
    nodes, out, y = quantized_output(context, node, ("QLinearConv",))
    kernel = weights.shape[2], weights.shape[3]
    strides = pair(node.attributes.get_ints("strides"), 1)
    dilations = pair(node.attributes.get_ints("dilations"), 1)
    pads = window_pads(node, x.view[2:], y.view[2:], kernel, strides, dilations)
    given = node.attributes.get_ints("pads") or (0, 0, 0, 0)
    if node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET" and (pads[2] > given[2] or pads[3] > given[3]):
        raise Refused(f"kernel {kernel[0]}x{kernel[1]} with its dilation exceeds the padded input")
    if max(pads) > MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {MAX_PAD}")
    if strides[1] > 1023 or dilations[1] * kernel[1] > 32767:
        raise Refused(f"stride {list(strides)} or dilation {list(dilations)} exceeds the address fields")
    multiplier = ratio((x.scale, scale), (y.scale,))
    macs = conv_macs(node)
    depthwise = (
        1 < group == weights.shape[0] == x.shape[1]
        and window_problem(context.config, kernel, strides, dilations) is None
        and depthwise_blocks(context.config, kernel) > 0
        and -128 <= weights.min() <= weights.max() <= 127
    )
    if not depthwise:
        problem = kernel_problem(context.config, kernel, dilations)
        if problem is not None:
            raise Refused(f"{problem}: use a larger configuration")
    kind = DepthwiseLayer if depthwise else ConvLayer

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return _layer(node, x, y, weights, multiplier, bias, strides, pads, dilations, macs, group, kind)

    return Match(node, nodes, (value,), out, (x, y), build)


def match_gemm(context: Context, node: ir.Node) -> Match:
    """A Gemm with constant weights: a convolution whose kernel is the whole (flattened) image."""
    beta = node.attributes.get_float("beta", 1.0)
    if beta != 1.0 and len(node.inputs) > 2 and node.inputs[2] is not None:
        raise Refused(f"beta is {beta}; 1 is supported")
    if node.attributes.get_int("transA", 0):
        raise Refused("transA is 1; 0 is supported")
    transposed = bool(node.attributes.get_int("transB", 0))
    alpha = node.attributes.get_float("alpha", 1.0)
    return _product(context, node, "QGemm", transposed, node.inputs[2] if len(node.inputs) > 2 else None, alpha)


def match_matmul(context: Context, node: ir.Node) -> Match:
    """A MatMul of a matrix and constant weights."""
    return _product(context, node, "QLinearMatMul", False, None, 1.0)


def _product(
    context: Context, node: ir.Node, operator: str, transposed: bool, bias_value: ir.Value | None, alpha: float
) -> Match:
    value, x = activation(node.inputs[0], "input")
    if len(x.shape) != 2:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {node.op_type} needs 2")
    weights, scale = _weights(node.inputs[1], 0 if transposed else 1)
    if weights.ndim != 2:
        raise Refused(f"weights have {weights.ndim} dimensions; 2 are supported")
    if not transposed:
        weights = weights.T
    bias = _bias(bias_value, weights.shape[0])
    nodes, out, y = quantized_output(context, node, (operator,))
    multiplier = ratio((alpha, x.scale, scale), (y.scale,))
    macs = gemm_macs(node)

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        kernel = np.ascontiguousarray(weights).reshape(weights.shape[0], *tensors[x.name].view[1:])
        return _layer(node, x, y, kernel, multiplier, bias, (1, 1), (0, 0, 0, 0), (1, 1), macs)

    return Match(node, nodes, (value,), out, (x, y), build)
