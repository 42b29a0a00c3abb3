"""A host behind a serial line: reads and writes of 32-bit words, on AXI4-Lite.

What the host sends, numbers with the low byte first:

| bytes | meaning |
|---|---|
| `W`, address (4), words - 1 (2), the words (4 each) | write them one after the other; the answer is `K` |
| `R`, address (4), words - 1 (2) | read them; the answer is the words, then `K` |

`E` in place of `K`: an access was refused. Other bytes are ignored where a command begins; a command whose next byte
does not come for 4096 bit times is forgotten, so a host that was cut off need only wait. After a byte with a wrong stop
bit, or one for which there is no room, nothing is what it seems: what was said so far is answered, no access begins any
more, and after 4096 bit times without a byte comes an `E`. Eight bits, no parity, one stop bit.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import axi_lite_signature

__all__ = ["HostBridge", "UartReceiver", "UartTransmitter"]

BUFFER = 64
"""Bytes that came and wait for the bus."""
PATIENCE = 1 << 12
"""Bit times without a byte after which a command is forgotten."""


class UartReceiver(wiring.Component):
    """Bytes from a serial line.

    Members: rx; data with valid for one cycle; error with it: the stop bit was wrong.
    """

    def __init__(self, divisor: int) -> None:
        if divisor < 4:
            raise ValueError(f"a bit of the serial line lasts 4 cycles at least, not {divisor}")
        self._divisor = divisor
        super().__init__({"rx": In(1, init=1), "data": Out(8), "valid": Out(1), "error": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rx = Signal(init=1)
        m.submodules.synchronise = FFSynchronizer(self.rx, rx, init=1)
        timer, left = Signal(range(2 * self._divisor)), Signal(range(8))
        m.d.sync += [self.valid.eq(0), timer.eq(timer - (timer != 0))]
        with m.FSM():
            with m.State("IDLE"), m.If(~rx):
                # to the middle of the first data bit
                m.d.sync += [timer.eq(self._divisor + self._divisor // 2 - 1), left.eq(7)]
                m.next = "DATA"
            with m.State("DATA"), m.If(timer == 0):
                m.d.sync += [self.data.eq(Cat(self.data[1:], rx)), timer.eq(self._divisor - 1), left.eq(left - 1)]
                with m.If(left == 0):
                    m.next = "STOP"
            with m.State("STOP"), m.If(timer == 0):
                m.d.sync += [self.valid.eq(1), self.error.eq(~rx)]
                m.next = "HIGH"
            with m.State("HIGH"), m.If(rx):  # a line that stays low is no next byte
                m.next = "IDLE"
        return m


class UartTransmitter(wiring.Component):
    """Bytes to a serial line.

    Members: tx; data is taken when valid and ready.
    """

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        super().__init__({"tx": Out(1, init=1), "data": In(8), "valid": In(1), "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timer, bits, shift = Signal(range(self._divisor)), Signal(4), Signal(9, init=0x1FF)
        m.d.comb += [self.ready.eq(bits == 0), self.tx.eq(shift[0])]
        with m.If(self.ready):
            with m.If(self.valid):
                m.d.sync += [shift.eq(Cat(0, self.data)), bits.eq(10), timer.eq(self._divisor - 1)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [shift.eq(Cat(shift[1:], 1)), bits.eq(bits - 1), timer.eq(self._divisor - 1)]
        return m


class HostBridge(wiring.Component):
    """The protocol above.

    Members: rx, tx; bus: AXI4-Lite, the manager's side, one access at a time.

    Attributes:
        writing, reading: an access is in progress.
    """

    def __init__(self, divisor: int, patience: int = PATIENCE) -> None:
        self._divisor, self._patience = divisor, patience * divisor
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "bus": Out(axi_lite_signature(address_bits=32))})
        self.writing, self.reading = Signal(), Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self._divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor)
        m.submodules.fifo = fifo = SyncFIFO(width=8, depth=BUFFER)
        failed = Signal()
        """Of the present command."""
        damaged = Signal()
        """A byte is missing among those that came, or behind them."""
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            fifo.w_data.eq(receiver.data),
            fifo.w_en.eq(receiver.valid & ~receiver.error),
        ]
        idle = Signal(range(self._patience))
        """Cycles since the last byte of a command."""
        with m.If(receiver.valid):
            m.d.sync += idle.eq(0)
        with m.Elif(idle != self._patience - 1):
            m.d.sync += idle.eq(idle + 1)
        forget = idle == self._patience - 1

        is_write, address, left = Signal(), Signal(32), Signal(16)
        word, index = Signal(32), Signal(3)
        bus = self.bus
        m.d.comb += [
            bus.awaddr.eq(address),
            bus.araddr.eq(address),
            bus.wdata.eq(word),
            bus.wstrb.eq(0b1111),
            bus.bready.eq(1),
            bus.rready.eq(1),
        ]
        following = [left.eq(left - 1), address.eq(address + 4), index.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += [self.writing.eq(fsm.ongoing("WRITE")), self.reading.eq(fsm.ongoing("WAIT"))]
            with m.State("COMMAND"):
                m.d.comb += fifo.r_en.eq(1)
                with m.If(damaged):
                    m.next = "SKIP"
                with m.Elif(fifo.r_rdy & ((fifo.r_data == ord("W")) | (fifo.r_data == ord("R")))):
                    m.d.sync += [is_write.eq(fifo.r_data == ord("W")), index.eq(0), failed.eq(0)]
                    m.next = "HEAD"
            with m.State("SKIP"):
                m.d.comb += fifo.r_en.eq(1)
                with m.If(forget):
                    m.d.sync += [damaged.eq(0), failed.eq(1)]
                    m.next = "ANSWER"
            with m.State("HEAD"):
                m.d.comb += fifo.r_en.eq(1)
                with m.If(damaged):
                    m.next = "SKIP"
                with m.Elif(fifo.r_rdy):
                    m.d.sync += [Cat(address, left).eq(Cat(address[8:], left, fifo.r_data)), index.eq(index + 1)]
                    with m.If(index == 5):
                        m.d.sync += index.eq(0)
                        m.next = "GATHER"
                        with m.If(~is_write):
                            m.next = "READ"
                with m.Elif(forget):
                    m.next = "COMMAND"
            with m.State("GATHER"):
                m.d.comb += fifo.r_en.eq(1)
                with m.If(damaged):
                    m.next = "SKIP"
                with m.Elif(fifo.r_rdy):
                    m.d.sync += [word.eq(Cat(word[8:], fifo.r_data)), index.eq(index + 1)]
                    with m.If(index == 3):
                        m.d.sync += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
                        m.next = "WRITE"
                with m.Elif(forget):
                    m.next = "COMMAND"
            with m.State("WRITE"):
                with m.If(bus.awready):
                    m.d.sync += bus.awvalid.eq(0)
                with m.If(bus.wready):
                    m.d.sync += bus.wvalid.eq(0)
                with m.If(bus.bvalid):
                    m.d.sync += [failed.eq(failed | bus.bresp[1]), *following]
                    m.next = "GATHER"
                    with m.If(left == 0):
                        m.next = "ANSWER"
            with m.State("READ"):
                m.d.sync += bus.arvalid.eq(1)
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(bus.arready):
                    m.d.sync += bus.arvalid.eq(0)
                with m.If(bus.rvalid):
                    m.d.sync += [word.eq(bus.rdata), failed.eq(failed | bus.rresp[1]), index.eq(0)]
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [transmitter.valid.eq(1), transmitter.data.eq(word[:8])]
                with m.If(transmitter.ready):
                    m.d.sync += [word.eq(word >> 8), index.eq(index + 1)]
                    with m.If(index == 3):
                        m.d.sync += following
                        m.next = "READ"
                        with m.If(left == 0):
                            m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [transmitter.valid.eq(1), transmitter.data.eq(Mux(failed, ord("E"), ord("K")))]
                with m.If(transmitter.ready):
                    m.next = "COMMAND"
        # behind the FSM, so that what comes while it skips is not overlooked
        with m.If(receiver.valid & (receiver.error | ~fifo.w_rdy)):
            m.d.sync += damaged.eq(1)
        return m
