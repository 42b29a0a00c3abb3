"""Every instruction against nested loops over single elements, on tiny random shapes."""

import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.descriptors import (
    descriptor_lanes,
    descriptor_words,
    encode_descriptor,
    operations_of,
    pack_taps,
    tap_words,
)
from npukit.isa.instructions import End, Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.sim import functional
from npukit.sim.functional import FunctionalError, FunctionalSimulator

from npukit.verify.generator import random_program

SEEDS = range(8)
DRAM_WORDS = 400
Loops = list[tuple[int, int]]


class Machine:
    """A simulator full of random data, and plain loops over a copy of its memories."""

    def __init__(self, config: NpuConfig, seed: int) -> None:
        self.config = config
        self.random = np.random.default_rng(seed)
        dram = self.random.integers(0, 256, DRAM_WORDS * config.word_bytes, dtype=np.uint8)
        self.simulator = FunctionalSimulator(config, dram)
        simulator = self.simulator
        for memory in (simulator.act, simulator.wgt):
            memory[...] = self.random.integers(-128, 128, memory.shape)
        simulator.acc[...] = self.random.integers(-(2**31), 2**31, simulator.acc.shape)
        simulator.par[...] = self.random.integers(0, 2**32, simulator.par.shape)
        self.depth = {
            Memory.ACT: config.act_depth, Memory.ACC: config.acc_depth,
            Memory.WGT: config.wgt_depth, Memory.PAR: config.par_depth,
        }  # fmt: skip
        self.banks = {
            Memory.ACT: config.act_banks,
            Memory.ACC: config.acc_banks,
            Memory.WGT: 1,
            Memory.PAR: 1,
        }

    def state(self) -> dict[Memory | None, np.ndarray]:
        simulator = self.simulator
        return {
            Memory.ACT: simulator.act.copy(), Memory.ACC: simulator.acc.copy(),
            Memory.WGT: simulator.wgt.copy(), Memory.PAR: simulator.par.copy(), None: simulator.dram.copy(),
        }  # fmt: skip

    def check(self, instruction: Instruction, expected: dict[Memory | None, np.ndarray], seed: int) -> None:
        """Execute, and compare all memories, so that nothing else may have changed."""
        self.simulator.execute(instruction)
        for memory, values in self.state().items():
            wrong = np.argwhere(values != expected[memory])
            assert not len(wrong), f"seed {seed}: {instruction}: {memory} differs at {wrong[0]}"

    def count(self, high: int) -> int:
        return int(self.random.integers(1, high + 1))

    def bank(self, memory: Memory) -> int:
        return int(self.random.integers(self.banks[memory]))

    def place(self, counts: list[int], depth: int, *, distinct: bool, ring: bool = False) -> tuple[int, Loops, int]:
        """(offset, loops, wrap) of a random operand that lies within `depth` words."""
        while True:
            loops = [(count, int(self.random.integers(-9, 10))) for count in counts]
            low = sum(min(0, (count - 1) * stride) for count, stride in loops)
            high = sum(max(0, (count - 1) * stride) for count, stride in loops)
            wrap = int(self.random.integers(1, 5)) if ring else 0
            if wrap:
                offset = int(self.random.integers(depth >> wrap << wrap))
            elif high - low >= depth:
                continue
            else:
                offset = int(self.random.integers(-low, depth - high))
            if distinct and len(set(words_of(offset, loops, wrap))) != np.prod(counts):
                continue
            return offset, loops, wrap


def resolve(offset: int, delta: int, wrap: int) -> int:
    """The address `delta` words after `offset`, in an aligned ring of 2**wrap words if wrap is not 0."""
    if wrap == 0:
        return offset + delta
    size = 1 << wrap
    start = offset - offset % size
    return start + (offset - start + delta) % size


def words_of(offset: int, loops: Loops, wrap: int) -> Iterator[int]:
    for index in product(*(range(count) for count, _ in loops)):
        yield resolve(offset, sum(i * stride for i, (_, stride) in zip(index, loops, strict=True)), wrap)


@pytest.fixture
def machine_of(tiny: NpuConfig) -> Callable[[int], Machine]:
    return lambda seed: Machine(tiny, seed)


