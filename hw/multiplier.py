"""The one place where the vector lanes multiply."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.pipeline import Bits

__all__ = ["Multiplier"]

LIMB = 17  # low part of a wide factor: unsigned, so that it fits a signed 18-bit multiplier
NARROW = LIMB + 1


def _limbs(value: Signal) -> list[Bits]:
    if len(value) <= NARROW:
        return [value]
    return [value[:LIMB], value[LIMB:].as_signed()]


class Multiplier(wiring.Component):
    """Signed product. One a cycle, `latency` cycles from factors to product.

    Factors of up to 18 bits are multiplied as they are, wider ones in two parts of at most 18 bits: one,
    two or four multipliers of 18 x 18 bits, as DSP blocks have them. Factors and partial products are
    registered, with nothing but the multiplication between, so that a DSP block can take both registers
    in; a third register holds the sum of partial products, where there is one. No register has a reset.

    Parameters:
        width_a, width_b: widths of the factors, 1 to 35 bits.

    Members:
        a, b: in, signed factors.
        product: out, signed, width_a + width_b bits.

    Raises:
        ValueError: a width out of range.
    """

    a: Signal
    b: Signal
    product: Signal

    def __init__(self, width_a: int, width_b: int) -> None:
        for name, width in (("width_a", width_a), ("width_b", width_b)):
            if not 1 <= width <= LIMB + NARROW:
                raise ValueError(f"{name} must be from 1 to {LIMB + NARROW}, not {width}")
        super().__init__(
            {"a": In(signed(width_a)), "b": In(signed(width_b)), "product": Out(signed(width_a + width_b))}
        )
        self.latency: int = 2 if max(width_a, width_b) <= NARROW else 3

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = Signal.like(self.a, reset_less=True)
        b = Signal.like(self.b, reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b)]

        partial: dict[tuple[int, int], Signal] = {}
        for i, limb_a in enumerate(_limbs(a)):
            for j, limb_b in enumerate(_limbs(b)):
                term = limb_a * limb_b
                partial[i, j] = Signal(term.shape(), name=f"partial_{i}{j}", reset_less=True)
                m.d.sync += partial[i, j].eq(term)

        low = partial[0, 0]
        if len(partial) == 1:
            m.d.comb += self.product.eq(low)
            return m
        # the lowest limb needs no addition
        if len(partial) == 4:
            upper = Cat(low[LIMB:], partial[1, 1]).as_signed() + partial[0, 1] + partial[1, 0]
        else:
            upper = low[LIMB:].as_signed() + partial[(0, 1) if (0, 1) in partial else (1, 0)]
        total = Signal.like(self.product, reset_less=True)
        m.d.sync += total.eq(Cat(low[:LIMB], upper))
        m.d.comb += self.product.eq(total)
        return m
