"""The requantisation lane against `sim/numerics.py`, bit for bit."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.requantize import RequantizeLane
from npukit.sim import numerics
from numpy.typing import NDArray

COUNT = 1_000_000
ACCUMULATORS = np.array(
    [
        *(0, 1, -1, 2, -2, 3, -3, 5, 127, 128, -128, -129, 255, 2**16, 2**23 + 1),
        *(
            2**24 - 1,
            2**24,
            2**24 + 1,
            2**24 + 2,
            2**24 + 3,
            -(2**24) - 1,
            2**25 + 2,
            2**25 + 6,
            -(2**25) - 2,
        ),
        *(2**30, 2**30 - 1, 2**31 - 1, 2**31 - 64, 2**31 - 65, 2**31 - 192, -(2**31), 1 - 2**31, 65 - 2**31),
    ],
    np.int64,
)
MULTIPLIERS = np.array(
    [0, 1, -1, 2, 3, 2**30, 2**30 + 1, -(2**30), 2**31 - 1, 2**31 - 2, -(2**31), -(2**31) + 1, 0x5A827999],
    np.int64,
)
Inputs = dict[str, NDArray]


def integers(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """int32 of every magnitude alike."""
    return rng.integers(-(2**31), 2**31, count) >> rng.integers(0, 32, count)


def floats(rng: np.random.Generator, exponents: NDArray[np.integer]) -> NDArray[np.float32]:
    """Either sign, 2**exponent to 2**(exponent + 1); fractions often end in zeros or ones."""
    count = len(exponents)
    keep = np.uint32(0x7FFFFF) << rng.integers(0, 24, count).astype(np.uint32)
    fraction = rng.integers(0, 2**23, count).astype(np.uint32) & keep
    fraction ^= np.where(rng.random(count) < 0.25, ~keep, 0).astype(np.uint32) & 0x7FFFFF
    sign = rng.integers(0, 2, count).astype(np.uint32) << 31
    return (sign | (exponents.astype(np.uint32) + 127 << 23) | fraction & 0x7FFFFF).view(np.float32)


def clamps(rng: np.random.Generator, count: int) -> Inputs:
    """Every second one is the whole of int8, a few have `low` above `high`."""
    low, high = rng.integers(-128, 128, (2, count))
    crossed = rng.random(count) < 0.05
    low, high = np.where((low > high) ^ crossed, [high, low], [low, high])
    whole = rng.random(count) < 0.5
    return {
        "zero_point": rng.integers(-128, 128, count),
        "low": np.where(whole, -128, low),
        "high": np.where(whole, 127, high),
    }


def float_case(
    accumulators: NDArray, bias: NDArray, multiplier: NDArray[np.float32], clamp: Inputs
) -> tuple[Inputs, NDArray]:
    """The lane's inputs, and the result that they must give."""
    requantize: Any = numerics.requantize  # each value has a zero point and clamp of its own here
    expected = requantize(accumulators.astype(np.int32), bias.astype(np.int32), multiplier, *clamp.values())
    inputs = {"accumulator": accumulators, "bias": bias, "multiplier": multiplier.view(np.uint32), **clamp}
    return inputs, expected


def fixed_case(
    accumulators: NDArray, bias: NDArray, multiplier: NDArray, shift: NDArray, clamp: Inputs
) -> tuple[Inputs, NDArray]:
    requantize_fixed: Any = numerics.requantize_fixed
    expected = requantize_fixed(
        accumulators.astype(np.int32), bias.astype(np.int32), multiplier, shift, *clamp.values()
    )
    inputs = {
        "accumulator": accumulators,
        "bias": bias,
        "multiplier": multiplier & 0xFFFFFFFF,
        "shift": shift,
        "fixed": np.ones(len(shift), np.int64),
        **clamp,
    }
    return inputs, expected


def wrapped(accumulators: NDArray, bias: NDArray) -> NDArray[np.float64]:
    return numerics.wrap_int32(accumulators + bias).astype(np.float64)


