"""A board's whole system behind its pins: host link, accelerator, memory controller."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.fpga.double_rate import attach_memory
from npukit.fpga.interconnect import HostPort, MemoryArbiter
from npukit.fpga.link import HostLink
from npukit.fpga.sdram import SdramController, sdram_signature
from npukit.hw.core import Core
from npukit.isa.config import NpuConfig
from npukit.isa.host_link import Identity, divisor_of
from npukit.isa.instructions import ISA_VERSION
from npukit.isa.sdram import SdramChip

__all__ = ["System", "identity_of", "system_members"]


def system_members(chip: SdramChip) -> dict[str, wiring.Member]:
    """What a board's pins lead to."""
    return {"rx": In(1, init=1), "tx": Out(1, init=1), "sdram": Out(sdram_signature(chip)), "leds": Out(8)}


def identity_of(
    config: NpuConfig, chip: SdramChip, megahertz: float, baud: int, board: str, memory_rate: int = 1
) -> Identity:
    """What a board says of itself; memory_rate: cycles of its memory in one of its clock.

    Raises:
        ValueError: a rate that the clock does not give.
    """
    divisor = divisor_of(megahertz, baud)
    return Identity(board, config.hash, ISA_VERSION, round(megahertz * 1e6), chip.bytes, divisor, memory_rate)


class System(wiring.Component):
    """The accelerator with SDRAM, and a host behind a serial line.

    Args:
        identity: see `identity_of`.
        io_cycles: of registers in the pins' cells to the SDRAM, there and back.

    Members: rx, tx: the serial line; sdram: the chip's pins; leds: a heartbeat, the accelerator runs, the host
    link is at work, an engine's instruction starts (one each).

    Raises:
        ValueError: a clock that the chip cannot have, or a bus that the memory controller has not.
    """

    def __init__(self, config: NpuConfig, chip: SdramChip, identity: Identity, *, io_cycles: int = 0) -> None:
        self._config, self._chip, self._identity, self._io_cycles = config, chip, identity, io_cycles
        super().__init__(system_members(chip))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus_bytes, megahertz = self._config.bus_bytes, self._identity.hertz / 1e6
        m.submodules.core = core = Core(self._config)
        m.submodules.link = link = HostLink(self._identity)
        m.submodules.port = port = HostPort(bus_bytes)
        m.submodules.arbiter = arbiter = MemoryArbiter(bus_bytes)
        rate = self._identity.memory_rate
        sdram = SdramController(self._chip, megahertz * rate, bus_bytes, io_cycles=self._io_cycles)
        attach_memory(m, sdram, arbiter.memory, bus_bytes, rate)
        wiring.connect(m, link.bus, port.host)
        wiring.connect(m, port.registers, core.s_axil)
        wiring.connect(m, port.memory, arbiter.host)
        wiring.connect(m, core.m_axi, arbiter.npu)
        wiring.connect(m, sdram.pins, wiring.flipped(self.sdram))
        beat, starts = Signal(25), Signal.like(core.trace_start)
        m.d.sync += [
            beat.eq(beat + 1),
            starts.eq(core.trace_start),  # the pins are far away
            self.leds.eq(Cat(beat[-1], core.trace_running, ~self.rx | ~link.tx | link.busy, starts)),
        ]
        m.d.comb += [link.rx.eq(self.rx), self.tx.eq(link.tx)]
        return m
