"""Fused operators of PyTorch's own, in the operators that they stand for."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from npukit.compiler.frontends.pytorch.operators import OPERATORS
from torch import Tensor
from torch.nn import functional

__all__ = ["RECURRENT", "decompositions"]

RECURRENT = frozenset({"aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input"})
"""Operators that consist of many others, which PyTorch computes faster as one."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """How a program is taken apart, as `run_decompositions` takes it: operators that consist of others become these, as
    they do when PyTorch runs them, unless there is an ONNX form of them as a whole."""
    return {**_table()}  # a copy: PyTorch changes what it is given


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    table = torch.export.default_decompositions()
    implicit = torch._C.DispatchKey.CompositeImplicitAutograd
    for operator in [*table.keys()]:
        name = str(operator)
        if name in OPERATORS or name in RECURRENT or not operator.has_kernel_for_dispatch_key(implicit):
            table.pop(operator)
    return {**dict(table.items()), **_FUSED}


def _encoder_layer(
    source: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, projection: Tensor,
    projection_bias: Tensor, use_gelu: bool, norm_first: bool, epsilon: float, scale_1: Tensor, shift_1: Tensor,
    scale_2: Tensor, shift_2: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """The fast path of `torch.nn.TransformerEncoderLayer`."""

    def normal(value: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return functional.layer_norm(value, (width,), scale, shift, epsilon)

    def forward(value: Tensor) -> Tensor:
        hidden = functional.linear(value, inner, inner_bias)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, outer, outer_bias)

    def attention(value: Tensor) -> Tensor:
        return _attention(
            value, value, value, width, heads, qkv_weight, qkv_bias, projection, projection_bias, mask, False, True,
            mask_type,
        )[0]  # fmt: skip

    if norm_first:
        source = source + attention(normal(source, scale_1, shift_1))
        return source + forward(normal(source, scale_2, shift_2))
    source = normal(source + attention(source), scale_1, shift_1)
    return normal(source + forward(source), scale_2, shift_2)


_PADDING_MASK, _WHOLE_MASK = 1, 2
"""Kinds of masks: of keys for each image of a batch, and of a kind of its own for each head."""


def _attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    projection: Tensor, projection_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True,
    average: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The fast path of `torch.nn.MultiheadAttention`; a mask is true where nothing may be seen."""
    batch, rows, size = query.shape[0], query.shape[1], width // heads
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        functional.linear(one, weight, bias).view(batch, -1, heads, size).transpose(1, 2) for one, weight, bias in parts
    )
    hidden = None
    if mask is not None:
        if mask_type == _PADDING_MASK:
            mask = mask.view(batch, 1, 1, -1)
        elif mask_type != _WHOLE_MASK:
            mask = mask.view(1, 1, rows, -1)
        hidden = mask.logical_not() if mask.dtype == torch.bool else mask
    if not need_weights:
        found = functional.scaled_dot_product_attention(q, k, v, hidden)
        weights = query.new_empty(0)
    else:
        scores = q @ k.transpose(-2, -1) * size**-0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden.logical_not(), float("-inf")) if hidden.dtype == torch.bool else (
                scores + hidden
            )  # fmt: skip
        weights = scores.softmax(-1)
        found = weights @ v
        weights = weights.mean(1) if average else weights
    whole = found.transpose(1, 2).reshape(batch, rows, width)
    return functional.linear(whole, projection, projection_bias), weights


_FUSED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    torch.ops.aten._native_multi_head_attention.default: _attention,
}
