"""Along which dimension of each activation a word of the machine holds several elements: its channels.

Convolutions want the second dimension, products and normalisations the last. What works element by element wants what
its neighbours do, and then what lies beyond a change of shape or order: so a Transpose from one to the other moves
nothing in memory, and where two wishes meet, it is there. A value that nothing is known of has its channels in the
second dimension.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

import onnx_ir as ir
from npukit.compiler.frontends.onnx.functions import MORE_INPUTS, ONE_INPUT

__all__ = ["NORMALIZING", "assign_channel_axes", "channel_axis", "is_constant", "reduced_axes"]

_KEY = "npukit.channel_axis"
_DEFAULT = 1

NORMALIZING = ("LayerNormalization", "RMSNormalization")
"""Operators that normalise what lies along the last dimensions."""
_OF_IMAGES = frozenset(
    "AveragePool BatchNormalization Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool GlobalMaxPool "
    "InstanceNormalization LRN LpPool MaxPool QLinearAveragePool QLinearConv QLinearGlobalAveragePool Resize "
    "SpaceToDepth Upsample".split()
)
_OF_ROWS = frozenset("Gemm MatMul MatMulInteger QGemm QLinearMatMul".split())
_WEIGHTS = {"QGemm": 3, "QLinearMatMul": 3}
"""Which input of a product the weights are, where they are not the second."""
_OF_ELEMENTS = (
    ONE_INPUT
    | MORE_INPUTS
    | frozenset(
        "DequantizeLinear QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QuantizeLinear "
        "Softmax".split()
    )
)
_OF_ANY_DIMENSION = frozenset("Concat Pad QLinearConcat Slice Split".split())
_REDUCTIONS = ("GlobalMaxPool", "ReduceMax", "ReduceMean", "ReduceSum")
_SAME_ORDER = frozenset("Flatten Reshape Squeeze Unsqueeze".split())

_HEADS = 4
"""Dimensions of a tensor of several heads."""
_Axes = dict[ir.Value, int]
_Move = Callable[[ir.Node, Sequence[int], Sequence[int], int, bool], int | None]


def channel_axis(value: ir.Value) -> int:
    """The dimension of a value's channels, as `assign_channel_axes` found it."""
    return value.meta.get(_KEY, _DEFAULT)


def assign_channel_axes(graph: ir.Graph, normalised: Iterable[ir.Value] = ()) -> None:
    """Find the dimension of every value's channels; `normalised`: values whose channels lie along the last one, as a
    normalisation is computed of them, or makes them, step by step."""
    axes: _Axes = {value: len(_shape(value)) - 1 for value in normalised if _shape(value)}
    nodes = [*graph]
    for node in nodes:
        for value, axis in _wanted(node):
            axes.setdefault(value, axis)
    # a convolution keeps its result as it is; what else a value is made by may be on the host, which lays it out in any
    # way, so that behind changes of order what readers want comes first
    _spread(nodes, axes, _WITHIN, (True, False))
    _spread(nodes, axes, {**_WITHIN, **_ACROSS}, (False, True))
    for node in nodes:
        for value, axis in _where_unknown(node):
            axes.setdefault(value, axis)
    _spread(nodes, axes, {**_WITHIN, **_ACROSS}, (False, True))
    for value, axis in axes.items():
        value.meta[_KEY] = axis


