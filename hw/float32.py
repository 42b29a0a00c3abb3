"""Pieces of binary32 arithmetic that the vector lanes share.

A number is a significand times 2**(exponent - 150), the exponent biased as in the format: then a
normal number's significand is its 24 bits as a whole number. Operands with exponent field 0 count as 0, and
255 is an exponent as any other: there are no infinities and no NaN. Nor have exponents of sums limits.

Functions that take a `Pipeline` add registers; the others are combinational. Sums are kept exact enough
to be rounded once: `align`, add, `round_sum` is a fused multiply-add after its multiplication.
"""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal, signed
from npukit.hw.pipeline import Bits, Pipeline, Staged

__all__ = [
    "GUARD_BITS",
    "INTEGER_BITS",
    "SUM_BITS",
    "Shifted",
    "align",
    "clamp",
    "exponent_field",
    "leading_zeros",
    "nearest_even",
    "round_sum",
    "round_twice",
    "shift_left",
    "shift_right",
    "sign_bit",
    "signed_significand",
    "significand",
    "sum_to_fixed_point",
]

BIAS = 150  # of the exponent, for a significand that is a whole number
PRECISION = 24

GUARD_BITS = 3  # of a sum, below the product
SUM_BITS = 64
PRODUCT_BITS = 32  # magnitude of a product that `align` is made for
# where the addend's lowest bit can be, counted from the product's
HIGHEST = PRODUCT_BITS + 3  # there the product is less than 1/4 of the addend's last place
LOWEST = -(PRECISION + 1 + GUARD_BITS)  # there all of the addend is below the guard bits

FRACTION_BITS = PRECISION + 1  # down to half a unit in the last place of numbers from 0.5 on
INTEGER_BITS = 11


def significand(bits: Bits) -> Bits:
    """The 24-bit significand of a binary32; 0 if its exponent field is 0."""
    return Mux(exponent_field(bits) == 0, 0, Cat(bits[:23], Const(1, 1)))


def signed_significand(bits: Bits) -> Bits:
    """The significand with the number's sign, signed(25)."""
    magnitude = significand(bits)
    return Mux(sign_bit(bits), -magnitude, magnitude)


def exponent_field(bits: Bits) -> Bits:
    return bits[23:31]


def sign_bit(bits: Bits) -> Bits:
    return bits[31]


def clamp(value: Bits, low: int, high: int) -> Bits:
    """`value` limited to low .. high, in the smallest shape that holds them."""
    bits = max(low.bit_length(), high.bit_length())
    limited = Mux(value < low, low, Mux(value > high, high, value))
    return limited[:bits] if low >= 0 else limited[: bits + 1].as_signed()


def leading_zeros(value: Bits) -> Bits:
    """How many zeros stand before the first 1; of 0, the width, or one less if that is a power of two."""
    padding = (1 << (len(value) - 1).bit_length()) - len(value)
    ones = Const((1 << padding) - 1, padding)  # where the count of 0 stops
    return _first_one(Cat(ones, value))[1]


def _first_one(value: Bits) -> tuple[Bits, Bits]:
    """Whether a value of 2**n bits has a 1, and the zeros before it: a tree of depth n."""
    if len(value) == 1:
        return value, Const(0, 0)
    middle = len(value) // 2
    low_nonzero, low = _first_one(value[:middle])
    high_nonzero, high = _first_one(value[middle:])
    return low_nonzero | high_nonzero, Cat(Mux(high_nonzero, high, low), ~high_nonzero)


def nearest_even(value: Bits, drop: int) -> tuple[Bits, Bits]:
    """`value` without its `drop` lowest bits, and what must be added for rounding to nearest, ties to even.

    In two's complement this holds for either sign.
    """
    kept = value[drop:]
    return kept, value[drop - 1] & (value[: drop - 1].any() | kept[0])


class Shifted(NamedTuple):
    """A value shifted to the right, and what did not fit."""

    value: Bits
    lost: Bits  # a 1 fell off at the low end
    overflow: Bits  # the bits that fell off at the high end were not all copies of the sign
    negative: Bits


