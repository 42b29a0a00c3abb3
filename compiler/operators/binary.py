"""Add and Mul of two tensors, of which one may be constant or be repeated along rows and columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from npukit.compiler.exact import float32_fma
from npukit.compiler.layers import BinaryLayer, ConstantSource, Layer, QuantizedTensor
from npukit.compiler.operators.base import (
    Context,
    Match,
    Produced,
    Refused,
    constant,
    dequantized,
    float_tensor,
    four_dimensions,
    limits_of,
    produced,
    ratio,
    source,
)
from npukit.isa.instructions import Operation
from npukit.sim.bfloat16 import narrow

__all__ = ["match_add", "match_limits", "match_mul"]


_MOST = 2.0**30
"""Half of what a whole number of 32 bits holds: so far away, roundings do not matter."""


@dataclass(frozen=True)
class _Side:
    """One operand: an activation, or a constant as the machine has it; `zero_point` as the framework has it.

    `given` is its shape in the model; in `shape` a constant's channels are repeated.
    """

    given: tuple[int, int, int, int]
    shape: tuple[int, int, int, int]
    scale: float
    zero_point: int
    unsigned: bool
    value: ir.Value | None
    tensor: QuantizedTensor | None
    constant: ConstantSource | None

    @property
    def source(self) -> str | ConstantSource:
        if self.constant is not None:
            return self.constant
        assert self.tensor is not None
        return self.tensor.name


def match_add(context: Context, node: ir.Node) -> Match:
    """Add of two tensors, one of which may be constant, or repeat along batch, height or width."""
    result, a, b = _operands(context, node, "QLinearAdd")
    y = result.tensor
    if context.floats:
        return _match(node, result, a, b, Operation.ADD, {})
    ra, rb = (np.float32(ratio((side.scale,), (y.scale,))) for side in (a, b))
    _check_magnitude(256 * (float(ra) + float(rb)))
    # ONNX Runtime's constant: F = zc - fma(ra, za, rb * zb), each step in fp32
    inner = float32_fma(float(ra), a.zero_point, float(rb * np.float32(b.zero_point)))
    values = {"ra": ra, "rb": rb, "offset": np.float32(_natural_zero(y)) - inner}
    return _match(node, result, a, b, Operation.ADD, values)


def match_mul(context: Context, node: ir.Node) -> Match:
    """Mul of two tensors, one of which may be constant, or repeat along batch, height or width."""
    result, a, b = _operands(context, node, "QLinearMul")
    y = result.tensor
    if context.floats:
        return _match(node, result, a, b, Operation.MULTIPLY, {})
    multiplier = np.float32(ratio((a.scale, b.scale), (y.scale,)))
    _check_magnitude(256 * 256 * float(multiplier))
    values = {
        "multiplier": multiplier,
        "a_zero_point": a.zero_point,
        "b_zero_point": b.zero_point,
        "out_zero_point": _natural_zero(y),
    }
    return _match(node, result, a, b, Operation.MULTIPLY, values)


def _check_magnitude(most: float) -> None:
    """Refuse results that, before they are limited, may not be whole numbers of 32 bits.

    ONNX Runtime converts them to such numbers first (CVTPS2DQ), and what is too large becomes the least of all.
    """
    if most >= _MOST:
        raise Refused(
            f"its scales make results up to {most:g} before they are limited; ONNX Runtime wraps what is too large, "
            "and less than 2**30 is supported"
        )


def _natural_zero(tensor: QuantizedTensor) -> int:
    return tensor.zero_point + (128 if tensor.unsigned else 0)


def match_limits(context: Context, node: ir.Node) -> Match:
    """Relu or Clip by itself, in bf16: a product with 1, limited."""
    value, x = source(context, node.inputs[0])
    limits = limits_of(node)
    if limits is None:
        raise Refused("its limits are not constant")
    y = float_tensor(node.outputs[0])
    result = Produced((node,), node.outputs[0], y, *limits)
    one = np.full((1, x.view[1], 1, 1), narrow(np.array(1, np.float32)), np.uint16)
    side = _Side(x.view, x.view, 1.0, 0, False, value, x, None)
    ones = _Side(one.shape, one.shape, 1.0, 0, False, None, None, ConstantSource("ones", one))
    return _match(node, result, side, ones, Operation.MULTIPLY, {})


def _operands(context: Context, node: ir.Node, operator: str) -> tuple[Produced, _Side, _Side]:
    """The result, and both operands as ONNX Runtime orders them."""
    result = produced(context, node, (operator,))
    y = result.tensor
    a, b = _side(context, node.inputs[0], y), _side(context, node.inputs[1], y)
    if a.constant is not None and b.constant is not None:
        raise Refused("both of its inputs are constant")
    if y.view not in (a.shape, b.shape):
        raise Refused(f"inputs {list(a.shape)} and {list(b.shape)} both repeat; one must have the result's shape")
    for side in (a, b):
        if side.shape[1] != y.view[1]:
            raise Refused(f"input {list(side.shape)} repeats along channels; only a constant may")
    # where the first operand is one number along the innermost dimension, ONNX Runtime swaps the two
    innermost = max((axis for axis in range(4) if y.view[axis] > 1), default=3)
    return (result, b, a) if a.given[innermost] < y.view[innermost] else (result, a, b)


def _side(context: Context, value: ir.Value | None, y: QuantizedTensor) -> _Side:
    scale, zero_point = 1.0, 0
    if context.floats:
        raw, name = constant(value), value.name if value is not None else None
    else:
        found = dequantized(value)
        raw = constant(found.value) if found is not None else None
        name = found.value.name if found is not None else None
        if found is not None and raw is not None:
            if found.scale.size != 1:
                raise Refused(f"constant {name} is quantised per channel; per tensor is supported")
            scale, zero_point = float(found.scale.reshape(-1)[0]), int(found.zero_point.reshape(-1)[0])
    if raw is None:
        read, tensor = source(context, value)
        if len(tensor.shape) != len(y.shape):
            raise Refused(f"input {tensor.name} has {len(tensor.shape)} dimensions and the result {len(y.shape)}")
        return _Side(tensor.view, tensor.view, tensor.scale, _natural_zero(tensor), tensor.unsigned, read, tensor, None)
    if raw.dtype not in ((np.float32,) if context.floats else (np.int8, np.uint8)):
        raise Refused(
            f"constant {name} is {raw.dtype}; {'float32' if context.floats else 'int8 or uint8'} is supported"
        )
    if raw.ndim > len(y.shape) or not raw.size:
        raise Refused(f"constant {name} has the shape {list(raw.shape)} and the result {list(y.shape)}")
    # lanes cannot repeat a value of another lane, so that is done here
    shape = four_dimensions((1,) * (len(y.shape) - raw.ndim) + raw.shape)
    full = np.broadcast_to(raw.reshape(shape), (shape[0], y.view[1], *shape[2:]))
    unsigned = raw.dtype == np.uint8
    domain = narrow(full) if context.floats else (full ^ np.uint8(128)).view(np.int8) if unsigned else full
    constant_source = ConstantSource(name or "", np.ascontiguousarray(domain))
    view = (full.shape[0], full.shape[1], full.shape[2], full.shape[3])
    return _Side(shape, view, scale, zero_point, unsigned, None, None, constant_source)


def _match(
    node: ir.Node, result: Produced, a: _Side, b: _Side, operation: Operation, values: Mapping[str, Any]
) -> Match:
    y = result.tensor
    shift = 128 if y.unsigned else 0
    clamp: dict[str, float] = {"low": result.low + shift, "high": result.high + shift}
    flags = {} if y.floating else {"a_unsigned": a.unsigned, "b_unsigned": b.unsigned, "out_unsigned": y.unsigned}
    sides = [side for side in (a, b) if side.tensor is not None and side.value is not None]

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return BinaryLayer(
            node=node.name or "",
            op=node.op_type,
            inputs=tuple(side.tensor.name for side in sides if side.tensor is not None),
            output=y.name,
            operation=operation,
            sources=(a.source, b.source),
            values={**values, **clamp, **flags},
        )

    values_in = tuple(side.value for side in sides if side.value is not None)
    tensors_in = tuple(side.tensor for side in sides if side.tensor is not None)
    return Match(node, result.nodes, values_in, result.value, (*tensors_in, y), build)
