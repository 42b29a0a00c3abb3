"""Pools."""

from collections.abc import Sequence
from typing import Any

from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from npukit.compiler.frontends.pytorch.operators.windows import spread
from torch import fx

__all__ = ["OPERATORS"]


def _windows(emit: Emitter, x: fx.Node, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    dimensions = len(emit.shape(x)) - 2
    count = len(kernel) if isinstance(kernel, Sequence) else dimensions
    if dimensions < 1 or count not in (1, dimensions):
        raise Untranslated(f"{x.name} has {len(emit.shape(x))} dimensions, without a batch")
    kernel = spread(kernel, dimensions)
    pads = spread(padding, dimensions)
    strides = spread(stride, dimensions) if not isinstance(stride, Sequence) or stride else kernel
    return {"kernel_shape": kernel, "strides": strides, "pads": [*pads, *pads]}


def _max_pool(
    emit: Emitter, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> str:  # fmt: skip
    windows = _windows(emit, x, kernel, stride, padding)
    dilations = spread(dilation, len(windows["kernel_shape"]))
    return emit.node("MaxPool", [emit(x)], dilations=dilations, ceil_mode=int(ceil_mode), **windows)


def _max_pool_with_indices(emit: Emitter, *arguments: Any, **options: Any) -> tuple[str | None, ...]:
    return _max_pool(emit, *arguments, **options), None


def _average_pool(
    emit: Emitter, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_padding: bool = True, divisor: int | None = None,
) -> str:  # fmt: skip
    if divisor is not None:
        raise Untranslated(f"its divisor is {divisor}; the number of elements is supported")
    windows = _windows(emit, x, kernel, stride, padding)
    image, made = emit.shape(x)[2:], emit.shape(emit.current)[2:]
    whole = all(size <= window for size, window in zip(image, windows["kernel_shape"], strict=True))
    if whole and set(made) == {1} and not any(windows["pads"]):  # what lies beyond the image does not count
        return emit.node("GlobalAveragePool", [emit(x)])
    return emit.node(
        "AveragePool", [emit(x)], ceil_mode=int(ceil_mode), count_include_pad=int(count_padding), **windows
    )


def _adaptive(emit: Emitter, x: fx.Node, sizes: Any, kind: str) -> str:
    """A pool by the size of its result: of the whole image, or of windows of one size."""
    shape = emit.shape(x)
    wanted = list(sizes) if isinstance(sizes, Sequence) else [sizes]
    image = shape[-len(wanted) :]
    if len(shape) != len(wanted) + 2:
        raise Untranslated(f"{x.name} has {len(shape)} dimensions, without a batch")
    wanted = [size if one is None else one for one, size in zip(wanted, image, strict=True)]
    if all(one == 1 for one in wanted):
        return emit.node(f"Global{kind}", [emit(x)])
    if any(size % one for one, size in zip(wanted, image, strict=True)):
        raise Untranslated(f"an image of {list(image)} does not divide into {wanted} windows")
    kernel = [size // one for one, size in zip(wanted, image, strict=True)]
    return emit.node(kind, [emit(x)], kernel_shape=kernel, strides=kernel)


def _adaptive_average(emit: Emitter, x: fx.Node, sizes: Any) -> str:
    return _adaptive(emit, x, sizes, "AveragePool")


def _adaptive_max(emit: Emitter, x: fx.Node, sizes: Any) -> tuple[str | None, ...]:
    return _adaptive(emit, x, sizes, "MaxPool"), None


OPERATORS = {
    **{f"aten.max_pool{n}d.default": _max_pool for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": _max_pool_with_indices for n in (2, 3)},
    **{f"aten.avg_pool{n}d.default": _average_pool for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": _adaptive_average for n in (1, 2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": _adaptive_max for n in (1, 2, 3)},
}
