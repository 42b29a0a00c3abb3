"""TFLite's operators that the machine runs: one matcher each, which takes a node or says why not."""

from collections.abc import Mapping

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Context, Match
from npukit.compiler.frontends.tflite.operators.base import Matcher, Node
from npukit.compiler.frontends.tflite.operators.binary import match_add, match_multiply, match_subtract
from npukit.compiler.frontends.tflite.operators.conv import match_conv, match_depthwise
from npukit.compiler.frontends.tflite.operators.functions import match_function, match_quantize
from npukit.compiler.frontends.tflite.operators.movement import (
    match_concatenation,
    match_pad,
    match_reshape,
    match_transpose,
)
from npukit.compiler.frontends.tflite.operators.pool import match_average_pool, match_max_pool, match_mean
from npukit.compiler.frontends.tflite.operators.product import match_fully_connected
from npukit.compiler.frontends.tflite.operators.softmax import match_softmax
from npukit.compiler.ir.verify import InvalidGraph, verify_graph
from npukit.compiler.legality import check_operation

__all__ = ["TFLITE_MATCHERS", "match_tflite"]

TFLITE_MATCHERS: Mapping[str, Matcher] = {
    "CONV_2D": match_conv,
    "DEPTHWISE_CONV_2D": match_depthwise,
    "FULLY_CONNECTED": match_fully_connected,
    "ADD": match_add,
    "SUB": match_subtract,
    "MUL": match_multiply,
    "AVERAGE_POOL_2D": match_average_pool,
    "MAX_POOL_2D": match_max_pool,
    "MEAN": match_mean,
    "PAD": match_pad,
    "PADV2": match_pad,
    "RESHAPE": match_reshape,
    "SQUEEZE": match_reshape,
    "EXPAND_DIMS": match_reshape,
    "TRANSPOSE": match_transpose,
    "CONCATENATION": match_concatenation,
    "RELU": match_function,
    "RELU6": match_function,
    "LEAKY_RELU": match_function,
    "LOGISTIC": match_function,
    "TANH": match_function,
    "HARD_SWISH": match_function,
    "QUANTIZE": match_quantize,
    "SOFTMAX": match_softmax,
}

_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "CONCATENATION": "ConcatenationOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "SOFTMAX": "SoftmaxOptions",
}
"""Tables of options that decide what an operator computes."""


def match_tflite(context: Context, node: ir.Node) -> Match:
    """The match of a node.

    Raises:
        Refused: why it stays on the host.
    """
    matcher = TFLITE_MATCHERS.get(node.op_type)
    if matcher is None:
        raise Refused(f"operator {node.op_type} is not supported (npukit ops lists those that are)")
    parsed = Node(context, node)
    if len(parsed.operator.outputs) != 1:
        raise Refused(f"it has {len(parsed.operator.outputs)} outputs; one is supported")
    wanted = _OPTIONS.get(node.op_type)
    if wanted is not None and parsed.operator.kind != wanted:
        raise Refused(f"its options are {parsed.operator.kind or 'missing'}, and {wanted} are wanted")
    match = matcher(parsed)
    try:
        verify_graph(match.graph)
    except InvalidGraph as problem:  # of shapes, which files state for every tensor
        raise Refused(f"what the file says of it contradicts itself: {problem}") from None
    for operation in match.graph.operations:
        check_operation(context.config, match.graph, operation)
    return match
