"""The operators that the machine runs: one matcher each, which takes a node or says why not."""

from collections.abc import Callable

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.channels import NORMALIZING
from npukit.compiler.frontends.onnx.functions import ADDED, DYNAMIC
from npukit.compiler.frontends.onnx.operators.attention import match_attention
from npukit.compiler.frontends.onnx.operators.base import Context, Match, used_values
from npukit.compiler.frontends.onnx.operators.binary import match_add, match_limits, match_mul
from npukit.compiler.frontends.onnx.operators.conv import match_conv, match_conv_transpose
from npukit.compiler.frontends.onnx.operators.dynamic import match_integer_convolution, match_integer_product
from npukit.compiler.frontends.onnx.operators.integer import is_integer_operator, operator_of
from npukit.compiler.frontends.onnx.operators.lines import match_lines
from npukit.compiler.frontends.onnx.operators.macs import macs_of
from npukit.compiler.frontends.onnx.operators.movement import (
    match_concat,
    match_pad,
    match_slice,
    match_split,
)
from npukit.compiler.frontends.onnx.operators.normalization import match_decomposed, match_normalization
from npukit.compiler.frontends.onnx.operators.pool import match_average, match_global_average, match_maxpool
from npukit.compiler.frontends.onnx.operators.product import match_gemm, match_matmul
from npukit.compiler.frontends.onnx.operators.rearrange import REARRANGING, match_rearrange
from npukit.compiler.frontends.onnx.operators.reduce import match_maximum, match_mean
from npukit.compiler.frontends.onnx.operators.resize import match_resize
from npukit.compiler.frontends.onnx.operators.softmax import match_softmax
from npukit.compiler.frontends.onnx.operators.unary import SeveralTensors, is_function, match_unary
from npukit.compiler.ir.operations import Reshape
from npukit.compiler.legality import check_operation

__all__ = ["MATCHERS", "Context", "Match", "Refused", "macs_of", "match_node", "used_values"]

MATCHERS: dict[str, Callable[[Context, ir.Node], Match]] = {
    "Conv": match_conv,
    "ConvTranspose": match_conv_transpose,
    "Gemm": match_gemm,
    "MatMul": match_matmul,
    "MatMulInteger": match_integer_product,
    "ConvInteger": match_integer_convolution,
    "Add": match_add,
    "Mul": match_mul,
    "MaxPool": match_maxpool,
    "AveragePool": match_average,
    "GlobalAveragePool": match_global_average,
    **dict.fromkeys(("GlobalMaxPool", "ReduceMax"), match_maximum),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), match_mean),
    "Concat": match_concat,
    "Pad": match_pad,
    "Slice": match_slice,
    "Split": match_split,
    "Softmax": match_softmax,
    "Attention": match_attention,
    **dict.fromkeys(NORMALIZING, match_normalization),
    "Resize": match_resize,
    "Upsample": match_resize,
    **dict.fromkeys(REARRANGING, match_rearrange),
}

_WITHOUT_SCALES = (
    "it is quantised while it runs, with scales that are not known before: of such models, MatMulInteger and "
    "ConvInteger run; npukit quantize of the float model gives all of it constant scales"
)
_BY_DATA = frozenset("Gather GatherElements GatherND ScatterElements ScatterND".split())
_ADDRESSES = "it looks elements up by numbers that are data, and the machine's addresses stand in its instructions"
_FLOAT_NAMES = ", ".join(sorted({*MATCHERS, "Clip", "Relu"} - DYNAMIC))


def match_node(context: Context, node: ir.Node) -> Match:
    """The match of a node that the configuration can run, by its own matcher or as the end of a chain for a table.

    Raises:
        Refused: why it stays in ONNX Runtime.
    """
    matcher = MATCHERS.get(operator_of(node))
    if ADDED in node.meta:
        raise Refused(f"it takes the zero point of {node.meta[ADDED]} out of its sums, in int32")
    if context.floats and (is_integer_operator(node) or node.op_type in DYNAMIC):
        raise Refused("the configuration computes bf16; quantised tensors are for int8")
    if context.floats:
        if node in context.normalizations:
            return _legal(context, match_decomposed(context, node))
        if node in context.lines:
            return _legal(context, match_lines(context, node))
        if matcher is None and node.op_type in ("Relu", "Clip"):
            matcher = match_limits
        if matcher is None:
            raise Refused(f"operator {node.op_type} is not supported in bf16; supported are {_FLOAT_NAMES}")
        return _legal(context, matcher(context, node))
    if matcher is None:
        if node.op_type in DYNAMIC:
            raise Refused(_WITHOUT_SCALES)
        if node.op_type in _BY_DATA:
            raise Refused(f"operator {node.op_type} is not supported: {_ADDRESSES}")
        if not is_function(node):
            raise Refused(f"operator {node.op_type} is not supported (npukit ops lists those that are)")
        return _legal(context, match_unary(context, node))
    try:
        return _legal(context, matcher(context, node))
    except Refused as reason:
        if not is_function(node):
            raise
        try:
            return _legal(context, match_unary(context, node))
        except SeveralTensors:
            raise reason from None
        except Refused as other:
            if str(other) == str(reason):
                raise reason from None
            raise Refused(f"{reason}; and as a table: {other}") from None


def _legal(context: Context, match: Match) -> Match:
    others = match.graph.outputs[1:]
    for operation in match.graph.operations:
        # another shape of what it makes, or reads, that nothing else reads
        if not (isinstance(operation, Reshape) and operation.output in others):
            check_operation(context.config, match.graph, operation)
    return match
