"""Pieces of TensorFlow Lite's integer scaling that the vector lanes share; all combinational."""

from amaranth import Cat, Const, Module, Mux
from npukit.hw.float32 import Shifted, shift_right
from npukit.hw.pipeline import Bits

__all__ = ["divide_by_power_of_two", "high_product", "left_shift", "right_shift", "rounds_away"]


def left_shift(shift: Bits) -> Bits:
    """What a signed(8) `shift` shifts to the left: 0 to 31, the low 5 bits of a positive one."""
    return Mux(shift[7], 0, shift[:5])


def right_shift(shift: Bits) -> Bits:
    """What a signed(8) `shift` shifts to the right: 0 to 31, the low 5 bits of a negative one's magnitude."""
    return Mux(shift[7], (-shift)[:5], 0)


def high_product(product: Bits) -> tuple[Bits, Bits]:
    """The doubled high product before its rounding: signed(32), and 1 if it must be rounded up.

    Half goes towards +infinity. The one product that would not fit, 2**62, gives 2**31 - 1.

    Parameters:
        product: floor(a * b / 2**30) of two 32-bit factors, 34 bits signed.
    """
    saturated = product[32] & ~product[33]
    return Cat(product[1:32] | saturated.replicate(31), product[33]).as_signed(), product[0]


def divide_by_power_of_two(m: Module, value: Bits, amount: Bits, width: int, name: str) -> Shifted:
    """value / 2**amount rounded down to `width` bits, with the bit of one half below them: width + 1 bits."""
    return shift_right(m, Cat(Const(0, 1), value).as_signed(), amount, width + 1, name)


def rounds_away(half: Bits, lost: Bits, negative: Bits) -> Bits:
    """1 if a number rounded down must be rounded up, to the nearest, half away from zero."""
    return half & (lost | ~negative)
