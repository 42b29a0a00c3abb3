"""What designs for ECP5 instantiate, because Yosys does not infer it."""

from amaranth import ClockSignal, Const, Instance, Module, Signal, signed
from npukit.hw.product import FACTOR_BITS, RegisteredProduct

__all__ = ["Ecp5Cells"]


class Ecp5Cells:
    """A platform, or part of one, whose products are DSP blocks with their own registers.

    The registers have no enable: the four multipliers of a block share theirs.
    """

    def registered_product(self, wanted: RegisteredProduct) -> Module:
        """A MULT18X18D, by Lattice's FPGA-TN-02205."""
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
