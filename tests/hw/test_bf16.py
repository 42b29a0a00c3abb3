"""The bf16 machine's multipliers, adder, limits and array against `sim/bfloat16.py`, bit for bit; that is held to
fractions."""

import gc
from dataclasses import replace
from itertools import product
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.bf16 import Bf16Multiplier, Float32Adder, Float32Multiplier, limited, narrowed, stored
from npukit.hw.bf16_array import Bf16Array
from npukit.isa.config import PRESETS
from npukit.isa.timing import Timing
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
    found = streaming.Stream(adder, adder.latency).run(a=a, b=b, maximum=np.zeros(len(a), np.int64))["total"]
    expected = patterns(bfloat16.add(a.view(np.float32), b.view(np.float32)))
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), [hex(int(one[wrong[0]])) for one in (a, b, expected, found)]


def test_maxima(streaming: ModuleType) -> None:
    """The larger of two, NaN if one is."""
    adder = Float32Adder()
    a, b = sums(5)
    # equal ones and opposites, too
    a, b = np.concatenate([a, a, a]), np.concatenate([b, a, a ^ np.uint32(1 << 31)])
    found = streaming.Stream(adder, adder.latency).run(a=a, b=b, maximum=np.ones(len(a), np.int64))["total"]
    pair = np.stack([bfloat16.flush(one.view(np.float32)) for one in (a, b)])
    expected = patterns(bfloat16.maximum(pair[None, None, None, :, None])[0, 0, 0])
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), [hex(int(one[wrong[0]])) for one in (a, b, expected, found)]


def test_wide_products(streaming: ModuleType) -> None:
    """Factors of few and of many bits, so that ties come, and products around the smallest and the largest number."""
    multiplier = Float32Multiplier()
    random = np.random.default_rng(6)
    a, b = sums(7)
    exponent = random.integers(1, 255, COUNT)
    pairs = [(a, b)]
    for target in (127, 127 + 255):
        other = np.clip(target - exponent + random.integers(-2, 3, COUNT), 0, 255)
        ones = np.uint32(0x7FFFFF) << random.integers(0, 24, (2, COUNT)).astype(np.uint32) & np.uint32(0x7FFFFF)
        mantissas = random.integers(0, 1 << 32, (2, COUNT), np.uint32) & (ones | np.uint32(1 << 31))
        exponents = (one.astype(np.uint32) << np.uint32(23) for one in (exponent, other))
        pairs.append(tuple(mantissa | field for mantissa, field in zip(mantissas, exponents, strict=True)))
    a, b = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    found = streaming.Stream(multiplier, multiplier.latency).run(a=a, b=b)["product"]
    expected = patterns(bfloat16.multiply(a.view(np.float32), b.view(np.float32)))
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), [hex(int(one[wrong[0]])) for one in (a, b, expected, found)]


class _Tail(wiring.Component):
    """What follows the adder in a lane, and the end of a word."""

    def __init__(self) -> None:
        outputs = {"within": Out(32), "half": Out(16), "kept": Out(32)}
        super().__init__({"value": In(32), "low": In(32), "high": In(32), **outputs})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += [
            self.within.eq(limited(stored(self.value), self.low, self.high)),
            self.half.eq(narrowed(self.value)),
            self.kept.eq(stored(self.value)),
        ]
        return m


def test_limits_and_rounding(streaming: ModuleType) -> None:
    value, low = sums(8)
    high = np.random.default_rng(9).permutation(low)
    # limits that cross, do not, and do not exist
    high[::3] = value[::3]
    low[1::5], high[2::5] = 0xFF800000, 0x7FC00000
    found = streaming.Stream(_Tail(), 1).run(value=value, low=low, high=high)
    plain = bfloat16.canonical(bfloat16.flush(value.view(np.float32)))
    limit = bfloat16.clamp(plain, low.view(np.float32), high.view(np.float32))
    for name, expected in (
        ("within", patterns(limit)),
        ("half", bfloat16.narrow(value.view(np.float32))),
        ("kept", patterns(plain)),
    ):
        wrong = np.nonzero(found[name] != expected)[0]
        assert not len(wrong), (name, [hex(int(one[wrong[0]])) for one in (value, low, high, expected, found[name])])


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
    expected = patterns(bfloat16.weigh(bfloat16.widen(a), bfloat16.widen(b)))
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), [hex(int(one[wrong[0]])) for one in (a, b, expected, found)]


