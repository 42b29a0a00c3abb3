"""ATen's operators in ONNX: a function for each, which emits nodes and returns the name of the result.

They are those of graphs of `torch.export` without decompositions, in which linear, layer_norm or softmax are one
operator each, as ONNX has them; `OPERATORS` by the names that PyTorch prints, as `aten.linear.default`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from npukit.compiler.frontends.pytorch.operators import (
    attention,
    convolution,
    elementwise,
    integers,
    movement,
    normalization,
    pool,
    product,
    quantized,
    reduction,
)

__all__ = ["OPERATORS", "operator_name"]

OPERATORS: Mapping[str, Callable[..., Any]] = {
    **attention.OPERATORS,
    **convolution.OPERATORS,
    **elementwise.OPERATORS,
    **integers.OPERATORS,
    **movement.OPERATORS,
    **normalization.OPERATORS,
    **pool.OPERATORS,
    **product.OPERATORS,
    **quantized.OPERATORS,
    **reduction.OPERATORS,
}


def operator_name(target: Any) -> str:
    """The name by which PyTorch prints an operator; of a function its own."""
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
