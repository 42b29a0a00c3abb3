"""Arithmetic of the bf16 datapath, each formula once. `docs/numerics.md` has the definitions.

bfloat16 values are uint16 bit patterns; all else is float32. Every operation rounds to nearest even, counts
operands and results with an exponent field of 0, subnormal numbers and -0, as +0, and gives infinity on overflow.
NaN stays NaN on the way, and is made the canonical one where a value is stored.

Only a product of two float32 can be rounded into the subnormal range. It is rounded as if exponents had no lower
limit, and is then 0 if it is below the smallest normal number, as hardware does it.
"""

import numpy as np
from npukit.isa.descriptors import Indexing
from npukit.sim.compiled import njit
from numpy.typing import NDArray

__all__ = [
    "CANONICAL_NAN",
    "add",
    "canonical",
    "clamp",
    "flush",
    "function",
    "matrix_product",
    "maximum",
    "multiply",
    "narrow",
    "weigh",
    "widen",
    "window_sum",
]

CANONICAL_NAN = 0x7FC00000
"""The bit pattern of every NaN that is stored; its upper half in bfloat16."""
_LEAST_NORMAL = np.float32(2.0**-126)
_ROUNDS_TO_LEAST_NORMAL = 2.0**-126 * (1 - 2.0**-25)
"""Products from here on round to the smallest normal number: half a last place below it, and ties go to even."""

Floats = NDArray[np.float32]


def flush(values: Floats) -> Floats:
    """Subnormal values and -0 become +0."""
    return np.where(np.abs(values) < _LEAST_NORMAL, np.float32(0), values)


def canonical(values: Floats) -> Floats:
    """Every NaN becomes the canonical one."""
    nan = np.uint32(CANONICAL_NAN).view(np.float32)
    return np.where(np.isnan(values), nan, values)


