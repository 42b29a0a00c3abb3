"""A lane of the VECTOR engine that adds or multiplies two int8 tensors."""

from types import SimpleNamespace

from amaranth import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.fixed_point import divide_by_power_of_two, high_product, left_shift, right_shift, rounds_away
from npukit.hw.float32 import (
    GUARD_BITS,
    INTEGER_BITS,
    SUM_BITS,
    align,
    clamp,
    exponent_field,
    round_sum,
    round_twice,
    shift_right,
    signed_significand,
    sum_to_fixed_point,
)
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Bits, Pipeline, Staged

__all__ = ["TwoSourceLane", "TwoSourceOperation"]

ONE = 127  # exponent field of 1.0
LATE = 21  # that far to the left, an 11-bit term stays within 32 bits


class TwoSourceOperation(enum.Enum, shape=2):
    ADD = 0
    ADD_FIXED = 1
    MULTIPLY = 2
    MULTIPLY_FIXED = 3


_FIXED = (TwoSourceOperation.ADD_FIXED, TwoSourceOperation.MULTIPLY_FIXED)


class TwoSourceLane(wiring.Component):
    """ADD, ADD_FIXED, MULTIPLY and MULTIPLY_FIXED of an element, before `out_unsigned` subtracts 128.

        ADD             clamp(rne(fma(a, ra, fma(b, rb, offset))))
        MULTIPLY        clamp(rne(f32(f32(p * multiplier) + out_zero_point)))
        ADD_FIXED       clamp(scale(wrap(scale(a'), scale(b'))) + out_offset)
        MULTIPLY_FIXED  clamp(scale(p) + out_zero_point)

    with p = (a - a_zero_point) * (b - b_zero_point), a' = (a + a_offset) * 2**left_shift, b' alike, and
    `scale` TensorFlow Lite's scaling by a multiplier and a shift.

    Two multipliers of 12 x 32 bits scale the sources, or p in two halves. Then the ways part. Float: a sum
    with the offset is rounded (for MULTIPLY, the sum of the halves: that rounds p * multiplier); a second
    fused sum with the scaled a (for MULTIPLY, with 1.0 * zero point) is rounded to a whole number. Fixed: the
    rest of the scaling, the sum (or p), and a 32 x 32 multiplier for the scaling of the result.

    One element a cycle, `latency` cycles from inputs to result. All inputs belong to one element and come
    together; successive elements may differ in all of them.

    Float operands and shifts may be any bits: `docs/numerics.md`, "Parameters of any bits".

    Parameters:
        fixed: the lane has ADD_FIXED and MULTIPLY_FIXED.

    Members are named as the descriptor fields; an operation ignores those of the others.

    Members:
        operation: in, TwoSourceOperation.
        a, b: in, signed(10), the elements: -128 to 255.
        ra, rb, offset: in, 32 bits, binary32.
        multiplier: in, 32 bits: a binary32, or a signed integer for MULTIPLY_FIXED.
        a_multiplier, b_multiplier, out_multiplier: in, signed(32).
        a_shift, b_shift, out_shift, shift: in, signed(8), to the left, negative to the right.
        left_shift: in, unsigned(6).
        a_offset, b_offset, out_offset, a_zero_point, b_zero_point, out_zero_point, low, high: in, signed(10).
        result: out, signed(10).
    """

    operation: Signal
    a: Signal
    b: Signal
    ra: Signal
    rb: Signal
    offset: Signal
    multiplier: Signal
    a_multiplier: Signal
    b_multiplier: Signal
    out_multiplier: Signal
    a_shift: Signal
    b_shift: Signal
    out_shift: Signal
    shift: Signal
    left_shift: Signal
    a_offset: Signal
    b_offset: Signal
    out_offset: Signal
    a_zero_point: Signal
    b_zero_point: Signal
    out_zero_point: Signal
    low: Signal
    high: Signal
    result: Signal

    latency = 15

    def __init__(self, *, fixed: bool = True) -> None:
        self._fixed_too = fixed
        super().__init__(
            {
                "operation": In(TwoSourceOperation),
                **dict.fromkeys(("a", "b"), In(signed(10))),
                **dict.fromkeys(("ra", "rb", "offset", "multiplier"), In(32)),
                **dict.fromkeys(("a_multiplier", "b_multiplier", "out_multiplier"), In(signed(32))),
                **dict.fromkeys(("a_shift", "b_shift", "out_shift", "shift"), In(signed(8))),
                "left_shift": In(unsigned(6)),
                **dict.fromkeys(("a_offset", "b_offset", "out_offset"), In(signed(10))),
                **dict.fromkeys(("a_zero_point", "b_zero_point", "out_zero_point"), In(signed(10))),
                **dict.fromkeys(("low", "high"), In(signed(10))),
                "result": Out(signed(10)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        given = SimpleNamespace(
            **{
                name: pipe.value(0, getattr(self, name), name)
                for name, member in self.signature.members.items()
                if member.flow is In
            }
        )
        one_of = self._one_of
        given.add_fixed = one_of(pipe, TwoSourceOperation.ADD_FIXED)
        given.fixed = one_of(pipe, TwoSourceOperation.ADD_FIXED, TwoSourceOperation.MULTIPLY_FIXED)
        given.multiply = one_of(pipe, TwoSourceOperation.MULTIPLY, TwoSourceOperation.MULTIPLY_FIXED)

        a = self._source(pipe, given, "a")
        b = self._source(pipe, given, "b")
        m.submodules.multiply_sources = sources = Multiplier(11, 11)
        m.d.comb += [sources.a.eq(a.term), sources.b.eq(b.term)]
        product = pipe.value(sources.latency, sources.product, "source_product")
        self._scale(m, pipe, given, a, product.at(2)[11:].as_signed())
        self._scale(m, pipe, given, b, product.at(2)[:11])

        float_whole, float_up = self._float(m, pipe, given, a, b)
        fixed = given.fixed.at(14)
        fixed_whole, fixed_up = (
            self._fixed(m, pipe, given, a, b, product) if self._fixed_too else (float_whole, float_up)
        )
        offset = pipe.register(0, Mux(given.multiply.at(0), self.out_zero_point, self.out_offset), "fixed_offset")
        total = (
            Mux(fixed, fixed_whole.at(14), float_whole.at(14))
            + Mux(fixed, offset.at(14), 0)
            + Mux(fixed, fixed_up.at(14), float_up.at(14))
        )
        low, high = given.low.at(14), given.high.at(14)
        limited = Mux((total > high) | (low > high), high, Mux(total < low, low, total))
        result = pipe.register(14, limited[:10].as_signed(), "clamped")
        m.d.comb += self.result.eq(result.at(self.latency))
        return m

    def _one_of(self, pipe: Pipeline, *operations: TwoSourceOperation) -> Staged:
        there = [one for one in operations if self._fixed_too or one not in _FIXED]
        chosen = Cat(self.operation == operation for operation in there).any()
        return pipe.value(0, chosen, "_or_".join(operation.name.lower() for operation in operations))

    def _source(self, pipe: Pipeline, given: SimpleNamespace, name: str) -> SimpleNamespace:
        """What belongs to source `name`; its `term`, in cycle 0, is the element with offset or zero point."""
        fields = {field: getattr(given, f"{name}_{field}") for field in ("multiplier", "shift", "offset", "zero_point")}
        side = SimpleNamespace(name=name, value=getattr(given, name), ratio=getattr(given, f"r{name}"), **fields)
        offset = Mux(given.add_fixed.at(0), side.offset.at(0), 0)
        offset = Mux(given.multiply.at(0), -side.zero_point.at(0), offset)
        side.term = (side.value.at(0) + offset)[:11].as_signed()
        side.left = pipe.register(0, given.left_shift.at(0) + left_shift(side.shift.at(0)), f"{name}_left")
        return side

    def _scale(self, m: Module, pipe: Pipeline, given: SimpleNamespace, side: SimpleNamespace, part: Bits) -> None:
        """Source times its multiplier, or `part` times the product's: `side.scaled`, from cycle 5 on.

        Of a left shift, what drives bits out of a 32-bit word comes before the multiplication. The rest comes
        after it: `side.late` is by how much less than LATE it is.
        """
        name = side.name
        term = pipe.register(0, side.term, f"{name}_term").at(2)
        early = Mux(given.add_fixed.at(1), clamp(side.left.at(1) - LATE, 0, 11), 0)
        early = pipe.register(1, early, f"{name}_early").at(2)
        side.late = pipe.register(1, LATE - clamp(side.left.at(1), 0, LATE), f"{name}_late")
        ratio = signed_significand(Mux(given.multiply.at(1), given.multiplier.at(1), side.ratio.at(1)))
        factor = pipe.register(1, Mux(given.add_fixed.at(1), side.multiplier.at(1), ratio), f"{name}_factor")

        multiplier = Multiplier(12, 32)
        m.submodules[f"scale_{name}"] = multiplier
        m.d.comb += [
            multiplier.a.eq(Mux(given.multiply.at(2), part, (term << early)[:11].as_signed())),
            multiplier.b.eq(factor.at(2)),
        ]
        side.scaled = pipe.value(2 + multiplier.latency, multiplier.product, f"{name}_scaled")

    def _float(
        self, m: Module, pipe: Pipeline, given: SimpleNamespace, a: SimpleNamespace, b: SimpleNamespace
    ) -> tuple[Staged, Staged]:
        """ADD and MULTIPLY: a number rounded down and what rounds it up, in cycle 14.

        A product of 0 has exponent 0, as `align` wants it.
        """
        multiply, register = given.multiply, pipe.register

        # b * rb + offset, or p * multiplier
        exponent = Mux(b.value.at(0) == 0, 0, exponent_field(b.ratio.at(0)))
        product_exponent = register(
            0, Mux(multiply.at(0), exponent_field(given.multiplier.at(0)), exponent), "inner_product_exponent"
        )
        offset_exponent = register(0, Mux(multiply.at(0), 0, exponent_field(given.offset.at(0))), "offset_exponent")
        offset = register(0, signed_significand(given.offset.at(0)), "offset_significand")
        aligned, exponent = align(pipe, 2, product_exponent, offset_exponent, offset, "inner")
        addend = Mux(multiply.at(5), a.scaled.at(5) << (11 + GUARD_BITS), aligned.at(5))
        inner = register(5, _add_aligned(b.scaled.at(5), addend), "inner_sum")
        rounded, rounded_exponent = round_sum(pipe, 6, inner, exponent)

        # a * ra + that, or 1.0 * zero point + that
        unit = Mux(given.out_zero_point.at(0) == 0, 0, ONE)
        exponent = Mux(a.value.at(0) == 0, 0, exponent_field(a.ratio.at(0)))
        product_exponent = register(0, Mux(multiply.at(0), unit, exponent), "outer_product_exponent")
        product = register(
            5,
            Mux(multiply.at(5), given.out_zero_point.at(5) << 23, a.scaled.at(5)[:36].as_signed()),
            "outer_product",
        )
        aligned, exponent = align(pipe, 8, product_exponent, rounded_exponent, rounded, "outer")
        outer = register(11, _add_aligned(product.at(11), aligned.at(11)), "outer_sum")

        number, lost, overflow, negative = sum_to_fixed_point(pipe, 12, outer, exponent)
        whole, up = round_twice(number.at(13), lost.at(13))
        return (
            register(13, _saturated(whole, overflow.at(13), negative.at(13)), "float_whole"),
            register(13, up, "float_up"),
        )

    def _fixed(
        self,
        m: Module,
        pipe: Pipeline,
        given: SimpleNamespace,
        a: SimpleNamespace,
        b: SimpleNamespace,
        product: Staged,
    ) -> tuple[Staged, Staged]:
        """ADD_FIXED and MULTIPLY_FIXED: a number rounded down and what rounds it up, in cycle 14."""
        multiply, register = given.multiply, pipe.register

        terms: list[Bits] = []
        for side in (a, b):
            # floor(scaled * 2**left / 2**30)
            scaled = side.scaled.at(5)[30 - LATE :].as_signed()
            moved = shift_right(m, scaled, side.late.at(5), 34, f"{side.name}_moved").value
            high, increment = high_product(register(5, moved, f"{side.name}_doubled").at(6))
            high = register(6, (high + increment)[:32].as_signed(), f"{side.name}_high")
            quotient = divide_by_power_of_two(m, high.at(7), right_shift(side.shift.at(7)), 32, f"{side.name}_quotient")
            value = register(7, quotient.value, f"{side.name}_quotient").at(8)
            lost = register(7, quotient.lost, f"{side.name}_lost").at(8)
            terms += [value[1:].as_signed(), rounds_away(value[0], lost, value[-1])]
        total = register(8, Mux(multiply.at(8), product.at(8), sum(terms, Const(0)))[:32].as_signed(), "total")

        shift = register(0, Mux(multiply.at(0), self.shift, self.out_shift), "result_shift")
        factor = register(0, Mux(multiply.at(0), self.multiplier.as_signed(), self.out_multiplier), "result_multiplier")
        m.submodules.scale_result = multiplier = Multiplier(32, 32)
        m.d.comb += [
            multiplier.a.eq((total.at(9) << left_shift(shift.at(9)))[:32].as_signed()),
            multiplier.b.eq(factor.at(9)),
        ]
        scaled = pipe.value(9 + multiplier.latency, multiplier.product, "result_scaled").at(12)
        high, increment = high_product(scaled[30:])
        high = register(12, (high + increment)[:32].as_signed(), "result_high")
        quotient = divide_by_power_of_two(m, high.at(13), right_shift(shift.at(13)), INTEGER_BITS, "result_quotient")
        value, half = quotient.value[1:].as_signed(), quotient.value[0]
        return (
            register(13, _saturated(value, quotient.overflow, quotient.negative), "fixed_whole"),
            register(13, rounds_away(half, quotient.lost, quotient.negative), "fixed_up"),
        )


def _add_aligned(product: Bits, aligned: Bits) -> Bits:
    """A product plus what is aligned with it. The guard bits are not added to: no carry waits for them."""
    upper = product + aligned[GUARD_BITS:].as_signed()
    return Cat(aligned[:GUARD_BITS], upper[: SUM_BITS - GUARD_BITS]).as_signed()


def _saturated(value: Bits, overflow: Bits, negative: Bits) -> Bits:
    limit = Cat((~negative).replicate(len(value) - 1), negative).as_signed()
    return Mux(overflow, limit, value)
