"""Means, sums and maxima along dimensions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from npukit.compiler.frontends.pytorch.emitter import ONNX_TYPES, Emitter
from torch import fx

__all__ = ["OPERATORS"]


def _reduce(op: str) -> Callable[..., str]:
    def emit_it(emit: Emitter, x: fx.Node, axes: Any = None, keepdim: bool = False, *, dtype: object = None) -> str:
        value, result = emit(x), emit.dtype(emit.current)
        if emit.dtype(x) != result and ONNX_TYPES.get(emit.dtype(x)) != ONNX_TYPES.get(result):
            value = emit.node("Cast", [value], to=ONNX_TYPES[result])
        axes = [axes] if isinstance(axes, int) else axes
        chosen = [*axes] if isinstance(axes, Sequence) and len(axes) else [*range(len(emit.shape(x)))]
        return emit.node(op, [value, emit.constant(chosen, np.int64)], keepdims=int(keepdim))

    return emit_it


OPERATORS = {
    "aten.mean.dim": _reduce("ReduceMean"),
    "aten.mean.default": _reduce("ReduceMean"),
    "aten.sum.dim_IntList": _reduce("ReduceSum"),
    "aten.sum.default": _reduce("ReduceSum"),
    "aten.amax.default": _reduce("ReduceMax"),
    "aten.amin.default": _reduce("ReduceMin"),
}
