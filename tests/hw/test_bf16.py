"""The bf16 multiplier and the binary32 adder against `sim/bfloat16.py`, bit for bit; that is held to fractions."""

from itertools import product
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.bf16 import Bf16Multiplier, Float32Adder
from npukit.sim import bfloat16
from numpy.typing import NDArray

COUNT = 1_000_000
EDGES = (
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x0C800000, 0x33800000,
    0x34000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x40000000, 0x4B7FFFFF, 0x4B800000, 0x4C000001,
    0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
)  # fmt: skip


def patterns(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    return bfloat16.canonical(values).view(np.uint32)


def sums(seed: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """All pairs of edges; any bits; exponents near each other, often with mantissas of few bits, so that ties come."""
    random = np.random.default_rng(seed)
    edges = [one | sign for one in EDGES for sign in (0, 0x80000000)]
    pairs = np.array(list(product(edges, edges)), np.uint32)
    any_bits = random.integers(0, 1 << 32, (COUNT // 2, 2), np.uint32)
    near = random.integers(0, 1 << 32, (COUNT, 2), np.uint32)
    exponent = random.integers(0, 256, COUNT)
    other = np.clip(exponent + random.integers(-28, 29, COUNT), 0, 255)
    mask = np.uint32(0x7FFFFF) << random.integers(0, 24, (COUNT, 2)).astype(np.uint32)
    near = near & (np.uint32(0x80000000) | mask & np.uint32(0x7FFFFF))
    near |= np.stack([exponent, other], axis=1).astype(np.uint32) << np.uint32(23)
    both = np.concatenate([pairs, any_bits, near])
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


@pytest.mark.parametrize("seed", [1, 2])
def test_sums(streaming: ModuleType, seed: int) -> None:
    adder = Float32Adder()
    a, b = sums(seed)
    found = streaming.Stream(adder, adder.latency).run(a=a, b=b)["total"]
    expected = patterns(bfloat16.add(a.view(np.float32), b.view(np.float32)))
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), [hex(int(one[wrong[0]])) for one in (a, b, expected, found)]


def test_products(streaming: ModuleType) -> None:
    """Every bfloat16 times a thousand others, and all pairs of the rarer ones."""
    multiplier = Bf16Multiplier()
    random = np.random.default_rng(3)
    every = np.arange(1 << 16, dtype=np.uint16)
    edges = np.array([one >> 16 | sign for one in EDGES for sign in (0, 0x8000)], np.uint16)
    pairs = [(every, random.permutation(every)) for _ in range(40)]
    pairs += [(every, np.full(1 << 16, one, np.uint16)) for one in edges]
    # products around the smallest normal number and the largest
    exponent = random.integers(1, 255, COUNT)
    for target in (127, 127 + 255):
        other = np.clip(target - exponent + random.integers(-2, 3, COUNT), 0, 255)
        mantissas = random.integers(0, 1 << 16, (2, COUNT)).astype(np.uint16) & np.uint16(0x807F)
        pairs.append((mantissas[0] | (exponent << 7).astype(np.uint16), mantissas[1] | (other << 7).astype(np.uint16)))
    a, b = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    found = streaming.Stream(multiplier, multiplier.latency).run(a=a, b=b)["product"]
    expected = patterns(bfloat16.multiply(bfloat16.widen(a), bfloat16.widen(b)))
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), [hex(int(one[wrong[0]])) for one in (a, b, expected, found)]
