"""A LiteX SoC around a package: python litex_soc.py PACKAGE FOLDER CPU STANDARD WIDTH writes its Verilog, top.v.

Without a CPU it has an AXI4-Lite port for a host, and the interrupt, as pins. Imports nothing of the kit.
"""

import sys
from typing import Any

from litex.build.generic_platform import Pins
from litex.build.xilinx import XilinxPlatform
from litex.gen import LiteXModule
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import axi
from migen import ClockDomain

package, folder, cpu, standard, width = sys.argv[1:]
sys.path[:0] = [package, f"{package}/tb"]
from npu_litex import add_npu  # noqa: E402  # of the package
from recorded_run import MEMORY_BYTES, recorded_runs  # noqa: E402  # of the package


def pin(platform: XilinxPlatform, name: str) -> Any:
    """A pin, or the pins of a bus."""
    return platform.request(name)


def image(word: int) -> list[int]:
    """What memory holds at first, in words of so many bytes: the first program and its data."""
    data = bytearray(MEMORY_BYTES)
    for address, part in recorded_runs()[0].memory:
        data[address : address + len(part)] = part
    return [int.from_bytes(data[at : at + word], "little") for at in range(0, len(data), word)]


class Clocks(LiteXModule):
    """One clock, and its reset, from pins."""

    def __init__(self, platform) -> None:
        self.cd_sys = ClockDomain("sys")
        assert self.cd_sys.rst is not None
        self.comb += [self.cd_sys.clk.eq(pin(platform, "clk")), self.cd_sys.rst.eq(pin(platform, "rst"))]


class Soc(SoCCore):
    """Memory and accelerator, and what else a SoC has by itself."""

    def __init__(self) -> None:
        host = axi.AXILiteInterface(data_width=32, address_width=32)
        pins = [(name, 0, Pins("A1")) for name in ("clk", "rst", "irq")]
        platform = XilinxPlatform("xc7a100tcsg324-1", [*pins, *host.get_ios("host")], toolchain="vivado")
        self.crg = Clocks(platform)
        with_cpu = cpu != "none"
        super().__init__(
            platform, 100e6, cpu_type=cpu if with_cpu else None, bus_standard=standard, bus_data_width=int(width),
            integrated_rom_size=0x8000 if with_cpu else 0, integrated_sram_size=0x1000 if with_cpu else 0,
            integrated_main_ram_size=MEMORY_BYTES, integrated_main_ram_init=image(int(width) // 8),
            with_uart=False, with_timer=with_cpu, ident="",
        )  # fmt: skip
        npu = add_npu(self) if with_cpu else add_npu(self, origin=0x80000000)
        self.comb += pin(platform, "irq").eq(npu.ev.irq)
        if not with_cpu:
            self.comb += host.connect_to_pads(pin(platform, "host"), mode="slave")
            self.bus.add_master("host", host)


builder = Builder(Soc(), output_dir=folder, compile_software=False, compile_gateware=False)
builder.build(build_name="top", run=False)
