"""TensorFlow Lite's arithmetic: factors as whole numbers of 31 bits and powers of two, as its kernels make them.

Sources: TensorFlow Lite's `kernels/internal/quantization_util.cc` (QuantizeMultiplier), `kernels/kernel_util.cc`
(PopulateConvolutionQuantizationParams), `kernels/add.cc`, and for averages `reference/integer_ops/pooling.h`.
"""

from functools import cache

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.ir.operations import Rounding
from npukit.compiler.ir.tensor import Tensor
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "LEFT_SHIFT",
    "addition_factors",
    "average_factor",
    "convolution_factors",
    "mean_factors",
    "product_factors",
    "quantize_multiplier",
]

LEFT_SHIFT = 20
"""By which the sources of an addition are shifted before they are scaled."""
_LARGEST_SHIFT = 30


def quantize_multiplier(factor: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(m, s) of each factor, which is about m * 2**(s - 31); m has 31 bits, or is 0 where a factor is too small.

    Args:
        factor: positive float64 numbers.

    Raises:
        Refused: for a factor that is not finite, negative, or above 2**30.
    """
    numbers = np.asarray(factor, np.float64)
    wrong = numbers[~(np.isfinite(numbers) & (numbers >= 0))].reshape(-1)
    if wrong.size:
        raise Refused(f"its scales make the factor {wrong[0]:g}, which is no positive number")
    fraction, exponent = np.frexp(numbers)
    multiplier = np.floor(np.ldexp(fraction, 31) + 0.5).astype(np.int64)
    full = multiplier == 1 << 31
    multiplier, exponent = np.where(full, 1 << 30, multiplier), exponent + full
    gone = exponent < -31
    multiplier, exponent = np.where(gone, 0, multiplier), np.where(gone, 0, exponent)
    if (exponent > _LARGEST_SHIFT).any():
        raise Refused(f"its scales make the factor {numbers.max():g}; less than 2**{_LARGEST_SHIFT} is supported")
    return multiplier.astype(np.int32), exponent.astype(np.int32)


def convolution_factors(
    x: Tensor, weights: Tensor, y: Tensor, rounding: Rounding
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(m, s) for each output channel, or for all, of a convolution or a product with constant weights."""
    assert weights.quantization is not None
    scales = np.array(weights.quantization.scale, np.float32)
    if rounding is Rounding.TFLITE_SINGLE:
        above = (np.float32(x.scale) * scales).astype(np.float64)
    else:
        above = np.float64(np.float32(x.scale)) * scales.astype(np.float64)
    return quantize_multiplier(above / np.float64(np.float32(y.scale)))


def product_factors(a: Tensor, b: Tensor, y: Tensor) -> tuple[int, int]:
    """(m, s) of a product element by element."""
    above = np.float64(np.float32(a.scale)) * np.float64(np.float32(b.scale))
    return _single(above / np.float64(np.float32(y.scale)))


def addition_factors(a: Tensor, b: Tensor, y: Tensor) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """(m, s) of the first source, of the second and of the result of an addition element by element."""
    sides = [np.float64(np.float32(one.scale)) for one in (a, b)]
    twice = 2 * max(sides)
    last = twice / (np.float64(1 << LEFT_SHIFT) * np.float64(np.float32(y.scale)))
    if last >= 1:
        raise Refused(f"its scales make the factor {last:g} of its sum; TensorFlow Lite takes less than 1")
    first, second, result = (_single(one) for one in (sides[0] / twice, sides[1] / twice, last))
    return first, second, result


def _single(factor: float) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(factor)
    return int(multiplier), int(shift)


@cache
def average_factor(count: int) -> np.float32:
    """A binary32 factor by which a sum of `count` int8 numbers becomes their average, half away from zero.

    SUM rounds half to even: a factor a little above 1 / count brings averages that lie between two results beyond the
    middle, and must bring no other there. Each sum next to a middle is tried, which shows it for all between.

    Raises:
        Refused: when there is no such factor.
    """
    middle = np.arange(0, 129) * 2 + 1  # halves
    above = -(-middle * count // 2)  # the least sum that is at or beyond it
    factor = np.float32(1) / np.float32(count)
    for _ in range(8):
        results = [np.rint((sums.astype(np.float32) * factor).astype(np.float64)) for sums in (above, above - 1)]
        if (results[0] == middle // 2 + 1).all() and (results[1] == middle // 2).all():
            return factor
        factor = np.nextafter(factor, np.float32(np.inf))
    raise Refused(f"averages of {count} numbers cannot be told from those between two results in binary32")


def mean_factors(x: Tensor, y: Tensor, count: int) -> tuple[int, int]:
    """(m, s) by which a sum of so many numbers less their zero point becomes their mean in units of another scale.

    Source: TensorFlow Lite's `reference/reduce.h`, QuantizedMeanOrSum, which cuts the multiplier's quotient off.

    Raises:
        Refused: for scales that make no multiplier.
    """
    multiplier, shift = _single(np.float64(np.float32(x.scale)) / np.float64(np.float32(y.scale)))
    more = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << more) // count, shift - more
