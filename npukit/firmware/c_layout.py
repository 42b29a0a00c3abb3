"""Loops in C over a tensor's elements, in the framework's order and in the machine's."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npukit.isa.layout import Layout

__all__ = ["Element", "loops", "needs_padding"]


@dataclass(frozen=True)
class Element:
    """C expressions of an element's number: `place` in the machine's image, `flat` in the framework's tensor."""

    place: str
    flat: str


def _sum(constant: int, terms: Sequence[tuple[int, str]]) -> str:
    """A linear expression."""
    text = "" if constant == 0 and any(factor for factor, _ in terms) else str(constant)
    for factor, name in terms:
        if factor:
            sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
            text += sign + (name if abs(factor) == 1 else f"{abs(factor)} * {name}")
    return text


def _bounded(layout: Layout) -> list[int]:
    """Axes along which loops leave the tensor."""
    found = []
    for axis, size in enumerate(layout.shape):
        reach = [(dim.size - 1) * dim.step for dim in layout.dims if dim.axis == axis]
        low = layout.origin[axis] + sum(min(0, one) for one in reach)
        high = layout.origin[axis] + sum(max(0, one) for one in reach)
        if low < 0 or high >= size:
            found.append(axis)
    return found


def needs_padding(layout: Layout) -> bool:
    """Whether an image has elements that are none of the tensor's."""
    if _bounded(layout):
        return True
    places = np.zeros(1, np.int64)
    for dim in layout.dims:
        places = np.unique(places[:, None] + np.arange(dim.size) * dim.stride)
    return places.size < layout.elements


def loops(layout: Layout) -> tuple[list[str], Element]:
    """The beginnings of nested loops, the last of which may be a condition, and the element that they are at.

    Each line opens a brace, but for declarations, which end with a semicolon.
    """
    names = [(f"i{number}", dim) for number, dim in enumerate(layout.dims) if dim.size > 1]
    lines = [f"for (int32_t {name} = 0; {name} < {dim.size}; ++{name}) {{" for name, dim in names]
    strides = [prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape))]
    conditions = []
    for axis in _bounded(layout):
        coordinate = _sum(layout.origin[axis], [(dim.step, name) for name, dim in names if dim.axis == axis])
        lines.append(f"const int32_t a{axis} = {coordinate};")
        conditions.append(f"a{axis} >= 0 && a{axis} < {layout.shape[axis]}")
    if conditions:
        lines.append(f"if ({' && '.join(conditions)}) {{")
    flat = _sum(
        sum(start * stride for start, stride in zip(layout.origin, strides, strict=True)),
        [(dim.step * strides[dim.axis], name) for name, dim in names],
    )
    return lines, Element(_sum(0, [(dim.stride, name) for name, dim in names]), flat)
