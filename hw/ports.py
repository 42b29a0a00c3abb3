"""Who holds which port of ACT and ACC."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES

__all__ = ["PORT_KINDS", "PortOwners", "port_counts"]

PORT_KINDS = ("act_read", "act_write", "acc_read", "acc_write")


def port_counts(config: NpuConfig) -> dict[str, int]:
    """Ports of each kind, one a bank."""
    return {kind: config.act_banks if kind.startswith("act") else config.acc_banks for kind in PORT_KINDS}


class PortOwners(wiring.Component):
    """Grants all ports of a start at once, in the order of the engines; overlapping holders of one engine share.

    Members, for each engine e: request_<e> with want_<e>_<kind> masks; grant_<e>, in the same cycle;
    free_<e>_<kind>: masks of ports that one instruction lets go, seen in the next cycle. clear: all free.
    """

    _HOLDER_BITS = 4

    def __init__(self, config: NpuConfig) -> None:
        self._counts = port_counts(config)
        members = {"clear": In(1)}
        for engine in range(len(ENGINES)):
            members |= {f"request_{engine}": In(1), f"grant_{engine}": Out(1)}
            for kind, count in self._counts.items():
                members |= {f"want_{engine}_{kind}": In(count), f"free_{engine}_{kind}": In(count)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total = sum(self._counts.values())
        owners = [Signal(2, name=f"owner_{k}") for k in range(total)]
        holders = [Signal(self._HOLDER_BITS, name=f"holders_{k}") for k in range(total)]

        def masks(kind_of_mask: str, engine: int):
            return Cat(getattr(self, f"{kind_of_mask}_{engine}_{kind}") for kind in self._counts)

        taken = Signal(total, name="taken_0")
        for engine in range(len(ENGINES)):
            want, granted = masks("want", engine), getattr(self, f"grant_{engine}")
            blocked = Signal(total, name=f"blocked_{engine}")
            for k in range(total):
                m.d.comb += blocked[k].eq((holders[k] != 0) & (owners[k] != engine))
            m.d.comb += granted.eq(getattr(self, f"request_{engine}") & ((want & (blocked | taken)) == 0))
            following = Signal(total, name=f"taken_{engine + 1}")
            m.d.comb += following.eq(taken | (want & granted.replicate(total)))
            taken = following
        for k in range(total):
            change = 0
            for engine in range(len(ENGINES)):
                got = masks("want", engine)[k] & getattr(self, f"grant_{engine}")
                change = change + got - masks("free", engine)[k]
                with m.If(got):
                    m.d.sync += owners[k].eq(engine)
            m.d.sync += holders[k].eq(holders[k] + change)
            with m.If(self.clear):
                m.d.sync += holders[k].eq(0)
        return m
