"""Values and the cycle that each belongs to: fixed latency without counting registers by hand."""

from typing import Any, TypeAlias

from amaranth import Module, Signal, Value
from amaranth.lib import data

__all__ = ["Bits", "Pipeline", "Staged"]

Bits: TypeAlias = Any
"""An `amaranth.Value`. Its own annotations do not say so of slices and concatenations."""


class Staged:
    """A value that is present in one cycle, and its copies in later cycles."""

    def __init__(self, module: Module, cycle: int, value: Bits, name: str) -> None:
        self._module = module
        self._cycle = cycle
        self._name = name
        self._copies = [value]

    def at(self, cycle: int) -> Bits:
        """The value as it stands in `cycle`; registers are added as needed, and shared.

        Must not be called within `m.If` or `m.Switch`.

        Raises:
            ValueError: `cycle` is before the value is there.
        """
        if cycle < self._cycle:
            raise ValueError(f"{self._name} is there from cycle {self._cycle} on, not in cycle {cycle}")
        while cycle >= self._cycle + len(self._copies):
            previous = self._copies[-1]
            name = f"{self._name}_{self._cycle + len(self._copies)}"
            copy = Signal(previous.shape(), name=name, reset_less=True)
            self._module.d.sync += copy.eq(previous)
            self._copies.append(copy)
        return self._copies[cycle - self._cycle]


class Pipeline:
    """Makes the `Staged` values of one module. Cycle 0 is that of the module's inputs."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def value(self, cycle: int, value: Bits, name: str) -> Staged:
        """A value that is present in `cycle` as it is: an input, or the output of a submodule. A view stays one."""
        return Staged(self.module, cycle, value if isinstance(value, data.View) else Value.cast(value), name)

    def register(self, cycle: int, value: Bits, name: str) -> Staged:
        """A value computed in `cycle`, from values of that cycle, and present from the next one on."""
        result = Value.cast(value)
        register = Signal(result.shape(), name=f"{name}_{cycle + 1}", reset_less=True)
        self.module.d.sync += register.eq(result)
        return Staged(self.module, cycle + 1, register, name)
