"""Lookups, comparisons and masks: what models do with words and lengths before their layers.

No machine computes them. They stand here so that a whole model becomes ONNX, in which ONNX Runtime does.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from npukit.compiler.frontends.pytorch.operators.elementwise import operands
from torch import fx

__all__ = ["OPERATORS"]


def _embedding(emit: Emitter, table: fx.Node, indices: fx.Node, *unused: Any) -> str:
    return emit.node("Gather", [emit(table), emit(indices)], axis=0)


def _index_select(emit: Emitter, x: fx.Node, axis: int, indices: fx.Node) -> str:
    return emit.node("Gather", [emit(x), emit(indices)], axis=axis % len(emit.shape(x)))


def _index(emit: Emitter, x: fx.Node, indices: Sequence[fx.Node | None]) -> str:
    """x[..., indices, ...] of numbers in one place, or in the first places together."""
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if any(emit.dtype(one) in (torch.bool, torch.uint8) for _, one in given):
        raise Untranslated("it takes elements by a mask, so that its shape depends on what is computed")
    if len(given) == 1:
        return emit.node("Gather", [emit(x), emit(given[0][1])], axis=given[0][0])
    if [axis for axis, _ in given] != [*range(len(given))]:
        raise Untranslated("it takes elements by several tensors, which are not those of its first dimensions")
    shape = torch.broadcast_shapes(*(emit.shape(one) for _, one in given))
    sizes = emit.constant(shape, "int64")
    spread = [emit.node("Expand", [emit(one), sizes]) for _, one in given]
    columns = [emit.reshaped(one, (*shape, 1)) for one in spread]
    return emit.node("GatherND", [emit(x), emit.node("Concat", columns, axis=-1)])


def _gather(emit: Emitter, x: fx.Node, axis: int, indices: fx.Node, **unused: Any) -> str:
    return emit.node("GatherElements", [emit(x), emit(indices)], axis=axis % len(emit.shape(x)))


def _compared(op: str, negated: bool = False) -> Callable[..., str]:
    def emit_it(emit: Emitter, x: Any, y: Any) -> str:
        examples = [one.meta["val"] if isinstance(one, fx.Node) else one for one in (x, y)]
        found = emit.node(op, operands(emit, torch.result_type(*examples), x, y))
        return emit.node("Not", [found]) if negated else found

    return emit_it


def _logical(op: str) -> Callable[..., str]:
    def emit_it(emit: Emitter, *values: Any) -> str:
        if any(isinstance(one, fx.Node) and emit.dtype(one) != torch.bool for one in values):
            raise Untranslated("it computes with the bits of whole numbers; bool is supported")
        return emit.node(op, operands(emit, torch.bool, *values))

    return emit_it


def _where(emit: Emitter, condition: fx.Node, x: Any, y: Any) -> str:
    return emit.node("Where", [emit(condition), *operands(emit, emit.dtype(emit.current), x, y)])


def _masked_fill(emit: Emitter, x: fx.Node, mask: fx.Node, value: Any) -> str:
    return emit.node("Where", [emit(mask), *operands(emit, emit.dtype(x), value, x)])


def _cumsum(emit: Emitter, x: fx.Node, axis: int, **unused: Any) -> str:
    (value,) = operands(emit, emit.dtype(emit.current), x)
    return emit.node("CumSum", [value, emit.constant(axis, "int64")])


def _argmax(emit: Emitter, x: fx.Node, axis: int | None = None, keepdim: bool = False) -> str:
    if axis is None:
        raise Untranslated("it has no dimension; one is supported")
    return emit.node("ArgMax", [emit(x)], axis=axis, keepdims=int(keepdim))


_COMPARED = {
    "eq": ("Equal", False), "ne": ("Equal", True), "lt": ("Less", False), "le": ("LessOrEqual", False),
    "gt": ("Greater", False), "ge": ("GreaterOrEqual", False),
}  # fmt: skip

OPERATORS = {
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten.gather.default": _gather,
    **{
        f"aten.{name}.{form}": _compared(op, negated)
        for name, (op, negated) in _COMPARED.items()
        for form in ("Tensor", "Scalar")
    },
    **{f"aten.{name}.default": _logical("And") for name in ("logical_and",)},
    **{f"aten.{name}.Tensor": _logical("And") for name in ("__and__", "bitwise_and")},
    **{f"aten.{name}.Tensor": _logical("Or") for name in ("__or__", "bitwise_or")},
    "aten.logical_or.default": _logical("Or"),
    "aten.logical_not.default": _logical("Not"),
    "aten.bitwise_not.default": _logical("Not"),
    "aten.where.self": _where,
    "aten.where.ScalarOther": _where,
    "aten.where.ScalarSelf": _where,
    "aten.where.Scalar": _where,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.cumsum.default": _cumsum,
    "aten.argmax.default": _argmax,
}
