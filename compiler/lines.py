"""Functions as 256 straight lines, which bf16's FUNCTION evaluates: see `docs/numerics.md`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from npukit.isa.descriptors import TABLE_ENTRIES, Indexing
from numpy.typing import NDArray

__all__ = [
    "ALL_NUMBERS",
    "Lines",
    "descriptor_of",
    "exponential",
    "fit",
    "reciprocal",
    "reciprocal_root",
    "scaling",
]

_STEPS = range(-14, 3)
_OFFSETS = (128, 64, 192, 0, 255)
"""Where 0 may lie among the segments: in the middle first."""
_FAR = (2.0**12, 2.0**14)
"""Between them, a function must be as straight as it is for all larger numbers."""
_FARTHEST = 2.0**30
"""Up to here it is looked at."""
_RELATIVE, _ABSOLUTE = 2.0**-8, 2.0**-9
"""How far a result may be away: of itself, and of the largest one for numbers up to 1, or of 1 if that is less."""


@dataclass(frozen=True)
class Lines:
    """A function of numbers in segments of 2^step, of which the one of number `offset` begins at 0.

    table: float32[256, 2], a slope and an intercept for each.
    """

    table: NDArray[np.float32]
    step: int
    offset: int


def descriptor_of(table: NDArray[np.float32], indexing: Indexing, step: int = 0, offset: int = 0) -> dict[str, Any]:
    """The fields of FUNCTION's descriptor."""
    values: dict[str, Any] = {"indexing": indexing, "step": step, "offset": offset}
    for index, (slope, intercept) in enumerate(table):
        values[f"slope_{index}"], values[f"intercept_{index}"] = slope, intercept
    return values


def scaling(factor: float) -> NDArray[np.float32]:
    """The lines of a product with a number."""
    return np.tile(np.array([factor, 0], np.float32), (TABLE_ENTRIES, 1))


_EXPONENTIAL_STEP = -4


@cache
def exponential() -> Lines:
    """e^x for x <= 0, 1 at 0, and 0 below -15.875: within 2^-11 of itself between them."""
    width, offset = 2.0**_EXPONENTIAL_STEP, TABLE_ENTRIES - 1
    points = (np.arange(TABLE_ENTRIES + 1) - offset) * width
    table = _chords(points, np.exp(points))
    # a chord is above the curve: by so much of it in the middle, of which half is taken off
    table[:, 1] *= 1 - width**2 / 16
    table[:, 0] *= 1 - width**2 / 16
    table[0], table[-1] = (0, 0), (1, 1)
    return Lines(table.astype(np.float32), _EXPONENTIAL_STEP, offset)


@cache
def reciprocal() -> NDArray[np.float32]:
    """1 / m of a significand, within 2^-17 of itself."""
    points = 1 + np.arange(TABLE_ENTRIES + 1) / TABLE_ENTRIES
    return _chords(points, 1 / points).astype(np.float32)


def reciprocal_root(factor: float) -> NDArray[np.float32]:
    """factor / sqrt(s) for s from 1 to 4, within 2^-17 of itself."""
    half = TABLE_ENTRIES // 2
    points = 1 + np.arange(half) / half
    edges = np.concatenate([points, 2 * points, [4.0]])
    return _chords(edges, factor / np.sqrt(edges)).astype(np.float32)


def _chords(points: NDArray, values: NDArray) -> NDArray[np.float64]:
    """Slope and intercept between each two points."""
    slopes = np.diff(values) / np.diff(points)
    return np.stack([slopes, values[:-1] - slopes * points[:-1]], axis=1)


_PATTERNS = np.arange(1 << 16, dtype=np.uint32)
_FIELDS = _PATTERNS >> 7 & 255
_NUMBERS = _PATTERNS[(_FIELDS != 255) & (_FIELDS != 0) | (_PATTERNS == 0)]
ALL_NUMBERS: NDArray[np.float32] = (_NUMBERS << 16).view(np.float32)
"""All bfloat16 numbers that are finite, and not subnormal."""


def fit(results: NDArray[np.float32]) -> tuple[Lines | None, str]:
    """Lines for a function of which all results are known, or None and why there are none.

    Args:
        results: of `ALL_NUMBERS`.
    """
    looked_at = np.abs(ALL_NUMBERS) <= _FARTHEST
    x, y = ALL_NUMBERS[looked_at].astype(np.float64), results[looked_at].astype(np.float64)
    if not np.isfinite(y).all():
        return None, f"it is {y[~np.isfinite(y)][0]:g} at {x[~np.isfinite(y)][0]:g}"
    order = np.argsort(x)
    x, y = x[order], y[order]
    allowed = _RELATIVE * np.abs(y) + _ABSOLUTE * min(1.0, np.abs(y[np.abs(x) <= 1]).max())
    best: tuple[float, Lines | None, float] = np.inf, None, 0.0
    for lines in _candidates(x, y):
        index = np.clip(np.floor(x / 2.0**lines.step) + lines.offset, 0, TABLE_ENTRIES - 1).astype(np.int64)
        slope, intercept = lines.table[index].T.astype(np.float64)
        apart = np.abs(slope * x + intercept - y)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(apart == 0, 0, apart / allowed)
        worst = int(share.argmax())
        if share[worst] < best[0]:
            best = float(share[worst]), lines, float(x[worst])
    if best[0] > 1:
        return None, f"the nearest ones are too far away at {best[2]:g}"
    return best[1], ""


def _candidates(x: NDArray[np.float64], y: NDArray[np.float64]) -> Iterator[Lines]:
    """Chords of segments of any width, and at both ends the lines on which the function goes on."""
    for step in _STEPS:
        for offset in _OFFSETS:
            points = (np.arange(TABLE_ENTRIES + 1) - offset) * 2.0**step
            table = _chords(points, y[np.searchsorted(x, points)])
            for end, sign in ((0, -1), (-1, 1)):
                near, far = (float(y[np.searchsorted(x, sign * place)]) for place in _FAR)
                slope = (far - near) / (sign * (_FAR[1] - _FAR[0]))
                table[end] = slope, near - slope * sign * _FAR[0]
            yield Lines(table.astype(np.float32), step, offset)
