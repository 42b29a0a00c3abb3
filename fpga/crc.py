"""Cyclic redundancy checks, bit by bit: the serial line and the memory leave the time."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SerialCrc"]


class SerialCrc(wiring.Component):
    """A CRC with the low bit first, which begins with ones, a bit a cycle.

    Args:
        width: bits of data that are added together.
        polynomial: with the low bit first. bits: of it.

    Members: clear: begin anew. data with valid: what to add, while not busy. value: the register, which is what is sent
    once it is inverted.
    """

    def __init__(self, width: int, polynomial: int, bits: int) -> None:
        self._width, self._polynomial, self._ones = width, polynomial, (1 << bits) - 1
        super().__init__(
            {"clear": In(1), "data": In(width), "valid": In(1), "busy": Out(1), "value": Out(bits, init=self._ones)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift, left = Signal(self._width), Signal(range(self._width + 1))
        m.d.comb += self.busy.eq(left != 0)
        with m.If(self.busy):
            odd = self.value[0] ^ shift[0]
            m.d.sync += [
                self.value.eq((self.value >> 1) ^ Mux(odd, self._polynomial, 0)),
                shift.eq(shift >> 1),
                left.eq(left - 1),
            ]
        with m.If(self.valid):
            m.d.sync += [shift.eq(self.data), left.eq(self._width)]
        with m.If(self.clear):
            m.d.sync += [self.value.eq(self._ones), left.eq(0)]
        return m
