"""Cocotb's side of `test_package.py`: the package's program in a LiteX SoC, through the SoC's bus."""

import json
import logging
import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster
from recorded_run import bit, offset, recorded_runs  # of the package

MAP = json.loads(Path(os.environ["NPUKIT_SOC_MAP"]).read_text())
REGISTERS = MAP["memories"]["npu"]["base"]
MEMORY = MAP["memories"]["main_ram"]["base"]
ENABLE = MAP["csr_registers"]["npu_ev_enable"]["addr"]


@cocotb.test()
async def a_program(dut) -> None:
    """It lies in the SoC's memory and the host starts it; the interrupt comes through LiteX's event manager."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "host"), dut.clk, dut.rst)
    for side in (host.write_if, host.read_if):
        assert side is not None
        side.log.setLevel(logging.WARNING)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)

    async def write(address: int, data: bytes) -> None:
        await with_timeout(host.write(address, data), 10, "ms")

    async def read(address: int, size: int) -> bytes:
        return bytes((await with_timeout(host.read(address, size), 10, "ms")).data)

    done = bit("INTERRUPT_STATUS", "DONE")
    for index, run in enumerate(recorded_runs(MEMORY)):
        for address, data in run.memory if index else ():  # the first program is there already
            await write(MEMORY + address, data)
        await write(ENABLE, (1).to_bytes(4, "little"))
        for name, value in (("INTERRUPT_ENABLE", done), *run.writes):
            await write(REGISTERS + offset(name), value.to_bytes(4, "little"))
        assert not int(dut.irq.value)
        await with_timeout(RisingEdge(dut.irq), 100, "ms")
        status = int.from_bytes(await read(REGISTERS + offset("STATUS"), 4), "little")
        assert status == bit("STATUS", "DONE"), status
        await write(REGISTERS + offset("INTERRUPT_STATUS"), done.to_bytes(4, "little"))
        await ClockCycles(dut.clk, 2)
        assert not int(dut.irq.value)
        for address, data in run.outputs:
            found = await read(MEMORY + address, len(data))
            assert found == data, f"memory at {address:#x} holds {found.hex()}, not {data.hex()}"
        dut._log.info("%d cycles", int.from_bytes(await read(REGISTERS + offset("CYCLES_LOW"), 4), "little"))
