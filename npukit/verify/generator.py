"""Random legal programs: any mode, loops, strides, borders, rings, banks and token graphs.

Each program works in small arenas of each memory, which a prologue fills, so that nothing unwritten is
read. Order is added where two instructions touch the same words, and here and there where it is not
needed. The judge has the last word: what it refuses is never returned.
"""

from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_lanes, encode_descriptor, operations_of, pack_taps, parameter_words
from npukit.isa.instructions import (
    TWO_SOURCE_OPERATIONS,
    End,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)
from npukit.isa.timing import Timing
from npukit.sim.addressing import bank_depth
from npukit.sim.judge import judge
from npukit.verify.order import Order
from npukit.verify.values import random_floats, random_halves

__all__ = ["RandomProgram", "random_program"]

_ARENA = 128
_MOST_TRIES = 40
_DRAM_WORDS = 4096
_STRETCH = 512
"""Elements of floating-point data of one kind."""


@dataclass(frozen=True)
class RandomProgram:
    """A program, END included, and the DRAM image that it starts with."""

    seed: str
    config: NpuConfig
    instructions: tuple[Instruction, ...]
    memory: NDArray[np.uint8]


@dataclass(frozen=True)
class _Arena:
    memory: Memory
    bank: int
    low: int
    size: int


def random_program(config: NpuConfig, seed: str, length: int | None = None) -> RandomProgram:
    """The program of a seed; `length` instructions besides prologue and END, by default 1 to 60."""
    for attempt in range(_MOST_TRIES):
        made = _Generator(config, f"{seed}/{attempt}").run(length)
        if made is not None:
            return replace(made, seed=seed)
    raise AssertionError(f"no legal program in {_MOST_TRIES} tries for seed {seed}")


