"""Arithmetic of the bf16 processing element: an exact product, and a rounded sum. `docs/numerics.md` defines both.

binary32 numbers whose exponent field is 0 are +0, as operands and as results. NaN is the canonical one.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.float32 import exponent_field, leading_zeros
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Bits, Pipeline

__all__ = ["Bf16Multiplier", "Float32Adder"]

INFINITE = 0xFF  # exponent field of infinities and NaN
CANONICAL_NAN = 0x7FC00000


def _is_nan(bits: Bits, mantissa_width: int) -> Bits:
    return (bits[mantissa_width : mantissa_width + 8] == INFINITE) & bits[:mantissa_width].any()


class Bf16Multiplier(wiring.Component):
    """Product of two bfloat16 as binary32. It is exact but for underflow, which gives +0, and overflow.

    Members:
        a, b: in, 16 bits.
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
        m.submodules.significands = significands = Multiplier(9, 9)
        zero, infinite = Const(0, 1), Const(0, 1)
        invalid = _is_nan(self.a, 7) | _is_nan(self.b, 7)
        exponents = []
        for operand, factor in ((self.a, significands.a), (self.b, significands.b)):
            exponent = operand[7:15]
            exponents.append(exponent)
            zero = zero | (exponent == 0)
            infinite = infinite | (exponent == INFINITE)
            m.d.comb += factor.eq(Cat(operand[:7], Const(1, 1)))
        sign = pipe.value(0, self.a[15] ^ self.b[15], "sign").at(2)
        nan = pipe.register(0, invalid | (zero & infinite), "nan").at(2)
        to_zero = pipe.register(0, zero, "zero").at(2)
        to_infinity = pipe.register(0, infinite, "infinite").at(2)
        total = pipe.register(0, exponents[0] + exponents[1], "exponent").at(2)

        # from 1 to just below 4, with 14 bits behind the point
        product = significands.product[:16]
        upper = product[15]
        mantissa = Mux(upper, product[:15], Cat(Const(0, 1), product[:14]))
        exponent = Signal(10)
        m.d.comb += exponent.eq(total + upper)
        overflow, underflow = exponent >= INFINITE + 127, exponent <= 127
        field = (exponent - 127)[:8]
        finite = Cat(Const(0, 8), mantissa, field, sign)
        result = Mux(
            nan,
            CANONICAL_NAN,
            Mux(
                to_infinity | (overflow & ~to_zero),
                Cat(Const(0, 23), Const(INFINITE, 8), sign),
                Mux(to_zero | underflow, 0, finite),
            ),
        )
        m.d.comb += self.product.eq(pipe.register(2, result, "product").at(3))
        return m


class Float32Adder(wiring.Component):
    """Sum of two binary32, rounded to nearest even.

    Members:
        a, b: in, 32 bits.
        total: out, 32 bits, `latency` cycles later.
    """

    a: Signal
    b: Signal
    total: Signal

    latency = 6

    def __init__(self) -> None:
        super().__init__({"a": In(32), "b": In(32), "total": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        register = pipe.register

        # the larger magnitude first
        a, b = (Mux(exponent_field(one) == 0, 0, one) for one in (self.a, self.b))
        swap = b[:31] > a[:31]
        large = register(0, Mux(swap, b, a), "large")
        small = register(0, Mux(swap, a, b), "small")

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
