"""Random AXI4 traffic of one or several managers to an SDRAM chip's model; what is read must be what was written."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from amaranth import Elaboratable
from amaranth.sim import Simulator
from npukit.fpga.sdram_chip import SdramModel, SdramPins
from npukit.isa.sdram import SdramChip

NOP = SdramPins()
_LIMIT = 20_000
"""Cycles within which all managers must be done: many times what they take."""


def pins_of(ctx, pins) -> SdramPins:
    return SdramPins(
        cke=ctx.get(pins.cke), cs_n=ctx.get(pins.cs_n), ras_n=ctx.get(pins.ras_n), cas_n=ctx.get(pins.cas_n),
        we_n=ctx.get(pins.we_n), bank=ctx.get(pins.bank), address=ctx.get(pins.address), dqm=ctx.get(pins.dqm),
        dq=ctx.get(pins.dq_out) if ctx.get(pins.dq_drive) else None,
    )  # fmt: skip


@dataclass
class Manager:
    """One that writes to one half of its region and reads the other, in rounds: what one wrote, later ones read.

    bus: AXI4. region: first and last byte but one. busy: the chance that a channel is not paused in a cycle. longest:
    beats of a burst.
    """

    bus: Any
    bus_bytes: int
    region: tuple[int, int]
    seed: str
    bursts: int
    busy: float
    longest: int = 64
    expected: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.done = {"write": 0, "read": 0}
        first, end = self.region
        half = (end - first) // 2
        self.plans = []
        for _ in range(max(1, self.bursts // 20)):
            place = self.random.randrange(2) * half
            self.plans.append([[self._burst(first + at, half) for _ in range(10)] for at in (place, half - place)])

    def _burst(self, base: int, room: int) -> tuple[int, int]:
        """(address, beats - 1) of a burst within 4 KiB; often in few rows of each bank."""
        draw = self.random
        length = min(self.longest - 1, draw.choice([0, 0, 1, 3, 7, 15, draw.randrange(64)]))
        page = draw.choice([draw.randrange(8), draw.randrange(8), draw.randrange(room >> 12)]) % (room >> 12) << 12
        return base + page + draw.randrange(4096 // self.bus_bytes - length) * self.bus_bytes, length

    def _go(self) -> bool:
        return self.random.random() < self.busy

    async def _write(self, ctx, bursts) -> None:
        bus, size, draw = self.bus, self.bus_bytes, self.random
        beats, addresses = deque(), deque(bursts)
        for address, length in bursts:
            for beat in range(length + 1):
                data, strobe = (
                    draw.randrange(1 << 8 * size),
                    draw.choice([(1 << size) - 1, draw.randrange(1 << size)]),
                )
                beats.append((data, strobe, beat == length))
                for byte in range(size):
                    if strobe >> byte & 1:
                        self.expected[address + beat * size + byte] = data >> 8 * byte & 0xFF
        responses = len(addresses)
        while responses:
            if (addresses and self._go()) or ctx.get(bus.awvalid):
                ctx.set(bus.awaddr, addresses[0][0])
                ctx.set(bus.awlen, addresses[0][1])
                ctx.set(bus.awvalid, 1)
            if (beats and self._go()) or ctx.get(bus.wvalid):
                ctx.set(bus.wdata, beats[0][0])
                ctx.set(bus.wstrb, beats[0][1])
                ctx.set(bus.wlast, beats[0][2])
                ctx.set(bus.wvalid, 1)
            ctx.set(bus.bready, self._go())
            _, _, awready, awvalid, wready, wvalid, bvalid, bready = await ctx.tick().sample(
                bus.awready, bus.awvalid, bus.wready, bus.wvalid, bus.bvalid, bus.bready
            )
            if awready and awvalid:
                addresses.popleft()
                ctx.set(bus.awvalid, 0)
            if wready and wvalid:
                beats.popleft()
                ctx.set(bus.wvalid, 0)
            responses -= bvalid & bready
        ctx.set(bus.bready, 0)

    async def _read(self, ctx, bursts) -> None:
        bus, size = self.bus, self.bus_bytes
        addresses = deque(bursts)
        waiting = deque((address, beat, length) for address, length in bursts for beat in range(length + 1))
        while waiting:
            if (addresses and self._go()) or ctx.get(bus.arvalid):
                ctx.set(bus.araddr, addresses[0][0])
                ctx.set(bus.arlen, addresses[0][1])
                ctx.set(bus.arvalid, 1)
            ctx.set(bus.rready, self._go())
            _, _, arready, arvalid, rvalid, rready, data, last = await ctx.tick().sample(
                bus.arready, bus.arvalid, bus.rvalid, bus.rready, bus.rdata, bus.rlast
            )
            if arready and arvalid:
                addresses.popleft()
                ctx.set(bus.arvalid, 0)
            if rvalid and rready:
                address, beat, length = waiting.popleft()
                at = address + beat * size
                assert data == int.from_bytes(self.expected[at : at + size].tobytes(), "little"), (hex(address), beat)
                assert last == (beat == length)
        ctx.set(bus.rready, 0)

    async def writer(self, ctx) -> None:
        for number, (bursts, _) in enumerate(self.plans):
            await self._write(ctx, bursts)
            self.done["write"] = number + 1
            while self.done["read"] <= number:
                await ctx.tick()
        await ctx.tick().repeat(2 * self.bus_bytes)  # the last words are on their way to the chip

    async def reader(self, ctx) -> None:
        for number, (_, bursts) in enumerate(self.plans):
            await self._read(ctx, bursts)
            self.done["read"] = number + 1
            while self.done["write"] <= number:
                await ctx.tick()


async def _watch(ctx, bus) -> None:
    """What is presented on a channel stays until it is taken."""
    channels = {
        "aw": ("awaddr", "awlen", "awid"), "ar": ("araddr", "arlen", "arid"), "w": ("wdata", "wstrb", "wlast")
    }  # fmt: skip
    waiting: dict[str, tuple[int, ...]] = {}
    while True:
        for name, payload in channels.items():
            valid, ready = ctx.get(getattr(bus, f"{name}valid")), ctx.get(getattr(bus, f"{name}ready"))
            found = tuple(int(ctx.get(getattr(bus, one))) for one in payload)
            if name in waiting:
                assert valid and found == waiting[name], f"{name}: what was presented has changed"
            waiting = {one: held for one, held in waiting.items() if one != name}
            if valid and not ready:
                waiting[name] = found
        await ctx.tick()


def run(
    dut: Elaboratable, pins: Any, managers: Sequence[Manager], chip: SdramChip, megahertz: float, io_cycles: int = 0,
    watched: Sequence[Any] = (),
) -> SdramModel:  # fmt: skip
    """Let all managers do their work at once; the chip's model as it is afterwards. watched: buses held to AXI."""
    model = SdramModel(chip, megahertz)
    there, back = deque([NOP] * (io_cycles // 2)), deque([0] * (io_cycles - io_cycles // 2))
    noise = managers[0].random
    model.memory[:] = np.random.default_rng(noise.getrandbits(32)).integers(0, 1 << 16, model.memory.size, np.uint16)
    expected = model.memory.view(np.uint8).copy()

    async def chip_process(ctx) -> None:
        while True:
            assert model.cycle < _LIMIT, f"not over after {_LIMIT} cycles"
            there.append(pins_of(ctx, pins))
            word = model.step(there.popleft())
            back.append(word if word is not None else noise.randrange(1 << 16))
            ctx.set(pins.dq_in, back.popleft())
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for manager in managers:
        manager.expected = expected
        simulator.add_testbench(manager.writer)
        simulator.add_testbench(manager.reader)
    simulator.add_testbench(chip_process, background=True)
    for bus in watched:
        simulator.add_testbench(partial(_watch, bus=bus), background=True)
    simulator.run()
    assert np.array_equal(model.memory.view(np.uint8), expected)
    return model
