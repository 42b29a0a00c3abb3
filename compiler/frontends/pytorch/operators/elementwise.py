"""Functions of one element, and of two."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from npukit.compiler.frontends.pytorch.emitter import ONNX_TYPES, Emitter, Untranslated
from torch import fx

__all__ = ["OPERATORS", "operands"]

_NUMPY = {
    torch.float32: np.float32, torch.bfloat16: np.float32, torch.int8: np.int8, torch.uint8: np.uint8,
    torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_,
}  # fmt: skip


def operands(emit: Emitter, dtype: torch.dtype, *values: Any) -> list[str]:
    """Tensors and numbers as values of one dtype."""
    if dtype not in ONNX_TYPES:
        raise Untranslated(f"it computes {str(dtype).removeprefix('torch.')}, which is not supported")
    names = []
    for value in values:
        if not isinstance(value, fx.Node):
            names.append(emit.constant(value, _NUMPY[dtype]))
        elif ONNX_TYPES.get(emit.dtype(value)) == ONNX_TYPES[dtype]:
            names.append(emit(value))
        else:
            names.append(emit.node("Cast", [emit(value)], to=ONNX_TYPES[dtype]))
    return names


def _unary(op: str, **fixed: Any) -> Callable[..., str]:
    """A function without parameters."""

    def emit_it(emit: Emitter, x: fx.Node) -> str:
        return emit.node(op, operands(emit, emit.dtype(emit.current), x), **fixed)

    return emit_it


def _binary(op: str) -> Callable[..., str]:
    """A function of two numbers of the result's dtype."""

    def emit_it(emit: Emitter, x: Any, y: Any, alpha: float = 1) -> str:
        dtype = emit.dtype(emit.current)
        first, second = operands(emit, dtype, x, y)
        if alpha != 1:
            second = emit.node("Mul", [second, *operands(emit, dtype, alpha)])
        return emit.node(op, [first, second])

    return emit_it


def _reversed_subtraction(emit: Emitter, x: Any, y: Any, alpha: float = 1) -> str:
    return _binary("Sub")(emit, y, x, alpha=alpha)


def _division(emit: Emitter, x: Any, y: Any, *, rounding_mode: str | None = None) -> str:
    if rounding_mode is not None:
        raise Untranslated(f"its rounding mode is {rounding_mode}; none is supported")
    return _binary("Div")(emit, x, y)


def _power(emit: Emitter, x: Any, exponent: Any) -> str:
    return emit.node("Pow", operands(emit, emit.dtype(emit.current), x, exponent))


def _clamp(emit: Emitter, x: fx.Node, lowest: Any = None, highest: Any = None) -> str:
    dtype = emit.dtype(emit.current)
    (value,) = operands(emit, dtype, x)
    for op, limit in (("Max", lowest), ("Min", highest)):
        if isinstance(limit, fx.Node):
            value = emit.node(op, [value, *operands(emit, dtype, limit)])
    numbers = [None if isinstance(one, fx.Node) else one for one in (lowest, highest)]
    if numbers == [None, None]:
        return value
    limits = ["" if one is None else emit.constant(one, _NUMPY[dtype]) for one in numbers]
    return emit.node("Clip", [value, *(limits if limits[1] else limits[:1])])


def _clamp_max(emit: Emitter, x: fx.Node, highest: Any) -> str:
    return _clamp(emit, x, None, highest)


def _hardtanh(emit: Emitter, x: fx.Node, lowest: float = -1.0, highest: float = 1.0) -> str:
    return _clamp(emit, x, lowest, highest)


def _relu6(emit: Emitter, x: fx.Node) -> str:
    return _clamp(emit, x, 0.0, 6.0)


def _gelu(emit: Emitter, x: fx.Node, *, approximate: str = "none") -> str:
    return emit.node("Gelu", [emit(x)], approximate=approximate)


def _silu(emit: Emitter, x: fx.Node) -> str:
    return emit.node("Mul", [emit(x), emit.node("Sigmoid", [emit(x)])])


def _leaky_relu(emit: Emitter, x: fx.Node, slope: float = 0.01) -> str:
    return emit.node("LeakyRelu", [emit(x)], alpha=float(slope))


def _prelu(emit: Emitter, x: fx.Node, weight: fx.Node) -> str:
    channels, rank = emit.shape(weight)[-1] if emit.shape(weight) else 1, len(emit.shape(x))
    array = emit.array(weight)
    if array is None:
        raise Untranslated(f"its slopes {weight.name} are no constants")
    spread = array.reshape(-1) if rank < 2 or array.ndim == rank else array.reshape(channels, *[1] * (rank - 2))
    return emit.node("PRelu", [emit(x), emit.constant(spread if array.ndim < rank else array)])


def _elu(emit: Emitter, x: fx.Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> str:
    if input_scale != 1:
        raise Untranslated(f"its input is scaled by {input_scale}; 1 is supported")
    if scale == 1:
        return emit.node("Elu", [emit(x)], alpha=float(alpha))
    return emit.node("Selu", [emit(x)], alpha=float(alpha), gamma=float(scale))


def _celu(emit: Emitter, x: fx.Node, alpha: float = 1.0) -> str:
    return emit.node("Celu", [emit(x)], alpha=float(alpha))


def _softplus(emit: Emitter, x: fx.Node, beta: float = 1.0, threshold: float = 20.0) -> str:
    """Beyond its threshold PyTorch's is the identity; from 20 on the difference is below what float32 can tell."""
    if beta != 1 or threshold < 20:
        raise Untranslated(f"beta is {beta} and its threshold {threshold}; 1 and 20 or more are supported")
    return emit.node("Softplus", [emit(x)])


def _mish(emit: Emitter, x: fx.Node) -> str:
    return emit.node("Mish", [emit(x)])


def _reciprocal_root(emit: Emitter, x: fx.Node) -> str:
    return emit.node("Reciprocal", [emit.node("Sqrt", operands(emit, emit.dtype(emit.current), x))])


def _hardsigmoid(emit: Emitter, x: fx.Node) -> str:
    return emit.node("HardSigmoid", [emit(x)], alpha=1 / 6, beta=0.5)


_UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "hardswish": "HardSwish", "log": "Log", "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "round": "Round",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
_BINARY = {
    "add.Tensor": "Add", "add.Scalar": "Add", "sub.Tensor": "Sub", "sub.Scalar": "Sub", "mul.Tensor": "Mul",
    "mul.Scalar": "Mul", "maximum.default": "Max", "minimum.default": "Min",
}  # fmt: skip

OPERATORS = {
    **{f"aten.{name}.default": _unary(op) for name, op in _UNARY.items()},
    **{f"aten.{name}": _binary(op) for name, op in _BINARY.items()},
    "aten.rsub.Scalar": _reversed_subtraction,
    "aten.rsub.Tensor": _reversed_subtraction,
    "aten.div.Tensor": _division,
    "aten.div.Scalar": _division,
    "aten.div.Tensor_mode": _division,
    **{f"aten.pow.{form}": _power for form in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
    "aten.rsqrt.default": _reciprocal_root,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": _clamp_max,
    "aten.hardtanh.default": _hardtanh,
    "aten.relu6.default": _relu6,
    "aten.hardsigmoid.default": _hardsigmoid,
    "aten.gelu.default": _gelu,
    "aten.silu.default": _silu,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.prelu.default": _prelu,
    "aten._prelu_kernel.default": _prelu,
    "aten.elu.default": _elu,
    "aten.celu.default": _celu,
    "aten.softplus.default": _softplus,
    "aten.mish.default": _mish,
}
