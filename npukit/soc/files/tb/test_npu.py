"""Cocotb's tests of the accelerator: the program that comes with the package, against what the simulator says of it."""

import logging
from collections.abc import Callable

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiResp
from fixed_latency_memory import FixedLatencyMemory
from recorded_run import DESCRIPTION, MEMORY_BYTES, RecordedRun, bit, offset, recorded_runs

PERIOD = 10
"""Of the clock, in ns."""
PATIENCE = 10
"""A program may take that many times the cycles that are expected of it."""


class Registers:
    """The registers, through AXI4-Lite, by their names."""

    def __init__(self, dut) -> None:
        self._manager = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        for side in (self._manager.write_if, self._manager.read_if):
            side.log.setLevel(logging.WARNING)  # else it has a line for each access

    async def write(self, register: str, value: int) -> None:
        """Write 32 bits."""
        answer = await with_timeout(self._manager.write(offset(register), value.to_bytes(4, "little")), 10, "us")
        assert answer.resp == AxiResp.OKAY, f"{register}: {answer.resp!r}"

    async def read(self, register: str) -> int:
        """Read 32 bits."""
        answer = await with_timeout(self._manager.read(offset(register), 4), 10, "us")
        assert answer.resp == AxiResp.OKAY, f"{register}: {answer.resp!r}"
        return int.from_bytes(answer.data, "little")


async def reset(dut) -> Registers:
    """Start the clock, and hold the reset for three cycles."""
    cocotb.start_soon(Clock(dut.clk, PERIOD, unit="ns").start())
    registers = Registers(dut)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    return registers


def expected(run: RecordedRun, counter: str) -> int:
    """What a counter is after a run in the memory of the simulator."""
    values = dict(run.reads)
    return values[f"{counter}_LOW"] | values[f"{counter}_HIGH"] << 32


async def execute(dut, registers: Registers, run: RecordedRun) -> None:
    """Start a program, wait for its interrupt, and look at what the registers say, but for counters."""
    done, error = bit("INTERRUPT_STATUS", "DONE"), bit("INTERRUPT_STATUS", "ERROR")
    await registers.write("INTERRUPT_ENABLE", done | error)
    assert not int(dut.irq.value)
    for name, value in run.writes:
        await registers.write(name, value)
    cycles = expected(run, "CYCLES")
    if not int(dut.irq.value):
        await with_timeout(RisingEdge(dut.irq), PATIENCE * cycles * PERIOD, "ns")
    assert await registers.read("ERROR") == 0, f"stopped at instruction {await registers.read('ERROR_INDEX')}"
    assert await registers.read("STATUS") == bit("STATUS", "DONE")
    assert await registers.read("INTERRUPT_STATUS") == done
    await registers.write("INTERRUPT_STATUS", done)
    await ClockCycles(dut.clk, 1)
    assert not int(dut.irq.value), "the interrupt stays after it was cleared"


async def interrupted_by_reset(dut, registers: Registers, run: RecordedRun) -> None:
    """Start a program, and pull the reset for one cycle in the middle of it, together with the memory's."""
    for name, value in run.writes:
        await registers.write(name, value)
    await ClockCycles(dut.clk, min(500, expected(run, "CYCLES") // 2))
    dut.rst.value = 1
    await ClockCycles(dut.clk, 1)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    assert await registers.read("STATUS") == 0


def compare(run: RecordedRun, read: Callable[[int, int], bytes]) -> None:
    """Hold memory to the expected outputs, bit for bit; `read` gives bytes from an address on."""
    for address, data in run.outputs:
        found = read(address, len(data))
        assert found == data, f"memory at {address:#x} holds {found.hex()}, not {data.hex()}"


@cocotb.test()
async def results_and_cycles(dut) -> None:
    """In the simulator's own memory, above 4 GiB: outputs and all counters are equal to the simulator's."""
    origin = 1 << 36
    limits = (DESCRIPTION[name] for name in ("latency", "read_bursts", "write_bursts"))
    memory = FixedLatencyMemory(dut, MEMORY_BYTES, origin, *limits)
    registers = await reset(dut)
    for run in recorded_runs(origin):
        for address, data in run.memory:
            memory.data[address : address + len(data)] = data
        await interrupted_by_reset(dut, registers, run)
        await execute(dut, registers, run)
        compare(run, lambda address, size: bytes(memory.data[address : address + size]))
        for name, value in run.reads:
            found = await registers.read(name)
            assert found == value, f"{name} is {found}, not {value}"
        dut._log.info("%d cycles, as expected", expected(run, "CYCLES"))
    assert memory.bursts


@cocotb.test()
async def results_in_axi_ram(dut) -> None:
    """In cocotbext-axi's memory, whose times are others: outputs are equal, and so are the beats on the bus."""
    memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=MEMORY_BYTES)
    for side in (memory.write_if, memory.read_if):
        side.log.setLevel(logging.WARNING)
    registers = await reset(dut)
    for run in recorded_runs():
        for address, data in run.memory:
            memory.write(address, data)
        await execute(dut, registers, run)
        compare(run, lambda address, size: bytes(memory.read(address, size)))
        for counter in ("READ_BEATS", "WRITE_BEATS"):
            found = await registers.read(f"{counter}_LOW")
            assert found == expected(run, counter), f"{counter}: {found}, not {expected(run, counter)}"


@cocotb.test()
async def error_and_reset(dut) -> None:
    """A program for another configuration is refused with an interrupt, and the reset register clears all of it."""
    FixedLatencyMemory(dut, MEMORY_BYTES, 0, 1, 1, 1)
    registers = await reset(dut)
    both = bit("INTERRUPT_STATUS", "DONE") | bit("INTERRUPT_STATUS", "ERROR")
    await registers.write("INTERRUPT_ENABLE", both)
    for name, value in recorded_runs()[0].writes:
        await registers.write(name, value ^ 1 if name == "PROGRAM_HASH_LOW" else value)
    await ClockCycles(dut.clk, 10)
    assert int(dut.irq.value)
    assert await registers.read("STATUS") == bit("STATUS", "DONE") | bit("STATUS", "ERROR")
    assert await registers.read("ERROR") == bit("ERROR", "CONFIGURATION")
    assert await registers.read("INTERRUPT_STATUS") == both
    await registers.write("CONTROL", bit("CONTROL", "RESET"))
    await ClockCycles(dut.clk, 10)
    assert not int(dut.irq.value)
    for name in ("STATUS", "ERROR", "INTERRUPT_STATUS", "INTERRUPT_ENABLE", "PROGRAM_LOW"):
        assert await registers.read(name) == 0, name
