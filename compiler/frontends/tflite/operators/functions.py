"""Functions of one element, as tables of TensorFlow Lite's integer arithmetic; in bf16 as limits or lines."""

from collections.abc import Callable, Mapping
from functools import cache, partial

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
from npukit.compiler.ir.operations import Clamp, Lookup, PiecewiseLinear
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.compiler.lines import ALL_NUMBERS, Lines, fit
from npukit.isa.formats import FLOAT32, INT8, UINT8

__all__ = ["match_function", "match_quantize"]

_Function = Callable[[Tensor, Tensor], list[int]]
"""The results for each number of the first tensor's format, in order, in the second's."""
_FUNCTIONS: Mapping[str, _Function] = {
    "RELU": relu,
    "RELU6": partial(limited, FUSED["RELU6"]),
    "LOGISTIC": logistic,
    "TANH": tanh,
    "HARD_SWISH": hard_swish,
}


def match_function(node: Node) -> Match:
    """RELU, RELU6, LEAKY_RELU, LOGISTIC, TANH and HARD_SWISH; in bf16, where they are no limits, as
    straight lines."""
    value, x = node.activation(0)
    result = node.result()
    y = result.tensor
    op = node.operator.op
    alpha = node.operator.options.get("Alpha", 0.0)
    assert isinstance(alpha, int | float)
    if node.floats:
        if op not in FUSED:
            return _in_lines(node, x, op, float(alpha))
        limits = limits_of(FUSED[op], y)
        operation = Clamp(output=y.name, sources=node.sources, input=x.name, limits=limits)
        return node.match(result, [Operand(x, value)], [operation])
    if op == "LEAKY_RELU":
        return _looked_up(node, x, leaky_relu(float(alpha), x, y))
    return _looked_up(node, x, _FUNCTIONS[op](x, y))


@cache
def _lines(op: str, alpha: float) -> tuple[Lines | None, str]:
    """A function in binary32, as straight lines, or why there are none."""
    x = ALL_NUMBERS
    with np.errstate(over="ignore"):
        results = {
            "LEAKY_RELU": lambda: np.where(x > 0, x, x * np.float32(alpha)),
            "LOGISTIC": lambda: np.float32(1) / (np.float32(1) + np.exp(-x)),
            "TANH": lambda: np.tanh(x),
            "HARD_SWISH": lambda: x * np.clip(x + np.float32(3), 0, 6) / np.float32(6),
        }[op]()
    return fit(results.astype(np.float32))


def _in_lines(node: Node, x: Tensor, op: str, alpha: float) -> Match:
    lines, problem = _lines(op, alpha)
    if lines is None:
        raise Refused(f"256 straight lines do not come near it: {problem}")
    result = node.result()
    y = result.tensor
    table = Constant(Tensor(f"lines of {y.name}", lines.table.shape, FLOAT32), lines.table)
    operation = PiecewiseLinear(
        output=y.name, sources=node.sources, input=x.name, table=table.tensor.name, step=lines.step,
        offset=lines.offset,
    )  # fmt: skip
    value, _ = node.activation(0)
    return node.match(result, [Operand(x, value)], [operation], [table])


def match_quantize(node: Node) -> Match:
    """QUANTIZE of numbers that are quantised already, of uint8 as well."""
    given = node.present(0)
    if given.data is not None:
        raise Refused(f"input {given.name} is a constant; it must be an activation")
    if node.floats:
        raise Refused("the configuration computes bf16; quantised tensors are for int8")
    if given.type not in ("INT8", "UINT8") or given.quantization is None:
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
