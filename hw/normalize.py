"""A lane of the VECTOR engine that normalises numbers by the statistics of their place."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Pipeline

__all__ = ["NormalizeLane"]

_COUNT_BITS = 15
_SUM_BITS = 24
_ROOT_BITS = 24
_SHIFT_BITS = 5
_NUMBER_BITS = 9
_WEIGHED_BITS = 25
_WEIGHED = 1 + Multiplier.latency_of(_NUMBER_BITS, _COUNT_BITS + 1)
"""Cycle in which the number times the count is there."""
_PRODUCT = _WEIGHED + 1 + Multiplier.latency_of(_WEIGHED_BITS, _ROOT_BITS + 1)


class NormalizeLane(wiring.Component):
    """NORMALIZE of an element: see `normalize` in `sim/numerics.py`. One a cycle; all inputs come together.

    Members:
        number, zero_point, count, centred: in.
        sum: in, of the place. root, shift: in, m and s of the reciprocal root m 2^-s.
        result: out, `latency` cycles later.
    """

    latency = _PRODUCT + 2

    number: In(signed(8))
    zero_point: In(signed(8))
    count: In(_COUNT_BITS)
    centred: In(1)
    sum: In(signed(_SUM_BITS))
    root: In(_ROOT_BITS)
    shift: In(_SHIFT_BITS)
    result: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        number = pipe.register(0, self.number - self.zero_point, "number")
        m.submodules.weigh = weigh = Multiplier(_NUMBER_BITS, _COUNT_BITS + 1)
        count = pipe.value(0, self.count, "count").at(1)
        m.d.comb += [weigh.a.eq(number.at(1)), weigh.b.eq(Cat(count, Const(0, 1)))]
        mean = pipe.register(0, Mux(self.centred, self.sum, 0), "mean").at(_WEIGHED)
        weighed = pipe.register(_WEIGHED, weigh.product - mean, "weighed").at(_WEIGHED + 1)
        m.submodules.scale = scale = Multiplier(_WEIGHED_BITS, _ROOT_BITS + 1)
        root = pipe.value(0, self.root, "root").at(_WEIGHED + 1)
        m.d.comb += [scale.a.eq(weighed[:_WEIGHED_BITS].as_signed()), scale.b.eq(Cat(root, Const(0, 1)))]
        shift = pipe.value(0, self.shift, "shift").at(_PRODUCT)
        doubled = Signal(signed(len(scale.product) + 1))
        m.d.comb += doubled.eq(Cat(Const(0, 1), scale.product).as_signed())
        moved = pipe.register(_PRODUCT, (doubled >> shift)[:33], "moved").at(_PRODUCT + 1)
        rounded = pipe.register(_PRODUCT + 1, (moved[1:] + moved[0])[:32], "rounded")
        m.d.comb += self.result.eq(rounded.at(self.latency))
        return m
