"""The blocks of a normalisation against `sim/numerics.py`, bit for bit."""

import secrets
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.moments import Moments
from npukit.hw.normalize import NormalizeLane
from npukit.hw.reciprocal_root import ReciprocalRoot
from npukit.isa.timing import ROOT_CYCLES
from npukit.sim import numerics
from numpy.typing import NDArray

Generator = np.random.Generator
LANES = 3
ROOTS, NUMBERS, PASSES = 6000, 100_000, 20_000


@pytest.fixture(params=["fixed", "fresh"])
def rng(request: pytest.FixtureRequest) -> Generator:
    seed = 11 if request.param == "fixed" else secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def built(streaming: ModuleType):
    missing = streaming.missing_tool()
    if missing:
        pytest.skip(missing)
    return streaming.Stream


def any_size(rng: Generator, bits: int, count: int) -> NDArray[np.uint64]:
    """Numbers of up to so many bits, small ones as often as large ones."""
    numbers = rng.integers(0, 1 << bits, count, np.uint64)
    return numbers >> rng.integers(0, bits + 1, count, np.uint64)


def test_moments(built, rng: Generator) -> None:
    """Blocks of any length, and elements that do not count."""
    first = rng.random(PASSES) < 0.1
    first[0] = True
    elements = rng.integers(-128, 128, (PASSES, LANES)).astype(np.int8)
    elements[rng.random(PASSES) < 0.3] = -128
    counted, zero_point = rng.integers(0, 1 << LANES, PASSES), int(rng.integers(-128, 128))
    found = built(Moments(LANES), Moments.latency).run(
        elements=sum(elements.view(np.uint8)[:, k].astype(np.int64) << 8 * k for k in range(LANES)),
        counted=counted, zero_point=np.full(PASSES, zero_point), first=first.astype(int),
    )  # fmt: skip
    numbers = (elements.astype(np.int64) - zero_point) * (counted[:, None] >> np.arange(LANES) & 1)
    total, squares = 0, 0
    for at in range(PASSES):
        begins = bool(first[at])
        total = total * (not begins) + int(numbers[at].sum())
        squares = squares * (not begins) + int((numbers[at] ** 2).sum())
        assert (found["sum"][at], found["squares"][at]) == (total % 2**32, squares % 2**32), at


def roots(rng: Generator) -> dict[str, NDArray]:
    """Moments of numbers, with variances of few bits and of many, and any bits at all."""
    count = any_size(rng, 15, ROOTS)
    total = rng.integers(-(1 << 31), 1 << 31, ROOTS) >> rng.integers(0, 32, ROOTS)
    squares = any_size(rng, 32, ROOTS)
    near = rng.random(ROOTS) < 0.5
    low = (total << 40) >> 40
    least = low**2 // np.maximum(count.astype(np.int64), 1) + rng.integers(-1, 3, ROOTS)
    squares = np.where(near, least & 0xFFFFFFFF, squares.astype(np.int64))
    return {
        "sum": total & 0xFFFFFFFF, "squares": squares, "count": count.astype(np.int64),
        "epsilon": (any_size(rng, 62, ROOTS) * (rng.random(ROOTS) < 0.7)).astype(np.int64),
        "centred": rng.integers(0, 2, ROOTS),
    }  # fmt: skip


def test_reciprocal_root(built, rng: Generator) -> None:
    values = roots(rng)
    inputs = {name: np.repeat(column, ROOT_CYCLES) for name, column in values.items()}
    held = np.arange(ROOTS * ROOT_CYCLES) % ROOT_CYCLES == 0
    # but for the sum, they are there with the start alone
    inputs |= {name: np.where(held, column, ~column & 0x7FFF) for name, column in inputs.items() if name != "sum"}
    inputs["centred"] &= 1
    found = built(ReciprocalRoot(), ReciprocalRoot.latency).run(start=held.astype(int), **inputs)
    assert len(np.unique(found["root"] >> 24)) > 20
    for at in range(ROOTS):
        words = np.array([[values["sum"][at], values["squares"][at]]]).astype(np.uint32).view(np.int32)
        one = {name: int(column[at]) for name, column in values.items()}
        want = numerics.reciprocal_root(words, one["count"], one["epsilon"], bool(one["centred"]))[0]
        for later in (0, ROOT_CYCLES - 1):  # and it stays until the next one is there
            place = at * ROOT_CYCLES + later
            got = found["same_sum"][place], found["root"][place]
            assert got == (int(want[0]) % 2**32, int(want[1])), (at, later, one)


def test_normalize(built, rng: Generator) -> None:
    """Any bits; halves of a place; and roots as long as they get."""
    number, zero_point = rng.integers(-128, 128, (2, NUMBERS))
    count, centred = any_size(rng, 15, NUMBERS).astype(np.int64), rng.integers(0, 2, NUMBERS)
    total = rng.integers(-(1 << 23), 1 << 23, NUMBERS) >> rng.integers(0, 24, NUMBERS)
    root = rng.integers(1 << 23, 1 << 24, NUMBERS)
    root[rng.random(NUMBERS) < 0.2] = 1 << 23
    root[:100] = rng.integers(0, 1 << 24, 100)
    shift = rng.integers(0, 32, NUMBERS)
    found = built(NormalizeLane(), NormalizeLane.latency).run(
        number=number, zero_point=zero_point, count=count, centred=centred, sum=total, root=root, shift=shift
    )
    exact = ((number - zero_point) * count - total * centred) * root
    want = np.array([(2 * int(one) // 2 ** int(by) + 1) // 2 for one, by in zip(exact, shift, strict=True)])
    np.testing.assert_array_equal(found["result"], want % 2**32)
    statistics = np.stack([total, root | shift << 24], 1).astype(np.int32)
    for at in range(0, NUMBERS, 97):
        got = numerics.normalize(
            number[at : at + 1].astype(np.int8), statistics[at], int(zero_point[at]), int(count[at]), bool(centred[at])
        )
        assert int(got[0]) == int(want[at].astype(np.int64).astype(np.uint32).view(np.int32))
