"""The one place where the vector lanes multiply."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.pipeline import Bits
from npukit.hw.product import FACTOR_BITS, RegisteredProduct

__all__ = ["Multiplier"]

LIMB = FACTOR_BITS - 1  # low part of a wide factor: unsigned, so that it fits a signed multiplier


def _limbs(value: Signal) -> list[Bits]:
    if len(value) <= FACTOR_BITS:
        return [value]
    return [value[:LIMB], value[LIMB:].as_signed()]


class Multiplier(wiring.Component):
    """Signed product. One a cycle, `latency` cycles from factors to product.

    Factors of up to 18 bits are multiplied as they are, wider ones in two parts of at most 18 bits: one,
    two or four multipliers of 18 x 18 bits, as DSP blocks have them, with registers for factors and partial
    products; a third register holds the sum of partial products, where there is one. No register has a reset.

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
            if not 1 <= width <= LIMB + FACTOR_BITS:
                raise ValueError(f"{name} must be from 1 to {LIMB + FACTOR_BITS}, not {width}")
        super().__init__(
            {"a": In(signed(width_a)), "b": In(signed(width_b)), "product": Out(signed(width_a + width_b))}
        )
        self.latency = self.latency_of(width_a, width_b)

    @staticmethod
    def latency_of(width_a: int, width_b: int) -> int:
        """`latency` of a multiplier for factors of these widths."""
        partial = RegisteredProduct.latency_of(True)
        return partial if max(width_a, width_b) <= FACTOR_BITS else partial + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        partial: dict[tuple[int, int], Signal] = {}
        for i, limb_a in enumerate(_limbs(self.a)):
            for j, limb_b in enumerate(_limbs(self.b)):
                widths = [len(limb) + (not limb.shape().signed) for limb in (limb_a, limb_b)]
                product = RegisteredProduct(*widths, registered_factors=True)
                m.submodules[f"product_{i}{j}"] = product
                m.d.comb += [product.a.eq(limb_a), product.b.eq(limb_b)]
                term = limb_a * limb_b
                partial[i, j] = Signal(term.shape(), name=f"partial_{i}{j}")
                m.d.comb += partial[i, j].eq(product.product)

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
