"""What designs for ECP5 instantiate, because Yosys does not infer it."""

from amaranth import ClockSignal, Const, Instance, Module, Signal, signed
from npukit.hw.product import FACTOR_BITS, RegisteredProduct

__all__ = ["LUT_PRODUCT", "Ecp5Cells"]

LUT_PRODUCT = "lut_product"
"""Attribute in a module whose product is to be made of LUTs."""

_BYTE_BITS = 9
"""A product of factors that are no wider may be made of LUTs: 130 of them for 8 bits, and four times as many for 18."""


class Ecp5Cells:
    """A platform, or part of one, whose products are DSP blocks with their own registers.

    The registers have no enable: the four multipliers of a block share theirs.

    Parameters:
        byte_multipliers: how many products of bytes get one; the rest are made of LUTs. None: all.

    Attributes:
        byte_products, wide_products: how many were asked for.
    """

    def __init__(self, byte_multipliers: int | None = None) -> None:
        super().__init__()
        self._byte_multipliers = byte_multipliers
        self.byte_products = self.wide_products = 0

    def registered_product(self, wanted: RegisteredProduct) -> Module:
        """A MULT18X18D, or LUTs."""
        if max(len(wanted.a), len(wanted.b)) > _BYTE_BITS:
            self.wide_products += 1
            return self._multiplier(wanted)
        self.byte_products += 1
        if self._byte_multipliers is None or self.byte_products <= self._byte_multipliers:
            return self._multiplier(wanted)
        return wanted.logic({LUT_PRODUCT: 1})

    def _multiplier(self, wanted: RegisteredProduct) -> Module:
        """By Lattice's FPGA-TN-02205."""
        m = Module()
        a, b, product = Signal(signed(FACTOR_BITS)), Signal(signed(FACTOR_BITS)), Signal(2 * FACTOR_BITS)
        m.d.comb += [a.eq(wanted.a), b.eq(wanted.b), wanted.product.eq(product)]
        registers = {"INPUTA": wanted.registered_factors, "INPUTB": wanted.registered_factors, "OUTPUT": True}
        parameters = {"p_REG_PIPELINE_CLK": "NONE", "p_RESETMODE": "SYNC"}
        for name, there in registers.items():
            parameters |= {
                f"p_REG_{name}_CLK": "CLK0" if there else "NONE",
                f"p_REG_{name}_CE": "CE0",
                f"p_REG_{name}_RST": "RST0",
            }
        ports = {f"i_{side}{bit}": value[bit] for side, value in (("A", a), ("B", b)) for bit in range(FACTOR_BITS)}
        ports |= {f"o_P{bit}": product[bit] for bit in range(2 * FACTOR_BITS)}
        m.submodules.block = Instance(
            "MULT18X18D",
            **parameters,
            **ports,
            i_SIGNEDA=Const(1),
            i_SIGNEDB=Const(1),
            i_SOURCEA=Const(0),
            i_SOURCEB=Const(0),
            i_CLK0=ClockSignal(),
            i_CE0=Const(1),
            i_RST0=Const(0),
        )
        return m
