"""TensorFlow Lite's functions of one element in whole numbers.

Sources: gemmlowp's `fixedpoint/fixedpoint.h`, and TensorFlow Lite's `kernels/internal/reference/integer_ops` and
`reference/hard_swish.h`; how scales become whole numbers is in the `Prepare` functions of `micro/kernels`.
"""

from collections.abc import Callable
from math import frexp, isfinite, ldexp

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.tflite.operators.activations import limits_of, round_away
from npukit.compiler.ir.tensor import Tensor

__all__ = ["hard_swish", "leaky_relu", "limited", "logistic", "relu", "requantized", "tanh"]

_WORD, _SHORT = 32, 16
_INTEGER_BITS = 4
"""Of the numbers of which logistic and tanh are computed; the other 27 are a fraction."""


def _clamp(value: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def _high(a: int, b: int, bits: int = _WORD) -> int:
    """The doubled high half of a product, half towards +infinity: SaturatingRoundingDoublingHighMul."""
    return min((a * b + (1 << (bits - 2))) >> (bits - 1), (1 << (bits - 1)) - 1)


def _shifted(value: int, places: int) -> int:
    """Divided by a power of two, half away from zero: RoundingDivideByPOT."""
    half = 1 << places >> 1
    return (value + half) >> places if value >= 0 else -((-value + half) >> places)


def _scaled(value: int, multiplier: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier."""
    wide = (value << max(shift, 0)) + (1 << 31)
    return _shifted(_high(wide % (1 << 32) - (1 << 31), multiplier), max(-shift, 0))


def _factor(number: float) -> tuple[int, int]:
    """QuantizeMultiplier.

    Raises:
        Refused: for one that is too large, or no number.
    """
    if not isfinite(number):
        raise Refused(f"its scales make the factor {number:g}")
    fraction, exponent = frexp(number)
    multiplier = round_away(ldexp(fraction, 31))
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier // 2, exponent + 1
    if exponent > 30:
        raise Refused(f"its scales make the factor {number:g}; less than 2**30 is supported")
    return (0, 0) if exponent < -31 else (multiplier, exponent)


def _entries(x: Tensor, y: Tensor, function: Callable[[int], int]) -> list[int]:
    """What a function makes of each number less its zero point, and then limited."""
    stored = y.format.stored
    found = (function(number - x.zero_point) for number in x.format.stored)
    return [max(stored.start, min(stored.stop - 1, one)) for one in found]


def _ratio(x: Tensor, y: Tensor) -> float:
    return float(np.float32(x.scale)) / float(np.float32(y.scale))


def requantized(x: Tensor, y: Tensor) -> list[int]:
    """QUANTIZE of whole numbers."""
    factor = _factor(_ratio(x, y))
    return _entries(x, y, lambda value: _scaled(value, *factor) + y.zero_point)


def relu(x: Tensor, y: Tensor) -> list[int]:
    """RELU."""
    least = max(y.format.stored.start, y.zero_point)
    return [max(least, one) for one in requantized(x, y)]


def limited(limits: tuple[float, float], x: Tensor, y: Tensor) -> list[int]:
    """RELU6 and the like, which limit the input's numbers and take them for the result's."""
    low, high = limits_of(limits, x)
    return [int(max(low, min(high, number))) for number in x.format.stored]


def leaky_relu(alpha: float, x: Tensor, y: Tensor) -> list[int]:
    """LEAKY_RELU; a negative factor is that of its magnitude, whose result changes its sign."""
    identity = _factor(_ratio(x, y))
    slope = float(np.float32(x.scale)) * float(np.float32(alpha)) / float(np.float32(y.scale))
    below, sign = _factor(abs(slope)), -1 if slope < 0 else 1
    return _entries(
        x, y, lambda value: y.zero_point + (_scaled(value, *identity) if value >= 0 else sign * _scaled(value, *below))
    )


def logistic(x: Tensor, y: Tensor) -> list[int]:
    """LOGISTIC, whose result has the scale 1/256 whatever is said of it.

    Raises:
        Refused: for another zero point of the result than -128.
    """
    if y.zero_point != y.format.stored.start:
        raise Refused(f"its result has the zero point {y.zero_point}; TensorFlow Lite takes -128")
    return _saturating(x, y, lambda value: _shifted(_logistic(value), 31 - 8) - 128)


def tanh(x: Tensor, y: Tensor) -> list[int]:
    """TANH, whose result has the scale 1/128 and the zero point 0 whatever is said of it."""
    return _saturating(x, y, lambda value: _shifted(_tanh(value), 31 - 7))


def _saturating(x: Tensor, y: Tensor, function: Callable[[int], int]) -> list[int]:
    """A function of numbers with four bits before the point; beyond, the least or the greatest result."""
    fraction, shift = frexp(float(np.float32(x.scale)) * (1 << (31 - _INTEGER_BITS)))
    if shift < 0:
        raise Refused(f"its input's scale is {x.scale:g}; 2**-27 at least is supported")
    if shift > _WORD - 1:
        raise Refused(f"its input's scale is {x.scale:g}; less than 2**4 is supported")
    multiplier = round_away(ldexp(fraction, 31))
    radius = int(ldexp(((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)), -shift))
    stored = y.format.stored

    def entry(value: int) -> int:
        if value <= -radius:
            return stored.start
        if value >= radius:
            return stored.stop - 1
        return function(_scaled(value, multiplier, shift))

    return _entries(x, y, entry)


# ---- gemmlowp's numbers: `bits` before the point, the rest of 31 behind it

_ONE = (1 << 31) - 1
"""The greatest number without a bit before the point, which stands for 1."""


def _rescaled(value: int, places: int) -> int:
    """Multiplied by a power of two, saturating or rounding: SaturatingRoundingMultiplyByPOT."""
    return _clamp(value << places, _WORD) if places >= 0 else _shifted(value, -places)


def _exp_near_zero(value: int) -> int:
    """Of -1/4 to 0, none of them before the point: a polynomial around -1/8."""
    centre, third = 1895147668, 715827883
    x = value + (1 << 28)
    square = _high(x, x)
    cube, fourth = _high(square, x), _high(square, square)
    rest = _high(_rescaled(fourth, -2) + cube, third) + square
    return centre + _high(centre, x + _rescaled(rest, -1))


_POWERS = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
"""exp(-2**n) for each n."""


def _exp(value: int, bits: int) -> int:
    """Of a number that is not positive, with so many bits before the point."""
    if value == 0:
        return _ONE
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    near = (value & (quarter - 1)) - quarter
    result = _exp_near_zero(_rescaled(near, bits))
    rest = near - value
    for power, factor in _POWERS:
        if bits > power and rest >> (fraction + power) & 1:
            result = _high(result, factor)
    return result


def _reciprocal(value: int) -> int:
    """2 / (1 + a) of a from 0 to 1, with two bits before the point: Newton's method, three times."""
    half = _half_sum(value, _ONE)
    x = 1515870810 + _high(half, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - _high(half, x)
        x += _rescaled(_high(x, rest), 2)
    return x


def _half_sum(a: int, b: int) -> int:
    """(a + b) / 2, half away from zero."""
    return _shifted(a + b, 1)


def _logistic(value: int) -> int:
    """1 / (1 + exp(-x))."""
    if value == 0:
        return 1 << 30
    positive = _rescaled(_reciprocal(_exp(-abs(value), _INTEGER_BITS)), 1)
    return positive if value > 0 else _ONE - positive


def _tanh(value: int) -> int:
    """(1 - exp(-2 x)) / (1 + exp(-2 x))."""
    if value == 0:
        return 0
    # twice a number has one bit more before the point, and the same digits
    found = _rescaled(_reciprocal(_exp(-abs(value), _INTEGER_BITS + 1)) - (1 << 29), 2)
    return found if value > 0 else -found


# ---- hard swish


def hard_swish(x: Tensor, y: Tensor) -> list[int]:
    """HARD_SWISH, in numbers of 16 bits.

    Raises:
        Refused: where TensorFlow Lite Micro refuses the scales.
    """
    fine = np.float32(1.0 / 128.0) * np.float32(x.scale)
    scale = _factor(float(fine / np.float32(y.scale)))
    gate = _factor(float(fine / (np.float32(3.0) / np.float32(32768.0))))
    if scale[1] > 0:
        raise Refused(
            f"its scales make the factor {float(fine / np.float32(y.scale)):g}; TensorFlow Lite takes up to 1"
        )

    def entry(value: int) -> int:
        high = _clamp_16(value << 7)
        preshift = _high_short(high, _short(scale[0]))
        opened = _clamp(high << max(gate[1] - 1, 0), _SHORT)
        opened = _high_short(opened, _short(gate[0]))
        if gate[1] > 0:
            opened = _clamp(opened << 1, _SHORT)
        elif gate[1] < 0:
            opened = _shifted(opened, -gate[1])
        share = (opened + (1 << 15)) >> 1
        product = share * preshift
        cut = product >> 15 if product >= 0 else -(-product >> 15)
        return _shifted(cut, -scale[1]) + y.zero_point

    return _entries(x, y, entry)


def _clamp_16(value: int) -> int:
    """What is left of a number in 16 bits."""
    return (value + (1 << 15)) % (1 << 16) - (1 << 15)


def _short(multiplier: int) -> int:
    """DownScaleInt32ToInt16Multiplier."""
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)


def _high_short(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul of 16 bits."""
    return _high(a, b, _SHORT)
