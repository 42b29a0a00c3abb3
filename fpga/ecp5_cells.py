"""What designs for ECP5 instantiate, because Yosys does not infer it."""

from amaranth import ClockSignal, Const, Instance, Module, Mux, Signal, signed
from npukit.fpga.double_rate import FAST, second_half
from npukit.hw.product import FACTOR_BITS, ProductPair, RegisteredProduct

__all__ = ["LUT_PRODUCT", "Ecp5Cells"]

LUT_PRODUCT = "lut_product"
"""Attribute in a module whose product is to be made of LUTs."""

_BYTE_BITS = 9
"""A product of factors that are no wider may be made of LUTs: 130 of them for 8 bits, and four times as many for 18."""


class Ecp5Cells:
    """A platform, or part of one, whose products are DSP blocks with their own registers.

    The registers have no enable: the four multipliers of a block share theirs.

    Parameters:
        byte_multipliers: how many products of bytes, or pairs of them, get one; the rest are made of LUTs. None: all.
        double_rate: a multiplier at twice the clock, in the domain `FAST`, for each pair of products.

    Attributes:
        byte_multipliers, wide_multipliers: how many were made, of which `pairs` have two products each; lut_products:
            products made of LUTs.
    """

    def __init__(self, byte_multipliers: int | None = None, *, double_rate: bool = False) -> None:
        super().__init__()
        self._most, self.double_rate = byte_multipliers, double_rate
        self.byte_multipliers = self.wide_multipliers = self.pairs = self.lut_products = 0

    def registered_product(self, wanted: RegisteredProduct) -> Module:
        """A MULT18X18D, or LUTs."""
        if max(len(wanted.a), len(wanted.b)) > _BYTE_BITS:
            self.wide_multipliers += 1
        elif self._has_one_left():
            self.byte_multipliers += 1
        else:
            self.lut_products += 1
            return wanted.logic({LUT_PRODUCT: 1})
        m = Module()
        m.submodules.block = _block(wanted.a, wanted.b, wanted.product, registered_factors=wanted.registered_factors)
        return m

    def _has_one_left(self) -> bool:
        return self._most is None or self.byte_multipliers < self._most

    def product_pair(self, wanted: ProductPair) -> Module | None:
        """A MULT18X18D at twice the clock: the first product in the first half of a cycle, the second in the second.

        Factors and the block's product are registered in `FAST`. The first product leaves the block at a cycle's end,
        and waits half a cycle in a register for the second one, so that both are there when the cycle after it ends.
        """
        if not self.double_rate or not self._has_one_left():
            return None
        self.byte_multipliers += 1
        self.pairs += 1
        m = Module()
        (a_0, b_0), (a_1, b_1) = wanted.factors
        second = second_half(m)
        a, b, product = Signal.like(a_0), Signal.like(b_0), Signal.like(wanted.product_0)
        held = Signal.like(product, reset_less=True)
        m.d[FAST] += held.eq(product)
        m.d.comb += [
            a.eq(Mux(second, a_1, a_0)),
            b.eq(Mux(second, b_1, b_0)),
            wanted.product_0.eq(held),
            wanted.product_1.eq(product),
        ]
        m.submodules.block = _block(a, b, product, registered_factors=True, domain=FAST)
        return m


def _block(a: Signal, b: Signal, product: Signal, *, registered_factors: bool, domain: str = "sync") -> Module:
    """A multiplier with a register for its product, by Lattice's FPGA-TN-02205."""
    m = Module()
    wide_a, wide_b, whole = Signal(signed(FACTOR_BITS)), Signal(signed(FACTOR_BITS)), Signal(2 * FACTOR_BITS)
    m.d.comb += [wide_a.eq(a), wide_b.eq(b), product.eq(whole)]
    registers = {"INPUTA": registered_factors, "INPUTB": registered_factors, "OUTPUT": True}
    parameters = {"p_REG_PIPELINE_CLK": "NONE", "p_RESETMODE": "SYNC"}
    for name, there in registers.items():
        parameters |= {
            f"p_REG_{name}_CLK": "CLK0" if there else "NONE",
            f"p_REG_{name}_CE": "CE0",
            f"p_REG_{name}_RST": "RST0",
        }
    ports = {
        f"i_{side}{bit}": value[bit] for side, value in (("A", wide_a), ("B", wide_b)) for bit in range(FACTOR_BITS)
    }
    ports |= {f"o_P{bit}": whole[bit] for bit in range(2 * FACTOR_BITS)}
    m.submodules.cell = Instance(
        "MULT18X18D",
        **parameters,
        **ports,
        i_SIGNEDA=Const(1),
        i_SIGNEDB=Const(1),
        i_SOURCEA=Const(0),
        i_SOURCEB=Const(0),
        i_CLK0=ClockSignal(domain),
        i_CE0=Const(1),
        i_RST0=Const(0),
    )
    return m
