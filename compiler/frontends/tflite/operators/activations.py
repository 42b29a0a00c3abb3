"""Functions that operators have at their end, as limits of their results."""

from math import ceil, floor

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.tflite.operators.base import Node
from npukit.compiler.frontends.tflite.schema import names_of
from npukit.compiler.ir.operations import Limits
from npukit.compiler.ir.tensor import Tensor

__all__ = ["FUSED", "fused_limits", "limits_of", "round_away"]

FUSED = {
    "NONE": (-np.inf, np.inf),
    "RELU": (0.0, np.inf),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
}
"""Limits of the numbers that are meant."""


def round_away(number: float) -> int:
    """The nearest whole number, half away from zero, as C++'s std::round has it."""
    return floor(number + 0.5) if number >= 0 else ceil(number - 0.5)


def fused_limits(node: Node) -> Limits:
    """Of an operator's result, by its option.

    Raises:
        Refused: for a function that is no limit.
    """
    number = node.option("FusedActivationFunction")
    name = names_of("ActivationFunctionType").get(number, str(number))
    if name not in FUSED:
        raise Refused(f"its fused function is {name}; {', '.join(FUSED)} are supported")
    if name == "NONE":
        return None
    return limits_of(FUSED[name], node.described(node.made))


def limits_of(limits: tuple[float, float], y: Tensor) -> tuple[float, float]:
    """Limits in a tensor's numbers (TensorFlow Lite's CalculateActivationRangeQuantized, in `kernel_util.cc`).

    Raises:
        Refused: for a scale in which they are too far away.
    """
    if y.format.floating:
        return limits
    stored = y.format.stored
    low, high = stored.start, stored.stop - 1
    if limits[0] > -np.inf:
        low = max(low, y.zero_point + _steps(limits[0], y))
    if limits[1] < np.inf:
        high = min(high, y.zero_point + _steps(limits[1], y))
    return low, high


def _steps(number: float, y: Tensor) -> int:
    """A number in units of a tensor's scale.

    Raises:
        Refused: for one that TensorFlow Lite could not convert to 32 bits.
    """
    with np.errstate(over="ignore"):
        steps = float(np.float32(number) / np.float32(y.scale))
    if not abs(steps) < 1 << 30:
        raise Refused(f"its limit {number:g} is {steps:g} steps of {y.scale:g}; less than 2**30 are supported")
    return round_away(steps)
