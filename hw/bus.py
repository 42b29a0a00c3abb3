"""The channels of AXI4 between the engines and memory: reads for FETCH and LOAD, writes for STORE."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import INCREMENTING, OKAY, read_channels, size_of, write_channels
from npukit.hw.bursts import burst_layout
from npukit.hw.fetch import InstructionBurst
from npukit.hw.queue import Queue
from npukit.hw.store import write_beat
from npukit.isa.config import NpuConfig
from npukit.isa.timing import READ_OUTSTANDING

__all__ = ["ReadChannels", "WriteChannels"]


class _Owner(data.Struct):
    """Whose a burst is."""

    operand: 1


class ReadChannels(wiring.Component):
    """FETCH goes first. Beats come back in the order of their bursts' addresses.

    Members:
        axi: AR and R, the manager's side.
        program, base: in, the address of the program and of operands. stop: in, no further burst is asked for, and
            beats that nobody wants any more are thrown away.
        instructions, operands: streams in, bursts to read; operands outside of what they may touch are not.
        instruction_beats, operand_beats: streams out.
        outstanding: out, a burst's address is on the bus, or beats of one are still to come.
        instruction_refused, operand_refused: out, the beat that is taken comes with an error.

    Attributes:
        order: the queue of owners of bursts that were accepted.
        held: register, an address was presented and not accepted. holder: whose it is.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._bus_bytes = config.bus_bytes
        bits = 8 * config.bus_bytes
        super().__init__(
            {
                "axi": Out(read_channels(config.bus_bytes)),
                "program": In(64),
                "base": In(64),
                "stop": In(1),
                "instructions": In(stream.Signature(InstructionBurst)),
                "operands": In(stream.Signature(burst_layout(config))),
                "instruction_beats": Out(stream.Signature(bits, always_ready=True)),
                "operand_beats": Out(stream.Signature(bits)),
                "outstanding": Out(1),
                "instruction_refused": Out(1),
                "operand_refused": Out(1),
            }
        )
        # one more than may be in flight: an address that waits for room is on the bus already, and keeps its turn
        self.order = Queue(_Owner, READ_OUTSTANDING + 1)
        self.held, self.holder = Signal(), Signal(_Owner)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, instructions, operands = self.axi, self.instructions, self.operands
        m.submodules.order = order = self.order
        held, holder = self.held, self.holder
        fetches, loads, of_operand, accepted = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            fetches.eq(instructions.valid & ~self.stop),
            loads.eq(operands.valid & ~operands.payload.outside & ~self.stop),
            of_operand.eq(Mux(held, holder.operand, ~fetches)),
            axi.arvalid.eq(held | ((fetches | loads) & order.writes.ready)),
            axi.araddr.eq(
                Mux(
                    of_operand,
                    self.base + operands.payload.address,
                    self.program + instructions.payload.offset,
                )
            ),
            axi.arlen.eq(Mux(of_operand, operands.payload.beats, instructions.payload.beats)),
            axi.arsize.eq(size_of(self._bus_bytes)),
            axi.arburst.eq(INCREMENTING),
            accepted.eq(axi.arvalid & axi.arready),
            instructions.ready.eq(accepted & ~of_operand),
            operands.ready.eq(accepted & of_operand),
            order.writes.valid.eq(accepted),
            order.writes.payload.operand.eq(of_operand),
        ]
        m.d.sync += [held.eq(axi.arvalid & ~accepted), holder.operand.eq(of_operand)]

        expected, to_operand, taken, refused = order.reads.valid, order.reads.payload.operand, Signal(), Signal()
        m.d.comb += [
            self.instruction_beats.valid.eq(axi.rvalid & expected & ~to_operand),
            self.instruction_beats.payload.eq(axi.rdata),
            self.operand_beats.valid.eq(axi.rvalid & expected & to_operand),
            self.operand_beats.payload.eq(axi.rdata),
            axi.rready.eq(expected & (~to_operand | self.operand_beats.ready | self.stop)),
            taken.eq(axi.rvalid & axi.rready),
            order.reads.ready.eq(taken & axi.rlast),
            refused.eq(taken & (axi.rresp != OKAY)),
            self.instruction_refused.eq(refused & ~to_operand),
            self.operand_refused.eq(refused & to_operand),
            self.outstanding.eq(expected | held),
        ]
        return m


class WriteChannels(wiring.Component):
    """Addresses and data of STORE, each as it comes. Bursts that are accepted are completed after an error, too.

    Members:
        axi: AW, W and B, the manager's side.
        base: in, the address of operands. stop: in, no further burst is asked for.
        requests, beats: streams in; a burst outside of what operands may touch is not asked for.
        response: out, a burst is answered. refused: out, with an error.
        held: out, a burst's address is on the bus.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._bus_bytes = config.bus_bytes
        super().__init__(
            {
                "axi": Out(write_channels(config.bus_bytes)),
                "base": In(64),
                "stop": In(1),
                "requests": In(stream.Signature(burst_layout(config))),
                "beats": In(stream.Signature(write_beat(config))),
                "response": Out(1),
                "refused": Out(1),
                "held": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, requests, beats = self.axi, self.requests, self.beats
        m.d.sync += self.held.eq(axi.awvalid & ~axi.awready)
        m.d.comb += [
            axi.awvalid.eq(requests.valid & ~requests.payload.outside & (~self.stop | self.held)),
            axi.awaddr.eq(self.base + requests.payload.address),
            axi.awlen.eq(requests.payload.beats),
            axi.awsize.eq(size_of(self._bus_bytes)),
            axi.awburst.eq(INCREMENTING),
            requests.ready.eq(axi.awvalid & axi.awready),
            axi.wvalid.eq(beats.valid),
            axi.wdata.eq(beats.payload.data),
            axi.wstrb.eq(beats.payload.strobe),
            axi.wlast.eq(beats.payload.last),
            beats.ready.eq(axi.wready),
            axi.bready.eq(1),
            self.response.eq(axi.bvalid & axi.bready),
            self.refused.eq(self.response & (axi.bresp != OKAY)),
        ]
        return m
