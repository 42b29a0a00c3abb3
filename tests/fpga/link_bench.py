"""The board's end of the host link in Amaranth's simulator, between a line and a bus that takes its time."""

# Amaranth has no types
# pyright: reportAttributeAccessIssue=false

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from amaranth.sim import Simulator
from npukit.fpga.link import HostLink
from npukit.isa.host_link import Identity

from tests.fpga.link_model import LinkModel

__all__ = ["IDENTITY", "REFUSED", "LinkBench", "check"]

DIVISOR = 4
IDENTITY = Identity("a board", 0x7E7D0123456789AB, 2, 60_000_000, 1 << 25, DIVISOR)
REFUSED = 0x1000
"""Accesses from this address on are answered with an error."""
_QUIET = 300
"""Cycles without anything on the line or the bus after which nothing is expected any more."""

Spoken = Sequence[tuple[int, bool, int]]
"""Bytes: a value, whether its stop bit is right, and bit times of silence behind it."""


class LinkBench:
    """drift: by how much the host's bits are longer than the board's."""

    def __init__(self, random: Random, drift: float = 0.0) -> None:
        self.dut, self.random, self.drift = HostLink(IDENTITY), random, drift
        self.memory: dict[int, int] = {}
        self.writes = list[tuple[int, int]]()
        self.received = bytearray()
        self._bits: deque[int] = deque()
        self._idle = 0

    def run(self, groups: Sequence[Spoken], most_cycles: int = 200_000) -> list[tuple[bytes, list[tuple[int, int]]]]:
        """Bytes and writes that each group of bytes is answered with, once all is quiet.

        Raises:
            AssertionError: the board is never quiet, or breaks a rule of its bus or the line.
        """
        found = []

        async def host(ctx: Any) -> None:
            for group in groups:
                for value, right, silence in group:
                    self._bits.extend(
                        [0, *(value >> place & 1 for place in range(8)), int(right), *[1] * (1 + silence)]
                    )
                self._idle = cycles = 0
                while self._idle < _QUIET:
                    assert cycles < most_cycles, f"the board is not quiet after {most_cycles} cycles"
                    cycles += 16
                    await ctx.tick().repeat(16)
                found.append((bytes(self.received), list(self.writes)))
                self.received.clear()
                self.writes.clear()

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(host)
        simulator.add_testbench(self._line, background=True)
        simulator.add_testbench(self._bus, background=True)
        simulator.run()
        return found

    async def _line(self, ctx: Any) -> None:
        timer, late = 0, 0.0
        shift = count = wait = 0
        while True:
            if timer == 0:
                ctx.set(self.dut.rx, self._bits.popleft() if self._bits else 1)
                late += DIVISOR * (1 + self.drift)
                timer = round(late)
                late -= timer
            timer -= 1
            level = ctx.get(self.dut.tx)
            busy = self._bits or not level or count or ctx.get(self.dut.busy)
            self._idle = 0 if busy else self._idle + 1
            if count == 0:
                if not level:
                    count, wait = 10, DIVISOR // 2
            elif wait == 0:
                shift, count, wait = shift >> 1 | level << 9, count - 1, DIVISOR - 1
                if count == 0:
                    assert shift >> 9 and not shift & 1, "the board sends a byte without start or stop bit"
                    self.received.append(shift >> 1 & 0xFF)
            else:
                wait -= 1
            await ctx.tick()

    async def _bus(self, ctx: Any) -> None:
        bus, random = self.dut.bus, self.random
        pending: dict[str, int] = {}
        """Cycles until the bus takes an address or data, or answers."""
        taken: dict[str, int] = {}
        while True:
            for side, payload in (("aw", bus.awaddr), ("w", bus.wdata), ("ar", bus.araddr)):
                valid, ready = getattr(bus, f"{side}valid"), getattr(bus, f"{side}ready")
                if ctx.get(ready):
                    ctx.set(ready, 0)
                elif ctx.get(valid) and side not in taken:
                    if pending.setdefault(side, random.randrange(5)) == 0:
                        ctx.set(ready, 1)
                        taken[side] = ctx.get(payload)
                        del pending[side]
                    else:
                        pending[side] -= 1
            self._answer(ctx, taken, pending)
            await ctx.tick()

    def _answer(self, ctx: Any, taken: dict[str, int], pending: dict[str, int]) -> None:
        bus = self.dut.bus
        for name, needed in (("b", ("aw", "w")), ("r", ("ar",))):
            valid, ready = getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")
            if ctx.get(valid):
                assert ctx.get(ready), "the board does not take an answer of the bus"
                ctx.set(valid, 0)
                for side in needed:
                    del taken[side]
            elif all(side in taken for side in needed):
                if pending.setdefault(name, self.random.randrange(1, 9)) > 0:
                    pending[name] -= 1
                    continue
                del pending[name]
                address = taken[needed[0]]
                if name == "b":
                    self.writes.append((address, taken["w"]))
                    if address < REFUSED:
                        self.memory[address] = taken["w"]
                else:
                    ctx.set(bus.rdata, self.memory.get(address, 0))
                ctx.set(getattr(bus, f"{name}resp"), 0 if address < REFUSED else 2)
                ctx.set(valid, 1)


def check(model: LinkModel, group: Spoken, heard: tuple[bytes, list[tuple[int, int]]]) -> None:
    """Hold what a group was answered with to the protocol. Answers to what was no frame may come late, and one for
    several.

    Raises:
        AssertionError: anything else was answered or written.
    """
    model.answers.clear()
    model.writes.clear()
    model.unreadable = 0
    for value, right, _ in group:
        model.hear(value, right)
    received, writes = heard
    told = bytes.fromhex("ff000000") + model.session.to_bytes(4, "little")
    answers = [b"\x7e" + part + b"\x7e" for part in received.split(b"\x7e") if part]
    unreadable = [one for one in answers if one[1] == 0xFF]
    readable = [one for one in answers if one[1] != 0xFF]
    said = " ".join(f"{value:02x}{'' if right else '!'}" for value, right, _ in group)
    assert readable == model.answers, f"to {said}: answered {readable}, expected {model.answers}"
    assert writes == model.writes, f"to {said}: wrote {writes}, expected {model.writes}"
    assert bool(unreadable) == bool(model.unreadable) and len(unreadable) <= model.unreadable, f"to {said}: {answers}"
    assert all(told[:1] == one[1:2] for one in unreadable)
