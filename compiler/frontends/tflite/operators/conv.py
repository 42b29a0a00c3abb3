"""CONV_2D and DEPTHWISE_CONV_2D."""

from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.tflite.operators.activations import fused_limits
from npukit.compiler.frontends.tflite.operators.base import Node, Operand, bias_of, constant_of, quantized
from npukit.compiler.frontends.tflite.operators.windows import windows_of
from npukit.compiler.ir.operations import Convolution
from npukit.compiler.ir.tensor import Constant

__all__ = ["match_conv", "match_depthwise"]


def match_conv(node: Node) -> Match:
    """CONV_2D, in groups where its weights have fewer channels than its input."""
    tensor = constant_of(node, 1, "weights")
    assert tensor.data is not None
    if len(tensor.shape) != 4:
        raise Refused(f"weights {tensor.name} have {len(tensor.shape)} dimensions; 4 are supported")
    _, x = node.activation(0)
    inner = tensor.shape[3]
    if x.shape[-1] % inner or tensor.shape[0] % (x.shape[-1] // inner):
        raise Refused(f"weights of shape {list(tensor.shape)} do not fit {x.shape[-1]} input channels")
    return _match(node, quantized(node, tensor, tensor.data.transpose(0, 3, 1, 2), 0), x.shape[-1] // inner)


def match_depthwise(node: Node) -> Match:
    """DEPTHWISE_CONV_2D, whose channels may each make several."""
    tensor = constant_of(node, 1, "weights")
    assert tensor.data is not None
    _, x = node.activation(0)
    if len(tensor.shape) != 4 or tensor.shape[0] != 1 or tensor.shape[3] % x.shape[-1]:
        raise Refused(f"weights of shape {list(tensor.shape)} do not fit {x.shape[-1]} input channels")
    times = node.option("DepthMultiplier")
    if times * x.shape[-1] != tensor.shape[3]:
        raise Refused(f"its depth multiplier is {times}, for {x.shape[-1]} channels and {tensor.shape[3]} results")
    return _match(node, quantized(node, tensor, tensor.data.transpose(3, 0, 1, 2), 3), x.shape[-1])


def _match(node: Node, weights: Constant, groups: int) -> Match:
    """weights: [outputs, inputs of a group, height, width]."""
    value, x = node.activation(0)
    outputs, _, *kernel = weights.tensor.shape
    result = node.result(fused_limits(node))
    y = result.tensor
    if y.shape[-1] != outputs:
        raise Refused(f"weights for {outputs} channels do not make {list(y.shape)}")
    windows = windows_of(node, x, y, (kernel[0], kernel[1]))
    bias = bias_of(node, 2, outputs)
    operation = Convolution(
        output=y.name, sources=node.sources, input=x.name, weights=weights.tensor.name,
        bias=None if bias is None else bias.tensor.name, strides=windows.strides, pads=windows.pads,
        dilations=windows.dilations, groups=groups, limits=result.limits, rounding=node.rounding,
    )  # fmt: skip
    return node.match(result, [Operand(x, value)], [operation], [weights, bias])
