"""A stand-in for the core: a copy engine with the core's ports, to test what surrounds it.

It copies `bursts` bursts from PROGRAM to BASE, all addresses as early as they are accepted. The trace
outputs show bus transfers instead of instructions:

| bit | queue | issue | start | end |
|---|---|---|---|---|
| 0 | read address | read beat | write address | write beat |
| 1 | last read beat | write response | | |
"""

# Amaranth has no types
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import enum

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped
from npukit.hw.axi import INCREMENTING, axi4_signature, axi_lite_signature, size_of
from npukit.hw.registers import RegisterFile
from npukit.isa.config import NpuConfig
from npukit.isa.registers import COUNTERS

__all__ = ["CopyEngine", "Fault"]

_CYCLES = [name for name, _ in COUNTERS].index("cycles")


class Fault(enum.IntEnum):
    """What the engine does wrong, in LIMIT_HIGH."""

    NONE = 0
    READ_ADDRESS_DROPPED = 1
    READ_ADDRESS_CHANGED = 2
    WRITE_DATA_CHANGED = 3
    LAST_WRONG = 4
    NEVER_DONE = 5
    DONE_EARLY = 6
    SIZE_WRONG = 7
    WRITE_ADDRESS_DROPPED = 8


class CopyEngine(wiring.Component):
    """The engine. PROGRAM: source; BASE: target; LIMIT_LOW: strobe of a burst's last beat; LIMIT_HIGH: fault.

    PROGRAM_LENGTH: bits 0-7 bursts, 8-15 beats of each, 16-31 the first cycle in which read data are taken.
    ERROR has bit 4 set after a bad read response, bit 5 after a bad write response.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "s_axil": In(axi_lite_signature()),
                "m_axi": Out(axi4_signature(config.bus_bytes)),
                "irq": Out(1),
                **{f"trace_{event}": Out(4) for event in ("queue", "issue", "start", "end")},
                "trace_done": Out(1),
                "trace_running": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The circuit."""
        m = Module()
        m.submodules.registers = registers = RegisterFile(self.config.hash)
        connect(m, flipped(self.s_axil), registers.bus)
        bus, step = self.m_axi, self.config.bus_bytes
        m.submodules.data = data = SyncFIFOBuffered(width=8 * step, depth=1024)

        length = registers.value("PROGRAM_LENGTH")
        bursts, beats, holdoff = length[:8], length[8:16], length[16:]
        fault = registers.value("LIMIT_HIGH")
        running, done, cycle, errors = Signal(), Signal(), Signal(32), Signal(2)
        reads, writes, responses, beat = Signal(8), Signal(8), Signal(8), Signal(8)
        stride = Signal(16)
        m.d.comb += [
            stride.eq(beats * step),
            self.trace_running.eq(running),
            self.trace_done.eq(done),
            registers.value("STATUS").eq(Cat(running, done, errors.any())),
            registers.value("ERROR").eq(errors << 4),
            registers.clear.eq(registers.reset_core),
            registers.counter.eq(Mux(registers.counter_index == _CYCLES, cycle, 0)),
        ]

        # every other cycle of waiting, where it does harm
        spoil = Signal()
        m.d.sync += spoil.eq(~spoil & running)

        # addresses
        for prefix, count, base in (("ar", reads, "PROGRAM"), ("aw", writes, "BASE")):
            valid, ready = getattr(bus, f"{prefix}valid"), getattr(bus, f"{prefix}ready")
            drops = Fault.READ_ADDRESS_DROPPED if prefix == "ar" else Fault.WRITE_ADDRESS_DROPPED
            moves = (fault == Fault.READ_ADDRESS_CHANGED) & spoil if prefix == "ar" else 0
            m.d.comb += [
                valid.eq(running & (count != bursts) & ~((fault == drops) & spoil)),
                getattr(bus, f"{prefix}addr").eq(registers.wide(base) + count * stride + (moves << 3)),
                getattr(bus, f"{prefix}len").eq(beats - 1),
                getattr(bus, f"{prefix}size").eq(size_of(step) - (fault == Fault.SIZE_WRONG)),
                getattr(bus, f"{prefix}burst").eq(INCREMENTING),
            ]
            with m.If(valid & ready):
                m.d.sync += count.eq(count + 1)

        # data
        last = beat == beats - 1
        spoils_data = (fault == Fault.WRITE_DATA_CHANGED) & spoil
        m.d.comb += [
            bus.rready.eq(running & (cycle >= holdoff)),
            data.w_data.eq(bus.rdata),
            data.w_en.eq(bus.rvalid & bus.rready),
            bus.wvalid.eq(data.r_rdy),
            bus.wdata.eq(data.r_data ^ spoils_data),
            bus.wstrb.eq(Mux(last, registers.value("LIMIT_LOW"), (1 << step) - 1)),
            bus.wlast.eq(last ^ (fault == Fault.LAST_WRONG)),
            data.r_en.eq(bus.wready),
            bus.bready.eq(running),
        ]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += responses.eq(responses + 1)
            m.d.sync += errors[1].eq(errors[1] | (bus.bresp != 0))
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += errors[0].eq(errors[0] | (bus.rresp != 0))

        m.d.comb += [
            self.trace_queue.eq(
                Cat(bus.arvalid & bus.arready, bus.rvalid & bus.rready & bus.rlast),
            ),
            self.trace_issue.eq(Cat(bus.rvalid & bus.rready, bus.bvalid & bus.bready)),
            self.trace_start.eq(bus.awvalid & bus.awready),
            self.trace_end.eq(bus.wvalid & bus.wready),
        ]

        # control
        finished = (responses == bursts) | ((fault == Fault.DONE_EARLY) & (responses != 0))
        with m.If(running):
            m.d.sync += cycle.eq(cycle + 1)
            with m.If(finished & (fault != Fault.NEVER_DONE)):
                m.d.sync += [running.eq(0), done.eq(1)]
        with m.If(registers.start):
            m.d.sync += [running.eq(1), done.eq(0), errors.eq(0)]
            m.d.sync += [signal.eq(0) for signal in (cycle, reads, writes, responses, beat)]
        return m
