"""Performance counters."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.isa.registers import COUNTERS

__all__ = ["Counters"]


class Counters(wiring.Component):
    """A 64-bit counter for each name of `isa.registers.COUNTERS`: `value_<name>` counts cycles in which `<name>`
    is high while `count` is; `clear` sets all to 0. All of it a cycle late: what is counted ends long paths."""

    def __init__(self) -> None:
        names = [name for name, _ in COUNTERS]
        super().__init__(
            {
                "clear": In(1),
                "count": In(1),
                **{name: In(1) for name in names},
                **{f"value_{name}": Out(64) for name in names},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clear = Signal()
        m.d.sync += clear.eq(self.clear)
        for name, _ in COUNTERS:
            value: Signal = getattr(self, f"value_{name}")
            event = Signal(name=f"event_{name}")
            m.d.sync += event.eq(self.count & getattr(self, name))
            with m.If(clear):
                m.d.sync += value.eq(0)
            with m.Elif(event):
                m.d.sync += value.eq(value + 1)
        return m
