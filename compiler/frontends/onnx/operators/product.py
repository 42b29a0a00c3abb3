"""MatMul of two activations."""

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    match_of,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized, operands_of_node
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant
from npukit.compiler.ir.operations import MatrixProduct

__all__ = ["is_activation", "match_matrix_product"]


def is_activation(operand: Operand) -> bool:
    """Whether a product's second operand is no constant."""
    found = as_dequantized(operand)
    value = found.value if found is not None else operand.value if isinstance(operand, Dequantized) else operand
    return value is not None and constant(value) is None


def match_matrix_product(context: Context, node: ir.Node) -> Match:
    """A MatMul of two activations, of any number of matrices, which repeat as ONNX's do."""
    operands = operands_of_node(node)
    (left, a), (right, b) = (source(context, one, f"input {position}") for position, one in enumerate(operands[:2]))
    result = produced(context, node, ("QLinearMatMul",))
    y = result.tensor
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
    return match_of(node, result, [left, right], [a, b], operation)
