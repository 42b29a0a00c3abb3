"""The core with the SDRAM controller's timing in front of a memory that only has the data: for simulation.

The controller answers the core's handshakes as it does on a board, command by command; what is read comes from, and
what is written goes to, AXI outside, which is faster and ahead. So the times of programs can be held to the
simulator's in the same model, with the same tests, as those of the reference DRAM.
"""

from dataclasses import replace

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from npukit.fpga.double_rate import FAST, attach_memory, second_half
from npukit.fpga.interconnect import MemoryArbiter
from npukit.fpga.sdram import SdramController
from npukit.hw.axi import INCREMENTING, SLAVE_ERROR, axi4_signature, axi_lite_signature, size_of
from npukit.hw.core import Core
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES
from npukit.isa.sdram import SdramChip, SdramTimes

__all__ = ["SdramTimedCore", "least_phase"]

_DEPTH = 32
_START = 2
"""Cycles from the address of a write to CONTROL to cycle 0."""


def least_phase(times: SdramTimes, rate: int) -> int:
    """From here on in the refresh interval, all rows are closed if nothing is asked for."""
    return 2 * (times.row_cycle + times.refresh_cycle + times.precharge) + rate * _START


class SdramTimedCore(wiring.Component):
    """The members of `npukit.hw.core.Core`.

    A register is written only in that cycle of the refresh interval which lets a program begin `phase` cycles into it:
    all rows are closed then, `least_phase` says from when on. At twice the rate both count the controller's cycles;
    where the interval has an even number of them, no cycle of the core may begin so many of them into it. A beat that
    is not there in time is answered with an error.
    """

    def __init__(
        self, config: NpuConfig, chip: SdramChip, megahertz: float, *, io_cycles: int, phase: int, rate: int = 1
    ) -> None:
        chip = replace(chip, power_up=0.0)  # nobody waits for its supply
        self._config, self._phase, self._rate = config, phase, rate
        self._interval = chip.times(megahertz * rate).refresh_interval
        self._controller = SdramController(chip, megahertz * rate, config.bus_bytes, io_cycles=io_cycles)
        count = len(ENGINES)
        super().__init__(
            {
                "s_axil": In(axi_lite_signature()),
                "m_axi": Out(axi4_signature(config.bus_bytes)),
                "irq": Out(1),
                **{f"trace_{name}": Out(count) for name in ("queue", "issue", "start", "end")},
                "trace_running": Out(1),
                "trace_done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size = self._config.bus_bytes
        m.submodules.core = core = Core(self._config)
        m.submodules.arbiter = arbiter = MemoryArbiter(size)
        attach_memory(m, self._controller, arbiter.memory, size, self._rate)
        m.d.comb += self.irq.eq(core.irq)
        for name in ("queue", "issue", "start", "end", "running", "done"):
            m.d.comb += getattr(self, f"trace_{name}").eq(getattr(core, f"trace_{name}"))
        self._registers(m, core)
        self._memory(m, core.m_axi, arbiter.npu)
        return m

    def _registers(self, m: Module, core: Core) -> None:
        since = Signal(range(self._interval + 1), init=self._interval)
        """The controller's cycles since a refresh became due."""
        domain = m.d.sync if self._rate == 1 else m.d[FAST]
        with m.If(self._controller.refresh_due):
            domain += since.eq(0)
        with m.Elif(since != self._interval):
            domain += since.eq(since + 1)
        now = Signal()
        in_time = since == self._phase - self._rate * _START
        if self._rate == 1:
            m.d.comb += now.eq(in_time)
        else:  # what counts is the first half of a cycle, and it is seen at its end
            domain += now.eq(in_time & ~second_half(m))
        outer, inner = self.s_axil, core.s_axil
        for name, member in inner.signature.members.items():
            mine, other = getattr(inner, name), getattr(outer, name)
            m.d.comb += mine.eq(other) if member.flow is In else other.eq(mine)
        m.d.comb += [inner.awvalid.eq(outer.awvalid & now), outer.awready.eq(inner.awready & now)]

    def _memory(self, m: Module, core: wiring.PureInterface, timed: wiring.PureInterface) -> None:
        """Handshakes of `core` with `timed`; addresses and data with the outside, through buffers."""
        outer, size = self.m_axi, self._config.bus_bytes
        for name, member in timed.signature.members.items():
            if name != "rdata" and name != "rresp":
                mine, other = getattr(core, name), getattr(timed, name)
                m.d.comb += other.eq(mine) if member.flow is In else mine.eq(other)
        for side in ("ar", "aw"):
            m.submodules[f"{side}_buffer"] = buffer = SyncFIFO(width=72, depth=_DEPTH)
            address, length = getattr(core, f"{side}addr"), getattr(core, f"{side}len")
            m.d.comb += [
                buffer.w_en.eq(getattr(core, f"{side}valid") & getattr(core, f"{side}ready")),
                buffer.w_data.eq(Cat(address, length)),
                getattr(outer, f"{side}valid").eq(buffer.r_rdy),
                buffer.r_en.eq(getattr(outer, f"{side}ready")),
                Cat(getattr(outer, f"{side}addr"), getattr(outer, f"{side}len")).eq(buffer.r_data),
                getattr(outer, f"{side}size").eq(size_of(size)),
                getattr(outer, f"{side}burst").eq(INCREMENTING),
            ]
        m.submodules.r_buffer = data = SyncFIFO(width=8 * size + 2, depth=512)
        m.d.comb += [
            data.w_en.eq(outer.rvalid),
            data.w_data.eq(Cat(outer.rdata, outer.rresp)),
            outer.rready.eq(data.w_rdy),
            data.r_en.eq(core.rvalid & core.rready),
            Cat(core.rdata, core.rresp).eq(data.r_data),
        ]
        with m.If(~data.r_rdy):
            m.d.comb += core.rresp.eq(SLAVE_ERROR)
        m.submodules.w_buffer = data = SyncFIFO(width=9 * size + 1, depth=_DEPTH)
        m.d.comb += [
            data.w_en.eq(core.wvalid & core.wready),
            data.w_data.eq(Cat(core.wdata, core.wstrb, core.wlast)),
            outer.wvalid.eq(data.r_rdy),
            data.r_en.eq(outer.wready),
            Cat(outer.wdata, outer.wstrb, outer.wlast).eq(data.r_data),
            outer.bready.eq(1),
        ]
