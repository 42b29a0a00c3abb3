"""A component behind registers on a few pins: for its area and clock where its ports are more than a package has."""

from amaranth import Cat, Elaboratable, Module, ResetSignal, Signal, Value, ValueCastable
from amaranth.hdl import ClockDomain, Instance
from amaranth.lib import wiring
from amaranth.lib.wiring import In

__all__ = ["BLOCK", "RegisteredPins"]

BLOCK = "block"
"""Name of the component within."""


class RegisteredPins(Elaboratable):
    """Inputs come from one shift register, outputs go through another, so nothing of the component can be left out.

    Every path from pin to component ends in a register, so that the clock found is the component's own. The reset
    is registered twice, the second time on the global network.

    Ports: `clk_pin`, `reset_pin`, `data_in`, `data_out`.
    """

    def __init__(self, component: wiring.Component) -> None:
        self._component = component
        self.clk_pin = Signal()
        self.reset_pin = Signal()
        self.data_in = Signal()
        self.data_out = Signal()

    @property
    def ports(self) -> list[Signal]:
        """The pins."""
        return [self.clk_pin, self.reset_pin, self.data_in, self.data_out]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = domain = ClockDomain()
        reset_1, reset_2 = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += domain.clk.eq(self.clk_pin)
        m.d.sync += [reset_1.eq(self.reset_pin), reset_2.eq(reset_1)]
        m.submodules.global_reset = Instance("DCCA", i_CLKI=reset_2, i_CE=1, o_CLKO=ResetSignal())
        m.submodules[BLOCK] = self._component
        inputs, outputs = [], []
        for _, member, signal in self._component.signature.flatten(self._component):
            value = signal.as_value() if isinstance(signal, ValueCastable) else signal
            assert isinstance(value, Value)
            (inputs if member.flow == In else outputs).append(value)
        chain = Signal(len(Cat(*inputs)), reset_less=True)
        seen = Signal(len(Cat(*outputs)), reset_less=True)
        folded = Signal(len(seen), reset_less=True)
        m.d.sync += [chain.eq(Cat(self.data_in, chain)), seen.eq(Cat(*outputs)), folded.eq(seen ^ (folded >> 1))]
        m.d.comb += [Value.cast(Cat(*inputs)).eq(chain), self.data_out.eq(folded[0])]
        return m
