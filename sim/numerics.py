"""Arithmetic of the int8 datapath, each formula once, as plain numpy. `docs/numerics.md` has the sources."""

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "add",
    "add_fixed",
    "fused_multiply_add",
    "moments",
    "multiply",
    "multiply_by_quantized_multiplier",
    "normalize",
    "reciprocal_root",
    "requantize",
    "requantize_fixed",
    "saturate",
    "table_divide",
    "table_sum",
    "wrap_int32",
]


def wrap_int32(values: NDArray[np.integer]) -> NDArray[np.int32]:
    """Integers (int64) modulo 2**32, as the accumulators keep them."""
    return values.astype(np.uint32, casting="unsafe").view(np.int32)


def saturate(values: NDArray, low: int, high: int) -> NDArray[np.int8]:
    """Clamp integral values (any numeric dtype) to [low, high] within int8."""
    return np.clip(values, low, high).astype(np.int8)


def requantize(
    accumulators: NDArray[np.int32],
    bias: NDArray[np.int32] | np.int32,
    multiplier: NDArray[np.float32] | np.float32,
    zero_point: int,
    low: int,
    high: int,
) -> NDArray[np.int8]:
    """ONNX Runtime's requantisation: clamp(rne(f32(acc + bias) * multiplier) + zero_point).

    The sum wraps in int32; its conversion to fp32 and the product each round to nearest even. For infinities and NaN
    as multipliers see `_without_specials`.
    """
    with np.errstate(over="ignore"):
        total = accumulators + bias
        scaled = np.rint(total.astype(np.float32) * _without_specials(multiplier))
    # float64: adding a zero point to a large fp32 value must not round again
    return saturate(scaled.astype(np.float64) + zero_point, low, high)


def _without_specials(multiplier: NDArray[np.float32] | np.float32) -> NDArray[np.float32]:
    """A multiplier whose exponent field of 255 is an ordinary exponent to the hardware: 2**128 at least, with which any
    whole number but 0 saturates, as it does with the largest binary32 of that sign."""
    largest = np.copysign(np.finfo(np.float32).max, multiplier)
    return np.where(np.isfinite(multiplier), multiplier, largest).astype(np.float32)


def multiply_by_quantized_multiplier(
    values: NDArray[np.int32], multiplier: NDArray[np.integer] | int, shift: NDArray[np.integer] | int
) -> NDArray[np.int32]:
    """TensorFlow Lite's reference scaling by multiplier * 2**(shift - 31), rounded twice.

    The left shift wraps; the doubled high product rounds half towards +infinity and saturates; the
    right shift rounds half away from zero. Of `shift` the low 8 bits count, as a signed number, and of its
    magnitude the low 5 bits; from -31 to 31 that is the number itself.
    """
    factor = np.asarray(multiplier, np.int64)
    exponent = np.asarray(shift, np.int64).astype(np.int8).astype(np.int64)
    left, right = np.where(exponent < 0, 0, exponent & 31), np.where(exponent < 0, -exponent & 31, 0)
    shifted = wrap_int32(values.astype(np.int64) << left).astype(np.int64)
    high = np.minimum((shifted * factor + (1 << 30)) >> 31, 2**31 - 1)
    mask = (np.int64(1) << right) - 1
    threshold = (mask >> 1) + (high < 0)
    return wrap_int32((high >> right) + ((high & mask) > threshold))


def requantize_fixed(
    accumulators: NDArray[np.int32],
    bias: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    shift: NDArray[np.int32],
    zero_point: int,
    low: int,
    high: int,
) -> NDArray[np.int8]:
    """TensorFlow Lite's requantisation of acc + bias (wrapping)."""
    with np.errstate(over="ignore"):
        total = accumulators + bias
    scaled = multiply_by_quantized_multiplier(total, multiplier, shift)
    return saturate(scaled.astype(np.int64) + zero_point, low, high)


def fused_multiply_add(
    a: NDArray[np.float32], b: NDArray[np.float32] | np.float32, c: NDArray[np.float32] | np.float32
) -> NDArray[np.float32]:
    """fp32 a * b + c with one rounding, to nearest even.

    The product of two fp32 is exact in float64, and so the rounding of `_odd_sum` to fp32 is the only one.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return _odd_sum(a.astype(np.float64) * np.float64(b), np.float64(c)).astype(np.float32)


def _odd_sum(product: NDArray[np.float64], addend: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Their sum, rounded to odd with the error that TwoSum finds; rounding it to 24 bits then cannot round twice (Boldo
    and Melquiond, 2008)."""
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    bits = total.view(np.int64)
    even = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)


def _to_24_bits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Finite float64 rounded to a binary32's 24 significant bits, half to even, whatever the exponent."""
    bits = values.view(np.int64)
    dropped = 53 - 24
    half = (1 << (dropped - 1)) - 1 + (bits >> dropped & 1)
    return (bits + half & ~((1 << dropped) - 1)).view(np.float64)


