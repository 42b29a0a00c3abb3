"""Scalar binary32 and bfloat16 with flushed subnormals, by whole numbers alone, written without `sim/bfloat16.py`.

A number is its 32 bits. Finite ones become fractions, and a fraction becomes the nearest number with 24 bits and no
lower limit to its exponent; below the smallest normal number it is then +0. So is every zero.
"""

from fractions import Fraction

__all__ = ["NAN", "add", "clamp", "function", "greater", "maximum", "multiply", "narrow", "weigh", "widen"]

NAN = 0x7FC00000
INFINITY = 0x7F800000


def _is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > INFINITY


def _flush(bits: int) -> int:
    return 0 if bits & 0x7FFFFFFF < 0x00800000 else bits


def _is_infinite(bits: int) -> bool:
    return bits & 0x7FFFFFFF == INFINITY


def _fraction(bits: int) -> Fraction:
    """A normal number or zero."""
    exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0:
        return Fraction(0)
    value = Fraction(mantissa | 1 << 23) * Fraction(2) ** (exponent - 150)
    return -value if bits >> 31 else value


def _rounded(value: Fraction, precision: int = 24) -> int:
    """The number nearest to a fraction that is not 0, ties to even."""
    sign, size = int(value < 0) << 31, abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    digits = round(size / Fraction(2) ** (exponent - precision + 1))  # Python rounds ties to even
    if digits == 1 << precision:
        digits, exponent = digits >> 1, exponent + 1
    if exponent > 127:
        return sign | INFINITY
    if exponent < -126:
        return 0
    return sign | (exponent + 127) << 23 | (digits << (24 - precision)) & 0x7FFFFF


def add(a: int, b: int) -> int:
    a, b = _flush(a), _flush(b)
    if _is_nan(a) or _is_nan(b):
        return NAN
    if _is_infinite(a) or _is_infinite(b):
        if _is_infinite(a) and _is_infinite(b) and a != b:
            return NAN
        return a if _is_infinite(a) else b
    total = _fraction(a) + _fraction(b)
    return _rounded(total) if total else 0


def multiply(a: int, b: int) -> int:
    a, b = _flush(a), _flush(b)
    sign = (a ^ b) & 0x80000000
    if _is_nan(a) or _is_nan(b):
        return NAN
    if _is_infinite(a) or _is_infinite(b):
        other = b if _is_infinite(a) else a
        return NAN if other & 0x7FFFFFFF == 0 else sign | INFINITY
    product = _fraction(a) * _fraction(b)
    return _rounded(product) if product else 0


def weigh(a: int, weight: int) -> int:
    """A product with a weight, of which 0 adds nothing."""
    return multiply(a, weight) if _flush(weight) & 0x7FFFFFFF else 0


def greater(a: int, b: int) -> bool:
    """Whether a > b; NaN is not."""
    a, b = _flush(a), _flush(b)
    if _is_nan(a) or _is_nan(b):
        return False

    def order(bits: int) -> int:
        return -(bits & 0x7FFFFFFF) if bits >> 31 else bits

    return order(a) > order(b)


def maximum(values: list[int]) -> int:
    if any(_is_nan(value) for value in values):
        return NAN
    best = _flush(values[0])
    for value in values[1:]:
        if greater(value, best):
            best = _flush(value)
    return best


def clamp(value: int, low: int, high: int) -> int:
    if greater(low, value):
        value = _flush(low)
    return _flush(high) if greater(value, high) else value


def widen(bits: int) -> int:
    """bfloat16 to binary32."""
    return _flush(bits << 16)


def narrow(bits: int) -> int:
    """binary32 to bfloat16."""
    bits = _flush(bits)
    if _is_nan(bits):
        return NAN >> 16
    if _is_infinite(bits) or bits == 0:
        return bits >> 16
    return _rounded(_fraction(bits), 8) >> 16


def function(bits: int, lines: list[tuple[int, int]], indexing: int, step: int, offset: int) -> int:
    """FUNCTION of a number, of 256 slopes and intercepts: by the value, its reciprocal, or that one's root."""
    bits = _flush(bits)
    if _is_nan(bits) or (indexing == 2 and bits >> 31):
        return NAN
    sign, size = bits & 1 << 31, bits & 0x7FFFFFFF
    if indexing == 0:
        infinite = size == INFINITY
        number = _fraction(sign | 0x7F7FFFFF if infinite else bits)
        place = number / Fraction(2) ** step
        slope, intercept = lines[max(0, min(255, place.numerator // place.denominator + offset))]
        return add(weigh(bits, slope) if infinite else multiply(bits, slope), intercept)
    # an exponent of 0 stands for 2^-127 times 1; infinity leaves nothing of numbers, not of infinities and NaN
    exponent, mantissa = (size >> 23) - 127, size & 0x7FFFFF
    whole, odd = divmod(exponent, 2) if indexing == 2 else (exponent, 0)
    position = (Fraction(mantissa, 1 << 23) + odd) * (128 if indexing == 2 else 256)
    slope, intercept = (
        _over(one, 255 if size == INFINITY else whole) for one in lines[position.numerator // position.denominator]
    )
    total = add(multiply((127 + odd) << 23 | mantissa, slope), intercept)
    return NAN if total == NAN else _flush(total ^ sign)


def _over(bits: int, power: int) -> int:
    """A number divided by a power of two."""
    if _is_nan(bits) or _is_infinite(bits) or not _flush(bits):
        return _flush(bits)
    return _rounded(_fraction(bits) / Fraction(2) ** power)
