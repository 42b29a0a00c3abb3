"""The accelerator as a LiteX module: `add_npu(soc)` in the `__init__` of an SoC, and that is all.

Needs LiteX and Migen, and the package's folder on Python's path. Registers are a region of the SoC's bus of 4 KiB;
memory is reached through the SoC's bus, or through its DMA bus where it has one, at the bus's own addresses.
"""

import json
from pathlib import Path
from typing import Any

from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import axi
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import Cat, ClockSignal, Constant, Instance, ResetSignal, Signal

FOLDER = Path(__file__).resolve().parent
DESCRIPTION: dict[str, Any] = json.loads((FOLDER / "npu.json").read_text(encoding="utf-8"))
LONGEST_BURST = 256
"""Of AXI4, in beats."""
REGISTER_WIDTH = 32
"""Bits of a register, and of the bus that it is on."""
REGISTER_BITS: int = DESCRIPTION["register_address_bits"]
"""Of an address within the region of the registers."""


class NPU(LiteXModule):
    """The accelerator.

    Args:
        platform: gets the Verilog.
        address_width: bits of the bus's addresses. The accelerator's memory has 64: the upper ones must be 0.

    Attributes:
        registers: AXI4-Lite, for the bus to reach.
        memory: AXI4, a master of the bus.
        ev: the interrupt. It is a level: clear it in the accelerator's INTERRUPT_STATUS.
    """

    def __init__(self, platform, address_width: int = 32) -> None:
        bus_bytes = DESCRIPTION["bus_bytes"]
        # LiteX converts between widths of data, not of addresses
        self.registers = registers = axi.AXILiteInterface(data_width=REGISTER_WIDTH, address_width=address_width)
        self.memory = memory = axi.AXIInterface(data_width=8 * bus_bytes, address_width=address_width, id_width=1)
        self.ev = EventManager()
        self.ev.npu = EventSourceLevel(description="A program has ended, or an error was raised; INTERRUPT_STATUS.")
        self.ev.finalize()

        ports = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys"), "o_irq": self.ev.npu.trigger}
        for channel, fields in DESCRIPTION["axi_lite"].items():
            for field, direction in fields.items():
                signal = getattr(getattr(registers, channel), field)
                ports[f"{direction[0]}_s_axil_{channel}{field}"] = signal[:REGISTER_BITS] if field == "addr" else signal
        for channel, fields in DESCRIPTION["axi"].items():
            for field, direction in fields.items():
                if field != "addr":
                    ports[f"{direction[0]}_m_axi_{channel}{field}"] = getattr(getattr(memory, channel), field)
        lanes = bus_bytes.bit_length() - 1
        for channel in ("ar", "aw"):
            # beats lie at multiples of the bus's bytes, wherever the burst begins; not every converter of LiteX knows
            address = Signal(64)
            ports[f"o_m_axi_{channel}addr"] = address
            self.comb += getattr(memory, channel).addr.eq(Cat(Constant(0, lanes), address[lanes:]))
        self.specials += Instance(DESCRIPTION["top"], name="npu", **ports)
        for path in DESCRIPTION["sources"]:
            platform.add_source(str(FOLDER / path), "verilog")


def add_npu(soc, name: str = "npu", origin: int | None = None) -> NPU:
    """Add the accelerator to an SoC.

    Args:
        soc: a LiteX `SoC`.
        name: of the module, of its region and of its interrupt.
        origin: of its registers, a multiple of 4096; None: the SoC's `mem_map` has it, or LiteX finds a place.

    Returns:
        The module, which is the SoC's attribute of that name.

    Raises:
        ValueError: a bus that LiteX cannot convert to what the accelerator has, or bursts that are too long for it.
    """
    if soc.bus.data_width != REGISTER_WIDTH:
        raise ValueError(
            f"the SoC's bus has {soc.bus.data_width} bits: LiteX's converter loses writes from there to registers of "
            f"{REGISTER_WIDTH} bits, CSRs included; use bus_data_width={REGISTER_WIDTH}"
        )
    dma_bus = getattr(soc, "dma_bus", soc.bus)
    if dma_bus.address_width != soc.bus.address_width:
        raise ValueError(
            f"addresses of the bus have {soc.bus.address_width} bits, those of the DMA bus {dma_bus.address_width}: "
            "make them alike, by SoCCore's bus_address_width"
        )
    npu = NPU(soc.platform, address_width=soc.bus.address_width)
    soc.add_module(name=name, module=npu)
    place = soc.mem_map.get(name) if origin is None else origin
    region = SoCRegion(origin=place, size=1 << REGISTER_BITS, cached=False)
    soc.bus.add_slave(name=name, slave=npu.registers, region=region)
    dma_bus.add_master(name=name, master=_memory_master(npu, dma_bus))
    if soc.irq.enabled:
        soc.irq.add(name, use_loc_if_exists=True)
    return npu


def _memory_master(npu: NPU, bus):
    """The memory port as the bus can take it.

    LiteX's converter of AXI4 to a wider bus takes bursts for aligned to it; beat by beat, as AXI4-Lite, it is right.

    Raises:
        ValueError: a narrower bus on which bursts would be too long: LiteX's converter does not cut them, and the one
            of AXI4-Lite loses writes.
    """
    memory = npu.memory
    ratio, burst = memory.data_width / bus.data_width, DESCRIPTION["config"]["max_burst"]
    if ratio >= 1 and burst * ratio > LONGEST_BURST:
        raise ValueError(
            f"bursts of {burst} beats of {memory.data_width} bits would have {int(burst * ratio)} beats on a bus of "
            f"{bus.data_width} bits, where AXI4 has at most {LONGEST_BURST}: make the package with npukit verilog "
            f"--package and --set max_burst={int(LONGEST_BURST / ratio)}"
        )
    if ratio >= 1:
        return memory
    beats = axi.AXILiteInterface(data_width=memory.data_width, address_width=memory.address_width)
    npu.add_module(name="beats", module=axi.AXI2AXILite(memory, beats))
    return beats