def _any_exponent(values: NDArray[np.float32] | np.float32) -> NDArray[np.float64]:
    """binary32 as the hardware reads them: 0 if the exponent field is 0, and 255 is an exponent as any other."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    field = bits >> 23 & 0xFF
    magnitude = np.ldexp((bits & 0x7FFFFF | 1 << 23).astype(np.float64), field.astype(np.int32) - 150)
    return np.where(field == 0, 0.0, np.where(bits >> 31, -magnitude, magnitude))


def add(
    a: NDArray[np.integer],
    b: NDArray[np.integer],
    ra: np.float32,
    rb: np.float32,
    offset: np.float32,
    low: int,
    high: int,
) -> NDArray[np.int64]:
    """ONNX Runtime's QLinearAdd: sat(rne(fma(a, ra, fma(b, rb, offset)))).

    Exponents have no limits, neither those of the parameters (`_any_exponent`) nor those of the sums: where binary32
    neither overflows nor loses a subnormal number, which cannot show in the result, that is the same.
    """
    left, right, addend = (_any_exponent(value) for value in (ra, rb, offset))
    inner = _to_24_bits(_odd_sum(b * right, addend))
    total = np.rint(_to_24_bits(_odd_sum(a * left, inner)))
    return np.clip(total, low, high).astype(np.int64)


def add_fixed(
    a: NDArray[np.integer],
    b: NDArray[np.integer],
    multipliers: tuple[int, int, int],
    shifts: tuple[int, int, int],
    offsets: tuple[int, int, int],
    left_shift: int,
    low: int,
    high: int,
) -> NDArray[np.int64]:
    """TensorFlow Lite's quantised addition; tuples are (first source, second source, result)."""
    scaled = [
        multiply_by_quantized_multiplier(
            wrap_int32((source.astype(np.int64) + offset) << left_shift), multiplier, shift
        )
        for source, offset, multiplier, shift in zip((a, b), offsets, multipliers, shifts, strict=False)
    ]
    total = wrap_int32(scaled[0].astype(np.int64) + scaled[1])
    result = multiply_by_quantized_multiplier(total, multipliers[2], shifts[2]).astype(np.int64) + offsets[2]
    return np.clip(result, low, high)


def multiply(
    a: NDArray[np.integer],
    b: NDArray[np.integer],
    a_zero_point: int,
    b_zero_point: int,
    multiplier: np.float32,
    zero_point: int,
    low: int,
    high: int,
) -> NDArray[np.int64]:
    """ONNX Runtime's QLinearMul: sat(rne(f32(f32(p * multiplier) + zero_point))), p the exact product. For infinities
    and NaN as multipliers see `_without_specials`."""
    product = (a.astype(np.int64) - a_zero_point) * (b.astype(np.int64) - b_zero_point)
    with np.errstate(over="ignore"):
        scaled = product.astype(np.float32) * _without_specials(multiplier) + np.float32(zero_point)
    return np.clip(np.rint(scaled), low, high).astype(np.int64)


_SIGNIFICAND = 23
_INFINITY = np.uint32(0x7F800000)
_PIECE = 1 << 12
"""Words of a sum that are looked up at once: a long sum takes time, not memory."""


