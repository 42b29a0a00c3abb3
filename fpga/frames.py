"""Frames of the host link, between bytes of the serial line and words in a buffer (`npukit.isa.host_link`)."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2
from npukit.fpga.crc import SerialCrc
from npukit.isa.host_link import (
    CRC_BYTES,
    CRC_POLYNOMIAL,
    CRC_RESIDUE,
    ESCAPE,
    ESCAPED,
    FLAG,
    MAX_WORDS,
    REQUEST_HEAD,
    ROOM,
)

__all__ = ["HEAD_WORDS", "ROOM_WORDS", "FrameReceiver", "FrameTransmitter"]

HEAD_WORDS = sum(size for _, size in REQUEST_HEAD) // 4
ROOM_WORDS = 1 << ceil_log2(HEAD_WORDS + MAX_WORDS + CRC_BYTES // 4)
"""Words of a frame's place in the buffer."""


class FrameReceiver(wiring.Component):
    """Takes frames into one of `ROOM` places in turn, and offers those that are whole.

    A byte with a wrong stop bit, a wrong escape or CRC, a frame that is too short for a head, or one for which there is
    no place is told by `unreadable`, once the frame has ended.

    Members: data, valid, error: from `UartReceiver`; frames: the number of bytes of each frame, whose words are in the
    buffer until it is taken; unreadable: strobe; address, word: reads the words of the frame that is offered, a cycle
    later.
    """

    def __init__(self) -> None:
        self._count_bits = 2 + exact_log2(ROOM_WORDS)
        super().__init__(
            {
                "data": In(8),
                "valid": In(1),
                "error": In(1),
                "frames": Out(stream.Signature(self._count_bits)),
                "unreadable": Out(1),
                "address": In(range(ROOM_WORDS)),
                "word": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = SerialCrc(8, CRC_POLYNOMIAL, 8 * CRC_BYTES)
        m.submodules.buffer = buffer = Memory(shape=32, depth=ROOM * ROOM_WORDS, init=[])
        write, read = buffer.write_port(), buffer.read_port()
        place, oldest = Signal(range(ROOM)), Signal(range(ROOM))
        m.d.comb += [read.addr.eq(Cat(self.address, oldest)), read.en.eq(1), self.word.eq(read.data)]

        full = Signal(ROOM)
        """Places with a frame that was not taken."""
        counts = [Signal(self._count_bits, name=f"count_{index}") for index in range(ROOM)]
        count, word = Signal(self._count_bits), Signal(32)
        escaped, damaged = Signal(), Signal()
        byte = Signal(8)
        m.d.comb += [
            byte.eq(self.data ^ Mux(escaped, ESCAPED, 0)),
            crc.data.eq(byte),
            write.addr.eq(Cat(count[2:], place)),
            write.data.eq(Cat(word[8:], byte)),
            self.frames.valid.eq(full.bit_select(oldest, 1)),
            self.frames.payload.eq(Array(counts)[oldest]),
        ]
        m.d.sync += self.unreadable.eq(0)
        with m.If(self.frames.valid & self.frames.ready):
            m.d.sync += [full.bit_select(oldest, 1).eq(0), oldest.eq(oldest + 1)]
        with m.If(self.valid & self.error):
            m.d.sync += damaged.eq(1)
        with m.Elif(self.valid & (self.data == FLAG)):
            m.d.comb += crc.clear.eq(1)
            m.d.sync += [count.eq(0), escaped.eq(0), damaged.eq(0)]
            short = count < 4 * HEAD_WORDS + CRC_BYTES
            with m.If(damaged | escaped | ((count != 0) & (short | (crc.value != CRC_RESIDUE)))):
                m.d.sync += self.unreadable.eq(1)
            with m.Elif(count != 0):
                m.d.sync += [full.bit_select(place, 1).eq(1), place.eq(place + 1)]
                for index, held in enumerate(counts):
                    with m.If(place == index):
                        m.d.sync += held.eq(count)
        with m.Elif(self.valid & (self.data == ESCAPE)):
            m.d.sync += [escaped.eq(1), damaged.eq(damaged | escaped)]
        with m.Elif(self.valid):
            m.d.comb += [crc.valid.eq(1), write.en.eq((count[:2] == 3) & ~full.bit_select(place, 1))]
            # a frame that is longer than its place is told by its length
            m.d.sync += [escaped.eq(0), word.eq(write.data), count.eq(Mux(count.all(), count, count + 1))]
            with m.If(full.bit_select(place, 1)):
                m.d.sync += damaged.eq(1)
        return m


class FrameTransmitter(wiring.Component):
    """Makes frames of contents.

    Members: content: bytes, of which `last` ends a frame; out: bytes for the line, flags, escapes and CRC included.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "content": In(stream.Signature(data.StructLayout({"data": 8, "last": 1}))),
                "out": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = SerialCrc(8, CRC_POLYNOMIAL, 8 * CRC_BYTES)
        byte, tail = Signal(8), Signal(range(CRC_BYTES + 1))
        """Bytes of the CRC that were begun."""
        last = Signal()
        content, out = self.content, self.out
        m.d.comb += crc.data.eq(content.payload.data)
        with m.FSM():
            with m.State("OPEN"):
                m.d.comb += [out.valid.eq(content.valid), out.payload.eq(FLAG), crc.clear.eq(1)]
                with m.If(out.valid & out.ready):
                    m.next = "TAKE"
            with m.State("TAKE"), m.If(content.valid):
                m.d.comb += [content.ready.eq(1), crc.valid.eq(1)]
                m.d.sync += [byte.eq(content.payload.data), last.eq(content.payload.last), tail.eq(0)]
                m.next = "SEND"
            with m.State("SEND"):
                special = (byte == FLAG) | (byte == ESCAPE)
                m.d.comb += [out.valid.eq(1), out.payload.eq(Mux(special, ESCAPE, byte))]
                with m.If(out.ready):
                    m.next = "NEXT"
                    with m.If(special):
                        m.next = "ESCAPED"
            with m.State("ESCAPED"):
                m.d.comb += [out.valid.eq(1), out.payload.eq(byte ^ ESCAPED)]
                with m.If(out.ready):
                    m.next = "NEXT"
            with m.State("NEXT"), m.If(~crc.busy):
                m.next = "TAKE"
                with m.If(last):
                    m.d.sync += [byte.eq(~crc.value.word_select(tail[:2], 8)), tail.eq(tail + 1)]
                    m.next = "SEND"
                    with m.If(tail == CRC_BYTES):
                        m.next = "CLOSE"
            with m.State("CLOSE"):
                m.d.comb += [out.valid.eq(1), out.payload.eq(FLAG)]
                with m.If(out.ready):
                    m.next = "OPEN"
        return m
