"""The bf16 datapath's arithmetic against whole numbers, and its instructions against that, element by element."""

import importlib.util
import os
import secrets
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from npukit.isa.config import PRESETS
from npukit.isa.descriptors import TABLE_ENTRIES, Indexing, encode_descriptor, pack_taps
from npukit.isa.instructions import Matrix, Memory, Operation, Vector
from npukit.sim import bfloat16
from npukit.sim.functional import FunctionalSimulator
from numpy.typing import NDArray

_spec = importlib.util.spec_from_file_location("npukit_float_oracle", Path(__file__).with_name("float_oracle.py"))
assert _spec is not None and _spec.loader is not None
oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracle)

CONFIG = PRESETS["bf16-4x4"]
PAIRS = int(os.environ.get("FLOAT_PAIRS", "10000"))
"""Random pairs of each of three kinds; `make floats` takes many more."""
SPECIAL = (
    0x00000000, 0x00000001, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x34000000,
    0x33800000, 0x33FFFFFF, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40400000, 0x1F800000, 0x20000000,
    0x20000001, 0x1FFFFFFF, 0x5F000000, 0x7F000000, 0x7F7FFFFF, 0x7F7F0000, 0x7F7F8000, 0x7F7F7FFF, 0x7F800000,
    0x7FC00000, 0x7F800001, 0x3F808000, 0x3F818000, 0x3F817FFF, 0x3F800000 + 0x8001,
)  # fmt: skip
BOTH_SIGNS = tuple(bits | sign for bits in SPECIAL for sign in (0, 0x80000000))


def floats(bits) -> NDArray[np.float32]:
    return np.array(bits, np.uint32).view(np.float32)


def patterns(values: NDArray[np.float32]) -> list[int]:
    return np.ascontiguousarray(bfloat16.canonical(values)).view(np.uint32).tolist()


def random_pairs(count: int) -> list[tuple[int, int]]:
    """Any bits; exponents near each other; products near the smallest normal number."""
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    any_bits = random.integers(0, 1 << 32, (count, 2), np.uint32)
    near = any_bits.copy()
    shift = random.integers(-26, 27, count)
    exponent = (near[:, 0] >> 23 & 0xFF).astype(np.int64)
    moved = np.clip(exponent + shift, 0, 254).astype(np.uint32)
    near[:, 1] = near[:, 1] & 0x807FFFFF | moved << 23
    small = any_bits.copy()
    other = np.clip(127 - exponent + random.integers(-2, 3, count), 0, 254).astype(np.uint32)
    small[:, 1] = small[:, 1] & 0x807FFFFF | other << 23
    return [(a, b) for a, b in np.concatenate([any_bits, near, small]).tolist()]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(bfloat16.add, oracle.add), (bfloat16.multiply, oracle.multiply), (bfloat16.weigh, oracle.weigh)],
    ids=["add", "multiply", "weigh"],
)
def test_two_operands(ours: Callable, theirs: Callable[[int, int], int]) -> None:
    pairs = [*product(BOTH_SIGNS, BOTH_SIGNS), *random_pairs(PAIRS)]
    a, b = (floats([pair[side] for pair in pairs]) for side in (0, 1))
    for pair, found in zip(pairs, patterns(ours(a, b)), strict=True):
        assert found == theirs(*pair), [hex(one) for one in pair]


def test_conversions() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    assert patterns(bfloat16.widen(every)) == [
        oracle.NAN if bits & 0x7FFF > 0x7F80 else oracle.widen(bits) for bits in range(1 << 16)
    ]
    wide = [
        *BOTH_SIGNS,
        *(pair[0] for pair in random_pairs(10_000)),
        *((bits << 16) + 0x8000 for bits in range(1 << 16)),
    ]
    for bits, found in zip(wide, bfloat16.narrow(floats(wide)).tolist(), strict=True):
        assert found == oracle.narrow(bits), hex(bits)


