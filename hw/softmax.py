"""A lane of the VECTOR engine for a softmax: sums of a table's numbers, and their quotients by such a sum."""

from amaranth import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from npukit.hw.float32 import exponent_field, nearest_even, significand
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Bits, Pipeline, Staged
from npukit.isa.descriptors import TABLE_ENTRIES

__all__ = ["SoftmaxLane"]

_SIGNIFICAND = 24
_LOOKED_UP = 2
"""Cycle in which an entry is there."""
_SUM = _LOOKED_UP + 4
"""Cycle in which a sum is there, and may be added to."""
_BELOW = 2
"""Places of a sum below its last one; the lowest stands for all below it, too."""
_FACTOR_BITS = 10
_FAR = 12
"""Exponents apart, from which on a quotient is below a half."""
_DIGITS = _FACTOR_BITS + 2
"""Of a quotient of significands, down to its half."""
_DIGITS_A_CYCLE = 2
_PRODUCT = _LOOKED_UP + Multiplier.latency_of(_SIGNIFICAND + 1, _FACTOR_BITS + 1)
_QUOTIENT = _PRODUCT + _DIGITS // _DIGITS_A_CYCLE


class SoftmaxLane(wiring.Component):
    """TABLE_SUM and TABLE_DIVIDE of an element.

        TABLE_SUM       sum = f32(sum + entry), or entry if it is the first
        TABLE_DIVIDE    clamp(rne(entry * factor / divisor) + zero_point)

    with entries above 0: signs do not count. One element a cycle, of `groups` sums in turn. All inputs belong to one
    element and come together.

    Parameters:
        groups: sums that the lane keeps, from 4 on: as long does an addition take.

    Members:
        write: in, `entry` is written into the table, at `place`.
        source: in, what is looked up: an int8 with its sign turned round.
        first: in, the sum begins anew. group: in, which of the sums.
        divisor: in, binary32. factor, zero_point, low, high: in, as the descriptor's.
        sum: out, binary32, `sum_latency` cycles later. quotient: out, signed(8), `latency` cycles later.
    """

    sum_latency = _SUM
    latency = _QUOTIENT + 3

    def __init__(self, groups: int) -> None:
        assert groups >= _SUM - _LOOKED_UP
        self._groups = groups
        super().__init__(
            {
                "write": In(1),
                "place": In(8),
                "entry": In(32),
                "source": In(8),
                "first": In(1),
                "group": In(bits_for(groups - 1)),
                "divisor": In(32),
                "factor": In(_FACTOR_BITS),
                **dict.fromkeys(("zero_point", "low", "high"), In(signed(8))),
                "sum": Out(32),
                "quotient": Out(signed(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        m.submodules.table = table = Memory(shape=32, depth=TABLE_ENTRIES, init=[])
        write, read = table.write_port(), table.read_port()
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.place),
            write.data.eq(self.entry),
            read.en.eq(1),
            read.addr.eq(self.source),
        ]
        entry = pipe.register(1, read.data, "entry")
        self._sum(pipe, entry)
        self._divide(m, pipe, entry)
        return m

    def _sum(self, pipe: Pipeline, entry: Staged) -> None:
        """Which number is greater; the other one where it stands; what they come to; that rounded."""
        m = pipe.module
        first = pipe.value(0, self.first, "first").at(_LOOKED_UP)
        group = pipe.value(0, self.group, "group")
        sums = Array(Signal(31, name=f"sum_{k}", reset_less=True) for k in range(self._groups))

        cycle = _LOOKED_UP
        old, new = Mux(first, 0, sums[group.at(cycle)]), entry.at(cycle)[:31]
        less = Signal()
        m.d.comb += less.eq(old < new)
        large = pipe.register(cycle, Mux(less, new, old), "large")
        small = pipe.register(cycle, Mux(less, old, new), "small")

        cycle += 1
        field = exponent_field(large.at(cycle))
        distance = (field - exponent_field(small.at(cycle)))[:8]
        number = Signal(_SIGNIFICAND, name="small_significand")
        moved = Signal(2 * _SIGNIFICAND + _BELOW, name="small_moved")
        m.d.comb += [
            number.eq(significand(small.at(cycle))),
            moved.eq(Cat(Const(0, _SIGNIFICAND + _BELOW), number) >> distance[:5]),
        ]
        kept, lost = moved[_SIGNIFICAND:], moved[:_SIGNIFICAND].any()
        far = distance >= _SIGNIFICAND + _BELOW
        addend = pipe.register(cycle, Mux(far, 0, Cat(kept[0] | lost, kept[1:])), "addend")
        greater = pipe.register(cycle, significand(large.at(cycle)), "greater")
        exponent = pipe.register(cycle, field, "exponent")

        cycle += 1
        total = pipe.register(cycle, Cat(Const(0, _BELOW), greater.at(cycle)) + addend.at(cycle), "sum_total")

        cycle += 1
        value = total.at(cycle)
        over = value[-1]
        normal = Mux(over, Cat(value[0] | value[1], value[2:]), value[:-1])
        kept, up = nearest_even(normal, _BELOW)
        field = exponent.at(cycle) + over
        # a significand of ones goes over into the exponent
        rounded = Cat(kept[:-1], field) + up
        result = Mux(rounded[23:] >= 255, 255 << 23, Mux(value == 0, 0, rounded))[:31]
        mine = sums[group.at(cycle)]
        m.d.sync += mine.eq(result)
        m.d.comb += self.sum.eq(pipe.register(cycle, result, "sum").at(_SUM))

    def _divide(self, m: Module, pipe: Pipeline, entry: Staged) -> None:
        """Digit by digit: what is left of the entry's significand times the factor, by the divisor's."""
        m.submodules.product = product = Multiplier(_SIGNIFICAND + 1, _FACTOR_BITS + 1)
        factor = pipe.value(0, self.factor, "factor").at(_LOOKED_UP)
        divisor = pipe.value(0, self.divisor, "divisor").at(_LOOKED_UP)
        number = entry.at(_LOOKED_UP)
        m.d.comb += [product.a.eq(Cat(significand(number), 0)), product.b.eq(Cat(factor, 0))]
        apart = pipe.register(_LOOKED_UP, exponent_field(divisor) - exponent_field(number), "apart")
        below = pipe.register(_LOOKED_UP, Cat(divisor[:23], Const(1, 1)), "below")

        numerator = pipe.value(_PRODUCT, product.product[: _SIGNIFICAND + _FACTOR_BITS], "numerator").at(_PRODUCT)
        # what is left is less than the divisor from the start; the half's digit brings a 0 down
        left: Bits = numerator[_DIGITS - 1 :]
        bring: Bits = Cat(Const(0, 1), numerator[: _DIGITS - 1])
        digits: Bits = Const(0, 0)
        for cycle in range(_PRODUCT, _QUOTIENT):
            for _ in range(_DIGITS_A_CYCLE):
                longer = Cat(bring[-1], left)
                rest = longer - below.at(cycle)
                fits = ~rest[-1]
                left = Mux(fits, rest, longer)[:_SIGNIFICAND]
                bring, digits = bring[:-1], Cat(fits, digits)
            left, bring, digits = (
                pipe.register(cycle, one, name).at(cycle + 1)
                for one, name in ((left, "left"), (bring, "bring"), (digits, "digits"))
            )

        cycle = _QUOTIENT
        distance = apart.at(cycle)  # signed
        amount = Mux(distance > _FAR, _FAR, distance)[:4]
        longer = Cat(Const(0, _FAR), digits)
        moved = Signal(len(longer), name="moved_quotient")
        m.d.comb += moved.eq(longer >> amount)
        lost = left.any() | moved[:_FAR].any()
        quotient = moved[_FAR:]
        up = quotient[0] & (lost | quotient[1])
        whole = pipe.register(cycle, quotient[1:], "whole")
        up = pipe.register(cycle, up, "up")
        large = pipe.register(cycle, distance < 0, "large")

        cycle += 1
        zero_point, low, high = (pipe.value(0, getattr(self, name), name) for name in ("zero_point", "low", "high"))
        total = whole.at(cycle) + up.at(cycle) + zero_point.at(cycle)
        total = pipe.register(cycle, total, "total")
        large = pipe.value(cycle, large.at(cycle), "too_large").at(cycle + 1)

        cycle += 1
        low, high, value = low.at(cycle), high.at(cycle), total.at(cycle)
        limited = Mux((value > high) | (low > high) | large, high, Mux(value < low, low, value))
        m.d.comb += self.quotient.eq(pipe.register(cycle, limited[:8].as_signed(), "limited").at(cycle + 1))
