"""MatMul and Gemm: products with weights that are constant, and of two activations."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    match_of_several,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized, operands_of_node
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant
from npukit.compiler.frontends.onnx.operators.weights import constant_bias, constant_weights
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import FullyConnected, MatrixProduct, Rearrange, SourceNode
from npukit.compiler.ir.tensor import Constant, Tensor

__all__ = ["match_gemm", "match_matmul"]


def match_gemm(context: Context, node: ir.Node) -> Match:
    """A Gemm with constant weights, a convolution whose kernel is the whole flattened image, or of two activations.

    Either side may be transposed; what is added is a constant for each column.
    """
    beta = node.attributes.get_float("beta", 1.0)
    if beta != 1.0 and len(node.inputs) > 2 and node.inputs[2] is not None:
        raise Refused(f"beta is {beta}; 1 is supported")
    left, right = (bool(node.attributes.get_int(name, 0)) for name in ("transA", "transB"))
    alpha = node.attributes.get_float("alpha", 1.0)
    if _is_activation(operands_of_node(node)[1]):
        return _of_activations(context, node, "QGemm", (left, right), alpha)
    return _of_weights(context, node, "QGemm", (left, right), alpha)


def match_matmul(context: Context, node: ir.Node) -> Match:
    """A MatMul of constant weights, the same for all matrices, or of two activations, of any number of matrices, which
    repeat as ONNX's do."""
    if _is_activation(operands_of_node(node)[1]):
        return _of_activations(context, node, "QLinearMatMul", (False, False), 1.0)
    return _of_weights(context, node, "QLinearMatMul", (False, False), 1.0)


def _is_activation(operand: Operand) -> bool:
    """Whether a product's second operand is no constant."""
    found = as_dequantized(operand)
    value = found.value if found is not None else operand.value if isinstance(operand, Dequantized) else operand
    return value is not None and constant(value) is None


def _of_weights(context: Context, node: ir.Node, operator: str, turned: tuple[bool, bool], alpha: float) -> Match:
    operands = operands_of_node(node)
    value, given = source(context, operands[0])
    if operator == "QGemm" and len(given.shape) != 2:
        raise Refused(f"input {given.name} has {len(given.shape)} dimensions; {node.op_type} needs 2")
    weights = constant_weights(context, operands[1], 2, 0 if turned[1] else 1)
    inputs, outputs = weights.tensor.shape[::-1] if turned[1] else weights.tensor.shape
    bias = constant_bias(context, node, operands, outputs, 2)
    result = produced(context, node, (operator,))
    y, sources = result.tensor, sources_of(result.nodes)
    x, before = _turned(given, len(given.shape) - 1, y, sources) if turned[0] else (given, [])
    last = len(x.shape) - 1
    if x.channel_axis != last:
        raise Refused(f"words of {x.name} hold what lies along its axis {x.channel_axis}, and axis {last} is wanted")
    if y.shape != (*x.shape[:-1], outputs) or inputs != x.shape[-1] or y.channel_axis != last:
        raise Refused(f"input {list(x.shape)} and weights {[inputs, outputs]} do not make {list(y.shape)}")
    operation = FullyConnected(
        output=y.name, sources=sources, input=x.name, weights=weights.tensor.name,
        bias=None if bias is None else bias.tensor.name, transposed=turned[1], alpha=alpha, limits=result.limits,
    )  # fmt: skip
    inner = [x] if before else []
    return match_of_several(node, [result], [value], [given], [*before, operation], _there(weights, bias), inner)


def _of_activations(context: Context, node: ir.Node, operator: str, turned: tuple[bool, bool], alpha: float) -> Match:
    operands = operands_of_node(node)
    (left, first), (right, second) = (
        source(context, one, f"input {position}") for position, one in enumerate(operands[:2])
    )
    for given in (first, second):
        if operator == "QGemm" and len(given.shape) != 2:
            raise Refused(f"input {given.name} has {len(given.shape)} dimensions; {node.op_type} needs 2")
    result = produced(context, node, (operator,))
    y, sources = result.tensor, sources_of(result.nodes)
    # a right side whose words hold what is summed up is turned around on its way to the array, as a key's are
    a, turn_left = _turned(first, 1, y, sources) if turned[0] else (first, [])
    b, turn_right = _turned(second, 1 - second.channel_axis, y, sources) if turned[1] else (second, [])
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
    bias = constant_bias(context, node, operands, b.shape[-1], 2)
    operation = MatrixProduct(
        output=y.name, sources=sources, left=a.name, right=b.name, bias=None if bias is None else bias.tensor.name,
        alpha=alpha, limits=result.limits,
    )  # fmt: skip
    inner = [*([a] if turn_left else []), *([b] if turn_right else [])]
    operations = [*turn_left, *turn_right, operation]
    return match_of_several(node, [result], [left, right], [first, second], operations, _there(bias), inner)


def _turned(given: Tensor, axis: int, y: Tensor, sources: Sequence[SourceNode]) -> tuple[Tensor, list[Rearrange]]:
    """A transposed matrix, whose words hold what lies along `axis`, and what makes it; `y`: the product."""
    name = free_name(f"{given.name} turned", {given.name, y.name})
    tensor = replace(given, name=name, shape=given.shape[::-1], channel_axis=axis)
    turn = Rearrange(output=name, sources=tuple(sources), input=given.name, sizes=given.shape, permutation=(1, 0))
    return tensor, [turn]


def _there(*constants: Constant | None) -> list[Constant]:
    return [one for one in constants if one is not None]