def test_clamp() -> None:
    limits = (0xFF800000, 0x7F800000, 0x00000000, 0x80000000, 0x40C00000, 0x7FC00000, 0x00000001, 0xC0000000)
    for low, high in product(limits, limits):
        found = patterns(bfloat16.clamp(bfloat16.flush(floats(BOTH_SIGNS)), *floats([low, high])))
        for bits, one in zip(BOTH_SIGNS, found, strict=True):
            expected = oracle.clamp(0 if bits & 0x7FFFFFFF < 0x800000 else bits, low, high)
            assert one == (oracle.NAN if expected & 0x7FFFFFFF > 0x7F800000 else expected), (low, high, hex(bits))


# ---- instructions


@pytest.fixture
def machine() -> FunctionalSimulator:
    """Memories full of random numbers near 1, and a tenth of special values."""
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    simulator = FunctionalSimulator(CONFIG, np.zeros(4096, np.uint8))
    specials = np.array(BOTH_SIGNS, np.uint32)

    def fill(shape) -> NDArray[np.uint32]:
        values = random.standard_normal(shape).astype(np.float32).view(np.uint32)
        return np.where(random.random(shape) < 0.1, random.choice(specials, shape), values)

    for memory in (simulator.act, simulator.wgt):
        memory[...] = (fill(memory.shape) >> 16).astype(np.uint16)
    simulator.acc[...] = fill(simulator.acc.shape).view(np.float32)
    simulator.par[...] = fill(simulator.par.shape)
    return simulator


def canonical(bits: int) -> int:
    return oracle.NAN if bits & 0x7FFFFFFF > 0x7F800000 else bits


@pytest.mark.parametrize("accumulate", [0, 1])
def test_matrix(machine: FunctionalSimulator, accumulate: int) -> None:
    """Columns from +0, row by row, then onto the accumulator, step by step."""
    matrix = Matrix(
        accumulate=accumulate, act_offset=3, channels=2, kernel_height=2, kernel_width=3, height=2, width=3, blocks=2,
        act_stride_channel=40, act_stride_kernel_y=8, act_stride_kernel_x=1, act_stride_y=9, act_stride_x=2,
        acc_stride_block=6, acc_stride_y=3, acc_stride_x=1, wgt_offset=5,
    )  # fmt: skip
    size = CONFIG.array
    act, wgt = machine.act[0].tolist(), machine.wgt[0].tolist()
    before = machine.acc[0].view(np.uint32).tolist()
    machine.execute(matrix)
    after = machine.acc[0].view(np.uint32).tolist()
    for block, y, x, lane in product(range(2), range(2), range(3), range(size)):
        place = block * 6 + y * 3 + x
        total = before[place][lane] if accumulate else 0
        steps = product(range(2), range(2), range(3))
        for number, (channel, ky, kx) in enumerate(steps):
            word = act[3 + channel * 40 + ky * 8 + kx + y * 9 + x * 2]
            tile = 5 + (block * 12 + number) * size
            column = 0
            for row in range(size):
                term = oracle.weigh(oracle.widen(word[row]), oracle.widen(wgt[tile + row][lane]))
                column = oracle.add(column, term)
            total = oracle.add(total, column)
        assert after[place][lane] == canonical(total), (block, y, x, lane)
    assert after[12:] == before[12:]


WINDOW: dict = {"window_height": 2, "window_width": 3, "window_stride_y": 7, "window_stride_x": 1, "window_step": 2}
LIMITS = {"low": -1.5, "high": 2.25}


def _window(words: list, block: int, y: int, x: int, lane: int) -> list[int]:
    return [oracle.widen(words[block * 30 + y * 7 + ky * 7 + x * 2 + kx][lane]) for ky in range(2) for kx in range(3)]


def _clamped(bits: int) -> int:
    low, high = (int(np.float32(limit).view(np.uint32)) for limit in LIMITS.values())
    return oracle.clamp(bits, low, high)


