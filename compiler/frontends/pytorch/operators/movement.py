"""What moves, repeats or leaves out elements, and computes nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from npukit.compiler.frontends.pytorch.emitter import ONNX_TYPES, Emitter, Untranslated
from npukit.compiler.frontends.pytorch.operators.elementwise import operands
from torch import fx

__all__ = ["OPERATORS"]

_END = 2**63 - 1


def _same(emit: Emitter, x: fx.Node, *unused: Any, **options: Any) -> str:
    return emit(x)


def _native_dropout(emit: Emitter, x: fx.Node, share: float, training: bool | None) -> tuple[str | None, ...]:
    if training is not False and share:
        raise Untranslated(f"it drops out a part of {share}: its module is in training mode; call eval() on it")
    return emit(x), None


def _cast(emit: Emitter, x: fx.Node, *unused: Any, **options: Any) -> str:
    """Conversions, and moves to a device. Between float32 and bfloat16 nothing is done: the machine computes the latter
    in either case."""
    source, result = (ONNX_TYPES.get(one) for one in (emit.dtype(x), emit.dtype(emit.current)))
    if source is None or result is None:
        raise Untranslated(f"it converts {emit.dtype(x)} to {emit.dtype(emit.current)}, which is not supported")
    return emit(x) if source == result else emit.node("Cast", [emit(x)], to=result)


def _reshape(emit: Emitter, x: fx.Node, *unused: Any) -> str:
    """Whatever keeps the order of elements: the result's shape is known."""
    return emit.reshaped(emit(x), emit.shape(emit.current))


def _transpose(emit: Emitter, x: fx.Node, first: int, second: int) -> str:
    order = [*range(len(emit.shape(x)))]
    order[first], order[second] = order[second], order[first]
    return _ordered(emit, emit(x), order)


def _permute(emit: Emitter, x: fx.Node, order: Sequence[int]) -> str:
    rank = len(emit.shape(x))
    return _ordered(emit, emit(x), [one % rank for one in order])


def _matrix_transpose(emit: Emitter, x: fx.Node) -> str:
    return _ordered(emit, emit(x), [*range(len(emit.shape(x)))][::-1])


def _ordered(emit: Emitter, value: str, order: Sequence[int]) -> str:
    return value if [*order] == sorted(order) else emit.node("Transpose", [value], perm=[*order])


def _expand(emit: Emitter, x: fx.Node, *unused: Any, **options: Any) -> str:
    shape, wanted = emit.shape(x), emit.shape(emit.current)
    if shape == wanted:
        return emit(x)
    return emit.node("Expand", [emit(x), emit.constant(wanted, np.int64)])


def _repeat(emit: Emitter, x: fx.Node, times: Sequence[int]) -> str:
    value = emit(x)
    if len(times) > len(emit.shape(x)):
        value = emit.reshaped(value, (*[1] * (len(times) - len(emit.shape(x))), *emit.shape(x)))
    return emit.node("Tile", [value, emit.constant(times, np.int64)])


def _concat(emit: Emitter, tensors: Sequence[fx.Node], axis: int = 0) -> str:
    rank = len(emit.shape(emit.current))
    # empty vectors may be among them, whatever the rank
    kept = [one for one in tensors if len(emit.shape(one)) == rank]
    return emit.node("Concat", operands(emit, emit.dtype(emit.current), *kept), axis=axis % rank)


def _stack(emit: Emitter, tensors: Sequence[fx.Node], axis: int = 0) -> str:
    shape = emit.shape(emit.current)
    axis %= len(shape)
    parts = [emit.reshaped(emit(one), (*shape[:axis], 1, *shape[axis + 1 :])) for one in tensors]
    return emit.node("Concat", parts, axis=axis)


def _cut(emit: Emitter, value: str, axis: int, start: int, end: int, step: int = 1) -> str:
    numbers = (emit.constant([one], np.int64) for one in (start, end, axis, step))
    return emit.node("Slice", [value, *numbers])


