"""Random bit patterns of floating-point numbers, near each other and near all limits."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["SPECIAL", "random_floats", "random_halves"]

SPECIAL = (
    0x00000000, 0x80000000,  # zeros
    0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00010000, 0x807F0000,  # subnormal, the last two bfloat16, too
    0x00800000, 0x80800000, 0x00FFFFFF, 0x01000000,  # the smallest normal numbers
    0x7F7F0000, 0xFF7F0000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000, 0x7F7F7FFF,  # the largest
    0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FA50000, 0xFFFFFFFF,  # infinities and NaN
    0x3F800000, 0xBF800000, 0x3F800001, 0x3F7FFFFF, 0x3F808000, 0x3F818000, 0x3F807FFF,  # around 1 and ties
)  # fmt: skip
"""binary32 patterns at which something changes."""


def random_floats(generator: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """binary32 patterns of one kind: ordinary, small whole, of any exponent, near underflow, with zeros and subnormal
    numbers among them, with any special ones, or any bits."""
    bits = generator.integers(0, 1 << 32, count, np.uint32)
    kind = generator.choice(
        ["ordinary", "whole", "wide", "small", "tiny", "special", "any"], p=[0.2, 0.15, 0.1, 0.1, 0.15, 0.25, 0.05]
    )
    if kind == "any":
        return bits
    if kind == "whole":  # sums that cancel, and ties
        return generator.integers(-8, 9, count).astype(np.float32).view(np.uint32)
    ranges = {"wide": (1, 255), "small": (59, 69)}  # products of the latter are about the smallest normal number
    low, high = ranges.get(str(kind), (118, 136))
    exponents = generator.integers(low, high, count, np.uint32)
    found = bits & np.uint32(0x807FFFFF) | exponents << np.uint32(23)
    if kind == "tiny":
        chosen = generator.random(count) < 0.3
        found = np.where(chosen, generator.choice(np.array(SPECIAL[:12], np.uint32), count), found)
    if kind == "special":
        # few, or all that follows from them is NaN
        chosen = generator.random(count) < generator.choice([0.01, 0.05, 0.3])
        found = np.where(chosen, generator.choice(np.array(SPECIAL, np.uint32), count), found)
    return found


def random_halves(generator: np.random.Generator, count: int) -> NDArray[np.uint16]:
    """bfloat16 patterns of one kind, as `random_floats`."""
    return (random_floats(generator, count) >> np.uint32(16)).astype(np.uint16)
