"""MatMul and Gemm of two activations."""

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
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import MatrixProduct, Rearrange

__all__ = ["is_activation", "match_gemm_of_activations", "match_matrix_product"]


def is_activation(operand: Operand) -> bool:
    """Whether a product's second operand is no constant."""
    found = as_dequantized(operand)
    value = found.value if found is not None else operand.value if isinstance(operand, Dequantized) else operand
    return value is not None and constant(value) is None


def match_matrix_product(context: Context, node: ir.Node) -> Match:
    """A MatMul of two activations, of any number of matrices, which repeat as ONNX's do."""
    return _matched(context, node, "QLinearMatMul", turned=False)


def match_gemm_of_activations(context: Context, node: ir.Node) -> Match:
    """A Gemm of two activations, the second of which may be transposed, without a third."""
    operands = operands_of_node(node)
    alpha = node.attributes.get_float("alpha", 1.0)
    if len(operands) > 2 and operands[2] is not None:
        raise Refused("it adds something to a product of two activations")
    if node.attributes.get_int("transA", 0):
        raise Refused("transA is 1; 0 is supported")
    if alpha != 1.0:
        raise Refused(f"alpha is {alpha}; 1 is supported where both inputs are activations")
    return _matched(context, node, "QGemm", turned=bool(node.attributes.get_int("transB", 0)))


def _matched(context: Context, node: ir.Node, operator: str, turned: bool) -> Match:
    """turned: whether rows of the second matrix are columns of the product."""
    operands = operands_of_node(node)
    (left, a), (right, given) = (source(context, one, f"input {position}") for position, one in enumerate(operands[:2]))
    result = produced(context, node, (operator,))
    y, b = result.tensor, given
    if turned and len(given.shape) == 2:
        name = free_name(f"{given.name} turned", {a.name, given.name, y.name})
        b = replace(given, name=name, shape=given.shape[::-1], channel_axis=1 - given.channel_axis)
    if min(len(a.shape), len(b.shape)) < 2:
        raise Refused(f"inputs {list(a.shape)} and {list(b.shape)}: a vector is no matrix of the accelerator's")
    if a.shape[-1] != b.shape[-2] or y.shape[-2:] != (a.shape[-2], b.shape[-1]):
        raise Refused(f"inputs {list(a.shape)} and {list(b.shape)} do not make {list(y.shape)}")
    if y.shape[:-2] != np.broadcast_shapes(a.shape[:-2], b.shape[:-2]):
        raise Refused(f"inputs {list(a.shape)} and {list(b.shape)} do not make {list(y.shape)}")
    for tensor, wanted in ((a, (1,)), (b, (1, 2)), (y, (1,))):
        if len(tensor.shape) - tensor.channel_axis not in wanted:
            axis = len(tensor.shape) - 1
            raise Refused(
                f"words of {tensor.name} hold what lies along its axis {tensor.channel_axis}, and axis {axis} is wanted"
            )
    operation = MatrixProduct(
        output=y.name, sources=sources_of(result.nodes), left=a.name, right=b.name, limits=result.limits
    )
    if b is given:
        return match_of(node, result, [left, right], [a, b], operation)
    turn = Rearrange(
        output=b.name, sources=sources_of(result.nodes), input=given.name, sizes=given.shape, permutation=(1, 0)
    )
    return match_of_several(node, [result], [left, right], [a, given], [turn, operation], (), [b])
