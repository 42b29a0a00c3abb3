"""What an instruction waits for in its engine's queue."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.layout import instruction_layout
from npukit.hw.queue import Queue
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, INSTRUCTION_BITS, Instruction

__all__ = ["IssueQueue"]

_IN_FLIGHT_BITS = 8


class IssueQueue(wiring.Component):
    """The queue in front of an engine: its oldest instruction can be issued once its tokens are there, and, with
    `drain`, once the engine has ended all others.

    Members:
        queued: stream in, words of `INSTRUCTION_BITS`.
        issued: stream out, instructions of the engine's kind.
        there: in, engines of which there is a token. ended: in, the engine ends an instruction.
        stop: in, nothing more is taken or given.
        idle: out, nothing is queued or in flight. token_wait: out, the engine could take the oldest instruction, which
            waits.

    Attributes:
        queue: the queue itself. in_flight: register, instructions that are issued and not ended.
    """

    def __init__(self, config: NpuConfig, kind: type[Instruction]) -> None:
        layout = instruction_layout(kind)
        super().__init__(
            {
                "queued": In(stream.Signature(INSTRUCTION_BITS)),
                "issued": Out(stream.Signature(layout)),
                "there": In(len(ENGINES)),
                "ended": In(1),
                "stop": In(1),
                "idle": Out(1),
                "token_wait": Out(1),
            }
        )
        self.queue = Queue(layout, config.queue_depth)
        self.in_flight = Signal(_IN_FLIGHT_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = self.queue
        oldest, present, ordered = queue.reads.payload, Signal(), Signal()
        in_flight = self.in_flight
        m.d.comb += [
            queue.writes.payload.eq(self.queued.payload),
            queue.writes.valid.eq(self.queued.valid & ~self.stop),
            self.queued.ready.eq(queue.writes.ready & ~self.stop),
            present.eq(queue.reads.valid & ~self.stop),
            ordered.eq(((oldest.wait & ~self.there) == 0) & (~oldest.drain | (in_flight == 0))),
            self.issued.payload.eq(oldest),
            self.issued.valid.eq(present & ordered),
            queue.reads.ready.eq(self.issued.valid & self.issued.ready),
            self.token_wait.eq(present & self.issued.ready & ~ordered),
            self.idle.eq((in_flight == 0) & ~queue.reads.valid),
        ]
        m.d.sync += in_flight.eq(in_flight + queue.reads.ready - self.ended)
        return m
