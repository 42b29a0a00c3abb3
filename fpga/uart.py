"""A serial line: eight bits, no parity, one stop bit."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["UartReceiver", "UartTransmitter"]


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
