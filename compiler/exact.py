"""Exact scalar arithmetic for constants that must round as the hardware's would."""

from fractions import Fraction

import numpy as np

__all__ = ["float32_fma"]


def float32_fma(a: float, b: float, c: float) -> np.float32:
    """a * b + c of fp32 (or integral) values, rounded once to fp32, ties to even."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = np.float32(float(exact))
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]

    def distance(value: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(value)) - exact), int(value.view(np.uint32)) & 1

    return min(candidates, key=distance)
