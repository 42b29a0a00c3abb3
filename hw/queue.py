"""A queue between two streams."""

from amaranth import Module, Shape
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """First in, first out: a payload can leave from the cycle after it came in.

    Parameters:
        shape: of the payload.
        depth: payloads that it holds.

    Members:
        writes, reads: streams in and out. level: out, payloads in it.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self._width, self.depth = Shape.cast(shape).width, depth
        super().__init__(
            {
                "writes": In(stream.Signature(shape)),
                "reads": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fifo = fifo = SyncFIFO(width=self._width, depth=self.depth)
        m.d.comb += [
            fifo.w_data.eq(self.writes.payload),
            fifo.w_en.eq(self.writes.valid),
            self.writes.ready.eq(fifo.w_rdy),
            self.reads.payload.eq(fifo.r_data),
            self.reads.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.reads.ready),
            self.level.eq(fifo.level),
        ]
        return m
