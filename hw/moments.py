"""Sums of numbers and of their squares, over the lanes of words that come one after the other."""

from functools import reduce
from operator import add

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Pipeline

__all__ = ["Moments"]

_NUMBER_BITS = 9
_SQUARES = 1 + Multiplier.latency_of(_NUMBER_BITS, _NUMBER_BITS)
"""Cycle in which the squares of a pass are there."""


class Moments(wiring.Component):
    """MOMENTS of a pass: what its lanes come to is added to what the passes before it came to, modulo 2^32.

    All inputs belong to one pass and come together; one pass a cycle.

    Parameters:
        lanes: elements of a pass.

    Members:
        elements: in, int8 each. counted: in, for each whether it counts. zero_point: in, of all.
        first: in, the sums begin anew.
        sum, squares: out, `latency` cycles later.
    """

    latency = _SQUARES + 2

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "elements": In(8 * lanes),
                "counted": In(lanes),
                "zero_point": In(signed(8)),
                "first": In(1),
                "sum": Out(32),
                "squares": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        numbers, squares = [], []
        for k in range(self._lanes):
            element = self.elements.word_select(k, 8).as_signed()
            number = pipe.register(0, Mux(self.counted[k], element - self.zero_point, 0), f"number_{k}")
            m.submodules[f"square_{k}"] = square = Multiplier(_NUMBER_BITS, _NUMBER_BITS)
            m.d.comb += [square.a.eq(number.at(1)), square.b.eq(number.at(1))]
            numbers.append(number.at(_SQUARES))
            squares.append(square.product)
        first = pipe.value(0, self.first, "first")
        for terms, output, name in ((numbers, self.sum, "sum"), (squares, self.squares, "squares")):
            term = pipe.register(_SQUARES, reduce(add, terms), f"{name}_of_pass").at(_SQUARES + 1)
            total = Signal(32, name=f"{name}_total", reset_less=True)
            following = Mux(first.at(_SQUARES + 1), 0, total) + term
            m.d.sync += total.eq(following)
            m.d.comb += output.eq(total)
        return m
