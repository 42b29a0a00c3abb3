"""Cocotb's side of `test_axi.py`: the core between cocotbext.axi's AXI4 memory and AXI4-Lite manager."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiResp
from npukit.isa.registers import ControlBit, StatusBit, address_of


def pauses(generator: random.Random, chance: float, longest: int) -> Iterator[bool]:
    """Pauses of 1 to `longest` cycles, each begun with that chance."""
    while True:
        if generator.random() < chance:
            yield from [True] * generator.randint(1, longest)
        yield False


async def write(manager: AxiLiteMaster, name: str, value: int, size: int = 4) -> None:
    answer = await with_timeout(manager.write(address_of(name), value.to_bytes(size, "little")), 20, "us")
    assert answer.resp == AxiResp.OKAY


async def read(manager: AxiLiteMaster, name: str) -> int:
    answer = await with_timeout(manager.read(address_of(name), 4), 20, "us")
    assert answer.resp == AxiResp.OKAY
    return int.from_bytes(answer.data, "little")


class Channels:
    """A monitor: what is valid and not taken stays valid and unchanged (AXI4, A3.2.1)."""

    PAYLOADS = {
        "ar": ("addr", "len", "size", "burst", "id"),
        "aw": ("addr", "len", "size", "burst", "id"),
        "w": ("data", "strb", "last"),
    }

    def __init__(self, dut) -> None:
        self.waited = dict.fromkeys(self.PAYLOADS, 0)
        for channel, fields in self.PAYLOADS.items():
            cocotb.start_soon(self._watch(dut, channel, fields))

    async def _watch(self, dut, channel: str, fields: tuple[str, ...]) -> None:
        valid, ready = getattr(dut, f"m_axi_{channel}valid"), getattr(dut, f"m_axi_{channel}ready")
        payload = [getattr(dut, f"m_axi_{channel}{field}") for field in fields]
        before = None
        while True:
            await RisingEdge(dut.clk)  # the values of the cycle that ends here
            now = [int(signal.value) for signal in payload] if int(valid.value) else None
            assert before is None or now == before, f"{channel} changed or went away before it was accepted"
            before = now if now is not None and not int(ready.value) else None
            self.waited[channel] += before is not None


BASE, PROGRAM = 0x3000, 0x80000


async def begin(dut) -> tuple[AxiLiteMaster, AxiRam, Channels]:
    """Clock, reset, and the buses' other sides."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    manager = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
    memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=1 << 20)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    return manager, memory, Channels(dut)


def cases() -> list[Path]:
    """Programs with their DRAM images, before and after."""
    found = sorted(Path(os.environ["NPUKIT_CASES"]).glob("*.npz"))
    assert found
    return found


def set_pauses(dut, memory: AxiRam, number: int, seed: int) -> None:
    """Pauses of a kind for each program, none for every fourth."""
    chance, longest = ((0.0, 1), (0.1, 3), (0.4, 4), (0.02, 200))[number % 4]
    dut._log.info("program %d: seed %d, pauses of up to %d cycles with chance %s", number, seed, longest, chance)
    assert memory.write_if is not None and memory.read_if is not None
    for index, channel in enumerate(
        (
            memory.write_if.aw_channel,
            memory.write_if.w_channel,
            memory.write_if.b_channel,
            memory.read_if.ar_channel,
            memory.read_if.r_channel,
        )
    ):
        channel.set_pause_generator(pauses(random.Random(seed * 10 + index), chance, longest))


async def start(manager: AxiLiteMaster, memory: AxiRam, case) -> None:
    """Write a program and its data to memory, and start it."""
    memory.write(BASE, case["memory"].tobytes())
    memory.write(PROGRAM, case["code"].tobytes())
    for name, value in (
        ("PROGRAM_HASH", int(case["hash"])),
        ("PROGRAM", PROGRAM),
        ("BASE", BASE),
        ("LIMIT", len(case["memory"])),
    ):
        await write(manager, f"{name}_LOW", value, size=8)
    await write(manager, "PROGRAM_LENGTH", len(case["code"]) // 32)
    await write(manager, "CONTROL", 1 << ControlBit.START)


async def finish(dut, manager: AxiLiteMaster, memory: AxiRam, case) -> None:
    """Wait for the end, and compare memory with what the functional simulator left."""
    for _ in range(500):
        await ClockCycles(dut.clk, 100)
        if not (status := await read(manager, "STATUS")) >> StatusBit.BUSY & 1:
            break
    assert status == 1 << StatusBit.DONE, (status, await read(manager, "ERROR"), await read(manager, "ERROR_INDEX"))
    found = np.frombuffer(bytes(memory.read(BASE, len(case["memory"]))), np.uint8)
    different = np.nonzero(found != case["expected"])[0]
    assert not len(different), f"{len(different)} bytes differ, the first at {different[0]}"


@cocotb.test()
async def programs_on_a_memory_of_others(dut) -> None:
    """Each program's DRAM afterwards is the functional simulator's, whatever pauses the memory makes."""
    manager, memory, channels = await begin(dut)
    for number, path in enumerate(cases()):
        case = np.load(path)
        set_pauses(dut, memory, number, int(case["seed"]))
        await start(manager, memory, case)
        await finish(dut, manager, memory, case)
    assert all(channels.waited.values()), channels.waited


@cocotb.test()
async def resets_in_the_middle(dut) -> None:
    """The reset register ends a program at any time; no burst is abandoned, and the next program is right."""
    manager, memory, channels = await begin(dut)
    ended = 0
    for number, path in enumerate(cases()):
        case = np.load(path)
        generator = random.Random(int(case["seed"]))
        for _ in range(3):
            set_pauses(dut, memory, generator.randrange(4), generator.getrandbits(20))
            await start(manager, memory, case)
            await ClockCycles(dut.clk, generator.randrange(1, 1500))
            ended += await read(manager, "STATUS") >> StatusBit.BUSY & 1
            await write(manager, "CONTROL", 1 << ControlBit.RESET)
            for _ in range(1000):
                if not await read(manager, "STATUS"):
                    break
            else:
                raise AssertionError("the reset does not end")
            assert await read(manager, "BASE_LOW") == 0
        set_pauses(dut, memory, number, int(case["seed"]))
        await start(manager, memory, case)
        await finish(dut, manager, memory, case)
    assert ended > len(cases()), "most programs were running"
    assert all(channels.waited.values()), channels.waited
