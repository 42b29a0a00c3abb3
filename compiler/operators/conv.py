"""Conv and Gemm: matrix work with weights that are constant."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir
from npukit.compiler.layers import ConvLayer, DepthwiseLayer, Layer, QuantizedTensor
from npukit.compiler.operators.base import (
    MAX_PAD,
    Context,
    Match,
    Produced,
    Refused,
    constant,
    dequantized,
    produced,
    ratio,
    source,
    window_of,
)
from npukit.compiler.tiling import depthwise_blocks, kernel_problem, window_problem
from npukit.sim.bfloat16 import narrow
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


def _weights(
    value: ir.Value | None, dimensions: int, channel_axis: int
) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Weights less their zero point, and the scale per output channel (or one)."""
    found = dequantized(value)
    if found is None or (raw := constant(found.value)) is None:
        name = value.name if value is not None else "(absent)"
        raise Refused(f"weights {name} are not a constant that a DequantizeLinear dequantises")
    if raw.dtype not in (np.int8, np.uint8):
        raise Refused(f"weights {found.value.name} are {raw.dtype}; int8 or uint8 is supported")
    if raw.ndim != dimensions:
        raise Refused(f"weights {found.value.name} have {raw.ndim} dimensions; {dimensions} are supported")
    shape = [1] * raw.ndim
    if found.scale.size > 1:
        if not -raw.ndim <= found.axis < raw.ndim or found.axis % raw.ndim != channel_axis:
            raise Refused(f"weights {found.value.name} have scales along axis {found.axis}, not {channel_axis}")
        if found.scale.size != raw.shape[channel_axis]:
            raise Refused(f"weights {found.value.name} of shape {list(raw.shape)} have {found.scale.size} scales")
        shape[channel_axis] = found.scale.size
    zero = found.zero_point.astype(np.int32).reshape(shape)
    return (raw.astype(np.int32) - zero).astype(np.int16), found.scale.reshape(-1)


def _bias(value: ir.Value | None, channels: int, dimensions: int) -> NDArray[np.int32]:
    if value is None:
        return np.zeros(channels, np.int32)
    found = dequantized(value)
    if found is None or (raw := constant(found.value)) is None or raw.dtype != np.int32:
        raise Refused(f"bias {value.name} is not a constant int32 that a DequantizeLinear dequantises")
    return _for_each(raw, channels, dimensions, _name(found.value))


@dataclass(frozen=True)
class _Weights:
    """Weights of a node, its bias, and what requantisation needs of them for an input and a result."""

    values: NDArray
    bias: NDArray
    scale: NDArray[np.float32] | None

    def transposed(self) -> "_Weights":
        """With outputs first."""
        return replace(self, values=self.values.T)


def _constants(context: Context, node: ir.Node, dimensions: int, channel_axis: int) -> _Weights:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not context.floats:
        values, scale = _weights(node.inputs[1], dimensions, channel_axis)
        return _Weights(values, _bias(bias, values.shape[channel_axis], dimensions), scale)
    raw = constant(node.inputs[1])
    if raw is None or raw.dtype != np.float32:
        raise Refused(f"weights {_name(node.inputs[1])} are not a float32 constant")
    if raw.ndim != dimensions:
        raise Refused(f"weights {_name(node.inputs[1])} have {raw.ndim} dimensions; {dimensions} are supported")
    outputs = raw.shape[channel_axis]
    term = np.zeros(outputs, np.float32) if bias is None else constant(bias)
    if term is None or term.dtype != np.float32:
        raise Refused(f"bias {_name(bias)} is not a float32 constant")
    return _Weights(narrow(raw), _for_each(term, outputs, dimensions, _name(bias)), None)


