"""Scaled dot-product attention."""

from math import sqrt

import numpy as np
import torch
from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from npukit.compiler.frontends.pytorch.masks import LOWEST
from torch import fx

__all__ = ["OPERATORS"]


def _attention(
    emit: Emitter, query: fx.Node, key: fx.Node, value: fx.Node, mask: fx.Node | None = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> str:  # fmt: skip
    """softmax(query @ key^T * scale + mask) @ value, node by node: the compiler computes them together, and
    quantisers take each by itself."""
    if dropout:
        raise Untranslated(f"it drops out a part of {dropout}: its module is in training mode; call eval() on it")
    shapes = [emit.shape(one) for one in (query, key, value)]
    if min(map(len, shapes)) < 3:
        raise Untranslated(f"its query has {len(shapes[0])} dimensions; 3 and more are supported")
    if enable_gqa and shapes[0][-3] != shapes[1][-3]:
        return _grouped(emit, query, key, value, mask, is_causal, scale)
    order = [*range(len(shapes[1]))]
    order[-2:] = order[-1], order[-2]
    scores = emit.node("MatMul", [emit(query), emit.node("Transpose", [emit(key)], perm=order)])
    factor = scale if scale is not None else 1 / sqrt(shapes[0][-1])
    scores = emit.node("Mul", [scores, emit.constant(factor, np.float32)])
    if is_causal:
        rows, columns = shapes[0][-2], shapes[1][-2]
        hidden = np.triu(np.full((rows, columns), LOWEST, np.float32), 1)
        scores = emit.node("Add", [scores, emit.constant(hidden)])
    elif mask is not None:
        scores = emit.node("Add", [scores, emit(mask)])
    return emit.node("MatMul", [emit.node("Softmax", [scores], axis=-1), emit(value)])


def _mask(emit: Emitter, mask: fx.Node, kind: torch.dtype) -> str:
    """What `attention_mask` makes of a mask, but for rows that see nothing."""
    if emit.dtype(mask) != torch.bool:
        return emit.node("Max", [emit(mask), emit.constant(LOWEST, np.float32)])
    nothing, hidden = emit.constant(0, np.float32), emit.constant(LOWEST, np.float32)
    return emit.node("Where", [emit(mask), nothing, hidden])


def _grouped(
    emit: Emitter, query: fx.Node, key: fx.Node, value: fx.Node, mask: fx.Node | None, is_causal: bool,
    scale: float | None,
) -> str:  # fmt: skip
    """Several heads of the query to each head of key and value, in ONNX's own operator."""
    inputs = [emit(query), emit(key), emit(value), *([] if mask is None else [emit(mask)])]
    factor = scale if scale is not None else 1 / sqrt(emit.shape(query)[-1])
    return emit.node("Attention", inputs, is_causal=int(is_causal), scale=float(factor))


OPERATORS = {
    "attention_mask": _mask,
    "aten.scaled_dot_product_attention.default": _attention,
}
