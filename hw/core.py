"""The accelerator: its registers, and the machine that they start and reset."""

from amaranth import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import axi4_signature, axi_lite_signature
from npukit.hw.machine import Machine
from npukit.hw.registers import RegisterFile, bits_layout
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES
from npukit.isa.registers import StatusBit

__all__ = ["Core"]


class Core(wiring.Component):
    """One accelerator.

    Members: `s_axil`, AXI4-Lite for registers; `m_axi`, AXI4 for memory; `irq`, the interrupt, high until
    INTERRUPT_STATUS is cleared. With `trace`, for simulation: `trace_*`, a bit for each engine: it queued, issued,
    started or ended an instruction in this cycle; `trace_running`, `trace_done`.
    """

    def __init__(self, config: NpuConfig, *, trace: bool = True) -> None:
        self._config, self._trace = config, trace
        count = len(ENGINES)
        traces = {
            "trace_queue": Out(count),
            "trace_issue": Out(count),
            "trace_start": Out(count),
            "trace_end": Out(count),
            "trace_running": Out(1),
            "trace_done": Out(1),
        }
        super().__init__(
            {
                "s_axil": In(axi_lite_signature()),
                "m_axi": Out(axi4_signature(config.bus_bytes)),
                "irq": Out(1),
                **(traces if trace else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = RegisterFile(self._config.hash)
        wiring.connect(m, wiring.flipped(self.s_axil), registers.bus)
        inner = Machine(self._config)
        # AXI knows no way to take a burst back: a reset waits until those that are on the bus have ended
        resetting, reset, status = Signal(), Signal(), Signal(bits_layout(StatusBit))
        with m.If(registers.reset_core):
            m.d.sync += resetting.eq(1)
        with m.If(reset):
            m.d.sync += resetting.eq(0)
        m.d.sync += reset.eq(resetting & ~reset & ~inner.running & inner.quiet)
        m.submodules.machine = ResetInserter(reset)(inner)
        wiring.connect(m, wiring.flipped(self.m_axi), inner.m_axi)
        m.d.comb += [
            inner.start.eq(registers.start),
            inner.abort.eq(resetting),
            registers.busy.eq(inner.running | resetting),
            registers.clear.eq(reset),
            inner.hash_matches.eq(registers.wide("PROGRAM_HASH") == self._config.hash),
            inner.program.eq(registers.wide("PROGRAM")),
            inner.length.eq(registers.value("PROGRAM_LENGTH")),
            inner.base.eq(registers.wide("BASE")),
            inner.limit.eq(registers.wide("LIMIT")),
            registers.value("STATUS").eq(status),
            status.busy.eq(registers.busy),
            status.done.eq(inner.finished),
            status.error.eq(inner.errors.as_value().any()),
            registers.value("ERROR").eq(inner.errors),
            registers.value("ERROR_INDEX").eq(inner.error_index),
            self.irq.eq(registers.irq),
        ]
        erroneous = Signal()
        m.d.sync += erroneous.eq(status.error)
        # who resets the core does not want to hear that this has ended its program
        m.d.comb += [
            registers.interrupt_events.done.eq(inner.ended & ~resetting),
            registers.interrupt_events.error.eq(status.error & ~erroneous & ~resetting),
        ]
        m.d.comb += [
            inner.counter_reading.eq(registers.counter_reading),
            inner.counter_index.eq(registers.counter_index),
            registers.counter.eq(inner.counter),
        ]
        if not self._trace:
            return m
        m.d.comb += self.trace_running.eq(inner.running)
        for name in ("trace_queue", "trace_issue", "trace_start", "trace_end", "trace_done"):
            m.d.comb += getattr(self, name).eq(getattr(inner, name))
        return m