def _name(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or "(absent)"


def _for_each(raw: NDArray, channels: int, dimensions: int, name: str) -> NDArray:
    """A bias of one number for each output; that of a matrix, whose weights have two dimensions, is broadcast."""
    broadcast = dimensions == 2 and raw.size in (1, channels) and all(dim == 1 for dim in raw.shape[:-1])
    if raw.shape != (channels,) and not broadcast:
        raise Refused(f"bias {name} of shape {list(raw.shape)} is not one number for each of {channels} outputs")
    return np.broadcast_to(raw.reshape(-1), (channels,))


def _channels(
    constants: _Weights, weights: NDArray, x: QuantizedTensor, result: Produced, alpha: float = 1.0
) -> tuple[tuple[NDArray, ...], dict[str, Any]]:
    """What REQUANTIZE reads for each channel, and its descriptor; the input's zero point goes into the bias (wrapping).

    Raises:
        Refused: for scales that make no multiplier.
    """
    values = {"low": result.low, "high": result.high}
    if constants.scale is None:
        return (np.ascontiguousarray(constants.bias),), values
    sums = weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
    folded = (constants.bias.astype(np.int64) - x.zero_point * sums).astype(np.uint32, casting="unsafe").view(np.int32)
    multiplier = ratio((alpha, x.scale, constants.scale), (result.tensor.scale,))
    return (folded, np.broadcast_to(multiplier, folded.shape)), {"zero_point": result.tensor.zero_point, **values}


def match_conv(context: Context, node: ir.Node) -> Match:
    """A two-dimensional Conv of any number of groups."""
    value, x = source(context, node.inputs[0])
    if len(x.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; Conv needs 4 (NCHW)")
    constants = _constants(context, node, 4, 0)
    weights = constants.values
    group = _group(node, x, weights)
    result = produced(context, node, ("QLinearConv",))
    y = result.tensor
    if list(node.attributes.get_ints("kernel_shape") or weights.shape[2:]) != list(weights.shape[2:]):
        raise Refused(f"its kernel_shape is not that of its weights, {list(weights.shape)}")
    window = window_of(node, x, y, weights.shape[2:])
    kernel, strides, dilations, pads = window.kernel, window.strides, window.dilations, window.pads
    if max(pads) > MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {MAX_PAD}")
    if strides[1] > 1023 or dilations[1] * kernel[1] > 32767:
        raise Refused(f"stride {list(strides)} or dilation {list(dilations)} exceeds the address fields")
    channels, values = _channels(constants, weights, x, result)
    depthwise = (
        1 < group == weights.shape[0] == x.shape[1]
        and window_problem(context.config, kernel, strides, dilations) is None
        and depthwise_blocks(context.config, kernel) > 0
        and (context.floats or -128 <= weights.min() <= weights.max() <= 127)
    )
    if not depthwise:
        problem = kernel_problem(context.config, kernel, dilations)
        if problem is not None:
            raise Refused(f"{problem}: use a larger configuration")
        sizes = weights.shape[1], weights.shape[0] // group
        if context.floats and group > 1 and any(size % context.config.array for size in sizes):
            # a product with a zero outside of the group is no zero where the other factor is infinite
            raise Refused(
                f"groups of {sizes[0]} and {sizes[1]} channels share words; multiples of {context.config.array} are "
                "supported in bf16"
            )
    kind = DepthwiseLayer if depthwise else ConvLayer

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return kind(
            node.name or "", node.op_type, (x.name,), y.name, weights, channels, values, strides, pads, dilations,
            x.zero_point, conv_macs(node), group,
        )  # fmt: skip

    return Match(node, result.nodes, (value,), result.value, (x, y), build)


def _group(node: ir.Node, x: QuantizedTensor, weights: NDArray) -> int:
    """The number of a Conv's groups, which divides its channels, and gives each what its weights take."""
    group = node.attributes.get_int("group", 1)
    outer, inner = weights.shape[:2]
    if group < 1 or outer % group or x.shape[1] != inner * group:
        raise Refused(
            f"weights of shape {list(weights.shape)} in {group} groups do not fit {x.shape[1]} input channels"
        )
    return group


def match_gemm(context: Context, node: ir.Node) -> Match:
    """A Gemm with constant weights: a convolution whose kernel is the whole (flattened) image."""
    beta = node.attributes.get_float("beta", 1.0)
    if beta != 1.0 and len(node.inputs) > 2 and node.inputs[2] is not None:
        raise Refused(f"beta is {beta}; 1 is supported")
    if node.attributes.get_int("transA", 0):
        raise Refused("transA is 1; 0 is supported")
    alpha = node.attributes.get_float("alpha", 1.0)
    if context.floats and alpha != 1.0:
        raise Refused(f"alpha is {alpha}; 1 is supported in bf16")
    return _product(context, node, "QGemm", bool(node.attributes.get_int("transB", 0)), alpha)


def match_matmul(context: Context, node: ir.Node) -> Match:
    """A MatMul of a matrix and constant weights."""
    return _product(context, node, "QLinearMatMul", False, 1.0)


def _product(context: Context, node: ir.Node, operator: str, transposed: bool, alpha: float) -> Match:
    value, x = source(context, node.inputs[0])
    if len(x.shape) != 2:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {node.op_type} needs 2")
    constants = _constants(context, node, 2, 0 if transposed else 1)
    if not transposed:
        constants = constants.transposed()
    weights = np.ascontiguousarray(constants.values)
    result = produced(context, node, (operator,))
    y = result.tensor
    if y.shape != (x.shape[0], weights.shape[0]) or weights.shape[1] != x.shape[1]:
        raise Refused(f"input {list(x.shape)} and weights {list(weights.shape[::-1])} do not make {list(y.shape)}")
    channels, values = _channels(constants, weights, x, result, alpha)

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        kernel = weights.reshape(weights.shape[0], *tensors[x.name].view[1:])
        return ConvLayer(
            node.name or "", node.op_type, (x.name,), y.name, kernel, channels, values, (1, 1), (0, 0, 0, 0), (1, 1),
            x.zero_point, gemm_macs(node),
        )  # fmt: skip

    return Match(node, result.nodes, (value,), result.value, (x, y), build)
