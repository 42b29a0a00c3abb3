"""CONCATENATION, PAD, PADV2, TRANSPOSE, and what gives the same elements another shape."""

from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.tflite.operators.base import Node, Operand, same_quantization
from npukit.compiler.ir.operations import Concatenation, Pad, Rearrange

__all__ = ["match_concatenation", "match_pad", "match_reshape", "match_transpose"]

_MOST = 5
"""Dimensions that TensorFlow Lite Micro pads and transposes."""


def match_concatenation(node: Node) -> Match:
    """CONCATENATION of tensors with the result's scale, some of which may be constant."""
    result = node.result()
    y = result.tensor
    if node.option("FusedActivationFunction"):
        raise Refused("it has a fused function, which is not supported")
    operands = [node.operand(position) for position in range(len(node.operator.inputs))]
    if all(one.constant is not None for one in operands):
        raise Refused("all of its inputs are constant")
    for one in operands:
        if not node.floats:
            same_quantization(one.tensor, y)
        if len(one.tensor.shape) != len(y.shape):
            raise Refused(f"input {one.tensor.name} has {len(one.tensor.shape)} dimensions, the result {len(y.shape)}")
    axis = node.option("Axis")
    axis += len(y.shape) if axis < 0 else 0
    if not 0 <= axis < len(y.shape) or y.shape[axis] != sum(one.tensor.shape[axis] for one in operands):
        raise Refused(f"along axis {axis} its inputs do not make {list(y.shape)}")
    operation = Concatenation(
        output=y.name, sources=node.sources, inputs=tuple(one.tensor.name for one in operands),
        tables=(None,) * len(operands), axis=axis,
    )  # fmt: skip
    return node.match(result, operands, [operation])


def match_pad(node: Node) -> Match:
    """PAD with the zero point, and PADV2 with any number, along height and width."""
    value, x = node.activation(0)
    result = node.result()
    y = result.tensor
    same_quantization(x, y)
    pairs = node.integers(1)
    if len(x.shape) > _MOST:
        raise Refused(f"{x.name} has {len(x.shape)} dimensions; {_MOST} are supported")
    if len(pairs) != 2 * len(x.shape):
        raise Refused(f"its paddings are {list(pairs)}, of {len(x.shape)} dimensions")
    before, after = pairs[::2], pairs[1::2]
    if min(pairs) < 0 or y.shape != tuple(sum(one) for one in zip(x.shape, before, after, strict=True)):
        raise Refused(f"padding {list(pairs)} does not make {list(y.shape)} of {list(x.shape)}")
    fill = 0.0 if node.floats else float(x.zero_point)
    given = node.raw(2)
    if node.operator.op == "PADV2" and given is None:
        raise Refused("its value is left out")
    if given is not None:
        described = node.described(given) if given.data is not None else None
        if given.data is None or given.data.size != 1 or described is None:
            raise Refused(f"its value {given.name} is not a constant number")
        if not node.floats:
            same_quantization(described, y)
        fill = float(given.data.reshape(-1)[0])
    operation = Pad(output=y.name, sources=node.sources, input=x.name, before=before, after=after, value=fill)
    return node.match(result, [Operand(x, value)], [operation])


def match_reshape(node: Node) -> Match:
    """RESHAPE, SQUEEZE and EXPAND_DIMS: the result's shape is known."""
    value, x = node.activation(0)
    result = node.result()
    same_quantization(x, result.tensor)
    sizes = tuple(size for size in x.shape if size > 1) or (1,)
    if node.operator.op != "RESHAPE" and sizes != (tuple(size for size in result.tensor.shape if size > 1) or (1,)):
        raise Refused(f"it does not make {list(result.tensor.shape)} of {list(x.shape)}")
    return _rearranged(node, sizes, tuple(range(len(sizes))))


def match_transpose(node: Node) -> Match:
    """TRANSPOSE by a constant order."""
    _, x = node.activation(0)
    same_quantization(x, node.result().tensor)
    order = node.integers(1)
    if len(order) > _MOST:
        raise Refused(f"{x.name} has {len(order)} dimensions; {_MOST} are supported")
    if sorted(order) != [*range(len(x.shape))] or node.made.shape != tuple(x.shape[axis] for axis in order):
        raise Refused(f"its order {list(order)} does not make {list(node.made.shape)} of {list(x.shape)}")
    kept = [axis for axis in order if x.shape[axis] > 1]
    sizes = tuple(x.shape[axis] for axis in sorted(kept))
    if not kept:
        return _rearranged(node, (1,), (0,))
    return _rearranged(node, sizes, tuple(sorted(kept).index(axis) for axis in kept))


def _rearranged(node: Node, sizes: tuple[int, ...], permutation: tuple[int, ...]) -> Match:
    value, x = node.activation(0)
    result = node.result()
    operation = Rearrange(
        output=result.tensor.name, sources=node.sources, input=x.name, sizes=sizes, permutation=permutation
    )
    return node.match(result, [Operand(x, value)], [operation])