@pytest.mark.parametrize("name", ["MAX", "SUM", "SUM into ACC", "DEPTHWISE"])
def test_windows(machine: FunctionalSimulator, name: str) -> None:
    operation = Operation[name.partition(" ")[0]]
    out = Memory.ACC if name == "SUM into ACC" else Memory.ACT
    multiplier = np.float32(0.3)
    values: dict = {} if operation is Operation.MAX else dict(LIMITS)
    if operation is Operation.SUM:
        values["multiplier"] = multiplier
    head = encode_descriptor(CONFIG, operation, values) if values and out is Memory.ACT else np.zeros((0, 4), np.uint32)
    bias = machine.par[0, :2].copy()
    taps = [machine.wgt[0, k * 6 : k * 6 + 6] for k in range(2)]
    blocks = [np.concatenate([bias[k : k + 1], pack_taps(CONFIG, taps[k])]) for k in range(2)]
    image = np.concatenate([head, *(blocks if operation is Operation.DEPTHWISE else [])])
    machine.par[0, 50 : 50 + len(image)] = image
    vector = Vector(
        operation=operation, parameters=50, blocks=2, height=2, width=2, a_stride_block=30, a_stride_y=7,
        out_memory=out, out_bank=1, out_stride_block=4, out_stride_y=2, out_stride_x=1, **WINDOW,
    )  # fmt: skip
    words = machine.act[0].tolist()
    machine.execute(vector)
    found = (machine.acc[1].view(np.uint32) if out is Memory.ACC else machine.act[1]).tolist()
    for block, y, x, lane in product(range(2), range(2), range(2), range(4)):
        window = _window(words, block, y, x, lane)
        if operation is Operation.MAX:
            expected = oracle.maximum(window)
        else:
            total = 0
            for position, value in enumerate(window):
                if operation is Operation.DEPTHWISE:
                    value = oracle.weigh(value, oracle.widen(int(taps[block][position][lane])))
                total = oracle.add(total, value)
            if operation is Operation.DEPTHWISE:
                total = oracle.add(total, int(bias[block][lane]))
            elif out is Memory.ACT:
                total = oracle.multiply(total, int(multiplier.view(np.uint32)))
            expected = _clamped(total) if out is Memory.ACT else canonical(total)
        if out is Memory.ACT:
            expected = oracle.narrow(expected)
        assert found[block * 4 + y * 2 + x][lane] == expected, (block, y, x, lane)


MEMORIES = [(one, other) for one in (Memory.ACT, Memory.ACC) for other in (Memory.ACT, Memory.ACC)]


