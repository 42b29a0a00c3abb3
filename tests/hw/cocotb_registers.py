"""Cocotb's side of `test_registers.py`: an AXI4-Lite manager from cocotbext.axi and the register file."""

import random
from collections.abc import Iterator

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from npukit.isa.registers import COUNTERS, REGISTERS, Register, address_of

CONTROL = address_of("CONTROL")
NAMES = [name for name, _ in COUNTERS]
UNUSED = sorted(set(range(0, 4096, 4)) - {register.offset for register in REGISTERS})


class Strobes:
    """Counts the cycles in which the strobes are high, and notes the response's state right after."""

    def __init__(self, dut) -> None:
        self.counts = {"start": 0, "reset_core": 0}
        self.answered: list[int] = []
        cocotb.start_soon(self._watch(dut))

    async def _watch(self, dut) -> None:
        after = False
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            if after:
                self.answered.append(int(dut.bus_bvalid.value))
            after = False
            for name in self.counts:
                if dut.rst.value == 0 and int(getattr(dut, name).value):
                    self.counts[name] += 1
                    after = True


def pauses(generator: random.Random, chance: float) -> Iterator[bool]:
    while True:
        yield generator.random() < chance


def is_counter(register: Register) -> bool:
    return register.name.removesuffix("_LOW").removesuffix("_HIGH").lower() in NAMES


async def drive_counters(dut, model: dict[int, int]) -> None:
    """The counter that is asked for, in the next cycle only."""
    while True:
        await RisingEdge(dut.clk)
        if not int(dut.counter_reading.value):
            dut.counter.value = 0x5555_5555_AAAA_AAAA
            continue
        name = NAMES[int(dut.counter_index.value)].upper()
        low, high = (model[address_of(f"{name}_{half}")] for half in ("LOW", "HIGH"))
        dut.counter.value = high << 32 | low


