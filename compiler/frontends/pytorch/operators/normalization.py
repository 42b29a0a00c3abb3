"""Normalisations and softmax."""

from collections.abc import Sequence

import numpy as np
import torch
from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from npukit.compiler.frontends.pytorch.operators.elementwise import operands
from torch import fx

__all__ = ["OPERATORS"]

_TRAINING = "it is in training mode, with statistics of the batch: call eval() on its module"


def _layer_norm(
    emit: Emitter, x: fx.Node, shape: Sequence[int], weight: fx.Node | None = None, bias: fx.Node | None = None,
    epsilon: float = 1e-5, *unused: object,
) -> str:  # fmt: skip
    scale = emit(weight) if weight is not None else emit.constant(np.ones(tuple(shape), np.float32))
    inputs = [emit(x), scale, *([] if bias is None else [emit(bias)])]
    return emit.node("LayerNormalization", inputs, axis=-len(shape), epsilon=float(epsilon))


def _rms_norm(
    emit: Emitter, x: fx.Node, shape: Sequence[int], weight: fx.Node | None = None, epsilon: float | None = None
) -> str:
    scale = emit(weight) if weight is not None else emit.constant(np.ones(tuple(shape), np.float32))
    epsilon = torch.finfo(emit.dtype(x)).eps if epsilon is None else epsilon
    return emit.node("RMSNormalization", [emit(x), scale], axis=-len(shape), epsilon=float(epsilon))


def _affine(emit: Emitter, x: fx.Node, *numbers: fx.Node | None, epsilon: float) -> str:
    """Batch normalisation of an inference: each channel times a number plus another."""
    channels = emit.shape(x)[1]
    defaults = (1, 0, 0, 1)  # weight, bias, mean, variance
    arrays = [
        np.full(channels, default, np.float32) if one is None else emit.array(one)
        for one, default in zip(numbers, defaults, strict=True)
    ]
    if any(array is None for array in arrays):
        raise Untranslated("its weight, bias or statistics are no constants")
    weight, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    scale = weight / np.sqrt(variance + epsilon)
    shape = (channels, *[1] * (len(emit.shape(x)) - 2))
    product = emit.node("Mul", [emit(x), emit.constant(scale.reshape(shape), np.float32)])
    return emit.node("Add", [product, emit.constant((bias - mean * scale).reshape(shape), np.float32)])


def _inference_batch_norm(
    emit: Emitter, x: fx.Node, weight: fx.Node | None, bias: fx.Node | None, mean: fx.Node, variance: fx.Node,
    momentum: float, epsilon: float,
) -> tuple[str | None, ...]:  # fmt: skip
    return _affine(emit, x, weight, bias, mean, variance, epsilon=epsilon), None, None


def _softmax(emit: Emitter, x: fx.Node, axis: int, kind: object = None) -> str:
    if kind not in (None, False, torch.float32, emit.dtype(x)):
        raise Untranslated(f"its result is {kind}; float32 and bfloat16 are supported")
    return emit.node("Softmax", operands(emit, emit.dtype(emit.current), x), axis=axis)


def _training(emit: Emitter, *unused: object, **options: object) -> str:
    raise Untranslated(_TRAINING)


OPERATORS = {
    "aten._native_batch_norm_legit_functional.default": _training,
    "aten._native_batch_norm_legit.default": _training,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten._native_batch_norm_legit_no_training.default": _inference_batch_norm,
    "aten.softmax.int": _softmax,
    "aten._softmax.default": _softmax,
}
