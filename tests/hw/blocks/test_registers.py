"""The register file against a plain model: random accesses, with random delays of every handshake of its bus."""

import random
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from amaranth.sim import Simulator
from npukit.hw.registers import RegisterFile
from npukit.isa.registers import COUNTERS, REGISTERS, ControlBit, address_of

from tests.hw.blocks.bench import seeds

OKAY, SLAVE_ERROR = 0, 2
_LIMIT = 60
"""Cycles in which an access must be over: the delays alone take some 20."""


ENABLE, STATUS = address_of("INTERRUPT_ENABLE"), address_of("INTERRUPT_STATUS")


def reset_values() -> dict[int, int]:
    """Of all registers that can be written."""
    return {one.offset: one.reset for one in REGISTERS if one.access in ("rw", "w1c")}


class Model:
    """What the registers hold."""

    def __init__(self, dut: RegisterFile, draw: random.Random) -> None:
        self.values = reset_values()
        self.inputs = {
            one.offset: draw.getrandbits(32)
            for one in REGISTERS
            if one.access == "ro" and hasattr(dut, one.name.lower())
        }
        self.counters = [draw.getrandbits(64) for _ in COUNTERS]
        self.access = {one.offset: one.access for one in REGISTERS}
        self.first_counter = address_of(f"{COUNTERS[0][0].upper()}_LOW")

    def write(self, address: int, word: int, strobe: int, busy: bool) -> tuple[int, int]:
        """(response, bits of CONTROL that take effect)."""
        control = 0
        if address == address_of("CONTROL") and strobe & 1:
            control = word & (1 << ControlBit.START | 1 << ControlBit.RESET)
        resets = bool(control >> ControlBit.RESET & 1)
        if address not in self.access or (busy and not resets and address not in (ENABLE, STATUS)):
            return SLAVE_ERROR, 0
        mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
        if address == STATUS:
            self.values[STATUS] &= ~(word & mask)
        elif address in self.values:
            self.values[address] = self.values[address] & ~mask | word & mask
            self.values[ENABLE] &= 0b11
        return OKAY, 1 << ControlBit.RESET if resets else control

    def read(self, address: int) -> tuple[int, int]:
        """(response, word)."""
        if address >= self.first_counter and address in self.access:
            place = (address - self.first_counter) // 4
            return OKAY, self.counters[place // 2] >> 32 * (place % 2) & 0xFFFFFFFF
        if address not in self.access:
            return SLAVE_ERROR, 0
        return OKAY, self.values.get(address, self.inputs.get(address, 0))


def run_registers(seed: str) -> None:
    """Writes and reads one after the other; strobes and outputs follow, and each access is answered as it should be."""
    draw = random.Random(seed)
    dut = RegisterFile()
    model = Model(dut, draw)
    places = sorted(model.access)
    strobes: list[tuple[int, int]] = []

    async def counters(ctx: Any) -> None:
        while True:
            index = ctx.get(dut.counter_index) if ctx.get(dut.counter_reading) else None
            strobes.append((ctx.get(dut.start), ctx.get(dut.reset_core)))
            await ctx.tick()
            ctx.set(dut.counter, draw.getrandbits(64) if index is None else model.counters[index])

    async def present(ctx: Any, prefix: str, after: int, **values: int) -> None:
        await wait(ctx, after)
        for name, value in values.items():
            ctx.set(getattr(dut.bus, name), value)
        ctx.set(getattr(dut.bus, f"{prefix}valid"), 1)

    async def wait(ctx: Any, cycles: int) -> None:
        for _ in range(cycles):
            await step(ctx)

    async def step(ctx: Any) -> None:
        """One cycle; what was taken in it is presented no longer."""
        taken = [
            one for one in ("aw", "w", "ar")
            if ctx.get(getattr(dut.bus, f"{one}valid")) and ctx.get(getattr(dut.bus, f"{one}ready"))
        ]  # fmt: skip
        await ctx.tick()
        for one in taken:
            ctx.set(getattr(dut.bus, f"{one}valid"), 0)

    async def answer(ctx: Any, prefix: str) -> tuple[int, int]:
        """The response and the word, if it is a read's; taken after a while, until when it must stay."""
        valid, ready = getattr(dut.bus, f"{prefix}valid"), getattr(dut.bus, f"{prefix}ready")
        for _ in range(_LIMIT):
            if ctx.get(valid):
                break
            await step(ctx)
        else:
            raise AssertionError(f"no answer within {_LIMIT} cycles")
        found = ctx.get(getattr(dut.bus, f"{prefix}resp")), ctx.get(dut.bus.rdata)
        await wait(ctx, draw.choice([0, 0, 1, 5]))
        assert ctx.get(valid), "an answer was taken back"
        assert (ctx.get(getattr(dut.bus, f"{prefix}resp")), ctx.get(dut.bus.rdata)) == found or prefix == "b"
        ctx.set(ready, 1)
        await step(ctx)
        ctx.set(ready, 0)
        assert not ctx.get(valid), "an answer came twice"
        return found

    async def manager(ctx: Any) -> None:
        for offset, value in model.inputs.items():
            ctx.set(dut.value(next(one.name for one in REGISTERS if one.offset == offset)), value)
        for _ in range(400):
            address = draw.choice([*places, draw.randrange(0, 1 << 12, 4)])
            if draw.random() < 0.5:
                busy = draw.random() < 0.2
                ctx.set(dut.busy, busy)
                word, strobe = draw.getrandbits(32), draw.choice([0b1111, draw.randrange(16)])
                parts = [("aw", {"awaddr": address}), ("w", {"wdata": word, "wstrb": strobe})]
                draw.shuffle(parts)
                strobes.clear()
                for prefix, values in parts:
                    await present(ctx, prefix, draw.choice([0, 0, 1, 4]), **values)
                response, _ = await answer(ctx, "b")
                expected, control = model.write(address, word, strobe, busy)
                assert response == expected, f"{address:#x} was answered with {response}, not {expected}"
                seen = tuple(sum(column) for column in zip(*strobes, strict=True))
                assert seen == (control >> ControlBit.START & 1, control >> ControlBit.RESET & 1), (hex(address), seen)
                for offset, value in model.values.items():
                    name = next(one.name for one in REGISTERS if one.offset == offset)
                    assert ctx.get(dut.value(name)) == value, name
                if draw.random() < 0.05:
                    ctx.set(dut.clear, 1)
                    await step(ctx)
                    ctx.set(dut.clear, 0)
                    model.values = reset_values()
                if draw.random() < 0.2:
                    events = draw.randrange(4)
                    ctx.set(dut.interrupt_events.as_value(), events)
                    await step(ctx)
                    ctx.set(dut.interrupt_events.as_value(), 0)
                    model.values[STATUS] |= events
                assert ctx.get(dut.irq) == bool(model.values[STATUS] & model.values[ENABLE])
            else:
                await present(ctx, "ar", draw.choice([0, 0, 3]), araddr=address)
                found = await answer(ctx, "r")
                assert found == model.read(address), f"{address:#x} reads as {found}, not {model.read(address)}"

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(manager)
    simulator.add_testbench(counters, background=True)
    simulator.run()


def test_registers() -> None:
    for seed in seeds():
        print("seed", seed)
        run_registers(seed)
