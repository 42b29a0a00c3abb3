"""Arithmetic of the int8 datapath, each formula once, as plain numpy. `docs/numerics.md` has the sources."""

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "add",
    "add_fixed",
    "fused_multiply_add",
    "multiply",
    "multiply_by_quantized_multiplier",
    "requantize",
    "requantize_fixed",
    "saturate",
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
