"""One engine behind its queue: memories and DRAM are Python, values are the functional simulator's."""

from collections import deque
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from amaranth import Module
from amaranth.lib import wiring
from npukit.hw.issue import IssueQueue
from npukit.hw.ports import port_masks
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Instruction, Memory, Vector, encode
from npukit.sim.addressing import operands
from npukit.sim.functional import FunctionalSimulator
from numpy.typing import NDArray

from npukit.verify.generator import random_program
from npukit.verify.order import order_instructions
from tests.hw.blocks.bench import Bench, bits_of

__all__ = ["EngineBench", "random_instructions"]

_READ_LATENCY = 2
_MOST_WORDS = 300
"""Of an instruction: a simulated cycle takes a fraction of a millisecond."""


def random_instructions(config: NpuConfig, kind: type[Instruction], seed: str, count: int) -> tuple[list[Any], int]:
    """Instructions of one kind with the drains that they need among themselves, and the ACT words of their DRAM.

    Of VECTOR's, most have a window: these go through their words in the least simple order.
    """
    found: list[Any] = []
    words = 0
    chosen = Random(f"{seed} chosen")
    number = 0
    while len(found) < count:
        made = random_program(config, f"{seed}/{number}")
        number += 1
        mine = [one for one in made.instructions if type(one) is kind and _size(config, one) <= _MOST_WORDS]
        mine = mine[-5:]  # the first ones fill memories
        found += [one for one in mine if kind is not Vector or one.is_window or chosen.random() < 0.4]
        words = max(words, made.memory.size // config.word_bytes)
    plain = [replace(one, wait=0, signal=0, drain=0) for one in found[:count]]
    draw = Random(seed)
    others = sum(1 << engine for engine in ENGINES if engine is not kind.engine)
    ordered = order_instructions(config, plain, words)
    return [replace(one, signal=draw.randrange(16) & others) for one in ordered], words


def _size(config: NpuConfig, one: Any) -> int:
    return max(int(np.prod([count for count, _ in operand.loops])) for operand in operands(config, one))


class EngineBench:
    """An engine with its queue.

    Attributes:
        bench: to which more can be added.
        engine: the engine.
        memories, dram: as the engine leaves them.
        expected: the functional simulator, which has executed the same.
    """

    def __init__(self, config: NpuConfig, make: Any, kind: type[Instruction], seed: str, count: int) -> None:
        self.config, self.seed = config, seed
        self.instructions, words = random_instructions(config, kind, seed, count)
        draw = np.random.default_rng(list(seed.encode()))
        self.dram: NDArray[np.uint8] = draw.integers(0, 256, words * config.word_bytes, np.uint8)
        self.expected = FunctionalSimulator(config, self.dram.copy())
        self.memories: dict[Memory, NDArray[Any]] = {}
        for memory, array in self.expected._memories.items():
            array[...] = draw.integers(0, 256, array.nbytes, np.uint8).view(array.dtype).reshape(array.shape)
            self.memories[memory] = array.copy()

        m = Module()
        m.submodules.queue = waiting = IssueQueue(config, kind)
        m.submodules.engine = self.engine = engine = make(config)
        wiring.connect(m, waiting.issued, engine.instructions)
        m.d.comb += [waiting.there.eq(~0), waiting.ended.eq(engine.ends.valid)]
        self.bench = bench = Bench(m, seed)
        bench.source("queued", waiting.queued, [int.from_bytes(encode(one), "little") for one in self.instructions])
        bench.sink("ports", engine.ports, self._grant)
        bench.sink("ends", engine.ends, self._end)
        self.ended = 0
        self._read: deque[tuple[int, Memory, int]] = deque(maxlen=4)
        self._held = np.zeros(port_masks(config).size, int)
        bench.look(self._release)

    def _grant(self, masks: Any) -> None:
        self._held += self._bits(bits_of(masks))

    def _release(self, ctx: Any) -> None:
        """Ports are let go as often as they are taken; a grant counts in its cycle."""
        self._held -= self._bits(bits_of(ctx.get(self.engine.released)))
        assert (self._held >= 0).all(), "a port is released that is not held"

    def _bits(self, value: int) -> NDArray[Any]:
        return np.array([value >> k & 1 for k in range(len(self._held))])

    def _end(self, signal: Any) -> None:
        assert bits_of(signal) == self.instructions[self.ended].signal, f"tokens of instruction {self.ended}"
        self.ended += 1

    def reader(self, port: Any, memory: Memory, *, zero: bool = False) -> None:
        """A read port of the engine; with `zero`, of a memory that gives 0 where nothing was asked for."""
        coming: deque[int | None] = deque([None] * _READ_LATENCY)

        def drive(ctx: Any) -> None:
            word = coming.popleft()
            if word is not None or zero:
                ctx.set(port.data, word or 0)

        def look(ctx: Any) -> None:
            asked = ctx.get(port.addresses.valid)
            place = ctx.get(port.addresses.payload)
            if asked:
                at = self.bench.cycle, memory, place.bank
                assert at not in self._read, f"two reads of a bank of {memory.name} in one cycle"
                self._read.append(at)
            coming.append(self._word(memory, place.bank, place.offset) if asked else None)

        self.bench.drive(drive)
        self.bench.look(look)

    def writer(self, port: Any, memory: Memory) -> None:
        """A write port of the engine; to be added behind the readers, which see a word as it was."""

        def look(ctx: Any) -> None:
            if ctx.get(port.valid):
                written = ctx.get(port.payload)
                array = self.memories[memory]
                row = array[written.address.bank, written.address.offset]
                row[...] = np.frombuffer(written.data.to_bytes(row.nbytes, "little"), row.dtype)

        self.bench.look(look)

    def _word(self, memory: Memory, bank: int, offset: int) -> int:
        return int.from_bytes(self.memories[memory][bank, offset].tobytes(), "little")

    def run(self, cycles_each: int = 1000) -> None:
        """Run all instructions, and compare."""
        self.bench.run(lambda: self.ended == len(self.instructions), cycles_each * len(self.instructions))
        for instruction in self.instructions:
            self.expected.execute(instruction)
        for memory, array in self.expected._memories.items():
            assert array.tobytes() == self.memories[memory].tobytes(), f"{memory.name} differs"
        assert self.expected.dram.tobytes() == self.dram.tobytes(), "DRAM differs"
        assert not self._held.any(), "a port is still held"
