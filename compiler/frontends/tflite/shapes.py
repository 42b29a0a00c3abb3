"""Shapes of results: a file states them all, and an interpreter writes as much as it reckons itself."""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.tflite.model import TfliteModel, TfliteOperator, TfliteTensor

__all__ = ["check_shapes"]

_Shape = tuple[int, ...]
_Rule = Callable[[TfliteOperator, list[TfliteTensor | None], _Shape], bool]
"""Whether an operator makes a shape of its inputs."""


def check_shapes(model: TfliteModel) -> None:
    """Refuse results of another shape than their operators make, of the operators that are known here.

    Raises:
        ModelError: naming the operator and the shapes.
    """
    for number, operator in enumerate(model.operators):
        rule = _RULES.get(operator.op)
        if rule is None:
            continue
        inputs = [None if index == -1 else model.tensors[index] for index in operator.inputs]
        made = model.tensors[operator.outputs[0]].shape
        try:
            good = rule(operator, inputs, made)
        except (IndexError, AttributeError, TypeError, ValueError, ZeroDivisionError):  # inputs that are not there
            good = False
        if not good:
            given = [None if one is None else list(one.shape) for one in inputs]
            raise ModelError(f"operator {number}, {operator.op}, does not make {list(made)} of the shapes {given}")


def _shape(tensor: TfliteTensor | None) -> _Shape:
    if tensor is None:
        raise TypeError("an input is left out")
    return tensor.shape


def _same(_: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    return _shape(inputs[0]) == made


def _repeated(_: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    return np.broadcast_shapes(_shape(inputs[0]), _shape(inputs[1])) == made


def _as_many(_: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    return prod(_shape(inputs[0])) == prod(made)


def _windows(operator: TfliteOperator, x: _Shape, made: _Shape, kernel: _Shape) -> bool:
    """Of four dimensions, whose height and width windows make of those of the input."""
    if len(x) != 4 or len(made) != 4 or x[0] != made[0]:
        return False
    for axis, name in ((0, "H"), (1, "W")):
        stride, dilation = (int(_number(operator, f"{what}{name}{more}")) for what, more in _PLACES)
        reach = (kernel[axis] - 1) * max(dilation, 1) + 1
        size = x[1 + axis]
        same = int(_number(operator, "Padding")) == 0
        if stride < 1 or kernel[axis] < 1:
            return False
        if made[1 + axis] != (-(-size // stride) if same else (size - reach) // stride + 1):
            return False
    return True


_PLACES = (("Stride", ""), ("Dilation", "Factor"))


def _number(operator: TfliteOperator, name: str) -> float:
    found = operator.options.get(name, 1 if "Factor" in name else 0)
    return found if isinstance(found, int | float) else 0


def _conv(operator: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x, weights = _shape(inputs[0]), _shape(inputs[1])
    return (
        _windows(operator, x, made, weights[1:3])
        and len(weights) == 4
        and made[3] == weights[0]
        and x[3] % weights[3] == 0
        and _of_outputs(inputs, weights[0])
    )


def _depthwise(operator: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x, weights = _shape(inputs[0]), _shape(inputs[1])
    times = int(_number(operator, "DepthMultiplier"))
    return (
        _windows(operator, x, made, weights[1:3])
        and len(weights) == 4
        and made[3] == weights[3] == times * x[3]
        and _of_outputs(inputs, weights[3])
    )


def _of_outputs(inputs: list[TfliteTensor | None], outputs: int) -> bool:
    """Whether there is no bias, or one number for each output."""
    bias = inputs[2] if len(inputs) > 2 else None
    return bias is None or prod(bias.shape) == outputs


def _product(_: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x, weights = _shape(inputs[0]), _shape(inputs[1])
    rows, rest = divmod(prod(x), weights[-1])
    fits = len(weights) == 2 and not rest and made[-1] == weights[0] and prod(made) == rows * weights[0]
    return fits and _of_outputs(inputs, weights[0])


def _pool(operator: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x = _shape(inputs[0])
    kernel = int(_number(operator, "FilterHeight")), int(_number(operator, "FilterWidth"))
    return _windows(operator, x, made, kernel) and x[3] == made[3]


def _constant(tensor: TfliteTensor | None) -> list[int] | None:
    if tensor is None or tensor.data is None:
        return None
    return [int(one) for one in tensor.data.reshape(-1)]


def _mean(operator: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x, given = _shape(inputs[0]), _constant(inputs[1])
    if given is None:
        return True  # the interpreter looks at it
    axes = {axis % len(x) for axis in given if -len(x) <= axis < len(x)}
    if any(not -len(x) <= axis < len(x) for axis in given):
        return False
    if operator.options.get("KeepDims"):
        return made == tuple(1 if axis in axes else size for axis, size in enumerate(x))
    return made == tuple(size for axis, size in enumerate(x) if axis not in axes)


def _pad(_: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x, pairs = _shape(inputs[0]), _constant(inputs[1])
    if pairs is None:
        return True
    return (
        len(pairs) == 2 * len(x)
        and min(pairs) >= 0
        and made == tuple(size + pairs[2 * axis] + pairs[2 * axis + 1] for axis, size in enumerate(x))
    )


def _transpose(_: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    x, order = _shape(inputs[0]), _constant(inputs[1])
    if order is None:
        return True
    return sorted(order) == [*range(len(x))] and made == tuple(x[axis] for axis in order)


def _concatenation(operator: TfliteOperator, inputs: list[TfliteTensor | None], made: _Shape) -> bool:
    axis = int(_number(operator, "Axis"))
    axis += len(made) if axis < 0 else 0
    shapes = [_shape(one) for one in inputs]
    others = {(*one[:axis], *one[axis + 1 :]) for one in (*shapes, made)}
    alike = all(len(one) == len(made) for one in shapes) and len(others) == 1
    return 0 <= axis < len(made) and alike and made[axis] == sum(one[axis] for one in shapes)


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(
        "DEQUANTIZE ELU GELU HARD_SWISH LEAKY_RELU LOGISTIC LOG_SOFTMAX QUANTIZE RELU RELU6 RELU_N1_TO_1 SOFTMAX "
        "TANH".split(),
        _same,
    ),
    **dict.fromkeys(("ADD", "SUB", "MUL"), _repeated),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _as_many),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(("PAD", "PADV2"), _pad),
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _product,
    "MEAN": _mean,
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concatenation,
}