def _spread(nodes: Sequence[ir.Node], axes: _Axes, moves: Mapping[str, _Move], directions: tuple[bool, bool]) -> None:
    """Hand on what is known, forwards and backwards in that order, until nothing more comes of it."""
    known = -1
    while known < len(axes):
        known = len(axes)
        for forwards in directions:
            for node in nodes if forwards else reversed(nodes):
                _hand_on(node, axes, moves, forwards)


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or numbers that a constant stands for."""
    if value is None or value.const_value is not None:
        return True
    node = value.producer()
    return node is not None and node.op_type == "DequantizeLinear" and is_constant(node.inputs[0])


def _activations(node: ir.Node) -> Iterator[ir.Value]:
    return (value for value in node.inputs if value is not None and value.const_value is None and _shape(value))


def _shape(value: ir.Value) -> tuple[int, ...]:
    """A static shape of 2 or more dimensions, or ()."""
    if value.shape is None or len(value.shape) < 2 or not all(isinstance(dim, int) for dim in value.shape):
        return ()
    return tuple(int(dim) for dim in value.shape.numpy())


def _wanted(node: ir.Node) -> Iterator[tuple[ir.Value, int]]:
    """What an operator wants by itself."""
    if node.op_type in _OF_IMAGES:
        for value in (*[*_activations(node)][:1], *node.outputs[:1]):
            if len(_shape(value)) >= 3:
                yield value, 1
    elif node.op_type == "Attention":
        for value in (*_activations(node), *node.outputs[:1]):
            if _shape(value):
                yield value, len(_shape(value)) - 1
    elif node.op_type in _OF_ROWS or node.op_type in NORMALIZING:
        turned = node.op_type in _OF_ROWS and bool(node.attributes.get_int("transA", 0))
        for value, back in (
            *((value, 2 if turned else 1) for value in [*_activations(node)][:1]),
            (node.outputs[0], 1),
        ):
            if _shape(value):
                yield value, len(_shape(value)) - back


def _where_unknown(node: ir.Node) -> Iterator[tuple[ir.Value, int]]:
    """What a product of two activations wants of the second, and a softmax of what it makes, where nothing else is
    known of it."""
    if node.op_type in ("Softmax", "QLinearSoftmax") and (shape := _shape(node.outputs[0])):
        yield node.outputs[0], node.attributes.get_int("axis", -1) % len(shape)
    place = _WEIGHTS.get(node.op_type, 1)
    value = node.inputs[place] if node.op_type in _OF_ROWS and place < len(node.inputs) else None
    if value is not None and not is_constant(value) and _shape(value):
        yield value, len(_shape(value)) - 1


def _hand_on(node: ir.Node, axes: _Axes, moves: Mapping[str, _Move], forwards: bool) -> None:
    """From inputs to outputs of which nothing is known, or the other way."""
    move = moves.get(node.op_type)
    if move is None:
        return
    inputs = [*_activations(node)]
    outputs = [value for value in node.outputs if _shape(value)]
    given, taken = (inputs, outputs) if forwards else (outputs, inputs)
    for one in (value for value in given if value in axes):
        for other in (value for value in taken if value not in axes):
            source, result = (one, other) if forwards else (other, one)
            found = move(node, _shape(source), _shape(result), axes[one], forwards)
            if found is not None:
                axes[other] = found


def _aligned(node: ir.Node, source: Sequence[int], result: Sequence[int], axis: int, forwards: bool) -> int | None:
    """The same dimension, counted from the last, as operators on elements have it."""
    given, taken = (source, result) if forwards else (result, source)
    found = axis - len(given) + len(taken)
    return found if found >= 0 and given[axis] == taken[found] else None


def _same_dimension(
    node: ir.Node, source: Sequence[int], result: Sequence[int], axis: int, forwards: bool
) -> int | None:
    return axis if len(source) == len(result) else None


def _transposed(node: ir.Node, source: Sequence[int], result: Sequence[int], axis: int, forwards: bool) -> int | None:
    order = list(node.attributes.get_ints("perm") or range(len(source))[::-1])
    if sorted(order) != [*range(len(source))]:
        return None
    return order.index(axis) if forwards else order[axis]


def _reshaped(node: ir.Node, source: Sequence[int], result: Sequence[int], axis: int, forwards: bool) -> int | None:
    """The dimension of the same size with as many elements before it; or the innermost of those that channels become,
    as of heads, or the one that they become a part of."""
    given, taken = (source, result) if forwards else (result, source)
    for position, size in enumerate(taken):
        if size == given[axis] and prod(taken[:position]) == prod(given[:axis]):
            return position
    if not forwards and len(taken) < _HEADS:  # an image that is flattened, of which nothing is known
        return None
    inner = prod(given[axis + 1 :])
    for position, size in enumerate(taken):
        alike = given[axis] % size == 0 or size % given[axis] == 0
        if size > 1 and alike and prod(taken[position + 1 :]) == inner:
            return position
    return None


def reduced_axes(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """The dimensions of its input, of so many, that a reduction reduces, in order; None where nobody knows yet."""
    if node.op_type == "GlobalMaxPool":
        return tuple(range(2, rank))
    axes: Sequence[int] | None = node.attributes.get_ints("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        if node.inputs[1].const_value is None:
            return None
        axes = [int(axis) for axis in node.inputs[1].const_value.numpy().reshape(-1)]
    if not axes:
        return () if node.attributes.get_int("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in axes}))


def _reduced(node: ir.Node, source: Sequence[int], result: Sequence[int], axis: int, forwards: bool) -> int | None:
    """The dimension that stays."""
    axes = reduced_axes(node, len(source))
    if axes is None:
        return None
    stay = len(source) == len(result)  # with 1 element
    kept = [one for one in range(len(source)) if stay or one not in axes]
    if forwards:
        return None if axis in axes else kept.index(axis)
    return None if kept[axis] in axes else kept[axis]


_WITHIN: Mapping[str, _Move] = {
    **dict.fromkeys(_OF_ELEMENTS, _aligned),
    **dict.fromkeys(_OF_ANY_DIMENSION, _same_dimension),
    **dict.fromkeys(_REDUCTIONS, _reduced),
}
_ACROSS: Mapping[str, _Move] = {"Transpose": _transposed, **dict.fromkeys(_SAME_ORDER, _reshaped)}
