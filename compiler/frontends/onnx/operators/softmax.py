"""Softmax."""

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Context, Match, match_of, produced, source, sources_of
from npukit.compiler.frontends.onnx.operators.integer import operands_of_node
from npukit.compiler.ir.operations import Softmax

__all__ = ["match_softmax"]

_ONE_DIMENSION = 13
"""The opset from which on a softmax goes along one dimension, and not along all from that one on."""


def match_softmax(context: Context, node: ir.Node) -> Match:
    """A softmax along the dimension whose elements lie in a word, of int8, uint8 or bf16."""
    value, x = source(context, operands_of_node(node)[0])
    result = produced(context, node, ("QLinearSoftmax",), clamp=False)
    opset = node.attributes.get_int("opset", context.opsets.get("", 0))
    one = opset >= _ONE_DIMENSION
    axis = node.attributes.get_int("axis", -1 if one else 1) % len(x.shape)
    if not one and axis != len(x.shape) - 1:
        raise Refused(
            f"in opset {opset} it goes along all dimensions of {list(x.shape)} from {axis} on; one is supported"
        )
    for tensor in (x, result.tensor):
        if axis != tensor.channel_axis:
            raise Refused(
                f"words of {tensor.name} hold what lies along its axis {tensor.channel_axis}, and its softmax goes "
                f"along {axis}"
            )
    operation = Softmax(output=result.tensor.name, sources=sources_of(result.nodes), input=x.name)
    return match_of(node, result, [value], [x], operation)
