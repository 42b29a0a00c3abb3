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
    ratio,
    window_pads,
)
from npukit.compiler.tiling import average_window, kernel_problem, window_words

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

    ra, rb = (np.float32(ratio((t.scale,), (y.scale,))) for t in (a, b))
    if max(ra, rb) > 2.0**100:
        raise Refused(f"its scales make the factor {max(ra, rb):g}, beyond 2**100")
    zero = [t.zero_point + (128 if t.unsigned else 0) for t in (a, b, y)]
    # ONNX Runtime's constant: F = zc - fma(ra, za, rb * zb), each step in fp32
    offset = np.float32(zero[2]) - float32_fma(float(ra), zero[0], float(rb * np.float32(zero[1])))

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
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
    rows, columns = pair(node.attributes.get_ints("dilations"), 1)
    dilations = rows if kernel[0] > 1 else 1, columns if kernel[1] > 1 else 1
    pads = window_pads(node, x.view[2:], y.view[2:], kernel, strides, dilations)
    for axis in (0, 1):
        start = (y.view[2 + axis] - 1) * strides[axis] - pads[axis]
        if start >= x.view[2 + axis]:
            raise Refused(
                f"with ceil_mode its last window starts at {start}, outside of the {x.view[2 + axis]} input "
                f"{('rows', 'columns')[axis]}, where ONNX and ONNX Runtime differ"
            )
    if max(pads) > _MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {_MAX_PAD}")
    if dilations[1] > 1023:
        raise Refused(f"dilation {list(dilations)} exceeds 1023")
    window = ((kernel[0] - 1) * dilations[0] + 1) * ((kernel[1] - 1) * dilations[1] + 1)
    if window > window_words(context.config):
        raise Refused(
            f"one window of {window} words exceeds the {window_words(context.config)} words of a tile: "
            "use a configuration with a larger act_depth"
        )

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
    most = average_window(context.config)
    rows, columns = -(-x.view[2] // most), -(-x.view[3] // most)
    windows = rows * columns
    if max(rows, columns) > most:  # the sums of sums lie beside them
        windows += -(-rows // most) * -(-columns // most)
    if windows > context.config.acc_depth:
        raise Refused(
            f"an image of {x.view[2]}x{x.view[3]} makes {windows} partial sums; acc_depth is {context.config.acc_depth}"
        )

    multiplier = np.float32(ratio((x.scale,), (y.scale, size)))

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return GlobalAverageLayer(
            node.name or "", node.op_type, (x.name,), y.name, -x.zero_point * size, multiplier, y.zero_point
        )

    return Match(node, nodes, (value,), out, (x, y), build)


def match_reshape(context: Context, node: ir.Node) -> Match:
    """Flatten, Reshape or Squeeze of NCHW to [batch, everything]: moves nothing."""
    value, x = activation(node.inputs[0], "input")
    nodes, out, y = quantized_output(context, node, ())
    _same_parameters(x, y, node.op_type)
    problem = kernel_problem(context.config, x.view[2:])
    if problem is not None:  # a Gemm behind it is a convolution with the whole image as its kernel
        raise Refused(f"an image of {x.view[2]}x{x.view[3]} is too large to be flattened in place: {problem}")
    if len(y.shape) != 2 or y.shape[0] != x.shape[0]:
        raise Refused(f"shape {list(x.shape)} becomes {list(y.shape)}; [batch, everything else] is supported")
    return Match(node, nodes, (value,), out, (x, replace(y, storage=x.name)), None, alias=True)