@pytest.mark.parametrize(
    ("operation", "memories"),
    [*product([Operation.ADD, Operation.MULTIPLY], MEMORIES), (Operation.REQUANTIZE, (Memory.ACC, Memory.ACT))],
)
def test_words(machine: FunctionalSimulator, operation: Operation, memories: tuple[Memory, Memory]) -> None:
    head = encode_descriptor(CONFIG, operation, LIMITS)
    bias = machine.par[0, :2].copy()
    requantise = operation is Operation.REQUANTIZE
    image = np.concatenate([head, *([bias] if requantise else [])])
    machine.par[0, 70 : 70 + len(image)] = image
    options: dict = {} if requantise else {"b_bank": 2, "b_stride_block": 30, "b_stride_x": 1}
    vector = Vector(
        operation=operation, parameters=70, blocks=2, width=30, a_memory=memories[0], a_bank=1, a_stride_block=30,
        a_stride_x=1, out_memory=memories[1], out_bank=3, out_stride_block=30, out_stride_x=1, **options,
    )  # fmt: skip
    left = words_of(machine, memories[0], 1)
    right = machine.act[2].tolist()
    machine.execute(vector)
    found = stored_words(machine, memories[1], 3)
    for place, lane in product(range(60), range(4)):
        if requantise:
            value = oracle.add(left[place][lane], int(bias[place // 30][lane]))
        else:
            operands = left[place][lane], oracle.widen(right[place][lane])
            value = oracle.add(*operands) if operation is Operation.ADD else oracle.multiply(*operands)
        value = _clamped(value)
        expected = canonical(value) if memories[1] is Memory.ACC else oracle.narrow(value)
        assert found[place][lane] == expected, (place, lane)


def words_of(machine: FunctionalSimulator, memory: Memory, bank: int) -> list[list[int]]:
    """The numbers of a bank, as binary32."""
    if memory is Memory.ACC:
        return machine.acc[bank].view(np.uint32).tolist()
    return [[oracle.widen(bits) for bits in word] for word in machine.act[bank].tolist()]


def stored_words(machine: FunctionalSimulator, memory: Memory, bank: int) -> list[list[int]]:
    return (machine.acc[bank].view(np.uint32) if memory is Memory.ACC else machine.act[bank]).tolist()


@pytest.mark.parametrize("indexing", Indexing)
@pytest.mark.parametrize("memories", MEMORIES)
def test_function(machine: FunctionalSimulator, indexing: Indexing, memories: tuple[Memory, Memory]) -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    lines = random.standard_normal((TABLE_ENTRIES, 2)).astype(np.float32)
    some = random.random(lines.shape) < 0.1
    lines[some] = floats(random.choice(np.array(BOTH_SIGNS, np.uint32), some.sum()))
    names = [(f"slope_{index}", f"intercept_{index}") for index in range(TABLE_ENTRIES)]
    step, offset = int(random.integers(-8, 1)), int(random.choice([128, -3, 300, 255, 0]))
    values = {name: one for pair, line in zip(names, lines, strict=True) for name, one in zip(pair, line, strict=True)}
    values |= {"step": step, "offset": offset, "indexing": indexing}
    head = encode_descriptor(CONFIG, Operation.FUNCTION, values)
    machine.par[0, : len(head)] = head
    vector = Vector(
        operation=Operation.FUNCTION, blocks=2, width=200, a_memory=memories[0], a_bank=1, a_stride_block=200,
        a_stride_x=1, out_memory=memories[1], out_bank=3, out_stride_block=200, out_stride_x=1,
    )  # fmt: skip
    before = words_of(machine, memories[0], 1)
    machine.execute(vector)
    found = stored_words(machine, memories[1], 3)
    pairs = [tuple(line) for line in lines.view(np.uint32).tolist()]
    for place, lane in product(range(400), range(4)):
        value = canonical(oracle.function(before[place][lane], pairs, indexing, step, offset))
        expected = value if memories[1] is Memory.ACC else oracle.narrow(value)
        assert found[place][lane] == expected, (place, lane, hex(before[place][lane]))


def test_moves(machine: FunctionalSimulator) -> None:
    """CONVERT rounds or widens; COPY takes bits as they are; FILL rounds its value."""
    acc, act = machine.acc[0].view(np.uint32).copy(), machine.act[0].copy()
    steps: dict = {"width": 20, "a_stride_x": 1, "out_stride_x": 1}
    machine.execute(Vector(operation=Operation.CONVERT, a_memory=Memory.ACC, out_bank=1, **steps))
    expected = [[oracle.narrow(bits) for bits in word] for word in acc[:20].tolist()]
    assert machine.act[1, :20].tolist() == expected
    machine.execute(Vector(operation=Operation.CONVERT, out_memory=Memory.ACC, out_bank=1, **steps))
    expected = [[canonical(oracle.widen(bits)) for bits in word] for word in act[:20].tolist()]
    assert machine.acc[1, :20].view(np.uint32).tolist() == expected
    machine.execute(Vector(operation=Operation.COPY, out_bank=2, **steps))
    assert np.array_equal(machine.act[2, :20], act[:20])
    machine.par[0, 90:91] = encode_descriptor(CONFIG, Operation.FILL, {"value": 1.00390625})
    machine.execute(Vector(operation=Operation.FILL, parameters=90, width=3, out_stride_x=1, out_bank=4))
    assert machine.act[4, :3].tolist() == [[0x3F80] * 4] * 3  # a tie, to even
