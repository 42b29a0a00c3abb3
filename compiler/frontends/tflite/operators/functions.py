"""Functions of one element, as tables of TensorFlow Lite's integer arithmetic; limits alone in floats."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.tflite.operators.activations import FUSED, limits_of
from npukit.compiler.frontends.tflite.operators.base import Node, Operand
from npukit.compiler.frontends.tflite.operators.integers import (
    hard_swish,
    leaky_relu,
    limited,
    logistic,
    relu,
    requantized,
    tanh,
)
from npukit.compiler.ir.operations import Clamp, Lookup
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import INT8, UINT8

__all__ = ["match_function", "match_quantize"]

_Function = Callable[[Tensor, Tensor], list[int]]
"""The results for each number of the first tensor's format, in order, in the second's."""
_FUNCTIONS: Mapping[str, _Function] = {
    "RELU": relu,
    "RELU6": partial(limited, FUSED["RELU6"]),
    "RELU_N1_TO_1": partial(limited, FUSED["RELU_N1_TO_1"]),
    "LOGISTIC": logistic,
    "TANH": tanh,
    "HARD_SWISH": hard_swish,
}


def match_function(node: Node) -> Match:
    """RELU, RELU6, RELU_N1_TO_1, LEAKY_RELU, LOGISTIC, TANH and HARD_SWISH; in floats those that are limits."""
    value, x = node.activation(0)
    result = node.result()
    y = result.tensor
    op = node.operator.op
    if node.floats:
        if op not in FUSED:
            raise Refused("in bf16, of functions of one element, limits are supported")
        limits = limits_of(FUSED[op], y)
        operation = Clamp(output=y.name, sources=node.sources, input=x.name, limits=limits)
        return node.match(result, [Operand(x, value)], [operation])
    if op == "LEAKY_RELU":
        alpha = node.operator.options.get("Alpha", 0.0)
        assert isinstance(alpha, int | float)
        return _looked_up(node, x, leaky_relu(float(alpha), x, y))
    return _looked_up(node, x, _FUNCTIONS[op](x, y))


def match_quantize(node: Node) -> Match:
    """QUANTIZE of numbers that are quantised already, of uint8 as well."""
    given = node.present(0)
    if node.floats or given.type not in ("INT8", "UINT8") or given.quantization is None:
        raise Refused("it quantises floats at the accelerator's edge" if given.type == "FLOAT32" else
                      f"{given.name} is {given.type}; INT8 and UINT8 are supported")  # fmt: skip
    x = node.described(given, UINT8 if given.type == "UINT8" else INT8)
    return _looked_up(node, x, requantized(x, node.result().tensor))


def _looked_up(node: Node, x: Tensor, entries: list[int]) -> Match:
    result = node.result()
    y = result.tensor
    table = Constant(Tensor(f"table of {y.name}", (256,), INT8, y.quantization), np.array(entries, np.int8))
    operation = Lookup(output=y.name, sources=node.sources, input=x.name, table=table.tensor.name)
    value = next(one for one in node.node.inputs if one is not None)
    return node.match(result, [Operand(x, value)], [operation], [table])