class _Lanes(wiring.Component):
    """The array with a port for each lane."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.array = Bf16Array(size, size)
        lanes = {f"activation_{k}": In(16) for k in range(size)} | {f"weight_{k}": In(16) for k in range(size)}
        control = {"swap": In(1), "weights_row": In(2), "weights_en": In(1)}
        super().__init__({**lanes, **control, **{f"sum_{k}": Out(32) for k in range(size)}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.array = array = self.array
        for name in ("swap", "weights_row", "weights_en"):
            m.d.comb += getattr(array, name).eq(getattr(self, name))
        for k in range(self.size):
            m.d.comb += [
                array.activations.word_select(k, 16).eq(getattr(self, f"activation_{k}")),
                array.weights.word_select(k, 16).eq(getattr(self, f"weight_{k}")),
                getattr(self, f"sum_{k}").eq(array.sums.word_select(k, 32)),
            ]
        return m


def test_array(streaming: ModuleType) -> None:
    """Tiles that enter as early as they may, streams of different lengths, and rare numbers among the data."""
    size, tiles = 4, 60
    random = np.random.default_rng(4)

    def numbers(*shape: int) -> NDArray[np.uint16]:
        usual = bfloat16.narrow(random.standard_normal(shape).astype(np.float32))
        rare = random.choice(np.array([one >> 16 for one in EDGES], np.uint16), shape)
        return np.where(random.random(shape) < 0.03, rare, usual).astype(np.uint16)

    lengths = [int(random.integers(1, 9)) for _ in range(tiles)]
    weights, words = numbers(tiles, size, size), [numbers(length, size) for length in lengths]
    enter, start = 0, 1
    entries, starts = [], []
    for length in lengths:
        entries.append(enter)
        starts.append(start)
        # the next tile enters with this one's first word at the earliest, and a word each cycle
        enter = max(enter + size, start)
        start = max(start + length, enter + 1)
    cycles = start + size
    columns = {name: np.zeros(cycles, np.int64) for name in ("swap", "weights_row", "weights_en")}
    columns |= {f"{kind}_{k}": np.zeros(cycles, np.int64) for kind in ("activation", "weight") for k in range(size)}
    for tile in range(tiles):
        columns["swap"][starts[tile]] = 1
        for row in range(size):
            at = entries[tile] + row
            columns["weights_row"][at], columns["weights_en"][at] = row, 1
            for k in range(size):
                columns[f"weight_{k}"][at] = weights[tile, row, k]
        for index, word in enumerate(words[tile]):
            for k in range(size):
                columns[f"activation_{k}"][starts[tile] + index] = word[k]
    lanes = _Lanes(size)
    found = streaming.Stream(lanes, lanes.array.latency).run(**columns)
    for tile in range(tiles):
        rows = bfloat16.widen(words[tile])[:, None]
        expected = np.zeros((1, lengths[tile], size), np.float32)
        bfloat16.matrix_product(
            np.ascontiguousarray(rows), bfloat16.widen(weights[tile])[None, None], np.zeros_like(expected), expected
        )
        span = slice(starts[tile], starts[tile] + lengths[tile])
        got = np.stack([found[f"sum_{k}"][span] for k in range(size)], axis=1)
        assert np.array_equal(got, patterns(expected[0])), tile


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_latency_is_the_timing_models() -> None:
    rectangle = replace(PRESETS["bf16-16x16"], array_rows=4)
    for config in (*(PRESETS[name] for name in ("bf16-4x4", "bf16-8x8", "bf16-16x16")), rectangle):
        timing = Timing(config)
        assert (timing.row_latency, timing.product_latency) == (Float32Adder.latency, Bf16Multiplier.latency)
        # an ACT address, the array, the adder before ACC and its write
        assert timing.matrix_latency == 2 + Bf16Array(config.rows, config.array).latency + Float32Adder.latency
        assert timing.accumulate_latency == 2 + Float32Adder.latency + 1
    gc.collect()  # what was not made goes here, while Amaranth's warning about it is ignored
