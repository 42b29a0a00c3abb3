"""Convolutions."""

from typing import Any

from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from npukit.compiler.frontends.pytorch.operators.quantized import with_bias
from npukit.compiler.frontends.pytorch.operators.windows import spread
from torch import fx

__all__ = ["OPERATORS"]


def _dimensions(emit: Emitter, x: fx.Node, weight: fx.Node) -> int:
    """How many dimensions the windows have."""
    rank = len(emit.shape(weight))
    if len(emit.shape(x)) != rank:
        raise Untranslated(f"{x.name} has {len(emit.shape(x))} dimensions, without a batch; {rank} are supported")
    return rank - 2


def _conv(
    emit: Emitter, x: fx.Node, weight: fx.Node, bias: fx.Node | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> str:  # fmt: skip
    dimensions = _dimensions(emit, x, weight)
    kernel, dilations = list(emit.shape(weight)[2:]), spread(dilation, dimensions)
    if padding == "valid":
        before = after = [0] * dimensions
    elif padding == "same":
        whole = [step * (size - 1) for step, size in zip(dilations, kernel, strict=True)]
        before, after = [one // 2 for one in whole], [one - one // 2 for one in whole]
    else:
        before = after = spread(padding, dimensions)
    inputs = [emit(x), emit(weight)]
    return emit.node(
        "Conv", with_bias(emit, inputs, x, weight, bias), kernel_shape=kernel, strides=spread(stride, dimensions),
        pads=[*before, *after], dilations=dilations, group=groups,
    )  # fmt: skip


def _transposed(
    emit: Emitter, x: fx.Node, weight: fx.Node, bias: fx.Node | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> str:  # fmt: skip
    dimensions = _dimensions(emit, x, weight)
    pads = spread(padding, dimensions)
    return emit.node(
        "ConvTranspose", with_bias(emit, [emit(x), emit(weight)], x, weight, bias),
        kernel_shape=list(emit.shape(weight)[2:]), strides=spread(stride, dimensions), pads=[*pads, *pads],
        dilations=spread(dilation, dimensions), group=groups, output_padding=spread(output_padding, dimensions),
    )  # fmt: skip


def _any(
    emit: Emitter, x: fx.Node, weight: fx.Node, bias: fx.Node | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> str:  # fmt: skip
    if transposed:
        return _transposed(emit, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(emit, x, weight, bias, stride, padding, dilation, groups)


OPERATORS = {
    **{f"aten.conv{n}d.{form}": _conv for n in (1, 2, 3) for form in ("default", "padding")},
    "aten.conv_transpose1d.default": _transposed,
    "aten.conv_transpose2d.input": _transposed,
    "aten.conv_transpose3d.input": _transposed,
    "aten.convolution.default": _any,
}
