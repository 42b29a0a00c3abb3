"""Who holds which port of ACT and ACC."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES
from npukit.isa.timing import Timing

__all__ = ["PORT_KINDS", "PortOwners", "port_counts"]

PORT_KINDS = ("act_read", "act_write", "acc_read", "acc_write")


def port_counts(config: NpuConfig) -> dict[str, int]:
    """Ports of each kind, one a bank."""
    return {kind: config.act_banks if kind.startswith("act") else config.acc_banks for kind in PORT_KINDS}


class PortOwners(wiring.Component):
    """Grants all ports of a start at once, in the order of the engines; overlapping holders of one engine share.

    Members, for each engine e: request_<e> with want_<e>_<kind> masks; grant_<e>, in the same cycle;
    free_<e>_<kind>: masks of ports that one instruction lets go, seen in the next cycle.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._counts = port_counts(config)
        timing = Timing(config)
        self._holder_bits = bits_for(max(timing.matrix_active, timing.vector_active))
        members = {}
        for engine in range(len(ENGINES)):
            members |= {f"request_{engine}": In(1), f"grant_{engine}": Out(1)}
            for kind, count in self._counts.items():
                members |= {f"want_{engine}_{kind}": In(count), f"free_{engine}_{kind}": In(count)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total = sum(self._counts.values())
        owners = [Signal(2, name=f"owner_{k}") for k in range(total)]
        holders = [Signal(self._holder_bits, name=f"holders_{k}") for k in range(total)]

        def masks(kind_of_mask: str, engine: int):
            return Cat(getattr(self, f"{kind_of_mask}_{engine}_{kind}") for kind in self._counts)

        # all pairs of engines at once: no chain from port to port, a short one from engine to engine
        wants = [Signal(total, name=f"want_{engine}") for engine in range(len(ENGINES))]
        grants = [getattr(self, f"grant_{engine}") for engine in range(len(ENGINES))]
        for engine, want in enumerate(wants):
            m.d.comb += want.eq(masks("want", engine))
            blocked = Cat((holders[k] != 0) & (owners[k] != engine) for k in range(total))
            allowed = Signal(name=f"allowed_{engine}")
            m.d.comb += allowed.eq(getattr(self, f"request_{engine}") & ~(want & blocked).any())
            before = [grants[other] & (want & wants[other]).any() for other in range(engine)]
            m.d.comb += grants[engine].eq(allowed & ~Cat(*before).any())
        # one engine holds a port, so one at most lets it go, and one at most gets it
        for k in range(total):
            got, freed = Signal(name=f"got_{k}"), Signal(name=f"freed_{k}")
            m.d.comb += [
                got.eq(Cat(wants[engine][k] & grants[engine] for engine in range(len(ENGINES))).any()),
                freed.eq(Cat(masks("free", engine)[k] for engine in range(len(ENGINES))).any()),
            ]
            for engine in range(len(ENGINES)):
                with m.If(wants[engine][k] & grants[engine]):
                    m.d.sync += owners[k].eq(engine)
            with m.If(got & ~freed):
                m.d.sync += holders[k].eq(holders[k] + 1)
            with m.If(freed & ~got):
                m.d.sync += holders[k].eq(holders[k] - 1)
        return m