# ---- LOAD and STORE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("memory", "shape"),
    [
        *product((Memory.ACT, Memory.WGT, Memory.PAR), ("plain", "ring")),
        (Memory.ACT, "border"),
        (Memory.WGT, "border"),
    ],
)
def test_load(memory: Memory, shape: str, seed: int, machine_of: Callable[[int], Machine]) -> None:
    machine = machine_of(seed)
    config = machine.config
    units = 4 if memory is Memory.PAR else 1
    while True:
        planes, rows, words = machine.count(2), machine.count(2), machine.count(3)
        top, bottom, left, right = (machine.random.integers(3, size=4) * (shape == "border")).tolist()
        counts = [planes, top + rows + bottom, left + words + right]
        if np.prod(counts) <= (12 if shape == "ring" else 30):
            break
    offset, loops, wrap = machine.place(counts, machine.depth[memory], distinct=True, ring=shape == "ring")
    plane_stride, row_stride = (int(value) for value in machine.random.integers(-40, 40, 2))
    reach = [(planes - 1) * plane_stride, (rows - 1) * row_stride]
    first = int(machine.random.integers(100, DRAM_WORDS - 100))
    assert 0 <= first + sum(min(0, one) for one in reach) and first + sum(reach) + words * units < DRAM_WORDS
    load = Load(
        memory=memory, bank=machine.bank(memory), offset=offset, wrap=wrap, dram=first,
        planes=planes, rows=rows, words=words,
        plane_stride=loops[0][1], row_stride=loops[1][1], word_stride=loops[2][1],
        dram_plane_stride=plane_stride, dram_row_stride=row_stride,
        pad_top=top, pad_bottom=bottom, pad_left=left, pad_right=right,
        pad_value=int(machine.random.integers(256)),
    )  # fmt: skip
    expected = machine.state()
    dram = machine.simulator.dram.tobytes()
    size = units
    for index, word in zip(product(*map(range, counts)), words_of(offset, loops, wrap), strict=True):
        plane, row, column = index[0], index[1] - top, index[2] - left
        for lane in range(config.array):
            if 0 <= row < rows and 0 <= column < words:
                start = (first + plane * plane_stride + row * row_stride) * config.word_bytes
                start += (column * config.array + lane) * size
                value = int.from_bytes(dram[start : start + size], "little", signed=size == 1)
            else:
                value = load.pad_value - 256 if load.pad_value > 127 else load.pad_value
            expected[memory][load.bank, word, lane] = value
    machine.check(load, expected, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ring", [False, True])
def test_store(ring: bool, seed: int, machine_of: Callable[[int], Machine]) -> None:
    machine = machine_of(seed)
    size = machine.config.array
    planes, rows, words = counts = [machine.count(3) for _ in range(3)]
    offset, loops, wrap = machine.place(counts, machine.depth[Memory.ACT], distinct=False, ring=ring)
    store = Store(
        bank=machine.bank(Memory.ACT), offset=offset, wrap=wrap, dram=150,
        planes=planes, rows=rows, words=words,
        plane_stride=loops[0][1], row_stride=loops[1][1], word_stride=loops[2][1],
        dram_plane_stride=int(machine.random.choice([-30, 30])),
        dram_row_stride=int(machine.random.choice([-5, 7])),
    )  # fmt: skip
    expected = machine.state()
    for index, word in zip(product(*map(range, counts)), words_of(offset, loops, wrap), strict=True):
        place = 150 + index[0] * store.dram_plane_stride + index[1] * store.dram_row_stride + index[2]
        for lane in range(size):
            expected[None][place * size + lane] = int(machine.simulator.act[store.bank, word, lane]) & 255
    machine.check(store, expected, seed)


# ---- MATRIX


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("ring", [False, True])
def test_matrix(
    accumulate: int, ring: bool, seed: int, machine_of: Callable[[int], Machine], oracles: ModuleType
) -> None:
    machine = machine_of(seed)
    size = machine.config.array
    channels, kernel_height, kernel_width = (machine.count(2) for _ in range(3))
    height, width, blocks = machine.count(3), machine.count(3), 1
    steps = channels * kernel_height * kernel_width
    if 2 * steps * size <= machine.config.wgt_depth:
        blocks = machine.count(2)
    act_counts = [height, width, channels, kernel_height, kernel_width]
    act_offset, act_loops, act_wrap = machine.place(act_counts, machine.depth[Memory.ACT], distinct=False, ring=ring)
    acc_offset, acc_loops, _ = machine.place([blocks, height, width], machine.depth[Memory.ACC], distinct=True)
    wgt_words = blocks * steps * size
    wgt_wrap = 6 if ring else 0
    wgt_offset = int(machine.random.integers(64 if ring else 65 - wgt_words))
    matrix = Matrix(
        accumulate=accumulate, act_bank=machine.bank(Memory.ACT), act_offset=act_offset, act_wrap=act_wrap,
        wgt_offset=wgt_offset, wgt_wrap=wgt_wrap, acc_bank=machine.bank(Memory.ACC), acc_offset=acc_offset,
        channels=channels, kernel_height=kernel_height, kernel_width=kernel_width,
        height=height, width=width, blocks=blocks,
        act_stride_y=act_loops[0][1], act_stride_x=act_loops[1][1], act_stride_channel=act_loops[2][1],
        act_stride_kernel_y=act_loops[3][1], act_stride_kernel_x=act_loops[4][1],
        acc_stride_block=acc_loops[0][1], acc_stride_y=acc_loops[1][1], acc_stride_x=acc_loops[2][1],
    )  # fmt: skip
    simulator = machine.simulator
    expected = machine.state()
    for block, y, x in product(range(blocks), range(height), range(width)):
        delta = block * matrix.acc_stride_block + y * matrix.acc_stride_y + x * matrix.acc_stride_x
        out = acc_offset + delta
        for column in range(size):
            total = int(simulator.acc[matrix.acc_bank, out, column]) if accumulate else 0
            tile = block * steps
            for c, ky, kx in product(range(channels), range(kernel_height), range(kernel_width)):
                delta = y * matrix.act_stride_y + x * matrix.act_stride_x + c * matrix.act_stride_channel
                delta += ky * matrix.act_stride_kernel_y + kx * matrix.act_stride_kernel_x
                word = resolve(act_offset, delta, act_wrap)
                for row in range(size):
                    weight = simulator.wgt[0, resolve(wgt_offset, tile * size + row, wgt_wrap), column]
                    total += int(simulator.act[matrix.act_bank, word, row]) * int(weight)
                tile += 1
            expected[Memory.ACC][matrix.acc_bank, out, column] = oracles.to_int32(total)
    machine.check(matrix, expected, seed)


def test_long_reductions_are_exact() -> None:
    """More than one chunk of 1024 elements, with the largest products of one sign."""
    config = replace(PRESETS["int8-4x4"], act_depth=1024, wgt_depth=4096)
    simulator = FunctionalSimulator(config, np.zeros(64, np.uint8))
    simulator.act[...] = -128
    simulator.wgt[...] = -128
    simulator.wgt[0, :, 1] = 127
    simulator.act[0, 700, 2] = 127
    simulator.execute(Matrix(channels=1024, act_stride_channel=1))
    total = 4096 * 16384 - 128 * 255  # one element of 127 in place of -128
    assert simulator.acc[0, 0].tolist() == [total, -4096 * 128 * 127 + 127 * 255, total, total]


def test_accumulators_wrap() -> None:
    config = PRESETS["int8-4x4"]
    simulator = FunctionalSimulator(config, np.zeros(64, np.uint8))
    simulator.act[0, 0] = 127
    simulator.wgt[0, :4] = 127
    simulator.acc[0, 0] = 2**31 - 1
    simulator.execute(Matrix(accumulate=1))
    assert simulator.acc[0, 0].tolist() == [-(2**31) - 1 + 4 * 127 * 127] * 4


# ---- VECTOR

TWO = (
    Operation.ADD, Operation.ADD_FIXED, Operation.MULTIPLY, Operation.MULTIPLY_FIXED, Operation.TABLE_DIVIDE,
    Operation.NORMALIZE,
)  # fmt: skip
WINDOWS = (Operation.MAX, Operation.SUM, Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED)
MEMORIES = {
    Operation.REQUANTIZE: [(Memory.ACC, Memory.ACT)],
    Operation.REQUANTIZE_FIXED: [(Memory.ACC, Memory.ACT)],
    Operation.SUM: list(product((Memory.ACT, Memory.ACC), repeat=2)),
    Operation.COPY: [(Memory.ACT, Memory.ACT), (Memory.ACC, Memory.ACC), (Memory.ACT, Memory.WGT)],
    Operation.CONVERT: [(Memory.ACT, Memory.ACC), (Memory.ACC, Memory.ACT)],
    Operation.FILL: [(Memory.ACT, Memory.ACT), (Memory.ACT, Memory.ACC), (Memory.ACT, Memory.WGT)],
    Operation.PART: [(Memory.ACC, Memory.ACT)],
    Operation.TRANSPOSE: [(Memory.ACT, Memory.ACT), (Memory.ACT, Memory.WGT)],
    Operation.TABLE_SUM: [(Memory.ACT, Memory.ACC)],
    Operation.TABLE_DIVIDE: [(Memory.ACC, Memory.ACT)],
    Operation.MOMENTS: [(Memory.ACT, Memory.ACC)],
    Operation.RECIPROCAL_ROOT: [(Memory.ACC, Memory.ACC)],
    Operation.NORMALIZE: [(Memory.ACC, Memory.ACC)],
}
CASES = [
    (one, *pair)
    for one in operations_of(PRESETS["int8-16x16"])
    for pair in MEMORIES.get(one, [(Memory.ACT, Memory.ACT)])
]


def random_descriptor(machine: Machine, operation: Operation) -> dict[str, Any]:
    """Field values of useful size."""
    random = machine.random
    values: dict[str, Any] = {}
    for field in descriptor_lanes(machine.config, operation):
        if field.is_float:
            values[field.name] = np.float32(np.exp(random.uniform(-6, 0)))
        elif field.name == "left_shift":
            values[field.name] = int(random.integers(0, 21))
        elif field.name.endswith("shift"):
            values[field.name] = int(random.integers(-10, 3))
        elif field.name.endswith("multiplier"):
            values[field.name] = int(random.integers(1 << 30, 1 << 31))
        elif field.name in ("bias", "value"):
            values[field.name] = int(random.integers(-(2**31), 2**31))
        elif not field.signed:
            values[field.name] = int(random.integers(1 << field.width))
            if field.name == "missing":
                values[field.name] %= machine.config.array + 1
            if field.name.startswith("epsilon"):
                values[field.name] >>= int(random.integers(32))
        else:
            values[field.name] = int(random.integers(-128, 128))
    if "low" in values:
        bottom = 0 if values.get("out_unsigned") else -128
        low, high = sorted(random.integers(bottom, bottom + 256, 2).tolist())
        values |= {"low": low, "high": high}
    if operation is Operation.SUM:
        values["bias"] %= 4096
    if operation is Operation.ADD:
        values["offset"] = np.float32(random.uniform(-200, 200))
    return values


class Elements:
    """Results of a VECTOR operation, one element at a time."""

    def __init__(self, machine: Machine, vector: Vector, values: dict[str, Any], blocks: np.ndarray,
                 oracles: ModuleType) -> None:  # fmt: skip
        self.machine, self.vector, self.values, self.blocks, self.oracles = (
            machine,
            vector,
            values,
            blocks,
            oracles,
        )

    def element(self, block: int, y: int, x: int, lane: int) -> int:
        vector, values = self.vector, self.values
        operation = vector.operation
        if operation is Operation.FILL:
            value = values["value"]
            return value if vector.out_memory is Memory.ACC else (value + 128) % 256 - 128
        if operation in WINDOWS:
            window = [
                self.source(block, y, x, ky, kx, lane)
                for ky, kx in product(range(vector.window_height), range(vector.window_width))
            ]
            if operation is Operation.MAX:
                return max(window)
            if operation is Operation.SUM:
                total = self.oracles.to_int32(sum(window))
                if vector.out_memory is Memory.ACC:
                    return total
                clamp = values["zero_point"], values["low"], values["high"]
                return self.oracles.requantize(total, values["bias"], float(values["multiplier"]), *clamp)
            taps = self.taps(block, lane, len(window))
            total = self.oracles.to_int32(sum(one * tap for one, tap in zip(window, taps, strict=True)))
            return self.requantize(total, block, lane)
        if operation is Operation.TRANSPOSE:  # the place in the tile and the lane change places
            x, lane = lane, x
        if operation is Operation.TABLE_SUM:
            return self.table_sum(block, lane)
        if operation is Operation.MOMENTS:
            return self.moment(block, lane) if lane < 2 else 0
        if operation is Operation.RECIPROCAL_ROOT:
            return self.root(block, y, x, lane) if lane < 2 else 0
        if operation is Operation.NORMALIZE:
            return self.normalized(block, y, x, lane)
        a = self.plain("a", block, y, x, lane)
        if operation is Operation.TABLE_DIVIDE:
            return self.table_divide(a, self.plain("b", block, y, x, lane))
        if operation is Operation.PART:
            return ((a >> 8 * values["part"]) + 128) % 256 - 128
        if operation in (Operation.REQUANTIZE, Operation.REQUANTIZE_FIXED):
            return self.requantize(a, block, lane)
        if operation is Operation.TABLE:
            return values[f"entry_{a + 128}"]
        if operation in (Operation.COPY, Operation.TRANSPOSE) or vector.out_memory is Memory.ACC:
            return a
        if operation is Operation.CONVERT:
            return max(-128, min(127, a))
        return self.two(a, self.plain("b", block, y, x, lane))

    def table_sum(self, block: int, lane: int) -> int:
        """The sum's bits. A sum of two binary32 is exact in binary64 as far as its rounding to binary32 goes."""
        vector, total = self.vector, np.float32(0)
        for y, x in product(range(vector.height), range(vector.width)):
            entry = self.values[f"entry_{self.plain('a', block, y, x, lane) + 128}"]
            total = np.float32(float(total) + abs(float(entry)))
        return int(total.view(np.int32))

    def table_divide(self, divisor: int, place: int) -> int:
        values = self.values
        entry, bits = abs(float(values[f"entry_{place + 128}"])), divisor & 0x7FFFFFFF
        low, high = values["low"], values["high"]
        significand, exponent = (1 << 23 | bits & 0x7FFFFF), bits >> 23
        if math.frexp(entry)[1] - 1 > exponent - 127:
            return high
        exact = Fraction(entry) * values["factor"] / (significand * Fraction(2) ** (exponent - 150))
        return min(high, max(low, round(exact) + values["zero_point"]))

    def moment(self, block: int, power: int) -> int:
        """The sum, or that of squares, of all lanes that count."""
        vector, lanes = self.vector, self.machine.config.array
        total = 0
        for y, x, lane in product(range(vector.height), range(vector.width), range(lanes)):
            last = y == vector.height - 1 and x == vector.width - 1
            if not last or lane < lanes - self.values["missing"]:
                total += (self.plain("a", block, y, x, lane) - self.values["zero_point"]) ** (power + 1)
        return self.oracles.to_int32(total)

    def root(self, block: int, y: int, x: int, lane: int) -> int:
        values, total = self.values, self.plain("a", block, y, x, 0)
        if lane == 0:
            return total
        epsilon = values["epsilon_high"] << 32 | values["epsilon_low"]
        squares = self.plain("a", block, y, x, 1)
        root, shift = self.oracles.reciprocal_root(total, squares, values["count"], epsilon, bool(values["centred"]))
        return root | shift << 24

    def normalized(self, block: int, y: int, x: int, lane: int) -> int:
        values = self.values
        total, statistic = (self.plain("a", block, y, x, one) for one in (0, 1))
        total = ((total + (1 << 23)) % (1 << 24) - (1 << 23)) * values["centred"]
        number = self.plain("b", block, y, x, lane) - values["zero_point"]
        exact = Fraction((values["count"] * number - total) * (statistic % (1 << 24)), 1 << (statistic >> 24 & 31))
        return self.oracles.to_int32(math.floor(exact + Fraction(1, 2)))

    def plain(self, side: str, block: int, y: int, x: int, lane: int) -> int:
        vector = self.vector
        delta = block * getattr(vector, f"{side}_stride_block") + y * getattr(vector, f"{side}_stride_y")
        delta += x * getattr(vector, f"{side}_stride_x")
        wrap = vector.wrap if getattr(vector, f"{side}_wrap") else 0
        return self.read(side, resolve(getattr(vector, f"{side}_offset"), delta, wrap), lane)

    def source(self, block: int, y: int, x: int, ky: int, kx: int, lane: int) -> int:
        vector = self.vector
        delta = block * vector.a_stride_block + y * vector.a_stride_y + ky * vector.window_stride_y
        delta += (x * vector.window_step + kx) * vector.window_stride_x
        return self.read("a", resolve(vector.a_offset, delta, vector.wrap if vector.a_wrap else 0), lane)

    def read(self, side: str, word: int, lane: int) -> int:
        simulator = self.machine.simulator
        memory = simulator.act if getattr(self.vector, f"{side}_memory") is Memory.ACT else simulator.acc
        return int(memory[getattr(self.vector, f"{side}_bank"), word, lane])

    def taps(self, block: int, lane: int, count: int) -> list[int]:
        head = 2 if self.vector.operation is Operation.DEPTHWISE else 3
        raw = [int(self.blocks[block, head + i // 4, lane]) >> 8 * (i % 4) & 255 for i in range(count)]
        return [tap - 256 if tap > 127 else tap for tap in raw]

    def requantize(self, total: int, block: int, lane: int) -> int:
        values = self.values
        clamp = values["zero_point"], values["low"], values["high"]
        bias = self.oracles.to_int32(int(self.blocks[block, 0, lane]))
        if self.vector.operation in (Operation.REQUANTIZE, Operation.DEPTHWISE):
            multiplier = float(self.blocks[block, 1, lane : lane + 1].view(np.float32)[0])
            return self.oracles.requantize(total, bias, multiplier, *clamp)
        multiplier, shift = (self.oracles.to_int32(int(self.blocks[block, i, lane])) for i in (1, 2))
        scaled = self.oracles.multiply_by_quantized_multiplier(self.oracles.to_int32(total + bias), multiplier, shift)
        return max(clamp[1], min(clamp[2], scaled + clamp[0]))

    def two(self, a: int, b: int) -> int:
        values, oracles = self.values, self.oracles
        a += 128 * values["a_unsigned"]
        b += 128 * values["b_unsigned"]
        scale = oracles.multiply_by_quantized_multiplier
        match self.vector.operation:
            case Operation.ADD:
                inner = oracles.fused_multiply_add(b, float(values["rb"]), float(values["offset"]))
                result = round(oracles.fused_multiply_add(a, float(values["ra"]), inner))
            case Operation.MULTIPLY:
                exact = np.float32((a - values["a_zero_point"]) * (b - values["b_zero_point"]))
                result = round(float(exact * values["multiplier"] + np.float32(values["out_zero_point"])))
            case Operation.ADD_FIXED:
                one, two = (
                    scale(
                        oracles.to_int32((value + values[f"{side}_offset"]) << values["left_shift"]),
                        values[f"{side}_multiplier"],
                        values[f"{side}_shift"],
                    )
                    for side, value in (("a", a), ("b", b))
                )
                result = scale(oracles.to_int32(one + two), values["out_multiplier"], values["out_shift"])
                result += values["out_offset"]
            case _:
                exact = (a - values["a_zero_point"]) * (b - values["b_zero_point"])
                result = scale(exact, values["multiplier"], values["shift"]) + values["out_zero_point"]
        result = max(values["low"], min(values["high"], result))
        return result - 128 * values["out_unsigned"]


def random_vector(machine: Machine, operation: Operation, a_memory: Memory, out_memory: Memory, ring: bool) -> Vector:
    columns = machine.config.array if operation is Operation.TRANSPOSE else 0
    one_result = operation in (Operation.TABLE_SUM, Operation.MOMENTS)
    grid = [machine.count(2), machine.count(3), columns or machine.count(3)]
    while ring and np.prod(grid) > 12:
        grid = [machine.count(2), machine.count(3), columns or machine.count(3)]
    fields: dict[str, Any] = {"wrap": 4} if ring else {}

    def operand(side: str, counts: list[int], memory: Memory, distinct: bool) -> Loops:
        depth = machine.depth[memory]
        while True:
            offset, loops, wrap = machine.place(counts, depth, distinct=distinct, ring=ring)
            if wrap in (0, 4):
                break
        fields.update({f"{side}_memory": memory, f"{side}_bank": machine.bank(memory), f"{side}_offset": offset})
        if ring:
            fields[f"{side}_wrap"] = 1
        return loops

    if operation in WINDOWS:
        height, width, step = machine.count(3), machine.count(3), machine.count(2)
        depth = machine.depth[a_memory]
        while True:
            strides = machine.random.integers(-4, 5, 4).tolist()
            loops = list(zip(
                [*grid, height, width],
                [strides[0], strides[1], step * strides[3], strides[2], strides[3]], strict=True,
            ))  # fmt: skip
            low = sum(min(0, (count - 1) * stride) for count, stride in loops)
            high = sum(max(0, (count - 1) * stride) for count, stride in loops)
            if ring or high - low < depth:
                break
        offset = int(machine.random.integers(depth)) if ring else int(machine.random.integers(-low, depth - high))
        fields.update(
            a_memory=a_memory, a_bank=machine.bank(a_memory), a_offset=offset, a_wrap=int(ring),
            a_stride_block=strides[0], a_stride_y=strides[1], window_stride_y=strides[2],
            window_stride_x=strides[3], window_step=step, window_height=height, window_width=width,
        )  # fmt: skip
    elif operation is not Operation.FILL:
        sides = {"a": a_memory} | ({"b": Memory.ACT} if operation in TWO else {})
        for side, memory in sides.items():
            for axis, (_, stride) in zip(("block", "y", "x"), operand(side, grid, memory, False), strict=True):
                fields[f"{side}_stride_{axis}"] = stride
    results = [grid[0], 1, 1] if one_result else grid
    for axis, (_, stride) in zip(("block", "y", "x"), operand("out", results, out_memory, True), strict=True):
        if one_result and axis != "block":
            continue
        fields[f"out_stride_{axis}"] = stride
    return Vector(operation=operation, blocks=grid[0], height=grid[1], width=grid[2], **fields)


def random_parameters(machine: Machine, vector: Vector) -> np.ndarray:
    """Block parameters uint32[blocks, words, array] of useful size."""
    random, size = machine.random, machine.config.array
    words = []
    for _ in range(vector.blocks):
        rows = [random.integers(-5000, 5000, size).astype(np.int32).view(np.uint32)]
        if vector.operation in (Operation.REQUANTIZE, Operation.DEPTHWISE):
            scale = np.exp(random.uniform(-25 if vector.operation is Operation.REQUANTIZE else -9, -3, size))
            rows.append(scale.astype(np.float32).view(np.uint32))
        else:
            rows.append(random.integers(1 << 30, 1 << 31, size).astype(np.uint32))
            rows.append(random.integers(-26, 2, size).astype(np.int32).view(np.uint32))
        if vector.is_window:
            taps = random.integers(-128, 128, (vector.window_height * vector.window_width, size), dtype=np.int8)
            packed = pack_taps(machine.config, taps)
            assert len(packed) == tap_words(machine.config, vector)
            rows += list(packed)
        words.append(rows)
    return np.array(words, np.uint32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ring", [False, True], ids=["plain", "ring"])
@pytest.mark.parametrize(("operation", "a_memory", "out_memory"), CASES, ids=lambda one: getattr(one, "name", one))
def test_vector(
    operation: Operation,
    a_memory: Memory,
    out_memory: Memory,
    ring: bool,
    seed: int,
    machine_of: Callable[[int], Machine],
    oracles: ModuleType,
) -> None:
    machine = machine_of(seed)
    vector = random_vector(machine, operation, a_memory, out_memory, ring)
    values = random_descriptor(machine, operation)
    head = encode_descriptor(machine.config, operation, values)
    if operation is Operation.SUM and out_memory is Memory.ACC:
        head = head[:0]
    assert len(head) == descriptor_words(machine.config, vector)
    blocks = np.zeros((vector.blocks, 0, machine.config.array), np.uint32)
    if operation.name.startswith(("REQUANTIZE", "DEPTHWISE")):
        blocks = random_parameters(machine, vector)
    total = len(head) + blocks.shape[0] * blocks.shape[1]
    vector = replace(vector, parameters=int(machine.random.integers(machine.config.par_depth - total + 1)))
    machine.simulator.par[0, vector.parameters : vector.parameters + total] = np.concatenate(
        [head, blocks.reshape(-1, machine.config.array)]
    )
    if operation is Operation.TABLE_DIVIDE:  # by sums of such numbers, but for a few
        acc = machine.simulator.acc
        sums = np.exp(machine.random.uniform(-2, 6, acc.shape)).astype(np.float32).view(np.int32)
        acc[...] = np.where(machine.random.random(acc.shape) < 0.8, sums, acc)
    expected = machine.state()
    reference = Elements(machine, vector, values, blocks, oracles)
    for block, y, x in product(range(vector.blocks), range(vector.height), range(vector.width)):
        delta = block * vector.out_stride_block + y * vector.out_stride_y + x * vector.out_stride_x
        word = resolve(vector.out_offset, delta, vector.wrap if vector.out_wrap else 0)
        for lane in range(machine.config.array):
            expected[out_memory][vector.out_bank, word, lane] = reference.element(block, y, x, lane)
    machine.check(vector, expected, seed)


def test_in_place(machine_of: Callable[[int], Machine]) -> None:
    machine = machine_of(0)
    expected = machine.state()
    expected[Memory.ACT][1, 2:12] = expected[Memory.ACT][1, 1:11]
    copy = Vector(operation=Operation.COPY, a_bank=1, a_offset=1, out_bank=1, out_offset=2, width=10,
                  a_stride_x=1, out_stride_x=1)  # fmt: skip
    machine.check(copy, expected, 0)


# ---- errors


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            Load(offset=63, words=2, word_stride=1),
            "destination: words 63 to 64 of ACT bank 0 are outside of 2 banks",
        ),
        (Load(bank=2), "destination: words 0 to 0 of ACT bank 2 are outside of 2 banks of 64 words"),
        (Load(memory=Memory.WGT, bank=1), "of WGT bank 1 are outside of 1 banks of 64 words"),
        (Load(dram=400), "DRAM words 400 to 400 are outside of the 400 words of the program"),
        (Load(dram=399, words=2, word_stride=1), "DRAM words 399 to 400 are outside of"),
        (Load(dram=0, rows=2, row_stride=1, dram_row_stride=-1), "DRAM words -1 to 0 are outside of"),
        (Load(memory=Memory.PAR, dram=397), "DRAM words 397 to 400 are outside of"),
        (Store(dram=400), "DRAM words 400 to 400 are outside of"),
        (Store(offset=0, rows=2, row_stride=-1, dram_row_stride=1), "source: words -1 to 0 of ACT bank 0"),
        (Matrix(act_bank=2), "act: words 0 to 0 of ACT bank 2"),
        (Matrix(wgt_offset=61), "wgt: words 61 to 64 of WGT bank 0"),
        (Matrix(acc_offset=31, width=2, acc_stride_x=1), "acc: words 31 to 32 of ACC bank 0"),
        (Vector(operation=Operation.COPY, a_offset=64), "a: words 64 to 64 of ACT bank 0"),
        (Vector(operation=Operation.FILL, parameters=72), "parameters: words 72 to 72 of PAR bank 0"),
        (Vector(operation=Operation.MAX, out_bank=2), "out: words 0 to 0 of ACT bank 2"),
        (
            Vector(operation=Operation.ADD, b_offset=1, b_stride_x=-2, width=2),
            "b: words -1 to 1 of ACT bank 0",
        ),
        (
            Vector(operation=Operation.COPY, wrap=7, a_wrap=1, a_offset=63, a_stride_x=65, width=2),
            "a: words 0 to 127 of ACT bank 0",
        ),
    ],
)
def test_operands_outside_of_their_memory(
    instruction: Instruction, message: str, machine_of: Callable[[int], Machine]
) -> None:
    machine = machine_of(1)
    before = machine.state()
    with pytest.raises(FunctionalError, match=message):
        machine.simulator.execute(instruction)
    for memory, values in machine.state().items():
        assert (values == before[memory]).all()


def test_end_changes_nothing(machine_of: Callable[[int], Machine]) -> None:
    machine = machine_of(2)
    machine.check(End(), machine.state(), 2)


@pytest.mark.parametrize("config", ["int8-4x4", "bf16-4x4"])
@pytest.mark.parametrize("seed", range(8))
def test_long_loops_in_pieces(config: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instruction gives the same at once, and in pieces of few elements or of single ones."""
    made = random_program(PRESETS[config], f"pieces/{seed}")
    machines = []
    for piece in (functional._PIECE, 64, 1):
        monkeypatch.setattr(functional, "_PIECE", piece)
        machine = FunctionalSimulator(made.config, made.memory.copy())
        with np.errstate(all="ignore"):  # random bits as multipliers
            for instruction in made.instructions:
                machine.execute(instruction)
        machines.append(machine)
    for name in ("act", "wgt", "acc", "par", "dram"):
        whole, *others = (getattr(machine, name).view(np.uint8) for machine in machines)
        assert all(np.array_equal(whole, other) for other in others), name


def test_a_long_loop_takes_little_memory() -> None:
    """Of 2**22 steps over one word: their activations at once would be 16 MiB for each word of the result."""
    config = PRESETS["int8-4x4"]
    machine = FunctionalSimulator(config, np.zeros(0, np.uint8))
    machine.act[...], machine.wgt[...] = 1, 1
    matrix = Matrix(channels=1024, kernel_height=64, kernel_width=64, width=8, acc_stride_x=1, wgt_wrap=4)
    tracemalloc.start()
    machine.execute(matrix)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (machine.acc[0, :8] == 1 << 24).all() and not machine.acc[0, 8:].any()
    assert peak < 300 << 20
