"""The reciprocal root of a variance, digit by digit."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.isa.timing import ROOT_CYCLES

__all__ = ["ReciprocalRoot"]

_SUM_BITS = 24
_COUNT_BITS = 15
_WIDE = 64
_FRACTION_BITS = 16
_EPSILON_BITS = 62
_VALUE_BITS = 32
_ROOT_BITS = 24
_SHIFT_BITS = 5

_VARIANCE = 1
"""Step in which the first digits of count and sum meet the sum of squares and the sum."""
_WEIGHED = _VARIANCE + _SUM_BITS
"""In which epsilon is added."""
_NORMAL = _WEIGHED + 1
"""In which the first of the shifts is made."""
_BEGIN = _NORMAL + _SHIFT_BITS
"""In which the first digit, which is 1, is taken."""
_DIGITS = _BEGIN + 1
_DONE = _DIGITS + _ROOT_BITS - 1


class ReciprocalRoot(wiring.Component):
    """RECIPROCAL_ROOT of a word: see `reciprocal_root` in `sim/numerics.py`.

    Members:
        start: in, the other inputs are there; not again for `ROOT_CYCLES` cycles.
        sum, squares, count, centred, epsilon: in; the sum until the result is there.
        same_sum, root: out, from `latency` cycles after the start on, until the next start's.
    """

    latency = _DONE + 1

    start: In(1)
    sum: In(32)
    squares: In(32)
    count: In(_COUNT_BITS)
    centred: In(1)
    epsilon: In(_EPSILON_BITS)
    same_sum: Out(32)
    root: Out(_ROOT_BITS + _SHIFT_BITS)

    def elaborate(self, platform: object) -> Module:
        assert self.latency <= ROOT_CYCLES
        m = Module()
        step = Signal(range(_DONE + 1))
        with m.If(self.start):
            m.d.sync += step.eq(1)
        with m.Elif(step != 0):
            m.d.sync += step.eq(Mux(step == _DONE, 0, step + 1))
        wide, shift = self._variance(m, step)
        root = self._digits(m, step, wide[_WIDE - _VALUE_BITS :])
        with m.If(step == _DONE):
            m.d.sync += [self.same_sum.eq(self.sum), self.root[:_ROOT_BITS].eq(root), self.root[_ROOT_BITS:].eq(shift)]
        return m

    def _variance(self, m: Module, step: Signal) -> tuple[Signal, Signal]:
        """2^16 (count * squares - sum^2) + epsilon, shifted to the left by pairs of bits; and 31 less those pairs.

        A digit of the count and of the sum's magnitude a cycle, from the highest.
        """
        squares, magnitude = Signal(32, reset_less=True), Signal(_SUM_BITS, reset_less=True)
        count, digits = Signal(_SUM_BITS, name="count_left", reset_less=True), Signal(_SUM_BITS, reset_less=True)
        epsilon = Signal(_EPSILON_BITS, name="kept_epsilon", reset_less=True)
        total = Signal(_WIDE, name="variance", reset_less=True)
        shift = Signal(_SHIFT_BITS, reset_less=True)
        low = self.sum[:_SUM_BITS].as_signed()
        size = Signal(_SUM_BITS, name="size_of_sum")
        m.d.comb += size.eq(Mux(low < 0, -low, low))
        with m.If(self.start):
            m.d.sync += [
                squares.eq(self.squares),
                magnitude.eq(size),
                digits.eq(Mux(self.centred, size, 0)),
                count.eq(self.count),
                epsilon.eq(self.epsilon),
                total.eq(0),
                shift.eq((1 << _SHIFT_BITS) - 1),
            ]
        with m.If((step >= _VARIANCE) & (step < _WEIGHED)):
            more, less = Mux(count[-1], squares, 0), Mux(digits[-1], magnitude, 0)
            m.d.sync += [total.eq((total << 1) + more - less), count.eq(count << 1), digits.eq(digits << 1)]
        with m.If(step == _WEIGHED):
            m.d.sync += total.eq((Mux(total[-1], 0, total) << _FRACTION_BITS) + epsilon)
        for stage in range(_SHIFT_BITS):
            pairs = 1 << _SHIFT_BITS - 1 - stage
            with m.If((step == _NORMAL + stage) & ~total[_WIDE - 2 * pairs :].any()):
                m.d.sync += [total.eq(total << 2 * pairs), shift.eq(shift - pairs)]
        return total, shift

    def _digits(self, m: Module, step: Signal, value: Signal) -> Signal:
        """The digits of the root, of which the first is 1.

        rest = (2^78 - root^2 value) / 4^n and product = root value / 2^n, with n digits to come: the next digit is 1
        if 4 rest does not fall below 4 product + value.
        """
        root = Signal(_ROOT_BITS, reset_less=True)
        rest = Signal(_VALUE_BITS + _ROOT_BITS + 2, name="root_rest", reset_less=True)
        product = Signal(_VALUE_BITS + _ROOT_BITS, name="root_product", reset_less=True)
        left = Signal(len(rest) + 3)
        m.d.comb += left.eq((rest << 2) - ((product << 2) + value))
        fits = ~left[-1]
        with m.If(step == _BEGIN):
            m.d.sync += [root.eq(1), rest.eq(Const(1 << _VALUE_BITS) - value), product.eq(value)]
        with m.If(step >= _DIGITS):
            m.d.sync += [
                root.eq(root << 1 | fits),
                rest.eq(Mux(fits, left, rest << 2)),
                product.eq((product << 1) + Mux(fits, value, 0)),
            ]
        return root
