"""The board's end of the host link: requests from the serial line, carried out on AXI4-Lite, and answered.

docs/host-link.md has the protocol; its numbers are in `npukit.isa.host_link`.
"""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.fpga.crc import SerialCrc
from npukit.fpga.frames import HEAD_WORDS, ROOM_WORDS, FrameReceiver, FrameTransmitter
from npukit.fpga.uart import UartReceiver, UartTransmitter
from npukit.hw.axi import axi_lite_signature
from npukit.isa.host_link import (
    ANSWER,
    ANSWER_HEAD,
    CRC_BYTES,
    DIGEST_BITS,
    DIGEST_POLYNOMIAL,
    IDENTITY_WORDS,
    MAX_WORDS,
    REGISTERS,
    REQUEST_HEAD,
    UNREADABLE,
    Identity,
    Kind,
    Status,
)

__all__ = ["HostLink"]

_FIELDS = data.StructLayout({name: 8 * size for name, size in REQUEST_HEAD})
_REGISTER_BITS = 12
"""Of an address among the registers."""
_HEAD_BYTES, _ANSWER_BYTES = (sum(size for _, size in head) for head in (REQUEST_HEAD, ANSWER_HEAD))


class HostLink(wiring.Component):
    """Serial line and protocol.

    Args:
        identity: what the board says of itself; its divisor is that of the line.

    Members: rx, tx; bus: AXI4-Lite, the manager's side, one access at a time.

    Attributes:
        writing, reading: an access is in progress. busy: a request is carried out or answered.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "bus": Out(axi_lite_signature(address_bits=32))})
        self.writing, self.reading, self.busy = Signal(), Signal(), Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        divisor = self._identity.divisor
        m.submodules.receiver = receiver = UartReceiver(divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(divisor)
        m.submodules.frames_in = frames_in = FrameReceiver()
        m.submodules.frames_out = frames_out = FrameTransmitter()
        m.submodules.crc = crc = SerialCrc(32, DIGEST_POLYNOMIAL, DIGEST_BITS)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            frames_in.data.eq(receiver.data),
            frames_in.valid.eq(receiver.valid),
            frames_in.error.eq(receiver.error),
            transmitter.data.eq(frames_out.out.payload),
            transmitter.valid.eq(frames_out.out.valid),
            frames_out.out.ready.eq(transmitter.ready),
        ]
        self._carry_out(m, frames_in, frames_out, crc)
        return m

    def _carry_out(self, m: Module, frames_in: FrameReceiver, frames_out: FrameTransmitter, crc: SerialCrc) -> None:
        bus = self.bus
        session = Signal(32)
        request, index = Signal(_FIELDS), Signal(exact_log2(ROOM_WORDS))
        """The request's head; the word of it that is read."""
        status, left = Signal(8), Signal(16)
        """Words still to be written, read or added."""
        unreadable = Signal()
        """What was no frame is to be answered."""
        written, repeats, outcome = Signal(8), Signal(), Signal.like(status)
        """Sequence number of the latest WRITE, whether there was one in this session, and how it went."""
        shift, bytes_left, is_status = Signal(32), Signal(range(_ANSWER_BYTES + 1)), Signal()
        """Bytes of the answer; how many there are; whether it is the last one."""
        word = Signal(32)
        m.d.comb += [
            bus.awaddr.eq(request.address),
            bus.araddr.eq(request.address),
            bus.wdata.eq(word),
            bus.wstrb.eq(0b1111),
            bus.bready.eq(1),
            bus.rready.eq(1),
            frames_in.address.eq(index),
            crc.data.eq(word),
            frames_out.content.payload.data.eq(shift[:8]),
            frames_out.content.payload.last.eq(is_status),
        ]
        with m.If(frames_in.unreadable):
            m.d.sync += unreadable.eq(1)
        following = [left.eq(left - 1), request.address.eq(request.address + 4)]
        identity = Array(self._identity.to_words())
        content_bytes = frames_in.frames.payload
        expected = _HEAD_BYTES + CRC_BYTES + Mux(request.kind == Kind.WRITE, request.words << 2, 0)
        most = Mux(request.kind == Kind.CHECKSUM, (1 << 16) - 1, MAX_WORDS)
        moves = (request.kind == Kind.READ) | (request.kind == Kind.WRITE) | (request.kind == Kind.CHECKSUM)
        invalid, end = Signal(), Signal(33)
        """The address behind the last word."""
        reach = end - 4
        memory_bits = exact_log2(self._identity.memory_bytes)
        in_memory = (request.address[memory_bits:] == 0) & (reach[memory_bits:] == 0)
        registers = REGISTERS >> _REGISTER_BITS
        in_registers = (request.address[_REGISTER_BITS:] == registers) & (reach[_REGISTER_BITS:] == registers)
        outside = (request.address[:2] != 0) | ~(in_memory | in_registers)
        m.d.comb += invalid.eq(
            (content_bytes != expected)
            | (request.kind > max(Kind))
            | (moves & ((request.words == 0) | (request.words > most) | outside))
        )
        with m.FSM() as fsm:
            m.d.comb += [self.writing.eq(fsm.ongoing("WRITING")), self.reading.eq(fsm.ongoing("READING"))]
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [index.eq(0), status.eq(Status.OK)]
                with m.If(frames_in.frames.valid):
                    m.next = "HEAD"
                with m.Elif(unreadable):
                    m.d.sync += [
                        unreadable.eq(frames_in.unreadable),
                        status.eq(Status.UNREADABLE),
                        request.kind.eq(UNREADABLE),
                        request.sequence.eq(0),
                        request.words.eq(0),
                    ]
                    m.next = "ANSWER"
            with m.State("HEAD"):
                # a word comes a cycle after its index
                m.d.sync += [index.eq(index + 1), request.eq(Cat(request.as_value()[32:], frames_in.word))]
                with m.If(index == HEAD_WORDS):
                    m.d.sync += index.eq(HEAD_WORDS)
                    m.next = "REACH"
            with m.State("REACH"):
                m.d.sync += end.eq(request.address + (request.words << 2))
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += [left.eq(request.words), request.words.eq(0)]
                m.next = "ANSWER"
                with m.If(invalid):
                    m.d.sync += status.eq(Status.INVALID)
                with m.Elif(moves & ((request.session != session) | (session == 0))):
                    m.d.sync += status.eq(Status.SESSION)
                with m.Else():
                    with m.Switch(request.kind):
                        with m.Case(Kind.OPEN):
                            m.d.sync += [session.eq(request.session), repeats.eq(0)]
                        with m.Case(Kind.IDENTIFY):
                            m.d.sync += [left.eq(IDENTITY_WORDS), request.words.eq(IDENTITY_WORDS), index.eq(0)]
                        with m.Case(Kind.READ):
                            m.d.sync += request.words.eq(request.words)
                        with m.Case(Kind.WRITE):
                            m.d.sync += [written.eq(request.sequence), repeats.eq(1)]
                            with m.If(repeats & (written == request.sequence)):
                                m.d.sync += status.eq(outcome)
                            with m.Else():
                                m.next = "FETCH"
                        with m.Case(Kind.CHECKSUM):
                            m.d.comb += crc.clear.eq(1)
                            m.d.sync += [request.words.eq(DIGEST_BITS // 32), index.eq(0)]
                            m.next = "READ"
            with m.State("FETCH"):
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.sync += [word.eq(frames_in.word), index.eq(index + 1), bus.awvalid.eq(1), bus.wvalid.eq(1)]
                m.next = "WRITING"
            with m.State("WRITING"):
                with m.If(bus.awready):
                    m.d.sync += bus.awvalid.eq(0)
                with m.If(bus.wready):
                    m.d.sync += bus.wvalid.eq(0)
                with m.If(bus.bvalid):
                    refused = Mux(bus.bresp[1], Status.REFUSED, status)
                    m.d.sync += [status.eq(refused), outcome.eq(refused), *following]
                    m.next = "WRITE"
                    with m.If(left == 1):
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                head = Cat(request.kind | ANSWER, request.sequence, request.words)
                m.d.sync += [shift.eq(head), bytes_left.eq(4), is_status.eq(0)]
                m.next = "SEND HEAD"
            with m.State("SEND HEAD"):
                self._send(m, frames_out, shift, bytes_left, "SESSION")
            with m.State("SESSION"):
                m.d.sync += [shift.eq(session), bytes_left.eq(4)]
                m.next = "SEND"
            with m.State("SEND"):
                self._send(m, frames_out, shift, bytes_left, "WORDS")
            with m.State("WORDS"):
                m.next = "READ"
                with m.If(request.words == 0):
                    m.d.sync += [shift.eq(status), bytes_left.eq(1), is_status.eq(1)]
                    m.next = "SEND STATUS"
                with m.Elif(request.kind == Kind.IDENTIFY):
                    m.d.sync += [
                        shift.eq(identity[index]),
                        bytes_left.eq(4),
                        index.eq(index + 1),
                        request.words.eq(request.words - 1),
                    ]
                    m.next = "SEND"
                with m.Elif(request.kind == Kind.CHECKSUM):
                    m.d.sync += [
                        shift.eq(~crc.value.word_select(index[0], 32)),
                        bytes_left.eq(4),
                        index.eq(index + 1),
                        request.words.eq(request.words - 1),
                    ]
                    m.next = "SEND"
            with m.State("READ"):
                m.d.sync += bus.arvalid.eq(1)
                m.next = "READING"
            with m.State("READING"):
                with m.If(bus.arready):
                    m.d.sync += bus.arvalid.eq(0)
                with m.If(bus.rvalid):
                    m.d.sync += [
                        word.eq(bus.rdata),
                        shift.eq(bus.rdata),
                        bytes_left.eq(4),
                        status.eq(Mux(bus.rresp[1], Status.REFUSED, status)),
                        *following,
                    ]
                    with m.If(request.kind == Kind.READ):
                        m.d.sync += request.words.eq(request.words - 1)
                        m.next = "SEND"
                    with m.Else():
                        m.next = "ADD"
            with m.State("ADD"):
                m.d.comb += crc.valid.eq(1)
                m.next = "ADDING"
            with m.State("ADDING"), m.If(~crc.busy):
                m.next = "READ"
                with m.If(left == 0):
                    m.next = "ANSWER"
            with m.State("SEND STATUS"):
                self._send(m, frames_out, shift, bytes_left, "DONE")
            with m.State("DONE"):
                m.next = "IDLE"
                # one that was no frame has no place
                with m.If(request.kind != UNREADABLE):
                    m.d.comb += frames_in.frames.ready.eq(1)

    @staticmethod
    def _send(m: Module, frames_out: FrameTransmitter, shift: Signal, bytes_left: Signal, following: str) -> None:
        """Bytes of `shift`, then another state."""
        m.d.comb += frames_out.content.valid.eq(1)
        with m.If(frames_out.content.ready):
            m.d.sync += [shift.eq(shift >> 8), bytes_left.eq(bytes_left - 1)]
            with m.If(bytes_left == 1):
                m.next = following
