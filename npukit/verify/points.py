"""Coverage of the declared fields: a point for each value at an end of a field, and for each ring."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words, parameter_words
from npukit.isa.instructions import FieldSpec, Instruction, Load, Operation, Store, fields_of
from npukit.sim.addressing import Operand
from npukit.verify.limits import Context, ring_operand, spans, turns

__all__ = ["Point", "field_points", "points", "unreachable"]


@dataclass(frozen=True)
class Point:
    """A field of an instruction has a value, in a context, and with effect.

    Attributes:
        passes: for a ring: its end is passed, or not; None elsewhere.
        extreme: the value is at an end, not between.
    """

    kind: type[Instruction]
    field: str
    value: int
    context: Context = ()
    passes: bool | None = None
    extreme: bool = False

    @cached_property
    def spec(self) -> FieldSpec:
        """The field's declaration."""
        return next(spec for spec in fields_of(self.kind) if spec.name == self.field)

    @cached_property
    def name(self) -> str:
        """As coverage lists it."""
        value = self.spec.kind(self.value).name if self.spec.kind else self.value
        ring = "" if self.passes is None else " passed" if self.passes else " not passed"
        return f"{self.kind.mnemonic}.{self.field}={value}{ring}{_text(self.context)}"


def _text(context: Context) -> str:
    names = []
    for name, value in context:
        if name in ("is_window", "reads_a", "has_two_sources"):
            names += ["window"] if name == "is_window" and value else []
        elif hasattr(value, "name"):
            names.append(value.name)  # type: ignore[attr-defined]
        else:
            names.append(name.removesuffix("_wrap"))
    return f" ({' '.join(names)})" if names else ""


@cache
def points(config: NpuConfig) -> tuple[Point, ...]:
    """All that legal programs can reach."""
    found = []
    for span in spans(config):
        spec = next(one for one in fields_of(span.kind) if one.name == span.field)
        ends = {max(span.values)} | ({min(span.values)} if spec.signed else set())
        plain = spec.width == 1 or spec.name in ("wait", "signal") or len(span.values) == 1
        for value in span.values:
            extreme = not plain and (value in ends or spec.kind is not None)
            found.append(Point(span.kind, span.field, value, span.context, None, extreme))
        if span.passes:
            passed, kept = span.passes
            found += [Point(span.kind, span.field, value, span.context, True, True) for value in passed]
            found += [Point(span.kind, span.field, value, span.context, False) for value in kept]
    return tuple(found)


def unreachable(config: NpuConfig) -> dict[str, str]:
    """What can be encoded and no legal program has -> why."""
    return {
        f"{span.kind.mnemonic}.{span.field}{values}{_text(span.context)}": reason
        for span in spans(config)
        for values, reason in span.beyond
    }


# ---- which of them an instruction reaches


def _property(one: Any, name: str) -> int:
    return int(one.operation is not Operation.FILL) if name == "reads_a" else int(getattr(one, name))


def _effective(config: NpuConfig, kind: type[Instruction], spec: FieldSpec) -> Callable[[Any], bool]:
    """Whether the field has an effect in an instruction."""
    name = spec.name
    if spec.signed and "stride" in name:
        count = turns(kind, name)
        return lambda one: count(one) > 1
    if name == "pad_value":
        return lambda one: bool(one.pad_top or one.pad_bottom or one.pad_left or one.pad_right)
    if name == "parameters":
        return lambda one: bool(descriptor_words(config, one) or parameter_words(config, one))
    if name == "window_step":
        return lambda one: one.width > 1
    return lambda one: True


@dataclass(frozen=True)
class _Group:
    """All points of a field in contexts of the same kind."""

    field: str
    names: tuple[str, ...]
    effective: Callable[[Any], bool]
    ring: str | None
    values: dict[tuple, Point]


@cache
def _groups(config: NpuConfig) -> dict[type[Instruction], list[_Group]]:
    groups: dict[tuple, _Group] = {}
    for point in points(config):
        names = tuple(name for name, _ in point.context)
        ring = None if point.passes is None else ring_operand(point.kind, point.field, point.context)
        key = point.kind, point.field, names, ring
        if key not in groups:
            groups[key] = _Group(point.field, names, _effective(config, point.kind, point.spec), ring, {})
        values = tuple(int(value) for _, value in point.context)
        groups[key].values[(*values, point.value, *([] if ring is None else [point.passes]))] = point
    found: dict[type[Instruction], list[_Group]] = {}
    for (kind, *_), group in groups.items():
        found.setdefault(kind, []).append(group)
    return found


def field_points(
    config: NpuConfig, instruction: Instruction, accesses: Iterable[Operand], dram_shift: int = 0
) -> list[Point]:
    """The points that an instruction reaches.

    Args:
        accesses: its operands on chip.
        dram_shift: what its DRAM address was moved by.
    """
    found = []
    for group in _groups(config).get(type(instruction), ()):
        value = int(getattr(instruction, group.field))
        if group.field == "dram" and isinstance(instruction, Load | Store):
            value += dram_shift
        key: tuple = (*(_property(instruction, name) for name in group.names), value)
        if group.ring is not None:
            passes = next((one.wraps for one in accesses if one.name == group.ring and one.wrap), None)
            key = (*key, passes)
        point = group.values.get(key)
        if point is not None and group.effective(instruction):
            found.append(point)
    return found