class _Generator:
    def __init__(self, config: NpuConfig, seed: str) -> None:
        self.config = config
        self.random = Random(seed)
        self.seed = seed
        self.instructions: list[Instruction] = []
        unit = config.word_bytes
        # data anywhere, then parameters, then room to store
        self.data_words = _DRAM_WORDS
        self.parameter_low = self.data_words
        self.parameter_words = 4096
        self.store_low = self.parameter_low + self.parameter_words
        self.dram_words = self.store_low + _DRAM_WORDS
        self.memory = self._data(np.random.default_rng(self.random.getrandbits(64)), self.dram_words * unit)
        self.parameter_next = self.parameter_low
        self.order = Order(config, self.dram_words)
        self.arenas = {memory: self._arenas(memory) for memory in (Memory.ACT, Memory.ACC, Memory.WGT)}

    def _data(self, generator: np.random.Generator, size: int) -> NDArray[np.uint8]:
        if self.config.dtype == "bf16":
            # each stretch of one kind
            parts = [random_halves(generator, _STRETCH) for _ in range(-(-size // (2 * _STRETCH)))]
            return np.concatenate(parts).view(np.uint8)[:size].copy()
        memory = generator.integers(0, 256, size, np.uint8)
        if self.random.random() < 0.2:
            # only such data bring sums near their limits
            extremes = np.array([-128, -128, -128, 127], np.int8).view(np.uint8)
            data = self.data_words * self.config.word_bytes
            memory[:data] = generator.choice(extremes, data)
        return memory

    def _arenas(self, memory: Memory) -> list[_Arena]:
        banks, depth = bank_depth(self.config, memory)
        # room for more results than a sweep goes over, and for LOADs of as many bursts as may be in flight
        sizes = {Memory.WGT: 4 * self.config.array, Memory.ACT: _ARENA, Memory.ACC: _ARENA // 2}
        size = min(depth, sizes[memory])
        chosen = self.random.sample(range(banks), min(banks, self.random.choice([1, 2, 3])))
        found = []
        for bank in chosen:
            last = (depth - size) // 32 * 32
            low = self.random.choice([0, last, self.random.randrange(last // 32 + 1) * 32])
            if self.random.random() < 0.3:
                low = depth - size
            found.append(_Arena(memory, bank, low, size))
        return found

    def run(self, length: int | None) -> RandomProgram | None:
        """The program, or None if the judge refuses it."""
        self._prologue()
        wanted = (
            length
            if length is not None
            else self.random.choice([self.random.randint(1, 19), self.random.randint(20, 60)])
        )
        makers = [self._load, self._matrix, self._vector, self._store]
        weights = [self.random.choice([1, 1, 2, 4]) for _ in makers]
        while len(self.instructions) < wanted + self.prologue:
            for _ in range(_MOST_TRIES):
                if self.random.choices(makers, weights)[0]():
                    break
            else:
                return None
        instructions = (*self.order.finish(self.instructions), End())
        if judge(self.config, instructions, self.memory.size, [(0, self.memory.size)]):
            return None
        return RandomProgram(self.seed, self.config, instructions, self.memory)

    def _add(self, instruction: Instruction) -> bool:
        """Add an instruction if it is sound by itself."""
        if _unsound(self.config, instruction, self.memory.size):
            return False
        self.order.add(instruction, self.random)
        self.instructions.append(instruction)
        return True

    def _prologue(self) -> None:
        for memory in (Memory.ACT, Memory.WGT):
            for arena in self.arenas[memory]:
                words = self.random.randrange(self.data_words - arena.size)
                added = self._add(
                    Load(
                        memory=memory,
                        bank=arena.bank,
                        offset=arena.low,
                        dram=words,
                        words=arena.size,
                        word_stride=1,
                    )
                )
                assert added
        for arena in self.arenas[Memory.ACC]:
            place = self._parameters(Operation.FILL, 1, 1, 1)
            added = self._add(
                Vector(
                    operation=Operation.FILL, parameters=place, width=arena.size, out_memory=Memory.ACC,
                    out_bank=arena.bank, out_offset=arena.low, out_stride_x=1,
                )
            )  # fmt: skip
            assert added
        self.prologue = len(self.instructions)

    # ---- pieces

    def _count(self, most: int) -> int:
        return self.random.choice([1, 1, 2, 3, self.random.randint(1, most)]) if most > 1 else 1

    def _loops(self, counts: tuple[int, ...], limits: tuple[int, ...], unique: bool) -> list[int] | None:
        """Strides, outermost first, within limits; for results such that no word comes twice."""
        strides = []
        reach = 1
        for count, limit in zip(reversed(counts), reversed(limits), strict=True):
            if unique:
                stride = reach + self.random.choice([0, 0, 0, 1, 3])
                reach = stride * (count - 1) + reach
                stride *= self.random.choice([1, 1, 1, -1])
            else:
                stride = self.random.choice([0, 1, 1, 2, reach, -1, self.random.randint(-8, 8)])
                reach += abs(stride) * (count - 1)
            if abs(stride) >= limit:
                return None
            strides.append(stride)
        return strides[::-1]

    def _place(
        self, memory: Memory, counts: tuple[int, ...], strides: list[int], wrap: bool = True
    ) -> tuple[_Arena, int, int] | None:
        """(arena, offset, wrap) at which the loops stay within an arena."""
        arena = self.random.choice(self.arenas[memory])
        low = sum(min(0, (count - 1) * stride) for count, stride in zip(counts, strides, strict=True))
        high = sum(max(0, (count - 1) * stride) for count, stride in zip(counts, strides, strict=True))
        if wrap and self.random.random() < 0.25:
            for size in self.random.sample([2, 3, 4, 5], 4):
                start = -(-arena.low >> size) << size
                if start + (1 << size) <= arena.low + arena.size and high - low < 1 << size:
                    return arena, start + self.random.randrange(1 << size), size
        if high - low >= arena.size:
            return None
        first = self.random.choice([0, arena.size - 1 - (high - low), self.random.randrange(arena.size - (high - low))])
        return arena, arena.low + first - low, 0

    def _parameters(self, operation: Operation, blocks: int, height: int, width: int) -> int:
        """Write a descriptor and parameters to DRAM, load them to PAR, and return the PAR word."""
        config, random = self.config, self.random
        words = [self._descriptor(operation)]
        probe = Vector(operation=operation, window_height=height, window_width=width)
        generator = np.random.default_rng(random.getrandbits(64))
        fixed = operation in (Operation.REQUANTIZE_FIXED, Operation.DEPTHWISE_FIXED)
        count = parameter_words(config, probe)
        for _ in range(blocks if count else 0):
            if config.dtype == "bf16":
                words.append(random_floats(generator, config.array).reshape(1, -1))
                if operation is Operation.DEPTHWISE:
                    taps = random_halves(generator, height * width * config.array)
                    words.append(pack_taps(config, taps.reshape(-1, config.array)))
                continue
            ties = random.random() < 0.4  # small sums, scaled by exact powers of two: many halves
            span = 1 << 9 if ties else random.choice([1 << 8, 1 << 20, (1 << 31) - 1])
            words.append(generator.integers(-span, span, (1, config.array)).astype(np.int32).view(np.uint32))
            if fixed:
                right = (-8, 1) if ties else (-20, 6)
                factor = (
                    np.full((1, config.array), 1 << 30)
                    if ties
                    else generator.integers(1 << 30, 1 << 31, (1, config.array))
                )
                words.append(factor.astype(np.uint32))
                words.append(generator.integers(*right, (1, config.array)).astype(np.int32).view(np.uint32))
            else:
                scale = generator.uniform(0.5, 2.0, (1, config.array)) * 2.0 ** -random.randint(0, 30)
                if ties:
                    scale = 2.0 ** -generator.integers(1, 9, (1, config.array)).astype(np.float64)
                words.append(scale.astype(np.float32).view(np.uint32))
            if operation in (Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
                taps = generator.integers(-128, 128, (height * width, config.array)).astype(np.int8)
                words.append(pack_taps(config, taps))
        image = np.concatenate(words)
        size = len(image)
        units = config.wide_word_units
        place = self.parameter_next
        self.parameter_next += size * units
        if self.parameter_next > self.store_low or size > config.par_depth:
            raise _Full
        start = place * config.word_bytes
        self.memory[start : start + image.nbytes] = image.view(np.uint8).reshape(-1)
        offset = random.choice([0, config.par_depth - size, random.randrange(config.par_depth - size + 1)])
        self._add(Load(memory=Memory.PAR, offset=offset, dram=place, words=size, word_stride=1))
        return offset

    def _descriptor(self, operation: Operation) -> NDArray[np.uint32]:
        random = self.random
        values: dict[str, float | int] = {}
        if self.config.dtype == "bf16":
            generator = np.random.default_rng(random.getrandbits(64))
            names = [field.name for field in descriptor_lanes(self.config, operation)]
            values = dict(zip(names, random_floats(generator, len(names)).view(np.float32), strict=True))
            if "low" in values and random.random() < 0.7:
                limits = random.choice([(-6.0, 6.0), (0.0, np.inf), (-np.inf, np.inf), (np.nan, np.nan)])
                values["low"], values["high"] = limits
            return encode_descriptor(self.config, operation, values)
        ties = random.random() < 0.5
        for field in descriptor_lanes(self.config, operation):
            if field.is_float and ties:  # exact, so that halves come up
                values[field.name] = (
                    random.randint(-64, 64) / 2
                    if field.name == "offset"
                    else random.choice([-1, 1, 1])
                    * 2.0 ** (random.randint(-9, -1) if field.name == "multiplier" else random.randint(-3, 0))
                )
            elif field.is_float:
                values[field.name] = random.choice([-1, 1, 1]) * random.uniform(0.5, 2) * 2.0 ** random.randint(-12, 3)
            elif field.name == "value":  # of FILL, also around the ends of int8, where CONVERT begins to clamp
                near = random.choice([-129, -128, 127, 128, 128])
                values[field.name] = random.choice([near, near, random.randrange(-(1 << 31), 1 << 31)])
            elif field.name.endswith("multiplier"):
                values[field.name] = random.randrange(1 << 30, 1 << 31)
            elif field.name.endswith("shift") and field.signed:
                values[field.name] = random.randint(-15, 3)
            elif field.name == "left_shift":
                values[field.name] = random.randint(0, 20)
            elif field.name in ("low", "high"):
                continue
            elif field.width == 10:
                values[field.name] = random.randint(-256, 255)
            else:
                low = -(1 << (field.width - 1)) if field.signed else 0
                values[field.name] = random.randrange(low, low + (1 << field.width))
        fields = {field.name: field for field in descriptor_lanes(self.config, operation)}
        if "low" in fields:
            low, high = (-128, 127)
            if fields["low"].width == 10 and values["out_unsigned"]:
                low, high = 0, 255
            if random.random() < 0.3:
                low, high = sorted((random.randint(low, high), random.randint(low, high)))
            values["low"], values["high"] = low, high
        return encode_descriptor(self.config, operation, values)

    # ---- instructions

    def _load(self) -> bool:
        random = self.random
        memory = random.choice([Memory.ACT, Memory.ACT, Memory.WGT])
        pads = [random.choice([0, 0, 0, 1, 2]) for _ in range(4)]
        rows, words, planes = self._count(5), self._count(20), self._count(3)
        counts = (planes, pads[0] + rows + pads[1], pads[2] + words + pads[3])
        strides = self._loops(counts, (32768,) * 3, unique=True)
        if strides is None or (place := self._place(memory, counts, strides)) is None:
            return False
        arena, offset, wrap = place
        from_store = random.random() < 0.3
        low, size = (self.store_low, _DRAM_WORDS) if from_store else (0, self.data_words)
        row_stride = random.choice([words, words, 0, random.randint(-40, 200)])
        plane_stride = random.choice([rows * words, random.randint(-300, 600)])
        page = 4096 // self.config.word_bytes
        dram = low + random.choice([random.randrange(size), page - random.randint(0, 20), size - words])
        return self._add(
            Load(
                memory=memory, bank=arena.bank, offset=offset, wrap=wrap, dram=max(low, dram),
                planes=planes, rows=rows, words=words,
                plane_stride=strides[0], row_stride=strides[1], word_stride=strides[2],
                dram_plane_stride=plane_stride, dram_row_stride=row_stride,
                pad_top=pads[0], pad_bottom=pads[1], pad_left=pads[2], pad_right=pads[3],
                pad_value=random.randrange(1 << 8 * self.config.element_bytes),
            )
        )  # fmt: skip

    def _store(self) -> bool:
        random = self.random
        counts = (self._count(3), self._count(5), self._count(24))
        strides = self._loops(counts, (32768,) * 3, unique=False)
        if strides is None or (place := self._place(Memory.ACT, counts, strides)) is None:
            return False
        arena, offset, wrap = place
        page = 4096 // self.config.word_bytes
        row_stride = counts[2] + random.choice([0, 0, 1, random.randint(0, 50)])
        plane_stride = row_stride * counts[1] + random.choice([0, 0, random.randint(0, 90)])
        dram = self.store_low + random.choice([random.randrange(_DRAM_WORDS), page - random.randint(0, 20)])
        return self._add(
            Store(
                bank=arena.bank, offset=offset, wrap=wrap, dram=dram,
                planes=counts[0], rows=counts[1], words=counts[2],
                plane_stride=strides[0], row_stride=strides[1], word_stride=strides[2],
                dram_plane_stride=plane_stride, dram_row_stride=row_stride,
            )
        )  # fmt: skip

    def _matrix(self) -> bool:
        random = self.random
        size = self.config.array
        previous = next((one for one in reversed(self.instructions) if isinstance(one, Matrix)), None)
        wgt = random.choice(self.arenas[Memory.WGT])
        tiles = wgt.size // size
        reduction = [self._count(2), self._count(2), self._count(3)]
        blocks, height, width = self._count(3), self._count(5), self._count(8)
        if blocks * reduction[0] * reduction[1] * reduction[2] > tiles:
            return False
        act_counts = (*reduction, height, width)
        act_strides = self._loops(act_counts, (32768,) * 4 + (1024,), unique=False)
        acc_counts = (blocks, height, width)
        acc_strides = self._loops(acc_counts, (32768, 32768, 1024), unique=True)
        if act_strides is None or acc_strides is None:
            return False
        act = self._place(Memory.ACT, act_counts, act_strides)
        acc = self._place(Memory.ACC, acc_counts, acc_strides, wrap=False)
        if act is None or acc is None:
            return False
        words = blocks * reduction[0] * reduction[1] * reduction[2] * size
        fields = dict(
            accumulate=random.randint(0, 1),
            act_bank=act[0].bank, act_offset=act[1], act_wrap=act[2],
            wgt_offset=wgt.low + random.randrange(wgt.size - words + 1),
            acc_bank=acc[0].bank, acc_offset=acc[1],
            channels=reduction[0], kernel_height=reduction[1], kernel_width=reduction[2],
            height=height, width=width, blocks=blocks,
            act_stride_channel=act_strides[0], act_stride_kernel_y=act_strides[1],
            act_stride_kernel_x=act_strides[2], act_stride_y=act_strides[3], act_stride_x=act_strides[4],
            acc_stride_block=acc_strides[0], acc_stride_y=acc_strides[1], acc_stride_x=acc_strides[2],
        )  # fmt: skip
        if previous is not None and random.random() < 0.3:
            # walk the accumulators as the last one did: no drain is needed
            same = ("acc_bank", "acc_offset", "acc_stride_block", "acc_stride_y", "acc_stride_x")
            if (blocks, height, width) == (previous.blocks, previous.height, previous.width):
                fields.update({name: getattr(previous, name) for name in same}, accumulate=1)
        return self._add(Matrix(**fields))

    def _swept(self) -> tuple[int, int]:
        """Rows and columns of about as many results as a sweep goes over, or as it needs not to wait."""
        timing = Timing(self.config)
        near = self.random.choice([timing.sweep_cycles // timing.requantise_passes, timing.sweep_words])
        results = max(1, near + self.random.choice([-2, -1, 0, 1, 1, 1, 2, 9]))
        rows = [rows for rows in range(1, 9) if results % rows == 0]
        height = self.random.choice(rows)
        return height, results // height

    def _vector(self) -> bool:
        random, config = self.random, self.config
        operation = random.choice(operations_of(config))
        blocks, height, width = self._count(3), self._count(4), self._count(9)
        windowed = operation in (Operation.MAX, Operation.SUM, Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED)
        tall, wide = (
            (random.randint(1, min(3, config.max_window)), random.randint(1, min(4, config.max_window)))
            if windowed
            else (1, 1)
        )
        if windowed and config.dtype == "bf16" and random.random() < 0.5:
            height, width = self._swept()
        if windowed and random.random() < 0.1:
            tall, wide, height, width = random.choice([1, config.max_window]), config.max_window, 1, 2
        either = (Memory.ACT, Memory.ACC)
        a_memory, out_memory = Memory.ACT, Memory.ACT
        if operation in (Operation.REQUANTIZE, Operation.REQUANTIZE_FIXED):
            a_memory = Memory.ACC
        elif operation is Operation.COPY:
            a_memory = out_memory = random.choice(either)
        elif operation is Operation.CONVERT:
            a_memory = random.choice(either)
            out_memory = either[a_memory == Memory.ACT]
        elif operation in (Operation.SUM, Operation.FILL):
            a_memory, out_memory = random.choice(either), random.choice(either)
            if operation is Operation.FILL:
                a_memory = Memory.ACT
        fields: dict = {"operation": operation, "blocks": blocks, "height": height, "width": width}
        counts = (blocks, height, width)
        if windowed:
            step = random.choice([1, 1, 2, random.randint(1, 5)])
            strides = self._loops((*counts[:2], tall, (width - 1) * step + wide), (32768, 32768, 32768, 1024), False)
            if strides is None:
                return False
            source = self._place(
                a_memory, (*counts[:2], tall, (width - 1) * step + wide), strides, a_memory is Memory.ACT
            )
            fields |= {
                "a_stride_block": strides[0], "a_stride_y": strides[1], "window_height": tall,
                "window_width": wide, "window_step": step, "window_stride_y": strides[2],
                "window_stride_x": strides[3],
            }  # fmt: skip
        else:
            strides = self._loops(counts, (32768, 32768, 1024), unique=False)
            if strides is None:
                return False
            source = self._place(a_memory, counts, strides)
            if operation is not Operation.FILL:
                fields |= dict(zip(("a_stride_block", "a_stride_y", "a_stride_x"), strides, strict=True))
        out_strides = self._loops(counts, (32768, 32768, 1024), unique=True)
        if source is None or out_strides is None:
            return False
        out = self._place(out_memory, counts, out_strides)
        if out is None:
            return False
        wraps = {"a": source[2], "out": out[2], "b": 0}
        if operation is Operation.FILL:
            wraps["a"] = 0
        else:
            fields |= {"a_memory": a_memory, "a_bank": source[0].bank, "a_offset": source[1]}
        fields |= {"out_memory": out_memory, "out_bank": out[0].bank, "out_offset": out[1]}
        fields |= dict(zip(("out_stride_block", "out_stride_y", "out_stride_x"), out_strides, strict=True))
        if operation in TWO_SOURCE_OPERATIONS:
            strides = self._loops(counts, (32768, 32768, 1024), unique=False)
            if strides is None or (second := self._place(Memory.ACT, counts, strides)) is None:
                return False
            wraps["b"] = second[2]
            fields |= {"b_memory": Memory.ACT, "b_bank": second[0].bank, "b_offset": second[1]}
            fields |= dict(zip(("b_stride_block", "b_stride_y", "b_stride_x"), strides, strict=True))
        sizes = {size for size in wraps.values() if size}
        if len(sizes) > 1:
            return False
        fields["wrap"] = max(sizes, default=0)
        fields |= {f"{side}_wrap": int(size > 0) for side, size in wraps.items()}
        probe = Vector(**fields)
        if _unsound(config, probe, self.memory.size):
            return False
        needs = operation not in (Operation.MAX, Operation.COPY, Operation.CONVERT)
        if operation is Operation.SUM and out_memory is Memory.ACC:
            needs = False
        if needs:
            try:
                fields["parameters"] = self._parameters(operation, blocks, tall, wide)
            except _Full:
                return False
        return self._add(Vector(**fields))


class _Full(Exception):
    """The DRAM's parameter area is used up."""


def _unsound(config: NpuConfig, instruction: Instruction, dram_bytes: int) -> bool:
    """Whether the judge refuses the instruction even by itself (what it reads counts as written)."""
    findings = judge(config, (instruction, End()), dram_bytes, [(0, dram_bytes)])
    return any(finding.rule != "unwritten" for finding in findings)
