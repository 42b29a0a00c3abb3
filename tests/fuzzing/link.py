"""Frames of a board's host link: what the bridge writes and answers, against the protocol read byte by byte."""

# Amaranth has no types
# pyright: reportAttributeAccessIssue=false

import json
import struct
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from amaranth.sim import Simulator
from npukit.fpga.uart import BUFFER, HostBridge

from .case import Outcome, Result, WrongResult
from .mutate import change_bytes

__all__ = ["Link", "Spoken", "make", "understood"]

_DIVISOR, _PATIENCE = 4, 40
_REFUSED = 0x1000
"""Accesses from this address on are answered with an error."""
_WORDS = 6
_MOST_CYCLES = 60_000


@dataclass(frozen=True)
class Spoken:
    """Bytes without a long silence: each a value, whether its stop bit is right, and bit times of silence behind it."""

    data: tuple[tuple[int, bool, int], ...]


@dataclass
class Expected:
    """Answers, each whole, and writes (address, word), in order."""

    answers: list[bytes] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)


def understood(data: bytes, memory: dict[int, int]) -> Expected:
    """What the protocol says to bytes of which the rest never comes; `memory` is changed."""
    found, at = Expected(), 0
    while at < len(data):
        command = data[at : at + 1]
        at += 1
        if command not in (b"W", b"R"):
            continue
        if at + 6 > len(data):
            break
        address, last = struct.unpack_from("<IH", data, at)
        at += 6
        addresses = [(address + 4 * index) % (1 << 32) for index in range(last + 1)]
        end = b"E" if any(one >= _REFUSED for one in addresses) else b"K"
        if command == b"R":
            words = [memory.get(one, 0) for one in addresses]
            found.answers.append(struct.pack(f"<{len(words)}I", *words) + end)
            continue
        for one in addresses:
            if at + 4 > len(data):
                return found
            (word,) = struct.unpack_from("<I", data, at)
            at += 4
            found.writes.append((one, word))
            if one < _REFUSED:
                memory[one] = word
        found.answers.append(end)
    return found


class _Board:
    """A bridge in the simulator, a host's end of its line, and memory on its bus that takes its time."""

    def __init__(self, random: Random) -> None:
        self.dut, self.random = HostBridge(_DIVISOR, _PATIENCE), random
        self.memory: dict[int, int] = {}
        self.bits: deque[int] = deque()
        self.received, self.writes = bytearray(), list[tuple[int, int]]()
        self.idle = self.cycles = 0

    def send(self, spoken: Spoken) -> None:
        """Put bytes on the line."""
        for value, right, silence in spoken.data:
            self.bits.extend([0, *(value >> place & 1 for place in range(8)), int(right), *[1] * (1 + silence)])

    async def run(self, ctx: Any) -> None:
        """Line and bus, cycle by cycle."""
        dut, bus, random = self.dut, self.dut.bus, self.random
        timer = count = wait = shift = 0
        pending: dict[str, int] = {}
        """Cycles until the bus takes an address or data, or answers."""
        taken: dict[str, int] = {}
        while True:
            if timer == 0:
                ctx.set(dut.rx, self.bits.popleft() if self.bits else 1)
                timer = _DIVISOR
            timer -= 1
            level = ctx.get(dut.tx)
            self.idle += 1
            if self.bits or not level or count:
                self.idle = 0
            if count == 0:
                if not level:
                    count, wait = 10, _DIVISOR // 2
            elif wait == 0:
                shift, count, wait = shift >> 1 | level << 9, count - 1, _DIVISOR - 1
                if count == 0:
                    if shift & 1 or not shift >> 9:
                        raise WrongResult("the bridge sends a byte without start or stop bit")
                    self.received.append(shift >> 1 & 0xFF)
            else:
                wait -= 1
            for side, payload in (("aw", bus.awaddr), ("w", bus.wdata), ("ar", bus.araddr)):
                valid, ready = getattr(bus, f"{side}valid"), getattr(bus, f"{side}ready")
                if ctx.get(ready):
                    ctx.set(ready, 0)
                elif ctx.get(valid) and side not in taken:
                    self.idle = 0
                    if pending.setdefault(side, random.randrange(5)) == 0:
                        ctx.set(ready, 1)
                        taken[side] = ctx.get(payload)
                        del pending[side]
                    else:
                        pending[side] -= 1
            self._answer(ctx, taken, pending)
            self.cycles += 1
            await ctx.tick()

    def _answer(self, ctx: Any, taken: dict[str, int], pending: dict[str, int]) -> None:
        bus = self.dut.bus
        for name, needed in (("b", ("aw", "w")), ("r", ("ar",))):
            valid, ready = getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")
            if ctx.get(valid):
                if not ctx.get(ready):
                    raise WrongResult("the bridge does not take an answer of the bus")
                ctx.set(valid, 0)
                for side in needed:
                    del taken[side]
            elif all(side in taken for side in needed):
                self.idle = 0
                if pending.setdefault(name, self.random.randrange(1, 9)) > 0:
                    pending[name] -= 1
                    continue
                del pending[name]
                address = taken[needed[0]]
                if name == "b":
                    self.writes.append((address, taken["w"]))
                    if address < _REFUSED:
                        self.memory[address] = taken["w"]
                else:
                    ctx.set(bus.rdata, self.memory.get(address, 0))
                ctx.set(getattr(bus, f"{name}resp"), 0 if address < _REFUSED else 2)
                ctx.set(valid, 1)


