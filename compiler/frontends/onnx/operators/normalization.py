"""LayerNormalization and RMSNormalization, as operators or step by step."""

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    Produced,
    float_tensor,
    match_of,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import Operand, as_dequantized, operands_of_node
from npukit.compiler.frontends.onnx.operators.quantisation import Dequantized, constant
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import Normalization
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import FLOAT32

__all__ = ["match_decomposed", "match_normalization"]

_EPSILON = 1e-5
"""ONNX's default."""


def match_normalization(context: Context, node: ir.Node) -> Match:
    """A normalisation along the last dimension, whose elements lie in a word, of int8, uint8 or bf16."""
    operands = operands_of_node(node)
    value, x = source(context, operands[0])
    used = [output.name for output in node.outputs[1:] if output.name and (list(output.uses()))]
    outputs = [output.name for output in node.outputs[1:] if output.name in context.graph_outputs]
    if used or outputs:
        raise Refused(f"its statistics {', '.join(dict.fromkeys(map(str, used + outputs)))} are used")
    result = produced(context, node, clamp=False)
    last = len(x.shape) - 1
    axis = node.attributes.get_int("axis", -1) % len(x.shape)
    if axis != last:
        raise Refused(f"it goes along the dimensions of {list(x.shape)} from {axis} on; the last one is supported")
    _check_axes(x, result.tensor)
    if node.attributes.get_int("stash_type", ir.DataType.FLOAT) != ir.DataType.FLOAT:
        raise Refused("its stash_type is not float")
    channels = x.shape[last]
    scale = _constant(operands[1], "scale", channels)
    bias = _constant(operands[2], "bias", channels) if len(operands) > 2 and operands[2] is not None else None
    operation = Normalization(
        output=result.tensor.name,
        sources=sources_of(result.nodes),
        input=x.name,
        scale=scale.tensor.name,
        bias=bias.tensor.name if bias is not None else None,
        epsilon=node.attributes.get_float("epsilon", _EPSILON),
        centred=node.op_type == "LayerNormalization",
    )
    return match_of(node, result, [value], [x], operation, [scale] if bias is None else [scale, bias])


def match_decomposed(context: Context, node: ir.Node) -> Match:
    """A normalisation along the last dimension that a model in bf16 computes step by step."""
    steps = context.normalizations[node]
    if steps.nodes[0] is not node:
        raise Refused("it belongs to the nodes that another one takes with it")
    x, y = float_tensor(steps.source), float_tensor(node.outputs[0])
    if x.shape != y.shape:
        raise Refused(f"it turns the shape {list(x.shape)} into {list(y.shape)}")
    _check_axes(x, y)
    channels = x.shape[-1:]
    vectors = {"scale": np.ones((1,), np.float32) if steps.scale is None else steps.scale, "bias": steps.bias}
    constants = {
        what: Constant(
            Tensor(free_name(f"{what} of {y.name}", {x.name, y.name}), channels, FLOAT32),
            np.broadcast_to(vector, channels),
        )
        for what, vector in vectors.items()
        if vector is not None
    }
    operation = Normalization(
        output=y.name,
        sources=sources_of(steps.nodes),
        input=x.name,
        scale=constants["scale"].tensor.name,
        bias=constants["bias"].tensor.name if "bias" in constants else None,
        epsilon=steps.epsilon,
        centred=steps.centred,
    )
    result = Produced(steps.nodes, node.outputs[0], y)
    return match_of(node, result, [steps.source], [x], operation, [*constants.values()])


def _check_axes(x: Tensor, y: Tensor) -> None:
    """Raise Refused unless words hold what is normalised."""
    last = len(x.shape) - 1
    for tensor in (x, y):
        if tensor.channel_axis != last:
            raise Refused(
                f"words of {tensor.name} hold what lies along its axis {tensor.channel_axis}, and it is normalised "
                f"along {last}"
            )


def _constant(operand: Operand, what: str, channels: int) -> Constant:
    """A vector of float32, or numbers that stand for one."""
    numbers = as_dequantized(operand)
    value = operand.value if isinstance(operand, Dequantized) else operand
    raw = constant(numbers.value if numbers is not None else value)
    if raw is None:
        raise Refused(f"its {what} is no constant")
    if numbers is not None:
        raw = (raw.astype(np.int64) - numbers.zero_point).astype(np.float32) * numbers.scale
    if raw.dtype != np.float32:
        raise Refused(f"its {what} is {raw.dtype}; float32 is supported")
    if raw.size not in (1, channels) or raw.shape[-1:] not in ((), (1,), (channels,)):
        raise Refused(f"its {what} has the shape {list(raw.shape)}, for {channels} channels")
    name = numbers.name if numbers is not None else value.name if value is not None else None
    return Constant(Tensor(name or what, (channels,), FLOAT32), np.broadcast_to(raw.reshape(-1), (channels,)))
