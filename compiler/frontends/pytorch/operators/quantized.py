"""Quantised models of PyTorch's PT2E flow: operators on floats between quantize and dequantize.

Their integers are those of ONNX's QuantizeLinear and DequantizeLinear, and what lies between two of them is computed in
ONNX Runtime's arithmetic. PyTorch computes the same in floats, which may round a result to its neighbour where it lies
near the middle of two.
"""

from collections.abc import Sequence

import numpy as np
import torch
from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from torch import fx

__all__ = ["OPERATORS", "turned", "with_bias"]

_WHOLE = {torch.int8: (-128, 127), torch.uint8: (0, 255)}


def with_bias(emit: Emitter, inputs: Sequence[str], x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> list[str]:
    """The inputs of a product with a bias behind them.

    Where both factors are dequantised, the bias becomes int32 with the product's scale, as ONNX Runtime wants it:
    PyTorch's quantisers leave it float.
    """
    if bias is None:
        return [*inputs]
    numbers, scale = emit.array(bias), _scale(emit, x)
    scales = _scale(emit, weight)
    if numbers is None or scale is None or scales is None or scale.size != 1 or scales.size not in (1, numbers.size):
        return [*inputs, emit(bias)]
    step = (scale * scales).astype(np.float32)
    whole = np.rint(numbers.astype(np.float64) / step)
    if np.abs(whole).max(initial=0) >= 2**31:
        return [*inputs, emit(bias)]
    step = step.reshape(-1)
    name = emit.constant(step if step.size > 1 else step.reshape(()))
    return [*inputs, emit.node("DequantizeLinear", [emit.constant(whole, np.int32), name], axis=0)]


def turned(emit: Emitter, weight: fx.Node) -> str:
    """A matrix with rows and columns in each other's place: of constants a constant, dequantised ones included."""
    if emit.array(weight) is not None:
        return emit.constant(np.ascontiguousarray(emit.array(weight).T))  # type: ignore[union-attr]
    name = weight.target.__str__() if weight.op == "call_function" else ""
    if name in OPERATORS and "dequantize" in name and emit.array(weight.args[0]) is not None:
        numbers = emit.array(weight.args[0])
        assert numbers is not None
        scale, zero_point, axis = _parameters(emit, weight)
        constant = emit.constant(np.ascontiguousarray(numbers.T))
        return _linear_node(emit, "DequantizeLinear", constant, scale, zero_point, 1 - axis, numbers.dtype)
    return emit.node("Transpose", [emit(weight)], perm=[1, 0])


def _parameters(emit: Emitter, node: fx.Node) -> tuple[np.ndarray, np.ndarray, int]:
    """Scale, zero point and axis of a quantize or dequantize."""
    scale, zero_point = (_numbers(emit, one) for one in node.args[1:3])
    if scale is None or zero_point is None:
        raise Untranslated("its scale or zero point is no constant")
    axis = node.args[3] if "per_channel" in str(node.target) else 0
    assert isinstance(axis, int)
    rank = len(emit.shape(node))
    return scale.astype(np.float32), zero_point, axis % rank if rank else 0


def _numbers(emit: Emitter, value: object) -> np.ndarray | None:
    return np.asarray(value) if isinstance(value, int | float) else emit.array(value)


def _scale(emit: Emitter, node: fx.Node) -> np.ndarray | None:
    """The scale of what a node dequantises; None of any other node."""
    if node.op != "call_function" or "quantized_decomposed.dequantize" not in str(node.target):
        return None
    return _parameters(emit, node)[0]


def _linear_node(
    emit: Emitter, op: str, value: str, scale: np.ndarray, zero_point: np.ndarray, axis: int, dtype: np.dtype
) -> str:
    if np.any(zero_point != zero_point.astype(dtype)):
        raise Untranslated(f"its zero point {zero_point.max()} is beyond {dtype}")
    inputs = [value, emit.constant(scale), emit.constant(zero_point, dtype)]
    return emit.node(op, inputs, **({"axis": axis} if scale.ndim and scale.size > 1 else {}))


def _check_range(dtype: torch.dtype, lowest: int, highest: int, constant: bool) -> None:
    if dtype not in _WHOLE:
        raise Untranslated(f"it quantises to {_name(dtype)}; int8 and uint8 are supported")
    if not constant and (lowest, highest) != _WHOLE[dtype]:
        raise Untranslated(f"its range is {lowest} to {highest}; all of {_name(dtype)} is supported")


def _name(dtype: torch.dtype) -> str:
    """As numpy calls it."""
    return str(dtype).removeprefix("torch.")


def _quantize(
    emit: Emitter, x: fx.Node, scale: object, zero_point: object, *rest: object, dtype: torch.dtype | None = None,
    **unused: object,
) -> str:  # fmt: skip
    node = emit.current
    *_, lowest, highest, found = (*rest, dtype) if dtype is not None else rest
    assert isinstance(lowest, int) and isinstance(highest, int) and isinstance(found, torch.dtype)
    _check_range(found, lowest, highest, constant=False)
    factor, zero, axis = _parameters(emit, node)
    return _linear_node(emit, "QuantizeLinear", emit(x), factor, zero, axis, np.dtype(_name(found)))


def _dequantize(emit: Emitter, x: fx.Node, *unused: object, **options: object) -> str:
    node = emit.current
    dtype = emit.dtype(x)
    _check_range(dtype, 0, 0, constant=True)
    if options.get("out_dtype") not in (None, torch.float32):
        raise Untranslated(f"its result is {options['out_dtype']}; float32 is supported")
    scale, zero_point, axis = _parameters(emit, node)
    return _linear_node(emit, "DequantizeLinear", emit(x), scale, zero_point, axis, np.dtype(_name(dtype)))


OPERATORS = {
    **{f"quantized_decomposed.quantize_per_{kind}": _quantize for kind in ("tensor.default", "channel.default")},
    **{f"quantized_decomposed.dequantize_per_{kind}": _dequantize for kind in ("tensor.default", "channel.default")},
    "quantized_decomposed.quantize_per_tensor.tensor": _quantize,
    "quantized_decomposed.dequantize_per_tensor.tensor": _dequantize,
}
