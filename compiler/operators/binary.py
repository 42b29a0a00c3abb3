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
    Refused,
    activation,
    constant,
    dequantized,
    four_dimensions,
    quantized_output,
    ratio,
)
from npukit.isa.instructions import Operation

__all__ = ["match_add", "match_mul"]


@dataclass(frozen=True)
class _Side:
    """One operand: an activation, or a constant in the machine's int8 domain; `zero_point` as the framework has it.

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
    nodes, out, y, a, b = _operands(context, node, "QLinearAdd")
    ra, rb = (np.float32(ratio((side.scale,), (y.scale,))) for side in (a, b))
    if max(ra, rb) > 2.0**100:
        raise Refused(f"its scales make the factor {max(ra, rb):g}, beyond 2**100")
    # ONNX Runtime's constant: F = zc - fma(ra, za, rb * zb), each step in fp32
    inner = float32_fma(float(ra), a.zero_point, float(rb * np.float32(b.zero_point)))
    values = {"ra": ra, "rb": rb, "offset": np.float32(_natural_zero(y)) - inner}
    return _match(node, nodes, out, y, a, b, Operation.ADD, values)


def match_mul(context: Context, node: ir.Node) -> Match:
    """Mul of two tensors, one of which may be constant, or repeat along batch, height or width."""
    nodes, out, y, a, b = _operands(context, node, "QLinearMul")
    values = {
        "multiplier": np.float32(ratio((a.scale, b.scale), (y.scale,))),
        "a_zero_point": a.zero_point,
        "b_zero_point": b.zero_point,
        "out_zero_point": _natural_zero(y),
    }
    return _match(node, nodes, out, y, a, b, Operation.MULTIPLY, values)


def _natural_zero(tensor: QuantizedTensor) -> int:
    return tensor.zero_point + (128 if tensor.unsigned else 0)


def _operands(
    context: Context, node: ir.Node, operator: str
) -> tuple[tuple[ir.Node, ...], ir.Value, QuantizedTensor, _Side, _Side]:
    """The nodes, the result, and both operands as ONNX Runtime orders them."""
    nodes, out, y = quantized_output(context, node, (operator,))
    a, b = _side(node.inputs[0], y), _side(node.inputs[1], y)
    if a.constant is not None and b.constant is not None:
        raise Refused("both of its inputs are constant")
    if y.view not in (a.shape, b.shape):
        raise Refused(f"inputs {list(a.shape)} and {list(b.shape)} both repeat; one must have the result's shape")
    for side in (a, b):
        if side.shape[1] != y.view[1]:
            raise Refused(f"input {list(side.shape)} repeats along channels; only a constant may")
    # where the first operand is one number along the innermost dimension, ONNX Runtime swaps the two
    innermost = max((axis for axis in range(4) if y.view[axis] > 1), default=3)
    return (nodes, out, y, b, a) if a.given[innermost] < y.view[innermost] else (nodes, out, y, a, b)


def _side(value: ir.Value | None, y: QuantizedTensor) -> _Side:
    found = dequantized(value)
    raw = constant(found.value) if found is not None else None
    if found is None or raw is None:
        quantized, tensor = activation(value, "input")
        if len(tensor.shape) != len(y.shape):
            raise Refused(f"input {tensor.name} has {len(tensor.shape)} dimensions and the result {len(y.shape)}")
        return _Side(
            tensor.view, tensor.view, tensor.scale, _natural_zero(tensor), tensor.unsigned, quantized, tensor, None
        )
    name = found.value.name
    if found.scale.size != 1:
        raise Refused(f"constant {name} is quantised per channel; per tensor is supported")
    if raw.dtype not in (np.int8, np.uint8):
        raise Refused(f"constant {name} is {raw.dtype}; int8 or uint8 is supported")
    # lanes cannot repeat a value of another lane, so that is done here
    shape = four_dimensions((1,) * (len(y.shape) - raw.ndim) + raw.shape)
    full = np.broadcast_to(raw.reshape(shape), (shape[0], y.view[1], *shape[2:]))
    unsigned = raw.dtype == np.uint8
    domain = (full ^ np.uint8(128)).view(np.int8) if unsigned else full
    zero_point = int(found.zero_point.reshape(-1)[0])
    source = ConstantSource(name or "", np.ascontiguousarray(domain))
    view = (full.shape[0], full.shape[1], full.shape[2], full.shape[3])
    return _Side(shape, view, float(found.scale.reshape(-1)[0]), zero_point, unsigned, None, None, source)


def _match(
    node: ir.Node, nodes: tuple[ir.Node, ...], out: ir.Value, y: QuantizedTensor, a: _Side, b: _Side,
    operation: Operation, values: Mapping[str, Any],
) -> Match:  # fmt: skip
    low, high = (0, 255) if y.unsigned else (-128, 127)
    clamp = {"low": low, "high": high}
    flags = {"a_unsigned": a.unsigned, "b_unsigned": b.unsigned, "out_unsigned": y.unsigned}
    sides = [side for side in (a, b) if side.tensor is not None and side.value is not None]

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return BinaryLayer(
            node=node.name or "",
            op=node.op_type,
            inputs=tuple(side.tensor.name for side in sides if side.tensor is not None),
            output=y.name,
            operation=operation,
            sources=(a.source, b.source),
            shapes=(a.shape, b.shape),
            values={**values, **clamp, **flags},
        )

    values_in = tuple(side.value for side in sides if side.value is not None)
    tensors_in = tuple(side.tensor for side in sides if side.tensor is not None)
    return Match(node, nodes, values_in, out, (*tensors_in, y), build)
