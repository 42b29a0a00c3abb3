"""The product that a DSP block makes, with the registers that it has inside."""

from collections.abc import Mapping
from typing import Any

from amaranth import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FACTOR_BITS", "ProductPair", "RegisteredProduct"]

FACTOR_BITS = 18
"""Widest signed factor of a DSP block."""


class RegisteredProduct(wiring.Component):
    """Signed product, in a register; no register has a reset.

    A platform that has DSP blocks with such registers says so by a method `registered_product`, which makes this
    component of one. Otherwise it is plain logic, out of which a synthesis tool makes what it can.

    Parameters:
        width_a, width_b: widths of the factors, 1 to 18 bits.
        registered_factors: the factors are registered as well.

    Members:
        a, b: in, signed factors.
        product: out, signed, `latency` cycles after the factors.

    Raises:
        ValueError: a width out of range.
    """

    a: Signal
    b: Signal
    product: Signal

    def __init__(self, width_a: int, width_b: int, *, registered_factors: bool) -> None:
        for name, width in (("width_a", width_a), ("width_b", width_b)):
            if not 1 <= width <= FACTOR_BITS:
                raise ValueError(f"{name} must be from 1 to {FACTOR_BITS}, not {width}")
        self.registered_factors = registered_factors
        self.latency = self.latency_of(registered_factors)
        super().__init__(
            {"a": In(signed(width_a)), "b": In(signed(width_b)), "product": Out(signed(width_a + width_b))}
        )

    @staticmethod
    def latency_of(registered_factors: bool) -> int:
        """`latency` of a product with or without registers for its factors."""
        return 2 if registered_factors else 1

    def elaborate(self, platform: Any) -> Module:
        if hasattr(platform, "registered_product"):
            return platform.registered_product(self)
        return self.logic()

    def logic(self, attributes: Mapping[str, int] | None = None) -> Module:
        """The plain logic; `attributes`: of its register, for a synthesis tool."""
        m = Module()
        a, b = self.a, self.b
        if self.registered_factors:
            a, b = Signal.like(self.a, reset_less=True), Signal.like(self.b, reset_less=True)
            m.d.sync += [a.eq(self.a), b.eq(self.b)]
        product = Signal.like(self.product, reset_less=True, attrs=attributes)
        m.d.sync += product.eq(a * b)
        m.d.comb += self.product.eq(product)
        return m


class ProductPair(wiring.Component):
    """Two signed products of the same widths, each in a register, as `RegisteredProduct` makes them without registers
    for the factors; no register has a reset.

    A platform that has multipliers at twice the clock, each for two products, says so by a method `product_pair`,
    which makes this component of one. Otherwise it is two of `RegisteredProduct`.

    Parameters:
        width: of each factor, 1 to 18 bits.

    Members:
        a_0, b_0, a_1, b_1: in, signed factors.
        product_0, product_1: out, signed, a cycle after the factors. What they are in that cycle before its end is not
            defined: registers alone may take them.

    Raises:
        ValueError: a width out of range.
    """

    a_0: Signal
    b_0: Signal
    a_1: Signal
    b_1: Signal
    product_0: Signal
    product_1: Signal

    def __init__(self, width: int) -> None:
        self._width = width
        factors = {f"{side}_{number}": In(signed(width)) for side in "ab" for number in range(2)}
        super().__init__(factors | {f"product_{number}": Out(signed(2 * width)) for number in range(2)})

    @property
    def factors(self) -> list[tuple[Signal, Signal]]:
        """Of each product."""
        return [(self.a_0, self.b_0), (self.a_1, self.b_1)]

    @property
    def products(self) -> list[Signal]:
        """Both."""
        return [self.product_0, self.product_1]

    def elaborate(self, platform: Any) -> Module:
        if hasattr(platform, "product_pair") and (pair := platform.product_pair(self)) is not None:
            return pair
        m = Module()
        for name, (a, b), product in zip(("first", "second"), self.factors, self.products, strict=True):
            m.submodules[name] = one = RegisteredProduct(self._width, self._width, registered_factors=False)
            m.d.comb += [one.a.eq(a), one.b.eq(b), product.eq(one.product)]
        return m
