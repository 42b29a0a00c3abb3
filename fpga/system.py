"""A board's whole system behind its pins: host link, accelerator, memory controller."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.fpga.interconnect import HostPort, MemoryArbiter
from npukit.fpga.sdram import SdramController, sdram_signature
from npukit.fpga.uart import HostBridge
from npukit.hw.core import Core
from npukit.isa.config import NpuConfig
from npukit.isa.sdram import SdramChip

__all__ = ["System", "system_members"]


def system_members(chip: SdramChip) -> dict[str, wiring.Member]:
    """What a board's pins lead to."""
    return {"rx": In(1, init=1), "tx": Out(1, init=1), "sdram": Out(sdram_signature(chip)), "leds": Out(8)}


class System(wiring.Component):
    """The accelerator with SDRAM, and a host behind a serial line.

    Members: rx, tx: the serial line; sdram: the chip's pins; leds: a heartbeat, the accelerator runs, an engine's
    instruction starts (one each), traffic on the serial line.

    Raises:
        ValueError: a clock that the chip or the serial line cannot have, or a bus that the memory controller has not.
    """

    def __init__(self, config: NpuConfig, chip: SdramChip, megahertz: float, baud: int, *, io_cycles: int = 0) -> None:
        self._config, self._chip, self._megahertz = config, chip, megahertz
        self._io_cycles = io_cycles
        self._divisor = round(megahertz * 1e6 / baud)
        error = abs(self._divisor * baud / (megahertz * 1e6) - 1)
        if error > 0.02:
            raise ValueError(f"{baud} baud is {100 * error:.1f} % off at {megahertz} MHz; at most 2 % work")
        super().__init__(system_members(chip))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus_bytes = self._config.bus_bytes
        m.submodules.core = core = Core(self._config)
        m.submodules.bridge = bridge = HostBridge(self._divisor)
        m.submodules.port = port = HostPort(bus_bytes)
        m.submodules.arbiter = arbiter = MemoryArbiter(bus_bytes)
        m.submodules.sdram = sdram = SdramController(self._chip, self._megahertz, bus_bytes, io_cycles=self._io_cycles)
        wiring.connect(m, bridge.bus, port.host)
        wiring.connect(m, port.registers, core.s_axil)
        wiring.connect(m, port.memory, arbiter.host)
        wiring.connect(m, core.m_axi, arbiter.npu)
        wiring.connect(m, arbiter.memory, sdram.bus)
        wiring.connect(m, sdram.pins, wiring.flipped(self.sdram))
        beat = Signal(25)
        m.d.sync += [
            beat.eq(beat + 1),
            self.leds.eq(Cat(beat[-1], core.trace_running, core.trace_start, ~self.rx | ~bridge.tx)),
        ]
        m.d.comb += [bridge.rx.eq(self.rx), self.tx.eq(bridge.tx)]
        return m
