"""Scalar arithmetic in whole numbers and fractions, written without a look at `sim/numerics.py`."""

import math
from fractions import Fraction

__all__ = [
    "any_exponent",
    "fused_multiply_add",
    "multiply_by_quantized_multiplier",
    "reciprocal_root",
    "requantize",
    "requantize_integer",
    "rounding_divide_by_pot",
    "saturating_rounding_doubling_high_mul",
    "to_24_bits",
    "to_float32",
    "to_int32",
]

INFINITY = float("inf")


def to_int32(value: int) -> int:
    """Modulo 2**32, signed."""
    return (value + 2**31) % 2**32 - 2**31


def to_float32(value: Fraction) -> float:
    """The binary32 nearest to a fraction, ties to even, subnormals and overflow included."""
    if value == 0:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - 23, -149)
    rounded = round(value / unit) * unit
    if abs(rounded) >= 2**128:
        return INFINITY if value > 0 else -INFINITY
    return float(rounded)


def fused_multiply_add(a: float, b: float, c: float) -> float:
    """binary32 a * b + c of finite values, rounded once."""
    return to_float32(Fraction(a) * Fraction(b) + Fraction(c))


def any_exponent(bits: int) -> Fraction:
    """A binary32 without special values: exponent field 0 is zero, 255 an exponent as any other."""
    field = bits >> 23 & 255
    if field == 0:
        return Fraction(0)
    return (-1) ** (bits >> 31) * Fraction(2**23 + bits % 2**23) * Fraction(2) ** (field - 150)


def to_24_bits(value: Fraction) -> Fraction:
    """The nearest fraction of 24 significant bits, ties to even, whatever the exponent."""
    if value == 0:
        return value
    unit = Fraction(1)
    while abs(value) / unit >= 2**24:
        unit *= 2
    while abs(value) / unit < 2**23:
        unit /= 2
    return round(value / unit) * unit


def requantize(accumulator: int, bias: int, multiplier: float, zero_point: int, low: int, high: int) -> int:
    """Saturated rne(f32(f32(acc + bias) * multiplier)) + zero point."""
    total = to_float32(Fraction(to_int32(accumulator + bias)))
    product = to_float32(Fraction(total) * Fraction(multiplier))
    if abs(product) == INFINITY:
        return high if product > 0 else low
    return max(low, min(high, round(Fraction(product)) + zero_point))


def _to_24_bits(value: int) -> int:
    """A whole number rounded to 24 significant bits, ties to even."""
    shift = max(0, abs(value).bit_length() - 24)
    half = 1 << shift >> 1
    magnitude = abs(value) >> shift
    rest = abs(value) & ((1 << shift) - 1)
    if rest > half or (shift and rest == half and magnitude & 1):
        magnitude += 1
    return (magnitude << shift) * (-1 if value < 0 else 1)


def requantize_integer(accumulator: int, bias: int, multiplier: float, zero_point: int, low: int, high: int) -> int:
    """The same as hardware computes it, without a floating-point unit."""
    fraction = Fraction(multiplier)
    exponent = 0
    while fraction.denominator > 1:
        fraction *= 2
        exponent -= 1
    mantissa = fraction.numerator
    while abs(mantissa) >= 1 << 24:
        mantissa >>= 1
        exponent += 1
    product = _to_24_bits(_to_24_bits(to_int32(accumulator + bias)) * mantissa)
    return max(low, min(high, round(Fraction(product) * Fraction(2) ** exponent) + zero_point))


def saturating_rounding_doubling_high_mul(a: int, b: int) -> int:
    """gemmlowp's function of that name: a nudge by sign, then a division that truncates."""
    if a == b == -(2**31):
        return 2**31 - 1
    product = a * b
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    quotient = abs(nudged) // (1 << 31)
    return quotient if nudged >= 0 else -quotient


def rounding_divide_by_pot(value: int, exponent: int) -> int:
    """gemmlowp's function of that name."""
    mask = (1 << exponent) - 1
    remainder = value & mask
    threshold = (mask >> 1) + (1 if value < 0 else 0)
    return (value >> exponent) + (1 if remainder > threshold else 0)


def multiply_by_quantized_multiplier(value: int, multiplier: int, shift: int) -> int:
    """TensorFlow Lite's function of that name, with a left shift that wraps; of a shift outside of -31 to 31 the low 8
    bits count as a signed number, and the low 5 bits of its magnitude."""
    shift = (shift + 128) % 256 - 128
    left, right = (0, -shift % 32) if shift < 0 else (shift % 32, 0)
    scaled = saturating_rounding_doubling_high_mul(to_int32(value << left), multiplier)
    return rounding_divide_by_pot(scaled, right)


def reciprocal_root(total: int, squares: int, count: int, epsilon: int, centred: bool) -> tuple[int, int]:
    """(m, s) of RECIPROCAL_ROOT, with whole numbers of any size."""
    total = (total + (1 << 23)) % (1 << 24) - (1 << 23)
    wide = (max(0, count * (squares % (1 << 32)) - centred * total**2) << 16) + epsilon
    if wide == 0:
        return (1 << 24) - 1, 0
    pairs = (64 - wide.bit_length()) // 2
    return min((1 << 24) - 1, math.isqrt((1 << 78) // (wide << 2 * pairs >> 32))), 31 - pairs
