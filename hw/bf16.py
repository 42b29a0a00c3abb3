"""Arithmetic of the bf16 machine: products, sums, limits and rounding. `docs/numerics.md` defines them.

binary32 numbers whose exponent field is 0 are +0, as operands and as results. NaN is the canonical one.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.float32 import exponent_field, leading_zeros
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Bits, Pipeline

__all__ = [
    "CANONICAL_NAN",
    "Bf16Multiplier",
    "Float32Adder",
    "Float32Multiplier",
    "limited",
    "narrowed",
    "stored",
]

INFINITE = 0xFF  # exponent field of infinities and NaN
CANONICAL_NAN = 0x7FC00000


def _is_nan(bits: Bits, mantissa_width: int) -> Bits:
    return (bits[mantissa_width : mantissa_width + 8] == INFINITE) & bits[:mantissa_width].any()


def flushed(bits: Bits) -> Bits:
    """A binary32 with -0 and subnormal numbers as +0."""
    return Mux(exponent_field(bits) == 0, 0, bits)


def less(a: Bits, b: Bits) -> Bits:
    """Whether a < b, for flushed binary32; of NaN it says nothing."""
    forwards, backwards = a[:31] < b[:31], b[:31] < a[:31]
    return Mux(a[31], ~b[31] | backwards, ~b[31] & forwards)


def limited(value: Bits, low: Bits, high: Bits) -> Bits:
    """A flushed binary32 within low .. high, `high` last. NaN stays NaN, and as a limit limits nothing."""
    low, high = flushed(low), flushed(high)
    no_low, no_high, invalid = (_is_nan(one, 23) for one in (low, high, value))
    below = ~no_low & less(value, low)
    above = ~no_high & less(high, value)
    crossed = ~no_high & less(high, low)
    return Mux(invalid, value, Mux(below, Mux(crossed, high, low), Mux(above, high, value)))


def narrowed(bits: Bits) -> Bits:
    """binary32 to bfloat16, rounded to nearest even."""
    value = flushed(bits)
    rounded = (value[16:] + (value[15] & (value[:15].any() | value[16])))[:16]
    return Mux(_is_nan(value, 23), CANONICAL_NAN >> 16, rounded)


def stored(bits: Bits) -> Bits:
    """binary32 as it is kept in ACC: flushed, and with one NaN."""
    return Mux(_is_nan(bits, 23), CANONICAL_NAN, flushed(bits))


class _Factors:
    """What two factors say of their product besides its significand; `mantissa` bits of theirs are stored. With
    `absorbing`, 0 as the second one makes 0 of whatever the first one is."""

    def __init__(self, pipe: Pipeline, factors: tuple[Bits, Bits], mantissa: int, absorbing: bool = False) -> None:
        zero, infinite, invalid = Const(0, 1), Const(0, 1), Const(0, 1)
        self.significands, exponents = [], []
        for factor in factors:
            exponent = factor[mantissa : mantissa + 8]
            exponents.append(exponent)
            zero = zero | (exponent == 0)
            infinite = infinite | (exponent == INFINITE)
            invalid = invalid | _is_nan(factor, mantissa)
            self.significands.append(Cat(factor[:mantissa], Const(1, 1)))
        absorbed = Const(0, 1)
        if absorbing:
            absorbed = factors[1][mantissa : mantissa + 8] == 0
        self.sign = pipe.value(0, factors[0][-1] ^ factors[1][-1], "sign")
        self.nan = pipe.register(0, (invalid | (zero & infinite)) & ~absorbed, "nan")
        self.zero = pipe.register(0, zero, "zero")
        self.infinite = pipe.register(0, infinite & ~absorbed, "infinite")
        self.exponent = pipe.register(0, exponents[0] + exponents[1], "exponent")

    def packed(self, cycle: int, exponent: Bits, mantissa: Bits) -> Bits:
        """The product, of 23 stored bits and an exponent that counts the bias twice."""
        to_zero, sign = self.zero.at(cycle), self.sign.at(cycle)
        overflow, underflow = exponent >= INFINITE + 127, exponent <= 127
        infinite = self.infinite.at(cycle) | (overflow & ~to_zero)
        number = Mux(to_zero | underflow, 0, Cat(mantissa, (exponent - 127)[:8], sign))
        number = Mux(infinite, Cat(Const(0, 23), Const(INFINITE, 8), sign), number)
        return Mux(self.nan.at(cycle), CANONICAL_NAN, number)


class Bf16Multiplier(wiring.Component):
    """Product of a bfloat16 and a weight as binary32. It is exact but for underflow, which gives +0, and overflow.

    A weight of 0 adds nothing, not even of an infinite number or NaN.

    Members:
        a, b: in, 16 bits; b is the weight.
        product: out, 32 bits, `latency` cycles later.
    """

    a: Signal
    b: Signal
    product: Signal

    latency = 3

    def __init__(self) -> None:
        super().__init__({"a": In(16), "b": In(16), "product": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        factors = _Factors(pipe, (self.a, self.b), 7, absorbing=True)
        m.submodules.significands = multiply = Multiplier(9, 9)
        m.d.comb += [multiply.a.eq(factors.significands[0]), multiply.b.eq(factors.significands[1])]

        # from 1 to just below 4, with 14 bits behind the point
        product = multiply.product[:16]
        upper = product[15]
        mantissa = Cat(Const(0, 8), Mux(upper, product[:15], Cat(Const(0, 1), product[:14])))
        exponent = Signal(10)
        m.d.comb += exponent.eq(factors.exponent.at(2) + upper)
        result = pipe.register(2, factors.packed(2, exponent, mantissa), "product")
        m.d.comb += self.product.eq(result.at(3))
        return m


class Float32Multiplier(wiring.Component):
    """Product of two binary32, rounded to nearest even; one below the smallest normal number after that gives +0.

    Members:
        a, b: in, 32 bits.
        product: out, 32 bits, `latency` cycles later.
    """

    a: Signal
    b: Signal
    product: Signal

    latency = 5

    def __init__(self) -> None:
        super().__init__({"a": In(32), "b": In(32), "product": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        factors = _Factors(pipe, (self.a, self.b), 23)
        m.submodules.significands = multiply = Multiplier(25, 25)
        m.d.comb += [multiply.a.eq(factors.significands[0]), multiply.b.eq(factors.significands[1])]

        # from 1 to just below 4, with 46 bits behind the point
        product = multiply.product[:48]
        upper = product[47]
        kept = Mux(upper, product[24:], product[23:47])
        half = Mux(upper, product[23], product[22])
        rest = product[:22].any() | (upper & product[22])
        rounded = pipe.register(3, kept + (half & (rest | kept[0])), "rounded").at(4)
        exponent = pipe.register(3, factors.exponent.at(3) + upper, "product_exponent").at(4)
        final = Signal(10)
        m.d.comb += final.eq(exponent + rounded[24])
        # where the rounding carried into the next power of two, the bits below are 0
        result = pipe.register(4, factors.packed(4, final, rounded[:23]), "product")
        m.d.comb += self.product.eq(result.at(5))
        return m


class Float32Adder(wiring.Component):
    """Sum of two binary32, rounded to nearest even, or the larger of the two.

    Members:
        a, b: in, 32 bits.
        maximum: in, the larger one is asked for; NaN if one is.
        total: out, 32 bits, `latency` cycles later.
    """

    a: Signal
    b: Signal
    maximum: Signal
    total: Signal

    latency = 6

    def __init__(self) -> None:
        super().__init__({"a": In(32), "b": In(32), "maximum": In(1), "total": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        register = pipe.register

        # the larger magnitude first; of a maximum the larger number, and then nothing
        a, b = (flushed(one) for one in (self.a, self.b))
        swap = b[:31] > a[:31]
        loses_a, loses_b = (self.maximum & one[31] & ~_is_nan(one, 23) for one in (a, b))
        large = register(0, Mux(Mux(swap, ~loses_b, loses_a), b, a), "large")
        small = register(0, Mux(self.maximum, 0, Mux(swap, a, b)), "small")

        # how far the other one goes right; beyond the 27 places of the sum it only matters that it is there
        gap = (exponent_field(large.at(1)) - exponent_field(small.at(1)))[:8]
        amount = register(1, Mux(gap > 31, 31, gap)[:5], "amount")
        subtract = register(1, large.at(1)[31] ^ small.at(1)[31], "subtract")
        nan = register(
            1,
            _is_nan(large.at(1), 23)
            | _is_nan(small.at(1), 23)
            | (
                (exponent_field(large.at(1)) == INFINITE)
                & (exponent_field(small.at(1)) == INFINITE)
                & (large.at(1)[31] ^ small.at(1)[31])
            ),
            "nan",
        )
        infinite = register(1, exponent_field(large.at(1)) == INFINITE, "infinite")
        exponent = register(1, exponent_field(large.at(1)), "exponent")
        sign = register(1, large.at(1)[31], "sign")
        first = register(1, self._significand(large.at(1)), "first")
        second = register(1, self._significand(small.at(1)), "second")

        # three more places, of which the last says whether anything is below
        wide = Cat(Const(0, 3), second.at(2))
        value, lost = wide, Const(0, 1)
        for level in reversed(range(5)):
            step = 1 << level
            moved = Signal(27, name=f"moved_{step}")
            bit = amount.at(2)[level]
            m.d.comb += moved.eq(Mux(bit, value >> step, value))
            lost = lost | (bit & value[: min(step, 27)].any())
            value = moved
        aligned = register(2, Cat(value[0] | lost, value[1:]), "aligned")

        augend = Cat(Const(0, 3), first.at(3))
        total = Mux(subtract.at(3), augend - aligned.at(3), augend + aligned.at(3))[:28]
        sum_ = register(3, total, "sum")

        zeros = Signal(5)
        m.d.comb += zeros.eq(leading_zeros(Cat(Const(0, 4), sum_.at(4))))
        shifted = (sum_.at(4) << zeros)[:28]
        normal = register(4, shifted, "normal")
        moved_exponent = register(4, (exponent.at(4) + 1 - zeros).as_signed(), "moved_exponent")

        # 24 bits, then the half, then what is below
        kept, half, rest = normal.at(5)[4:], normal.at(5)[3], normal.at(5)[:3].any()
        rounded = Signal(25)
        m.d.comb += rounded.eq(kept + (half & (rest | kept[0])))
        final = moved_exponent.at(5) + rounded[24]
        mantissa = rounded[:23]  # 0 where the rounding carried into the next power of two
        finite = Cat(mantissa, final[:8], sign.at(5))
        result = Mux(
            nan.at(5),
            CANONICAL_NAN,
            Mux(
                infinite.at(5) | (final >= INFINITE),
                Cat(Const(0, 23), Const(INFINITE, 8), sign.at(5)),
                Mux(~normal.at(5)[27] | (final <= 0), 0, finite),
            ),
        )
        m.d.comb += self.total.eq(register(5, result, "total").at(6))
        return m

    @staticmethod
    def _significand(bits: Bits) -> Bits:
        """24 bits; 0 of a zero."""
        return Mux(exponent_field(bits) == 0, 0, Cat(bits[:23], Const(1, 1)))