def shift_right(m: Module, value: Bits, amount: Bits, width: int, name: str) -> Shifted:
    """floor(value / 2**amount), the low `width` bits of it (signed), for a signed value."""
    negative = value[-1]
    lost = overflow = Const(0, 1)
    for level in reversed(range(len(amount))):
        step = min(1 << level, len(value))
        lost = lost | (amount[level] & value[:step].any())
        moved = value[step:].as_signed() if step < len(value) else negative.replicate(1).as_signed()
        shifted = Signal(signed(len(value)), name=f"{name}_by_{1 << level}")
        m.d.comb += shifted.eq(Mux(amount[level], moved, value))
        keep = width + (1 << level) - 1  # no later level brings higher bits down into the result
        if len(value) > keep:
            overflow = overflow | (shifted[keep - 1 :] != negative.replicate(len(value) - keep + 1))
        value = shifted[:keep].as_signed()
    return Shifted(value, lost, overflow, negative)


def shift_left(m: Module, value: Bits, amount: Bits, width: int, name: str) -> tuple[Bits, Bits]:
    """The highest `width` bits of value * 2**amount, and whether there is a 1 below them."""
    lost = Const(0, 1)
    for level in reversed(range(len(amount))):
        step = 1 << level
        shifted = Signal(len(value), name=f"{name}_by_{step}")
        m.d.comb += shifted.eq(Mux(amount[level], value << step, value))
        drop = max(0, len(value) - (width + step - 1))  # no later level brings these up into the result
        lost = lost | shifted[:drop].any()
        value = shifted[drop:]
    return value, lost


def align(
    pipeline: Pipeline,
    cycle: int,
    product_exponent: Staged,
    addend_exponent: Staged,
    addend: Staged,
    name: str,
) -> tuple[Staged, Staged]:
    """The addend of a fused multiply-add, moved to where the product stands.

    A sum is a signed number of SUM_BITS in units of 2**-GUARD_BITS of the product's unit. What lies below
    is or-ed into its lowest bit. That makes no rounding wrong: if something lies below, the addend is
    less than 2**22 and the product at least 2**23, so that the half of the sum's last place is a higher bit.

    Takes the exponents in `cycle` and the addend, signed and at most 2**24, in cycle + 2. The product is
    from 2**23 to 2**32 in magnitude, or 0 with exponent 0; an addend of 0 has exponent 0.

    Returns:
        The aligned addend, in cycle + 3, and the exponent of the product's unit in the sum, in
        cycle + 2: its own, or, if the addend is so large that of the product only the sign matters,
        the one that goes with the addend.
    """
    distance = pipeline.register(cycle, addend_exponent.at(cycle) - product_exponent.at(cycle), f"{name}_distance")
    position = clamp(distance.at(cycle + 1), LOWEST, HIGHEST)
    amount = pipeline.register(cycle + 1, (position - LOWEST)[:6], f"{name}_amount")
    exponent = pipeline.register(
        cycle + 1,
        Mux(
            distance.at(cycle + 1) > HIGHEST,
            addend_exponent.at(cycle + 1) - HIGHEST,
            product_exponent.at(cycle + 1),
        ),
        f"{name}_exponent",
    )
    below = -LOWEST - GUARD_BITS
    moved = (addend.at(cycle + 2) << amount.at(cycle + 2))[: SUM_BITS + below]
    shifted = pipeline.register(cycle + 2, moved.as_signed(), f"{name}_shifted").at(cycle + 3)
    lowest = shifted[: below + 1].any()
    return pipeline.value(cycle + 3, Cat(lowest, shifted[below + 1 :]).as_signed(), f"{name}_aligned"), exponent


