"""The product that a DSP block makes, with the registers that it has inside."""

from collections.abc import Mapping
from typing import Any

from amaranth import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FACTOR_BITS", "RegisteredProduct"]

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
