"""What the operations of a normalisation read: see MOMENTS, RECIPROCAL_ROOT and NORMALIZE in `docs/numerics.md`."""

from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
from npukit.compiler.arithmetic import machine_limits, zero_point
from npukit.compiler.errors import Refused
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Normalization
from npukit.isa.instructions import Operation
from numpy.typing import NDArray

__all__ = ["FRACTION_BITS", "normalization_descriptors", "normalization_parameters"]

FRACTION_BITS = 16
"""Of what NORMALIZE gives, and of what epsilon is added to."""
_LARGEST_COUNT = (1 << 15) - 1
_EPSILON_BITS = 62
_LARGEST_BIAS = 1 << 30
"""Beside which the largest number that NORMALIZE gives has room in an accumulator."""


def normalization_descriptors(graph: Graph, operation: Normalization, lanes: int) -> dict[Operation, dict[str, Any]]:
    """The fields of the descriptors of all four operations.

    Raises:
        Refused: for more numbers than can be counted, an epsilon that is negative or no number, or one that is too
            large beside the input's scale.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    count = x.view[1]
    if not (isfinite(operation.epsilon) and operation.epsilon >= 0):
        raise Refused(f"its epsilon is {operation.epsilon:g}; a number that is not negative is supported")
    if count > _LARGEST_COUNT:
        raise Refused(f"{count} numbers are normalised together; {_LARGEST_COUNT} are supported")
    epsilon = round(Fraction(operation.epsilon) * count**2 * 2**FRACTION_BITS / Fraction(x.scale) ** 2)
    if epsilon >> _EPSILON_BITS:
        raise Refused(f"its epsilon {operation.epsilon:g} is too large beside the scale {x.scale:g} of {x.name}")
    shared = {"count": count, "centred": int(operation.centred)}
    return {
        Operation.MOMENTS: {"zero_point": zero_point(x), "missing": -count % lanes},
        Operation.RECIPROCAL_ROOT: {**shared, "epsilon_low": epsilon & 0xFFFFFFFF, "epsilon_high": epsilon >> 32},
        Operation.NORMALIZE: {**shared, "zero_point": zero_point(x)},
        Operation.REQUANTIZE: {"zero_point": zero_point(y), **machine_limits(y, None)},
    }


def normalization_parameters(graph: Graph, operation: Normalization) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """What REQUANTIZE reads for each channel: a bias, and a multiplier.

    Raises:
        Refused: for a channel whose scale is no number to multiply with, or too small beside its bias.
    """
    scale = graph.constants[operation.scale].data.astype(np.float64)
    shift = np.zeros_like(scale)
    if operation.bias is not None:
        shift = graph.constants[operation.bias].data.astype(np.float64)
    unit = 2.0**FRACTION_BITS
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        multiplier = (scale / (unit * graph.tensor(operation.output).scale)).astype(np.float32)
        bias = np.rint(unit * shift / scale)
    # what gives the same result for all numbers
    nothing = (scale == 0) & (shift == 0)
    multiplier[nothing], bias[nothing] = 0, 0
    normal = np.isfinite(multiplier) & (np.abs(multiplier) >= np.finfo(np.float32).tiny)
    wrong = np.flatnonzero(~(normal & (np.abs(bias) < _LARGEST_BIAS)) & ~nothing)
    if wrong.size:
        one = wrong[0]
        raise Refused(
            f"channel {one} has the scale {scale[one]:g} and the bias {shift[one]:g}; their quotient must be below "
            f"{_LARGEST_BIAS >> FRACTION_BITS}, and the scale a normal fp32 number beside the result's"
        )
    return bias.astype(np.int32), multiplier