def round_sum(pipeline: Pipeline, cycle: int, total: Staged, exponent: Staged) -> tuple[Staged, Staged]:
    """A sum, as `align` describes, rounded to binary32 precision, to nearest even.

    Negative sums are rounded as they are, in two's complement. There a power of two counts to the interval
    below it, where numbers are closer; it is exact either way.

    Takes the sum in `cycle` and its exponent in cycle + 1.

    Returns:
        The significand, signed and at most 2**24 in magnitude, in cycle + 3, and its exponent, in
        cycle + 2. A sum of 0 has exponent 0.
    """
    value = total.at(cycle)
    # a signal, so that the expression stands once in the netlist and not in every term of the search
    changes = Signal(SUM_BITS - 1, name="changes")
    pipeline.module.d.comb += changes.eq(value[:-1] ^ value[-1].replicate(SUM_BITS - 1))
    lead = pipeline.register(cycle, leading_zeros(changes), "lead")
    zero = pipeline.register(cycle, value == 0, "sum_is_zero")

    drop = SUM_BITS - 1 - PRECISION
    # sign, significand, the half below it, and the rest as one bit
    kept, lost = shift_left(pipeline.module, total.at(cycle + 1), lead.at(cycle + 1), 1 + PRECISION + 1, "normalised")
    normal = pipeline.register(cycle + 1, Cat(lost, kept), "normal")
    result_exponent = pipeline.register(
        cycle + 1,
        Mux(zero.at(cycle + 1), 0, exponent.at(cycle + 1) + (drop - GUARD_BITS) - lead.at(cycle + 1)).as_signed(),
        "rounded_exponent",
    )
    kept, increment = nearest_even(normal.at(cycle + 2), 2)
    return pipeline.register(cycle + 2, kept.as_signed() + increment, "rounded"), result_exponent


def sum_to_fixed_point(pipeline: Pipeline, cycle: int, total: Staged, exponent: Staged) -> tuple[Staged, ...]:
    """A sum, as `align` describes, as a signed number of INTEGER_BITS and FRACTION_BITS, rounded down.

    Takes the sum in `cycle`, its exponent in cycle - 2.

    Returns:
        The number; whether something was lost below it; whether it does not fit; its sign. All in cycle + 1.
    """
    # by how much the sum is to be shifted right, or left
    right = BIAS + GUARD_BITS - FRACTION_BITS - exponent.at(cycle - 2)
    # beyond that far to the left, a sum that is not 0 does not fit anyway
    left_most = FRACTION_BITS + INTEGER_BITS - 1 - GUARD_BITS
    amount = pipeline.register(cycle - 2, clamp(right + left_most, 0, 127), "fixed_point_amount")
    shifted = shift_right(
        pipeline.module,
        Cat(Const(0, left_most), total.at(cycle)).as_signed(),
        amount.at(cycle),
        INTEGER_BITS + FRACTION_BITS,
        "fixed_point",
    )
    return tuple(pipeline.register(cycle, value, f"fixed_point_{name}") for name, value in shifted._asdict().items())


def round_twice(number: Bits, lost: Bits) -> tuple[Bits, Bits]:
    """A number below 512 in magnitude, rounded to binary32 and then to a whole number, both to nearest even.

    Two roundings differ from one only where the first gives a tie, k + 1/2: within 2**(e - 24) of it, where
    2**e <= |k + 1/2| < 2**(e + 1) and e is from -1 to 8. Below 1/2 the result is 0 either way.

    Parameters:
        number: signed, FRACTION_BITS after the point, rounded down; `lost` tells if it was not exact.

    Returns:
        The number rounded down to whole ones, and 1 if it must be rounded up.
    """
    whole = number[FRACTION_BITS:].as_signed()
    half = number[FRACTION_BITS - 1]
    magnitude = (whole ^ whole[-1].replicate(len(whole)))[:9]  # of k + 1/2, rounded down

    def reaches(exponent: int) -> Bits:
        """Whether e is at least `exponent`."""
        return Const(1, 1) if exponent < 0 else magnitude[exponent:].any() if exponent < 9 else Const(0, 1)

    above = below = Const(1, 1)  # the bits after the half are ...000, ...111 as far as they count
    guard, rest = Const(0, 1), lost
    for place in range(2, FRACTION_BITS + 1):  # the bit of 2**-place; 2**(e - 24) is the guard
        bit = number[FRACTION_BITS - place]
        from_guard, after_guard = reaches(24 - place), reaches(25 - place)
        above = above & (~bit | from_guard)
        below = below & (bit | after_guard)
        guard = guard | (bit & from_guard & ~after_guard)
        rest = rest | (bit & after_guard)
    tie = Mux(half, above & ~(guard & rest), below)
    return whole, Mux(tie, whole[0], half)
