"""Operators that hand all elements on in another shape or order, one by one or several in a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    Produced,
    match_of_moved,
    match_of_several,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import operands_of_node
from npukit.compiler.frontends.onnx.operators.quantisation import ONNX_DOMAINS, is_quantiser, static_shape
from npukit.compiler.ir.operations import Rearrange, Reshape, SourceNode, TensorOperation
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.legality import check_operation

__all__ = ["REARRANGING", "match_rearrange"]

_MOST = 8
"""Nodes in a row that are looked at as one."""
REARRANGING = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth")
"""Operators that this matcher takes."""


@dataclass(frozen=True)
class _Digit:
    """A loop over elements: how many, and elements of the input, in its order, from one to the next."""

    size: int
    stride: int


@dataclass(frozen=True)
class _Link:
    """A node's result, and the loops over the input's elements that make it."""

    result: Produced
    digits: list[_Digit]

    @property
    def in_order(self) -> bool:
        """Whether it has the elements in the input's order."""
        strides = [digit.stride for digit in self.digits if digit.size > 1]
        return strides == sorted(strides, reverse=True)


def match_rearrange(context: Context, node: ir.Node) -> Match:
    """A change of shape or order; or several in a row, as a channel shuffle is: those between them are not made.

    What moves nothing in memory costs nothing: what keeps the channels and the order of places, and images flattened
    for a product. Where channels move, a product with a matrix of zeros and ones brings them to their lanes.
    """
    value, x = source(context, operands_of_node(node)[0])
    digits = [_Digit(size, prod(x.shape[axis + 1 :])) for axis, size in enumerate(x.shape)]
    chain: list[_Link] = []
    found: list[Match] = []
    reasons: list[Refused] = []
    current: ir.Node | None = node
    while current is not None and len(chain) < _MOST:
        try:
            digits = _after(current, digits)
            chain.append(_Link(produced(context, current, clamp=False), digits))
        except Refused as reason:
            reasons.append(reason)
            break
        try:
            found.append(_match(context, node, chain, value, x))
        except Refused as reason:
            reasons.append(reason)
        y = chain[-1].result.tensor
        same = (x.quantization, x.format) == (y.quantization, y.format)
        current = _next(context, chain[-1].result.value) if same else None
    if not found:
        raise reasons[0]
    return found[-1]


def _after(node: ir.Node, digits: list[_Digit]) -> list[_Digit]:
    """The loops behind a node.

    Raises:
        Refused: they do not divide as it wants.
    """
    assert node.inputs[0] is not None
    shape, order = _step(node, static_shape(node.inputs[0]))
    if order is None:
        return digits
    axes = _divided(digits, shape)
    if axes is None:
        raise Refused("it divides dimensions that an earlier one has put together in another way")
    return [digit for axis in order for digit in axes[axis]]


def _step(node: ir.Node, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Sequence[int] | None]:
    """A shape under which a node sees its input, and in which order it takes its dimensions; None: as they are.

    Raises:
        Refused: for attributes that ONNX does not allow.
    """
    if node.op_type == "Transpose":
        order = list(node.attributes.get_ints("perm") or range(len(shape))[::-1])
        if sorted(order) != [*range(len(shape))]:
            raise Refused(f"its perm is {order}, of {len(shape)} dimensions")
        return shape, order
    if node.op_type not in ("DepthToSpace", "SpaceToDepth"):
        return shape, None
    by = node.attributes.get_int("blocksize", 0)
    mode = node.attributes.get_string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Refused(f"its mode is {mode}; DCR and CRD are supported")
    batch, channels, height, width = shape
    if node.op_type == "SpaceToDepth":
        if by < 1 or height % by or width % by:
            raise Refused(f"its blocksize is {by}, of an image of {height}x{width}")
        order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
        return (batch, channels, height // by, by, width // by, by), order
    if by < 1 or channels % (by * by):
        raise Refused(f"its blocksize is {by}, of {channels} channels")
    if mode == "CRD":
        return (batch, channels // by**2, by, by, height, width), (0, 1, 4, 2, 5, 3)
    return (batch, by, by, channels // by**2, height, width), (0, 3, 4, 1, 5, 2)


def _divided(digits: list[_Digit], shape: Sequence[int]) -> list[list[_Digit]] | None:
    """The loops that each dimension of a shape is; None where a dimension ends within a loop that does not divide."""
    found: list[list[_Digit]] = []
    rest = [digit for digit in digits if digit.size > 1]
    for size in reversed(shape):
        axis: list[_Digit] = []
        while size > 1:
            digit = rest.pop()
            if digit.size > size:
                if digit.size % size:
                    return None
                rest.append(_Digit(digit.size // size, digit.stride * size))
                digit = _Digit(size, digit.stride)
            if size % digit.size:
                return None
            size //= digit.size
            axis.insert(0, digit)
        found.insert(0, axis)
    return found


def _next(context: Context, value: ir.Value) -> ir.Node | None:
    """The node of this kind that alone reads a value, quantised or not, and which nothing else sees."""
    while True:
        uses = list(value.uses())
        if value.name in context.graph_outputs or len(uses) != 1 or uses[0].idx != 0:
            return None
        node = uses[0].node
        if node.op_type in REARRANGING and node.domain in ONNX_DOMAINS:
            return node
        if not is_quantiser(node, "DequantizeLinear"):
            return None
        value = node.outputs[0]


def _match(context: Context, node: ir.Node, chain: Sequence[_Link], value: ir.Value, x: Tensor) -> Match:
    """The match of some nodes in a row.

    What is between them is the input or the result under another shape.

    Raises:
        Refused: the machine cannot make it, or what is between.
    """
    *between, last = chain
    y = last.result.tensor
    before = [link for link in between if link.in_order]
    behind = [link for link in between if not link.in_order]
    if between and (x.quantization, x.format) != (y.quantization, y.format):
        raise Refused("it changes the quantisation as well")
    if any([one.stride for one in link.digits] != [one.stride for one in last.digits] for link in behind):
        raise Refused("it changes the order again")
    sources = sources_of([one for link in chain for one in link.result.nodes])
    operations = [
        *(Reshape(output=link.result.tensor.name, sources=sources, input=x.name) for link in before),
        _operation(last, sources, x),
        *(Reshape(output=link.result.tensor.name, sources=sources, input=y.name) for link in behind),
    ]
    results = [last.result, *(link.result for link in between)]
    if between:
        match = match_of_several(node, results, [value], [x], operations)
    else:
        match = match_of_moved(node, results, value, x, operations)
    for operation in match.graph.operations:
        if operation.output == y.name:
            check_operation(context.config, match.graph, operation)
    return match


def _operation(last: _Link, sources: tuple[SourceNode, ...], x: Tensor) -> TensorOperation:
    y = last.result.tensor
    if last.in_order:
        flattens = len(y.shape) == 2 and y.shape[0] == x.shape[0] and x.nchw_axis(1) == 1
        if x.order != y.order and flattens and (x.quantization, x.format) != (y.quantization, y.format):
            raise Refused(f"it changes the shape {list(x.shape)} to {list(y.shape)}, and the quantisation as well")
        if x.order == y.order or flattens:
            return Reshape(output=y.name, sources=sources, input=x.name)
    taken = [digit for digit in last.digits if digit.size > 1]
    given = sorted(taken, key=lambda digit: -digit.stride)
    return Rearrange(
        output=y.name, sources=sources, input=x.name, sizes=tuple(digit.size for digit in given),
        permutation=tuple(given.index(digit) for digit in taken),
    )  # fmt: skip