def _slice(
    emit: Emitter, x: fx.Node, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> str:
    if emit.shape(x) == emit.shape(emit.current):
        return emit(x)
    return _cut(emit, emit(x), axis % len(emit.shape(x)), start or 0, _END if end is None else end, step)


def _select(emit: Emitter, x: fx.Node, axis: int, index: int) -> str:
    shape = emit.shape(x)
    axis %= len(shape)
    index %= shape[axis]
    part = emit(x) if shape[axis] == 1 else _cut(emit, emit(x), axis, index, index + 1)
    return emit.reshaped(part, emit.shape(emit.current))


def _sizes(emit: Emitter, x: fx.Node, size: int | Sequence[int], axis: int) -> list[int]:
    whole = emit.shape(x)[axis]
    if isinstance(size, Sequence):
        return [*size]
    return [min(size, whole - first) for first in range(0, whole, size)]


def _split(emit: Emitter, x: fx.Node, size: int | Sequence[int], axis: int = 0) -> tuple[str, ...]:
    axis %= len(emit.shape(x))
    sizes = _sizes(emit, x, size, axis)
    if len(sizes) == 1:
        return (emit(x),)
    return emit.node("Split", [emit(x), emit.constant(sizes, np.int64)], outputs=len(sizes), axis=axis)


def _unbind(emit: Emitter, x: fx.Node, axis: int = 0) -> tuple[str, ...]:
    shape = emit.shape(x)
    axis %= len(shape)
    parts = _split(emit, x, 1, axis)
    return tuple(emit.reshaped(part, (*shape[:axis], *shape[axis + 1 :])) for part in parts)


def _item(emit: Emitter, x: fx.Node, index: int) -> str:
    values = emit.values[x]
    found = values[index] if isinstance(values, tuple) else None
    if found is None:
        raise Untranslated(f"result {index} of {x.name} is not supported")
    return found


def _pad(emit: Emitter, x: fx.Node, pads: Sequence[int], mode: Any = "constant", value: float | None = None) -> str:
    if not isinstance(mode, str):  # constant_pad_nd has the value there
        mode, value = "constant", mode
    rank = len(emit.shape(x))
    before, after = [0] * rank, [0] * rank
    for place in range(len(pads) // 2):
        before[rank - 1 - place], after[rank - 1 - place] = pads[2 * place], pads[2 * place + 1]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise Untranslated(f"its mode is {mode!r}; {', '.join(modes)} are supported")
    if not any(pads):
        return emit(x)
    amounts = emit.constant([*before, *after], np.int64)
    filled = operands(emit, emit.dtype(x), value or 0) if mode == "constant" else []
    return emit.node("Pad", [emit(x), amounts, *filled], mode=modes[mode])


def _pixel_shuffle(emit: Emitter, x: fx.Node, factor: int) -> str:
    if len(emit.shape(x)) != 4:
        raise Untranslated(f"{x.name} has {len(emit.shape(x))} dimensions; 4 are supported")
    return emit.node("DepthToSpace", [emit(x)], blocksize=factor, mode="CRD")


def _pixel_unshuffle(emit: Emitter, x: fx.Node, factor: int) -> str:
    if len(emit.shape(x)) != 4:
        raise Untranslated(f"{x.name} has {len(emit.shape(x))} dimensions; 4 are supported")
    batch, channels, height, width = emit.shape(x)
    apart = emit.reshaped(emit(x), (batch, channels, height // factor, factor, width // factor, factor))
    turned = emit.node("Transpose", [apart], perm=[0, 1, 3, 5, 2, 4])
    return emit.reshaped(turned, emit.shape(emit.current))


def _resized(emit: Emitter, x: fx.Node, **how: Any) -> str:
    sizes = emit.constant(emit.shape(emit.current), np.int64)
    return emit.node("Resize", [emit(x), "", "", sizes], **how)


def _scales(emit: Emitter, x: fx.Node, factors: Any) -> None:
    """Refuse factors that are not those of the sizes: PyTorch computes with the former."""
    given = [one for one in factors if one is not None] if isinstance(factors, Sequence) else []
    sizes = zip(emit.shape(x)[2:], emit.shape(emit.current)[2:], given, strict=False)
    for before, after, factor in sizes:
        if before * factor != after:
            raise Untranslated(f"its factor {factor} does not make {after} of {before}")


def _nearest(emit: Emitter, x: fx.Node, size: Any, *factors: Any) -> str:
    _scales(emit, x, factors[0] if factors and isinstance(factors[0], Sequence) else factors)
    return _resized(emit, x, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _bilinear(emit: Emitter, x: fx.Node, size: Any, align_corners: bool, *factors: Any) -> str:
    _scales(emit, x, factors[0] if factors and isinstance(factors[0], Sequence) else factors)
    corners = "align_corners" if align_corners else "half_pixel"
    return _resized(emit, x, mode="linear", coordinate_transformation_mode=corners)


OPERATORS = {
    "getitem": _item,
    **{f"aten.{name}.default": _same for name in ("alias", "clone", "detach", "lift_fresh_copy")},
    "aten.native_dropout.default": _native_dropout,
    "aten._to_copy.default": _cast,
    **{f"aten.{name}": _reshape for name in (
        "view.default", "_unsafe_view.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default",
    )},
    "aten.transpose.int": _transpose,
    "aten.permute.default": _permute,
    "aten.t.default": _matrix_transpose,
    "aten.expand.default": _expand,
    "aten.repeat.default": _repeat,
    "aten.cat.default": _concat,
    "aten.stack.default": _stack,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.unbind.int": _unbind,
    "aten.pad.default": _pad,
    "aten.constant_pad_nd.default": _pad,
    "aten.pixel_shuffle.default": _pixel_shuffle,
    "aten.pixel_unshuffle.default": _pixel_unshuffle,
    "aten.upsample_nearest1d.default": _nearest,
    "aten.upsample_nearest2d.default": _nearest,
    "aten.upsample_nearest2d.vec": _nearest,
    "aten.upsample_bilinear2d.vec": _bilinear,
}  # fmt: skip
