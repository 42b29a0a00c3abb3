"""Registers on AXI4, so that no path goes through."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import axi4_signature

__all__ = ["RegisterSlice"]

_CHANNELS = ("ar", "aw", "w", "r", "b")


class RegisterSlice(wiring.Component):
    """AXI4 to AXI4, each channel a cycle later: all outputs are registers.

    A channel has two places: one whose registers are the outputs, and a spare one for what comes while the other waits.
    So a beat moves in every cycle, and both ends may stop at any time.

    Members: manager, subordinate: AXI4, the subordinate's and the manager's side.

    Attributes:
        held, kept: for each channel, of the place at the outputs and the spare one: whether there is something in it,
            and what. Registers.
    """

    def __init__(self, bus_bytes: int, *, id_bits: int = 1) -> None:
        signature = axi4_signature(bus_bytes, id_bits=id_bits)
        super().__init__({"manager": In(signature), "subordinate": Out(signature)})
        self.held: dict[str, tuple[Signal, Signal]] = {}
        self.kept: dict[str, tuple[Signal, Signal]] = {}
        for channel in _CHANNELS:
            bits = Cat(getattr(self.subordinate, name) for name in self.payload(channel)).shape()
            self.held[channel] = (Signal(name=f"{channel}_held"), Signal(name=f"{channel}_spare_held"))
            self.kept[channel] = (Signal(bits, name=f"{channel}_shown"), Signal(bits, name=f"{channel}_spare"))

    def payload(self, channel: str) -> list[str]:
        """Names of the members that a channel carries along."""
        members = self.subordinate.signature.members
        beside = (f"{channel}valid", f"{channel}ready")
        return [name for name in members if name.startswith(channel) and name not in beside]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        members = self.subordinate.signature.members
        for channel in _CHANNELS:
            forward = members[f"{channel}valid"].flow is Out
            source, sink = (self.manager, self.subordinate)[:: 1 if forward else -1]
            arriving, leaving = (Cat(getattr(end, name) for name in self.payload(channel)) for end in (source, sink))
            (shown_held, spare_held), (shown, spare) = self.held[channel], self.kept[channel]
            comes = getattr(source, f"{channel}valid") & ~spare_held
            stays = shown_held & ~getattr(sink, f"{channel}ready")
            m.d.comb += [
                leaving.eq(shown),
                getattr(sink, f"{channel}valid").eq(shown_held),
                getattr(source, f"{channel}ready").eq(~spare_held),
            ]
            m.d.sync += [shown_held.eq(stays | spare_held | comes), spare_held.eq(stays & (spare_held | comes))]
            with m.If(~stays):
                m.d.sync += shown.eq(Mux(spare_held, spare, arriving))
            with m.If(~spare_held):
                m.d.sync += spare.eq(arriving)
        return m