async def power_up(dut) -> None:
    """Clock and reset."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    for register in REGISTERS:
        if register.access == "ro" and not is_counter(register):
            getattr(dut, register.name.lower()).value = 0
    dut.counter.value = dut.busy.value = dut.clear.value = dut.interrupt_events.value = 0
    dut.rst.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def begin(dut, seed: int = 0, chance: float = 0.0) -> AxiLiteMaster:
    """Clock, reset, and a manager that pauses each of its channels at random."""
    dut._log.info("seed %d, pauses %s", seed, chance)
    manager = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "bus"), dut.clk, dut.rst)
    assert manager.write_if is not None and manager.read_if is not None
    channels = (
        manager.write_if.aw_channel,
        manager.write_if.w_channel,
        manager.write_if.b_channel,
        manager.read_if.ar_channel,
        manager.read_if.r_channel,
    )
    for index, channel in enumerate(channels):
        if chance:
            channel.set_pause_generator(pauses(random.Random(seed * 10 + index), chance))
    await power_up(dut)
    return manager


async def write(manager: AxiLiteMaster, offset: int, data: bytes) -> int:
    return (await with_timeout(manager.write(offset, data), 20, "us")).resp


async def read(manager: AxiLiteMaster, offset: int) -> tuple[int, int]:
    answer = await with_timeout(manager.read(offset, 4), 20, "us")
    return answer.resp, int.from_bytes(answer.data, "little")


@cocotb.test()
async def every_register(dut) -> None:
    """Reset values, writes of any bytes, and what read-only and write-only ones do."""
    for seed, chance in ((1, 0.0), (2, 0.3), (3, 0.8)):
        generator = random.Random(seed)
        manager = await begin(dut, seed, chance)
        model = {register.offset: register.reset for register in REGISTERS}
        for register in REGISTERS:
            if register.access == "ro":
                model[register.offset] = generator.getrandbits(32)
                if not is_counter(register):
                    getattr(dut, register.name.lower()).value = model[register.offset]
        cocotb.start_soon(drive_counters(dut, model))
        order = [*REGISTERS, *REGISTERS]
        generator.shuffle(order)
        for register in order:
            assert await read(manager, register.offset) == (AxiResp.OKAY, model[register.offset]), register.name
            if register.name == "CONTROL":
                continue
            first, count = generator.choice([(0, 4), (0, 1), (1, 1), (1, 2), (2, 2), (1, 3), (3, 1)])
            data = generator.randbytes(count)
            assert await write(manager, register.offset + first, data) == AxiResp.OKAY
            if register.access == "rw":
                value = bytearray(model[register.offset].to_bytes(4, "little"))
                value[first : first + count] = data
                model[register.offset] = int.from_bytes(value, "little") & (1 << register.width) - 1
                assert int(getattr(dut, register.name.lower()).value) == model[register.offset]
        for register in REGISTERS:
            assert await read(manager, register.offset) == (AxiResp.OKAY, model[register.offset]), register.name


@cocotb.test()
async def offsets_without_a_register(dut) -> None:
    manager = await begin(dut)
    generator = random.Random(4)
    for offset in [UNUSED[0], UNUSED[-1], *generator.sample(UNUSED, 20)]:
        assert await read(manager, offset) == (AxiResp.SLVERR, 0)
        assert await write(manager, offset, b"\xff\xff\xff\xff") == AxiResp.SLVERR
    for register in REGISTERS:
        if register.access == "rw":
            assert int(getattr(dut, register.name.lower()).value) == register.reset


@cocotb.test()
async def control(dut) -> None:
    """Strobes last one cycle, right before the response; both bits only reset."""
    for seed, chance in ((5, 0.0), (6, 0.5)):
        manager = await begin(dut, seed, chance)
        strobes = Strobes(dut)
        base = address_of("BASE_LOW")
        await write(manager, base, b"\x00\x10\x00\x00")
        assert await write(manager, CONTROL, b"\x01\x00\x00\x00") == AxiResp.OKAY
        assert strobes.counts == {"start": 1, "reset_core": 0}
        await write(manager, CONTROL, b"\x00\x00\x00\x00")
        await write(manager, CONTROL + 1, b"\xff\xff\xff")  # byte 0 is not written
        await write(manager, CONTROL + 4, b"\xff\xff\xff\xff")
        assert strobes.counts == {"start": 1, "reset_core": 0}
        assert await read(manager, base) == (AxiResp.OKAY, 0x1000)
        await write(manager, CONTROL, b"\x02")
        assert strobes.counts == {"start": 1, "reset_core": 1}
        assert await read(manager, base) == (AxiResp.OKAY, 0x1000), "the reset comes when bursts have ended"
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        assert await read(manager, base) == (AxiResp.OKAY, 0)
        await write(manager, CONTROL, b"\x03")
        assert strobes.counts == {"start": 1, "reset_core": 2}
        assert strobes.answered == [1, 1, 1]


@cocotb.test()
async def busy(dut) -> None:
    """Nothing is taken but a reset, and what concerns interrupts; everything can be read."""
    for seed, chance in ((7, 0.0), (8, 0.5)):
        manager = await begin(dut, seed, chance)
        strobes = Strobes(dut)
        dut.busy.value = 1
        for register in REGISTERS:
            expected = AxiResp.OKAY if register.while_busy else AxiResp.SLVERR
            assert await write(manager, register.offset, b"\x01\x00\x00\x00") == expected, register.name
            assert (await read(manager, register.offset))[0] == AxiResp.OKAY
            if register.access == "rw" and not register.while_busy:
                assert int(getattr(dut, register.name.lower()).value) == register.reset
        assert strobes.counts == {"start": 0, "reset_core": 0}
        assert await write(manager, CONTROL, b"\x03") == AxiResp.OKAY
        assert strobes.counts == {"start": 0, "reset_core": 1}
        dut.busy.value = 0
        assert await write(manager, address_of("BASE_LOW"), b"\x01\x00\x00\x00") == AxiResp.OKAY


@cocotb.test()
async def interrupts(dut) -> None:
    """Events are kept until they are cleared, raise the line where they are enabled, and are never lost."""
    enable, status = address_of("INTERRUPT_ENABLE"), address_of("INTERRUPT_STATUS")
    manager = await begin(dut)

    async def event(bits: int) -> None:
        dut.interrupt_events.value = bits
        await RisingEdge(dut.clk)
        dut.interrupt_events.value = 0
        await FallingEdge(dut.clk)

    for enabled in range(4):
        await write(manager, enable, bytes([enabled]))
        for bits in range(4):
            await event(bits)
            assert await read(manager, status) == (AxiResp.OKAY, bits)
            assert int(dut.irq.value) == bool(bits & enabled)
            for cleared in (1, 2):
                await write(manager, status, bytes([cleared]))
                bits &= ~cleared
                assert await read(manager, status) == (AxiResp.OKAY, bits)
                assert int(dut.irq.value) == bool(bits & enabled)
    await event(1)
    await write(manager, status + 1, b"\xff\xff\xff")  # byte 0 is not written
    assert await read(manager, status) == (AxiResp.OKAY, 1)
    # in the cycle in which the write clears the bit, another event comes
    dut.bus_awaddr.value, dut.bus_wdata.value, dut.bus_wstrb.value = status, 1, 1
    dut.bus_awvalid.value = dut.bus_wvalid.value = dut.bus_bready.value = 1
    await RisingEdge(dut.clk)
    dut.bus_awvalid.value = dut.bus_wvalid.value = 0
    await event(1)
    assert int(dut.interrupt_status.value) == 1
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    await RisingEdge(dut.clk)
    assert int(dut.interrupt_status.value) == int(dut.interrupt_enable.value) == 0


@cocotb.test()
async def address_and_data_in_any_order(dut) -> None:
    manager = await begin(dut)
    assert manager.write_if is not None
    channels = (manager.write_if.aw_channel, manager.write_if.w_channel)
    for late, value in ((0, 0x11111000), (1, 0x22222000), (0, 0x33333000), (1, 0x44444000)):
        channels[late].pause = True
        task = cocotb.start_soon(write(manager, address_of("LIMIT_LOW"), value.to_bytes(4, "little")))
        for _ in range(10):
            await RisingEdge(dut.clk)
        assert not task.done() and int(dut.limit_low.value) != value
        channels[late].pause = False
        assert await task == AxiResp.OKAY
        assert int(dut.limit_low.value) == value


@cocotb.test()
async def start_needs_its_strobe(dut) -> None:
    """Signals by hand: the manager has zeros in bytes that it does not write."""
    await power_up(dut)
    strobes = Strobes(dut)
    for strobe, starts in ((0b1110, 0), (0b0001, 1)):
        dut.bus_awaddr.value, dut.bus_wdata.value, dut.bus_wstrb.value = CONTROL, 1, strobe
        dut.bus_awvalid.value = dut.bus_wvalid.value = dut.bus_bready.value = 1
        await RisingEdge(dut.clk)
        dut.bus_awvalid.value = dut.bus_wvalid.value = 0
        for _ in range(5):
            await RisingEdge(dut.clk)
        assert strobes.counts["start"] == starts