def _magnitudes(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Numbers without sign: what is below the least normal one is 0, and NaN is infinity."""
    bits = numbers.view(np.uint32) & np.uint32(0x7FFFFFFF)
    field = bits >> np.uint32(_SIGNIFICAND)
    return np.where(field == 0, 0, np.where(field == 255, _INFINITY, bits)).astype(np.uint32).view(np.float32)


def table_sum(table: NDArray[np.float32], places: NDArray[np.int8]) -> NDArray[np.float32]:
    """Sums of entries, one after the other, each rounded to binary32; the signs of the entries do not count.

    Args:
        table: float32[256].
        places: int8[blocks, words, lanes]; place p takes entry p + 128.

    Returns:
        float32[blocks, lanes].
    """
    entries = _magnitudes(table)
    total = np.zeros((len(places), 1, places.shape[-1]), np.float32)
    with np.errstate(over="ignore"):
        for first in range(0, places.shape[1], _PIECE):
            numbers = entries[places[:, first : first + _PIECE].astype(np.int16) + 128]
            total = np.add.accumulate(np.concatenate([total, numbers], axis=1), axis=1, dtype=np.float32)[:, -1:]
    return total[:, 0]


def table_divide(
    table: NDArray[np.float32],
    places: NDArray[np.int8],
    divisors: NDArray[np.float32],
    factor: int,
    zero_point: int,
    low: int,
    high: int,
) -> NDArray[np.int8]:
    """ONNX Runtime's quantised softmax: clamp(rne(entry * factor / divisor) + zero_point), rounded once.

    Signs do not count, an exponent field of 0 of an entry stands for 0, and one of 255 is an exponent as any other. An
    entry whose field is greater than the divisor's gives `high`.

    Args:
        table: float32[256].
        places: int8[..., lanes]; place p takes entry p + 128.
        divisors: float32, of the same shape.
        factor: from 0 to 1023.
    """
    bits = table.view(np.uint32)[places.astype(np.int16) + 128].astype(np.int64)
    below = divisors.view(np.uint32).astype(np.int64)
    hidden, mask = 1 << _SIGNIFICAND, (1 << _SIGNIFICAND) - 1
    field, divisor_field = (one >> _SIGNIFICAND & 255 for one in (bits, below))
    distance = divisor_field - field
    numerator = 2 * factor * (bits & mask | hidden)
    # 12 places further, less than half of 1 is left of any quotient
    denominator = 2 * (below & mask | hidden) << np.clip(distance, 0, 12)
    whole, rest = np.divmod(numerator + denominator // 2, denominator)
    quotient = whole - ((rest == 0) & (whole & 1 == 1))
    quotient = np.where(field == 0, 0, quotient)
    limited = saturate(quotient + zero_point, low, high)
    return np.where(distance < 0, np.int8(high), limited)


_ROOT_BITS = 24
"""Of a reciprocal root's significand."""


def _signed_24(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """The low 24 bits, with their sign."""
    return (values.astype(np.int64) << 40) >> 40


def moments(words: NDArray[np.int8], zero_point: int, missing: int) -> NDArray[np.int32]:
    """Sums of numbers and of their squares, modulo 2^32, over words and lanes.

    Args:
        words: int8[blocks, words, lanes].
        zero_point: of the numbers.
        missing: lanes of the last word, from the highest, that do not count.

    Returns:
        int32[blocks, lanes]: the sum in lane 0, the sum of squares in lane 1, 0 in all others.
    """
    blocks, count, lanes = words.shape
    sums = np.zeros((2, blocks), np.int64)
    for first in range(0, count, _PIECE):
        numbers = words[:, first : first + _PIECE].astype(np.int64) - zero_point
        if first + _PIECE >= count:
            numbers[:, -1, max(0, lanes - missing) :] = 0
        sums += numbers.sum((1, 2)), (numbers * numbers).sum((1, 2))
    result = np.zeros((blocks, lanes), np.int32)
    result[:, :2] = wrap_int32(sums.T)
    return result


def reciprocal_root(values: NDArray[np.int32], count: int, epsilon: int, centred: bool) -> NDArray[np.int32]:
    """The reciprocal root of a variance, of moments as `moments` gives them.

    With S the sum, Q the sum of squares as an unsigned number, n the count, e epsilon and
    W = 2^16 max(0, n Q - S^2) + e (without the mean, W = 2^16 n Q + e), the result is m 2^-s with the largest m below
    2^24 for which m^2 v <= 2^78. Here W 4^(31 - s) has 64 bits of which the first two are not both 0, and v are its
    first 32. For W = 0, s is 0.

    Args:
        values: int32[..., lanes]; S in lane 0 (its low 24 bits), Q in lane 1.
        count: from 0 to 2^15 - 1.
        epsilon: from 0 to 2^62 - 1.
        centred: whether the mean counts.

    Returns:
        int32[..., lanes]: lane 0 as it is, m + 2^24 s in lane 1, 0 in all others.
    """
    total = _signed_24(values[..., 0])
    squares = values[..., 1].view(np.uint32).astype(np.int64)
    variance = np.maximum(0, count * squares - total * total * centred)
    wide = (variance.astype(np.uint64) << np.uint64(16)) + np.uint64(epsilon)
    shift = np.full(wide.shape, 31, np.int64)
    for places in (16, 8, 4, 2, 1):
        small = wide >> np.uint64(64 - 2 * places) == 0
        wide = np.where(small, wide << np.uint64(2 * places), wide)
        shift -= np.where(small, places, 0)
    value = (wide >> np.uint64(32)).astype(np.int64)
    # digit by digit: rest = (2^78 - root^2 value) / 4^places, after so many places
    root = np.ones_like(value)
    rest = (np.int64(1) << 32) - value
    for _ in range(_ROOT_BITS - 1):
        rest, product = 4 * rest, 4 * root * value + value
        fits = rest >= product
        rest = np.where(fits, rest - product, rest)
        root = 2 * root + fits
    # of 0, any root fits
    root = np.where(value == 0, (1 << _ROOT_BITS) - 1, root)
    result = np.zeros_like(values)
    result[..., 0] = values[..., 0]
    result[..., 1] = root | shift << _ROOT_BITS
    return result


def normalize(
    numbers: NDArray[np.int8], statistics: NDArray[np.int32], zero_point: int, count: int, centred: bool
) -> NDArray[np.int32]:
    """(n x - S) m 2^-s, or n x m 2^-s without the mean, rounded to a whole number, halves up, modulo 2^32.

    Args:
        numbers: int8[..., lanes]; x is such a number less the zero point.
        statistics: int32[..., lanes] as `reciprocal_root` gives them: S in lane 0 (its low 24 bits), m + 2^24 s in
            lane 1.
        zero_point: of the numbers.
        count: n.
        centred: whether the mean counts.
    """
    total = _signed_24(statistics[..., :1]) * centred
    root = statistics[..., 1:2].astype(np.int64) & ((1 << _ROOT_BITS) - 1)
    shift = statistics[..., 1:2] >> _ROOT_BITS & 31
    product = ((numbers.astype(np.int64) - zero_point) * count - total) * root
    return wrap_int32((2 * product >> shift) + 1 >> 1)
