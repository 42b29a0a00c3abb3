"""The lane of TABLE_SUM and TABLE_DIVIDE against `sim/numerics.py`, bit for bit."""

import secrets
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.softmax import SoftmaxLane
from npukit.isa.descriptors import TABLE_ENTRIES
from npukit.sim import numerics
from numpy.typing import NDArray

GROUPS = 4
SUMS, QUOTIENTS = 400, 20_000
Generator = np.random.Generator


def any_bits(rng: Generator) -> NDArray[np.uint32]:
    return rng.integers(0, 1 << 32, TABLE_ENTRIES, np.uint32)


def exponentials(rng: Generator) -> NDArray[np.uint32]:
    exponents = (np.arange(TABLE_ENTRIES) - 255) * 10 ** rng.uniform(-5, 0.5) + rng.uniform(-5, 80)
    return np.exp(exponents).astype(np.float32).view(np.uint32)


def edges(rng: Generator) -> NDArray[np.uint32]:
    """Significands that carry, and exponents as far apart as places go."""
    fractions = rng.choice(np.array([0, 1, 2, 0x3FFFFF, 0x400000, 0x7FFFFE, 0x7FFFFF], np.uint32), TABLE_ENTRIES)
    return rng.integers(100, 130, TABLE_ENTRIES).astype(np.uint32) << np.uint32(23) | fractions


def halves(rng: Generator) -> NDArray[np.uint32]:
    """Small whole numbers, of which quotients are halves."""
    return (rng.integers(1, 9, TABLE_ENTRIES) * 2.0 ** rng.integers(0, 4)).astype(np.float32).view(np.uint32)


def ends(rng: Generator) -> NDArray[np.uint32]:
    """Around the least and the largest numbers."""
    fields = rng.choice(np.array([0, 1, 2, 253, 254, 255], np.uint32), TABLE_ENTRIES) << np.uint32(23)
    return fields | rng.integers(0, 1 << 23, TABLE_ENTRIES, np.uint32)


TABLES = {one.__name__: one for one in (any_bits, exponentials, edges, halves, ends)}


def written(table: NDArray[np.uint32], **later: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Inputs that first write the table, and then others."""
    count = len(next(iter(later.values())))
    before = {"write": np.ones(len(table)), "place": np.arange(len(table)), "entry": table.astype(np.int64)}
    inputs = {name: np.concatenate([column, np.zeros(count)]).astype(np.int64) for name, column in before.items()}
    for name, column in later.items():
        inputs[name] = np.concatenate([np.zeros(len(table)), column]).astype(np.int64)
    return inputs


@pytest.fixture(params=["fixed", "fresh"])
def rng(request: pytest.FixtureRequest) -> Generator:
    seed = 7 if request.param == "fixed" else secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def lane(streaming: ModuleType):
    missing = streaming.missing_tool()
    if missing:
        pytest.skip(missing)
    return streaming.Stream(SoftmaxLane(GROUPS), SoftmaxLane.latency)


@pytest.mark.parametrize("kind", TABLES)
def test_sums(lane, kind: str, rng: Generator) -> None:
    for length in (1, 2, 3, 50, SUMS):
        table = TABLES[kind](rng)
        places = rng.integers(-128, 128, (length, GROUPS)).astype(np.int8)
        inputs = written(
            table, source=places.reshape(-1).astype(np.int64) + 128, group=np.tile(np.arange(GROUPS), length),
            first=np.repeat(np.arange(length) == 0, GROUPS),
        )  # fmt: skip
        early = SoftmaxLane.latency - SoftmaxLane.sum_latency
        found = lane.run(**inputs)["sum"][TABLE_ENTRIES - early :][: places.size].reshape(length, GROUPS)
        for last in {0, length // 2, length - 1}:
            wanted = numerics.table_sum(table.view(np.float32), places[None, : last + 1])[0]
            assert found[last].tolist() == wanted.view(np.uint32).tolist(), (kind, length, last)


@pytest.mark.parametrize("kind", TABLES)
def test_quotients(lane, kind: str, rng: Generator) -> None:
    for factor in (0, 1, 254, 255, 256, 1023, int(rng.integers(1024))):
        table = TABLES[kind](rng)
        places = rng.integers(-128, 128, QUOTIENTS).astype(np.int8)
        terms = rng.integers(-128, 128, (1, 5, QUOTIENTS)).astype(np.int8)
        terms[:, 0] = places
        sums = numerics.table_sum(table.view(np.float32), terms)[0].view(np.uint32)
        other = rng.integers(0, 1 << 32, QUOTIENTS, np.uint32)
        divisors = np.where(rng.random(QUOTIENTS) < 0.9, sums, other)
        zero_point, low, high = (int(one) for one in rng.integers(-128, 128, 3))
        if rng.random() < 0.8:
            zero_point, low, high = -128, -128, 127
        inputs = written(table, source=places.astype(np.int64) + 128, divisor=divisors.astype(np.int64))
        found = lane.run(**inputs, factor=factor, zero_point=zero_point, low=low, high=high)["quotient"]
        wanted = numerics.table_divide(
            table.view(np.float32), places, divisors.view(np.float32), factor, zero_point, low, high
        )
        assert np.array_equal(found[TABLE_ENTRIES:], wanted), (kind, factor)