def random_float(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Four of five results fall within int8 or near it; the rest has exponents from -100 to 100."""
    accumulators, bias = integers(rng, count), integers(rng, count) * (rng.random(count) < 0.7)
    size = np.frexp(wrapped(accumulators, bias))[1]
    exponents = np.where(
        rng.random(count) < 0.8,
        np.clip(rng.integers(-3, 11, count) - size, -100, 100),
        rng.integers(-100, 101, count),
    )
    multiplier = floats(rng, exponents)
    multiplier[rng.random(count) < 0.01] = 0
    return float_case(accumulators, bias, multiplier, clamps(rng, count))


def near_ties(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Products around k + 1/2: the multiplier nearest to it, and its neighbours."""
    accumulators, bias = integers(rng, count), np.zeros(count, np.int64)
    accumulators[accumulators == 0] = 1
    target = rng.integers(-256, 256, count) + 0.5
    nearest = (target / accumulators.astype(np.float32)).astype(np.float32)
    bits = nearest.view(np.int32) + rng.integers(-2, 3, count).astype(np.int32)
    return float_case(accumulators, bias, bits.view(np.float32), clamps(rng, count))


def exact_ties(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """(2 k + 1) * 2**n times 2**-(n + 1), and a little beside it: as an int32 that may lose bits in fp32."""
    places = rng.integers(0, 23, count)
    accumulators = (2 * rng.integers(-256, 256, count) + 1) << places
    accumulators += rng.integers(-2, 3, count)
    multiplier = np.ldexp(np.float32(1), -(places + 1)).astype(np.float32)
    return float_case(accumulators, np.zeros(count, np.int64), multiplier, clamps(rng, count))


def rounded_accumulators(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Sums that are halfway between two fp32, or beside it."""
    places = rng.integers(1, 8, count)
    accumulators = (rng.integers(2**23, 2**24, count) << places) + (1 << places >> 1) + rng.integers(-1, 2, count)
    accumulators = np.minimum(accumulators, 2**31 - 1) * rng.choice([-1, 1], count)
    multiplier = floats(rng, rng.integers(-33, -20, count))
    return float_case(accumulators, np.zeros(count, np.int64), multiplier, clamps(rng, count))


def all_exponents(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Any bits as a multiplier: subnormals, infinities, NaN; products that overflow."""
    multiplier = rng.integers(0, 2**32, count).astype(np.uint32)
    multiplier |= np.where(rng.random(count) < 0.1, 0x7F800000, 0).astype(np.uint32)
    multiplier = multiplier.view(np.float32)
    return float_case(integers(rng, count), np.zeros(count, np.int64), multiplier, clamps(rng, count))


def random_fixed(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Half of them any int32 multiplier and shift; half scaled to fall within int8 or near it."""
    accumulators, bias = integers(rng, count), integers(rng, count) * (rng.random(count) < 0.7)
    size = np.frexp(wrapped(accumulators, bias))[1]
    usual = rng.random(count) < 0.5
    multiplier = np.where(usual, rng.integers(2**30, 2**31, count), integers(rng, count))
    near = np.clip(rng.integers(5, 12, count) - size, -31, 30)
    shift = np.where(usual, near, rng.integers(-128, 128, count))
    return fixed_case(accumulators, bias, multiplier, shift, clamps(rng, count))


def edges_fixed(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Every pair of edge values with every shift, those that mean nothing included."""
    grid = np.meshgrid(ACCUMULATORS, MULTIPLIERS, np.arange(-128, 128), indexing="ij")
    accumulators, multiplier, shift = (axis.ravel() for axis in grid)
    bias = np.zeros_like(accumulators)
    return fixed_case(accumulators, bias, multiplier, shift, clamps(rng, len(shift)))


def ties_fixed(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Multiplier 2**30 or 2**31 - 1, so that each of the two roundings meets ties."""
    shift = -rng.integers(0, 22, count)
    accumulators = ((2 * rng.integers(-256, 256, count) + 1) << -shift) + rng.integers(-2, 3, count)
    multiplier = rng.choice([2**30, 2**31 - 1, -(2**30), 2**29], count)
    return fixed_case(accumulators, np.zeros(count, np.int64), multiplier, shift, clamps(rng, count))


def edges_float(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Every pair of edge values, as accumulator and bias, with powers of two and their neighbours."""
    powers = np.ldexp(np.float32(1), np.arange(-34, 10)).astype(np.float32)
    several = np.concatenate([powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(9e9))])
    several = np.concatenate([several, -several, np.zeros(1, np.float32)])
    left, right, choice = (
        axis.ravel() for axis in np.meshgrid(ACCUMULATORS, ACCUMULATORS, np.arange(len(several)), indexing="ij")
    )
    return float_case(left, right, several[choice], clamps(rng, len(left)))


CASES = (
    random_float, near_ties, exact_ties, rounded_accumulators, all_exponents, edges_float,
    random_fixed, edges_fixed, ties_fixed,
)  # fmt: skip


@pytest.fixture(scope="module")
def lane(streaming: ModuleType) -> Any:
    if missing := streaming.missing_tool():
        pytest.skip(missing)
    return streaming.Stream(RequantizeLane(), RequantizeLane.latency)


def check(result: NDArray, inputs: Inputs, expected: NDArray) -> None:
    wrong = np.flatnonzero(result != expected)
    if len(wrong):
        first = {name: int(np.broadcast_to(values, result.shape)[wrong[0]]) for name, values in inputs.items()}
        pytest.fail(
            f"{len(wrong)} of {len(result)} differ, the first with {first}: "
            f"{result[wrong[0]]} instead of {expected[wrong[0]]}"
        )


@pytest.mark.parametrize("case", CASES)
def test_equals_numerics(lane: Any, case: Any) -> None:
    inputs, expected = case(np.random.default_rng(1), COUNT)
    assert len(np.unique(expected)) == 256  # the case means something
    check(lane.run(**inputs)["result"], inputs, expected)


def mixed(rng: np.random.Generator, count: int) -> tuple[Inputs, NDArray]:
    """Values of all cases one after the other, in random order."""
    drawn = [case(rng, count // len(CASES)) for case in CASES]
    names = dict.fromkeys(name for inputs, _ in drawn for name in inputs)
    sizes = [len(expected) for _, expected in drawn]
    order = rng.permutation(sum(sizes))[:count]

    def column(name: str) -> NDArray:
        parts = [
            np.broadcast_to(inputs.get(name, np.int64(0)), size).astype(np.int64)
            for (inputs, _), size in zip(drawn, sizes, strict=True)
        ]
        return np.concatenate(parts)[order]

    return {name: column(name) for name in names}, np.concatenate([expected for _, expected in drawn])[order]


def test_modes_alternate(lane: Any) -> None:
    inputs, expected = mixed(np.random.default_rng(2), COUNT)
    check(lane.run(**inputs)["result"], inputs, expected)


def test_in_amaranth_simulator(streaming: ModuleType) -> None:
    inputs, expected = mixed(np.random.default_rng(3), 60)
    result = streaming.simulate(RequantizeLane(), RequantizeLane.latency, **inputs)["result"]
    check(result, inputs, expected)
