"""Who holds which port of ACT, ACC and WGT."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES
from npukit.isa.timing import Timing

__all__ = ["PortOwners", "port_masks"]


def port_masks(config: NpuConfig) -> data.StructLayout:
    """A bit for each port; each bank of ACT and ACC has one to read and one to write, and WGT has one to write."""
    return data.StructLayout(
        {
            "act_read": config.act_banks,
            "act_write": config.act_banks,
            "acc_read": config.acc_banks,
            "acc_write": config.acc_banks,
            "wgt_write": 1,
        }
    )


class PortOwners(wiring.Component):
    """Grants all ports of a start at once, in the order of the engines; overlapping holders of one engine share.

    Members, each with one for every engine:
        requests: streams in, the ports that an instruction needs to start. All of them are its own from the cycle on
            in which they are taken.
        released: ports that one instruction lets go, seen in the next cycle.

    Attributes:
        holders: registers, how many instructions hold a port. owners: registers, the engine that executes them.
    """

    def __init__(self, config: NpuConfig) -> None:
        timing = Timing(config)
        count, masks = len(ENGINES), port_masks(config)
        super().__init__({"requests": In(stream.Signature(masks)).array(count), "released": In(masks).array(count)})
        most = max(timing.matrix_active, timing.vector_active)
        self.owners = [Signal(range(count), name=f"owner_{k}") for k in range(masks.size)]
        self.holders = [Signal(range(most + 1), name=f"holders_{k}") for k in range(masks.size)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        owners, holders = self.owners, self.holders
        # all pairs of engines at once: no chain from port to port, a short one from engine to engine
        wants = [request.payload.as_value() for request in self.requests]
        releases = [masks.as_value() for masks in self.released]
        grants = [request.ready for request in self.requests]
        for engine, (request, want) in enumerate(zip(self.requests, wants, strict=True)):
            blocked = Cat((holders[k] != 0) & (owners[k] != engine) for k in range(len(holders)))
            allowed = Signal(name=f"allowed_{engine}")
            m.d.comb += allowed.eq(request.valid & ~(want & blocked).any())
            before = [grants[other] & (want & wants[other]).any() for other in range(engine)]
            m.d.comb += grants[engine].eq(allowed & ~Cat(*before).any())
        # one engine holds a port, so one at most lets it go, and one at most gets it
        for k in range(len(holders)):
            got, freed = Signal(name=f"got_{k}"), Signal(name=f"freed_{k}")
            m.d.comb += [
                got.eq(Cat(want[k] & grant for want, grant in zip(wants, grants, strict=True)).any()),
                freed.eq(Cat(masks[k] for masks in releases).any()),
            ]
            for engine, (want, grant) in enumerate(zip(wants, grants, strict=True)):
                with m.If(want[k] & grant):
                    m.d.sync += owners[k].eq(engine)
            with m.If(got & ~freed):
                m.d.sync += holders[k].eq(holders[k] + 1)
            with m.If(freed & ~got):
                m.d.sync += holders[k].eq(holders[k] - 1)
        return m
