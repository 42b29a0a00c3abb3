"""The lane of FUNCTION against `sim/bfloat16.py`, bit for bit."""

import secrets
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.function import FunctionLane
from npukit.isa.descriptors import TABLE_ENTRIES, Indexing
from npukit.sim import bfloat16
from numpy.typing import NDArray

Generator = np.random.Generator
NUMBERS = 100_000
EDGES = np.array(
    [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3FFFFFFF, 0x40000000, 0x7F7FFFFF, 0x7F800000,
     0x7F800001, 0x7FC00000], np.uint32,
)  # fmt: skip


@pytest.fixture(params=["fixed", "fresh"])
def rng(request: pytest.FixtureRequest) -> Generator:
    seed = 13 if request.param == "fixed" else secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def lane(streaming: ModuleType):
    missing = streaming.missing_tool()
    if missing:
        pytest.skip(missing)
    return streaming.Stream(FunctionLane(), FunctionLane.latency)


def signs(rng: Generator, count: int) -> NDArray[np.uint32]:
    return rng.integers(0, 2, count, np.uint32) << np.uint32(31)


def table(rng: Generator, edges: bool) -> NDArray[np.uint32]:
    """Slopes and intercepts [2, 256]: of about 1, or any bits."""
    if edges:
        bits = rng.integers(0, 1 << 32, (2, TABLE_ENTRIES), np.uint32)
        chosen = rng.random(bits.shape) < 0.3
        bits[chosen] = rng.choice(EDGES, int(chosen.sum())) | signs(rng, int(chosen.sum()))
        return bits
    return rng.uniform(-4, 4, (2, TABLE_ENTRIES)).astype(np.float32).view(np.uint32)


def numbers(rng: Generator, step: int) -> NDArray[np.uint32]:
    """Any bits, both ends of binary32, and numbers around a few hundred segments, at their edges too."""
    bits = rng.integers(0, 1 << 32, NUMBERS, np.uint32)
    near = (rng.uniform(-1100, 1100, NUMBERS) * 2.0**step).astype(np.float32)
    near[::3] = np.rint(near[::3] / 2.0**step) * 2.0**step
    beside = near.view(np.uint32) + rng.integers(-1, 2, NUMBERS).astype(np.uint32)
    edges = rng.choice(EDGES, NUMBERS) | signs(rng, NUMBERS)
    kind = rng.random(NUMBERS)
    return np.where(kind < 0.2, bits, np.where(kind < 0.9, beside, edges)).astype(np.uint32)


@pytest.mark.parametrize("indexing", Indexing)
@pytest.mark.parametrize("edges", [False, True], ids=["ordinary", "edges"])
def test_lines(lane, indexing: Indexing, edges: bool, rng: Generator) -> None:
    for _ in range(3):
        step, anywhere = int(rng.integers(-16, 16)), int(rng.integers(-512, 512))
        offset = int(rng.choice(np.array([0, 128, 255, 511, -512, anywhere])))
        lines, given = table(rng, edges), numbers(rng, step)
        writing = np.arange(TABLE_ENTRIES)
        head, rest = np.ones(TABLE_ENTRIES), np.zeros(NUMBERS)
        found = lane.run(
            write=np.concatenate([head, rest]).astype(int), place=np.concatenate([writing, rest]).astype(int),
            slope=np.concatenate([lines[0], rest]).astype(int), intercept=np.concatenate([lines[1], rest]).astype(int),
            number=np.concatenate([0 * writing, given]).astype(int),
            indexing=np.full(TABLE_ENTRIES + NUMBERS, indexing),
            step=np.full(TABLE_ENTRIES + NUMBERS, step), offset=np.full(TABLE_ENTRIES + NUMBERS, offset),
        )  # fmt: skip
        factors = found["factors"][TABLE_ENTRIES:].astype(np.uint64)
        addend = found["addend"][TABLE_ENTRIES:].astype(np.uint32).view(np.float32)
        product = bfloat16.multiply(
            factors.astype(np.uint32).view(np.float32), (factors >> np.uint64(32)).astype(np.uint32).view(np.float32)
        )
        result = bfloat16.canonical(bfloat16.add(product, addend)).view(np.uint32)
        slopes, intercepts = lines.view(np.float32)
        wanted = bfloat16.function(given.view(np.float32), slopes, intercepts, indexing, step, offset)
        wrong = np.flatnonzero(result != bfloat16.canonical(wanted).view(np.uint32))
        assert not wrong.size, (hex(given[wrong[0]]), indexing, step, offset, wrong.size)