class Link:
    """See the module."""

    seconds = 120.0
    megabytes = 1024
    suffix = ".json"

    def input(self, random: Random) -> bytes:
        """Groups of bytes, with silences between that are long enough for a command to be forgotten."""
        groups = [self._group(random) for _ in range(random.choice([1, 2, 3]))]
        return json.dumps({"bus": random.getrandbits(32), "groups": groups}).encode()

    def _group(self, random: Random) -> list[tuple[int, bool, int]]:
        data = b"".join(self._command(random) for _ in range(random.choice([1, 1, 2, 3, 8])))
        match random.randrange(6):
            case 0:
                data = _shortened(change_bytes(random, data, 3)[:120])
            case 1:
                data = _shortened(random.randbytes(random.randrange(40)))
            case 2:
                data = data[: random.randrange(len(data) + 1)]
        wrong = random.randrange(len(data) + 1) if random.random() < 0.2 else -1
        gaps = random.choice([0, 0, 3, _PATIENCE // 2])
        return [(one, at != wrong, random.randint(0, gaps)) for at, one in enumerate(data)]

    @staticmethod
    def _command(random: Random) -> bytes:
        words = random.choice([1, 1, 2, _WORDS])
        address = random.choice([0x100, 0x104, _REFUSED - 4, _REFUSED, 0xFFFFFFFC, random.getrandbits(32)])
        head = struct.pack("<IH", address, words - 1)
        return random.choice([b"R" + head, b"W" + head + random.randbytes(4 * words)])

    def run(self, data: bytes) -> Result:
        """All groups, then a write and a read that have to work."""
        case = json.loads(data)
        groups = [
            Spoken(tuple((value, bool(right), silence) for value, right, silence in one)) for one in case["groups"]
        ]
        good = b"W" + struct.pack("<IHI", 0x40, 0, 0x12345678) + b"R" + struct.pack("<IH", 0x40, 0)
        groups.append(Spoken(tuple((one, True, 0) for one in good)))
        board = _Board(Random(case["bus"]))
        heard: list[tuple[bytes, list[tuple[int, int]], dict[int, int]]] = []

        async def host(ctx: Any) -> None:
            for group in groups:
                before = dict(board.memory)
                board.send(group)
                end = board.cycles + _MOST_CYCLES
                board.idle = 0
                while board.idle < 3 * _PATIENCE * _DIVISOR:
                    if board.cycles > end:
                        raise WrongResult(f"the bridge is not quiet after {_MOST_CYCLES} cycles")
                    await ctx.tick().repeat(16)
                heard.append((bytes(board.received), list(board.writes), before))
                board.received.clear()
                board.writes.clear()

        simulator = Simulator(board.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(host)
        simulator.add_testbench(board.run, background=True)
        simulator.run()
        for group, one in zip(groups, heard, strict=True):
            _check(group, *one)
        return Result(Outcome.ACCEPTED)


def _shortened(data: bytes) -> bytes:
    """The bytes with the length of every command that they hold small, for the sake of time."""
    changed, at = bytearray(data), 0
    while at < len(changed):
        command = changed[at]
        at += 1
        if command in b"WR" and at + 6 <= len(changed):
            changed[at + 4 : at + 6] = struct.pack("<H", changed[at + 4] % _WORDS)
            at += 6 + (4 * (changed[at + 4] + 1) if command == ord("W") else 0)
    return bytes(changed)


def _check(group: Spoken, answered: bytes, writes: list[tuple[int, int]], memory: dict[int, int]) -> None:
    """What was heard to a group: all that the protocol says; or, where a byte was damaged or may have been too much
    for the bridge's buffer, the first part of it and an E."""
    data = bytes(value for value, _, _ in group.data)
    wrong = next((at for at, (_, right, _) in enumerate(group.data) if not right), None)
    expected = understood(data[:wrong], memory)
    if wrong is None and (answered, writes) == (b"".join(expected.answers), expected.writes):
        return
    if wrong is not None or len(data) > BUFFER:
        parts = [part + b"E" for part in accumulate(expected.answers, initial=b"")]
        if answered in parts and writes == expected.writes[: len(writes)]:
            return
    raise WrongResult(
        f"to {data.hex()}, byte {wrong} damaged: answered {answered.hex()} and wrote {writes}; "
        f"expected {b''.join(expected.answers).hex()} and {expected.writes}"
    )


def make(folder: Path) -> Link:
    """The kind."""
    return Link()
