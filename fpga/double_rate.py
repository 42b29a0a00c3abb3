"""Two clocks, one at twice the other's rate, whose edges coincide: an accelerator and a faster memory controller."""

from amaranth import DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.fpga.register_slice import RegisterSlice
from npukit.fpga.sdram import SdramController
from npukit.hw.axi import axi4_signature

__all__ = ["FAST", "DoubleRateBridge", "attach_memory", "second_half"]

FAST = "fast"
"""Domain of the clock at twice the rate of `sync`'s, whose every second edge is one of that."""

_SENT = ("ar", "aw", "w")
_ANSWERED = ("r", "b")


def second_half(m: Module) -> Signal:
    """Whether the cycle of `sync` is in its second half: a register of `FAST`."""
    turn, seen, second = (Signal(name=name, reset_less=True) for name in ("turn", "seen", "second"))
    m.d.sync += turn.eq(~turn)
    m.d[FAST] += [seen.eq(turn), second.eq(turn != seen)]  # `FAST` has not seen yet that `turn` has changed
    return second


class DoubleRateBridge(wiring.Component):
    """AXI4 from a manager in `sync` to a subordinate in `FAST`.

    Each handshake happens in the second half of a cycle of `sync`, at whose end both clocks have an edge: in the first
    half the subordinate is told that nothing is there, and nothing is wanted. So no cycle is lost, and a channel moves
    at most one beat in a cycle of `sync`.

    Members: slow, fast: AXI4, the subordinate's and the manager's side.
    """

    def __init__(self, bus_bytes: int, *, id_bits: int = 1) -> None:
        signature = axi4_signature(bus_bytes, id_bits=id_bits)
        super().__init__({"slow": In(signature), "fast": Out(signature)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slow, fast = self.slow, self.fast
        second = second_half(m)
        gated = {f"{channel}valid" for channel in _SENT} | {f"{channel}ready" for channel in _ANSWERED}
        for name, member in fast.signature.members.items():
            mine, other = getattr(slow, name), getattr(fast, name)
            if member.flow is Out:
                m.d.comb += other.eq(mine & second if name in gated else mine)
            else:
                m.d.comb += mine.eq(other)
        return m


def attach_memory(m: Module, controller: SdramController, bus: wiring.PureInterface, bus_bytes: int, rate: int) -> None:
    """Put a memory controller behind a manager's AXI4 in `sync`: in that domain, or, at the rate of 2, in `FAST`.

    Paths between the two have half a cycle: those to the controller begin at registers of `sync`, and those back end
    at them.
    """
    if rate == 1:
        m.submodules.sdram = controller
        wiring.connect(m, bus, controller.bus)
        return
    m.submodules.sdram = DomainRenamer(FAST)(controller)
    m.submodules.border = border = RegisterSlice(bus_bytes)
    m.submodules.bridge = bridge = DoubleRateBridge(bus_bytes)
    wiring.connect(m, bus, border.manager)
    wiring.connect(m, border.subordinate, bridge.slow)
    wiring.connect(m, bridge.fast, controller.bus)