def widen(bits: NDArray[np.uint16]) -> Floats:
    """bfloat16 to float32."""
    return flush((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


def narrow(values: Floats) -> NDArray[np.uint16]:
    """float32 to bfloat16, rounded to nearest even."""
    bits = flush(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(CANONICAL_NAN >> 16), rounded.astype(np.uint16))


def add(a: Floats, b: Floats) -> Floats:
    """A sum. Where it is subnormal it is exact, so nothing is rounded twice."""
    with np.errstate(over="ignore", invalid="ignore"):
        return flush(flush(a) + flush(b))


def multiply(a: Floats, b: Floats) -> Floats:
    """A product."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = flush(a).astype(np.float64) * flush(b).astype(np.float64)
        return np.where(np.abs(exact) < _ROUNDS_TO_LEAST_NORMAL, np.float32(0), exact.astype(np.float32))


def weigh(values: Floats, weights: Floats) -> Floats:
    """Products with weights: a weight of 0 gives 0, of infinities and NaN as well."""
    return np.where(flush(weights) == 0, np.float32(0), multiply(values, weights))


def clamp(values: Floats, low: np.float32, high: np.float32) -> Floats:
    """Limited to low .. high, `high` last; NaN stays NaN, and a limit that is NaN limits nothing."""
    least, most = (flush(np.asarray(limit, np.float32)) for limit in (low, high))
    raised = np.where(values < least, least, values)
    return np.where(raised > most, most, raised)


def maximum(values: Floats) -> Floats:
    """Over the axes 3 and 4 of [blocks, height, width, rows, columns, lanes]: the first of equals; NaN if any is."""
    rows, columns = values.shape[3:5]
    best = values[:, :, :, 0, 0]
    for row in range(rows):
        for column in range(columns):
            value = values[:, :, :, row, column]
            best = np.where((value > best) | np.isnan(value), value, best)
    return best


def window_sum(values: Floats) -> Floats:
    """The sum over the axes 3 and 4 of [blocks, height, width, rows, columns, lanes], row by row, from +0."""
    total = np.zeros((*values.shape[:3], values.shape[5]), np.float32)
    for row in range(values.shape[3]):
        for column in range(values.shape[4]):
            total = add(total, values[:, :, :, row, column])
    return total


_NOTHING_LEFT = 255
"""A power of two by which any number is divided to 0."""
_FAR = 1023
"""Beyond all segments, from wherever they begin."""


def _scaled(numbers: Floats, exponents: NDArray[np.int64]) -> Floats:
    """Numbers times powers of two: 0 below the least normal one, infinite beyond the largest."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.ldexp(flush(numbers).astype(np.float64), exponents)
        return np.where(np.abs(exact) < _LEAST_NORMAL, 0, exact).astype(np.float32)


def function(values: Floats, slopes: Floats, intercepts: Floats, indexing: Indexing, step: int, offset: int) -> Floats:
    """A function made of straight lines: slope * x + intercept of the segment of x.

    VALUE: the segment is floor(x / 2^step) + offset, the first or the last one where there is none; a slope of 0 makes
    0 of an infinite x. RECIPROCAL: with |x| = m 2^e, 1 <= m < 2, m is taken for x, the segment is the upper 8
    bits of m - 1, and slope and intercept are scaled by 2^-e; the result has the sign of x. RECIPROCAL_ROOT: with e =
    2 h + r, r 0 or 1, m 2^r is taken for x, the segment is r and the upper 7 bits of m - 1, and slope and intercept are
    scaled by 2^-h; of a negative number the result is NaN. There 0 counts as 2^-127, and infinity gives 0.

    Args:
        slopes, intercepts: [256].
        step, offset: whole numbers, for VALUE.
    """
    x = flush(values)
    invalid = np.isnan(x)
    if indexing is Indexing.VALUE:
        place = np.floor(np.ldexp(np.where(invalid, 0, x).astype(np.float64), -step))
        index = np.clip(np.clip(place, -_FAR, _FAR).astype(np.int64) + offset, 0, len(slopes) - 1)
        slope = slopes[index]
        x = np.where(np.isinf(x) & (flush(slope) == 0), np.float32(0), x)
        return add(multiply(x, slope), intercepts[index])
    bits = x.view(np.uint32).astype(np.int64)
    significand, exponent = bits & 0x7FFFFF, (bits >> 23 & 255) - 127
    root = indexing is Indexing.RECIPROCAL_ROOT
    odd = exponent & 1 if root else np.zeros_like(exponent)
    index = odd << 7 | significand >> 16 if root else significand >> 15
    place = (significand | 127 + odd << 23).astype(np.uint32).view(np.float32)
    negative = bits >> 31 == 1
    if root:
        invalid = invalid | negative
    power = np.where(np.isinf(x), _NOTHING_LEFT, exponent >> 1 if root else exponent)
    total = add(multiply(place, _scaled(slopes[index], -power)), _scaled(intercepts[index], -power))
    return np.where(invalid, np.float32(np.nan), np.where(negative & (total != 0), -total, total))


@njit
def matrix_product(rows: Floats, tiles: Floats, start: Floats, result: Floats) -> None:  # pragma: no cover
    """Sums of products in the order of the array: each step's column from row 0 on, then added to what was before.

    Args:
        rows: [words, steps, rows], without subnormals; a step is one pass through the array.
        tiles: [blocks, steps, rows, columns], without subnormals: weights by row and column.
        start: [blocks, words, columns], without subnormals: what the first step is added to.
        result: the same shape, written.
    """
    words, steps, tall = rows.shape
    size = tiles.shape[3]
    least = np.float32(2.0**-126)
    zero = np.float32(0)
    column = np.empty(size, np.float32)
    for block in range(tiles.shape[0]):
        for word in range(words):
            total = result[block, word]
            total[:] = start[block, word]
            for step in range(steps):
                tile = tiles[block, step]
                column[:] = zero
                for row in range(tall):
                    value = rows[word, step, row]
                    weights = tile[row]
                    for lane in range(size):
                        product = value * weights[lane]
                        product = zero if abs(product) < least or weights[lane] == zero else product
                        partial = column[lane] + product
                        column[lane] = zero if abs(partial) < least else partial
                for lane in range(size):
                    partial = total[lane] + column[lane]
                    total[lane] = zero if abs(partial) < least else partial
