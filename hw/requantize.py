"""A lane of the VECTOR engine that turns accumulators into int8."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.fixed_point import divide_by_power_of_two, high_product, left_shift, right_shift, rounds_away
from npukit.hw.float32 import clamp, exponent_field, leading_zeros, nearest_even, sign_bit, significand
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Bits, Pipeline

__all__ = ["RequantizeLane"]


class RequantizeLane(wiring.Component):
    """Requantisation: an accumulator, scaled and rounded, plus a zero point, clamped.

    With `fixed` 0 it is ONNX Runtime's, clamp(rne(f32(f32(acc + bias) * multiplier)) + zero_point). With `fixed` 1 it
    is TensorFlow Lite's, with its two roundings. Multipliers that are not finite and shifts outside of -31 to 30 have
    a meaning, too: `docs/numerics.md`, "Parameters of any bits".

    A float product is a product of two significands of 24 bits, so one 32 x 32 multiplier serves both modes:

        acc + bias -> magnitude -> normalise, or shift left -> round to 24 bits -> multiply
        -> round to 24 bits, or to the high half -> shift right -> round -> add the zero point -> clamp

    One value a cycle, `latency` cycles from inputs to result. All inputs belong to one value and come
    together; successive values may differ in all of them.

    Members:
        accumulator, bias: in, signed(32).
        multiplier: in, 32 bits: a binary32, or a signed integer if `fixed`.
        shift: in, signed(8): to the left, or to the right if negative; used if `fixed`.
        fixed: in.
        zero_point, low, high: in, signed(8).
        result: out, signed(8).
    """

    accumulator: Signal
    bias: Signal
    multiplier: Signal
    shift: Signal
    fixed: Signal
    zero_point: Signal
    low: Signal
    high: Signal
    result: Signal

    latency = 12

    def __init__(self) -> None:
        super().__init__(
            {
                "accumulator": In(signed(32)),
                "bias": In(signed(32)),
                "multiplier": In(32),
                "shift": In(signed(8)),
                "fixed": In(1),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "result": Out(signed(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        register = pipe.register
        fixed = pipe.value(0, self.fixed, "fixed")
        multiplier = pipe.value(0, self.multiplier, "multiplier")
        shift = pipe.value(0, self.shift, "shift")

        total = register(0, (self.accumulator + self.bias)[:32].as_signed(), "total")
        negate = ~fixed.at(1) & total.at(1)[31]
        operand = register(1, Mux(negate, -total.at(1), total.at(1))[:32], "operand")
        negative = register(1, ~fixed.at(1) & (total.at(1)[31] ^ sign_bit(multiplier.at(1))), "negative")

        # to 1.31 bits for float
        left = register(2, Mux(fixed.at(2), left_shift(shift.at(2)), leading_zeros(operand.at(2)))[:5], "left")
        shifted = register(3, (operand.at(3) << left.at(3))[:32], "shifted")

        # product of significands from 2**46 on; by how much it goes right if it is 2**47 or more
        distance = register(3, 118 + left.at(3) - exponent_field(multiplier.at(3)), "distance")

        def right(extra: int) -> Bits:
            return Mux(fixed.at(4), right_shift(shift.at(4)), clamp(distance.at(4) + extra, 0, 31))

        right_if_upper = register(4, right(0), "right_if_upper")
        right_if_lower = register(4, right(1), "right_if_lower")

        m.submodules.multiply = multiply = Multiplier(32, 32)
        rounded_operand, increment = nearest_even(shifted.at(4), 8)
        m.d.comb += [
            multiply.a.eq(Mux(fixed.at(4), shifted.at(4).as_signed(), rounded_operand + increment)),
            multiply.b.eq(Mux(fixed.at(4), multiplier.at(4).as_signed(), significand(multiplier.at(4)))),
        ]
        product = pipe.value(4 + multiply.latency, multiply.product, "product").at(7)

        upper = product[47]
        # one place for both positions of the first 1; the bits below the half count only as being there
        aligned = Mux(upper, Cat(product[:23].any(), product[23:48]), Cat(product[:22].any(), product[22:47]))
        float_value, float_increment = nearest_even(aligned, 2)
        fixed_value, fixed_increment = high_product(product[30:])
        scaled = register(
            7,
            (Mux(fixed.at(7), fixed_value, float_value) + Mux(fixed.at(7), fixed_increment, float_increment))[
                :32
            ].as_signed(),
            "scaled",
        )
        amount = register(7, Mux(upper, right_if_upper.at(7), right_if_lower.at(7)), "amount")

        quotient = divide_by_power_of_two(m, scaled.at(8), amount.at(8), 10, "quotient")
        value, lost, overflow, below_zero = (
            register(8, part, f"quotient_{name}").at(9) for name, part in quotient._asdict().items()
        )
        half, whole = value[0], value[1:].as_signed()
        away = rounds_away(half, lost, below_zero)
        even = half & (lost | whole[0])
        limit = Cat((~below_zero).replicate(9), below_zero).as_signed()
        # minus the rounded value is ~whole + (1 - round up)
        final = register(9, Mux(overflow, limit, whole) ^ negative.at(9).replicate(10).as_signed(), "final")
        carry = register(9, Mux(fixed.at(9), away, even) ^ negative.at(9), "carry")

        zero_point = pipe.value(0, self.zero_point, "zero_point")
        shifted_result = register(10, final.at(10) + zero_point.at(10) + carry.at(10), "with_zero_point").at(11)
        low, high = pipe.value(0, self.low, "low").at(11), pipe.value(0, self.high, "high").at(11)
        result = register(
            11,
            Mux((shifted_result > high) | (low > high), high, Mux(shifted_result < low, low, shifted_result))[
                :8
            ].as_signed(),
            "clamped",
        )
        m.d.comb += self.result.eq(result.at(self.latency))
        return m
