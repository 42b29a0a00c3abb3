"""Reductions: the greatest, the mean or the sum of elements along some dimensions.

Elements that are reduced become places of an image that lies in one row, which moves nothing where the channels and the
dimensions before them stay; the machine then takes its pools.
"""

from dataclasses import dataclass, replace
from math import prod

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.channels import reduced_axes
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
from npukit.compiler.ir.operations import GlobalAveragePool, MaxPool, Rearrange, Reinterpret, TensorOperation
from npukit.compiler.ir.rearrange import moves_nothing
from npukit.compiler.ir.tensor import Quantization, Tensor
from npukit.compiler.legality import average_problem
from npukit.compiler.tiling import window_words

__all__ = ["match_maximum", "match_mean"]


@dataclass(frozen=True)
class _Row:
    """A tensor whose reduced elements lie in rows, and the way there and back.

    Attributes:
        seen: [1, channels, others, reduced], or [others, channels, 1, reduced], which lie alike in memory.
        into: what makes it.
        kept: dimensions of the input behind the others and the channels, in the order in which `seen` has them.
    """

    seen: Tensor
    into: Rearrange
    kept: tuple[int, ...]

    def back(self, made: Tensor, y: Tensor, x: Tensor, result: Produced) -> Rearrange:
        """What makes the result of `made`, `seen` with one element for each row."""
        order = sorted(range(len(self.kept)), key=lambda position: self.kept[position])
        sizes = tuple(x.shape[axis] for axis in self.kept)
        return Rearrange(
            output=y.name, sources=sources_of(result.nodes), input=made.name, sizes=sizes, permutation=tuple(order)
        )


MOST_MOVED = 1 << 15
"""Elements that are brought to other places or lanes for a reduction; more take longer than ONNX Runtime does."""
MOST_IMAGES = 1024
"""Means that are made one by one."""


def _row(node: ir.Node, x: Tensor, result: Produced, images: bool) -> _Row:
    """The elements that a node reduces, in rows, each an image by itself or all of them one image.

    Raises:
        Refused: dimensions that are not known, or nothing that stays, or too much to move.
    """
    axes = reduced_axes(node, len(x.shape))
    if axes is None:
        raise Refused("the dimensions that it reduces are not constant")
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    if not axes or not kept:
        raise Refused(f"it reduces dimensions {list(axes)} of {list(x.shape)}; some, and not all, are supported")
    channel = x.channel_axis if x.channel_axis in kept else kept[-1]
    rest = tuple(axis for axis in kept if axis != channel)
    others = prod(x.shape[axis] for axis in rest)
    order = (*rest, channel) if images else (channel, *rest)
    sizes = (others, x.shape[channel], 1) if images else (1, x.shape[channel], others)
    shape = *sizes, prod(x.shape[axis] for axis in axes)
    seen = replace(x, name=f"{x.name} in rows of {result.tensor.name}", shape=shape, channel_axis=1)
    into = Rearrange(
        output=seen.name, sources=sources_of(result.nodes), input=x.name, sizes=x.shape, permutation=(*order, *axes)
    )
    if not moves_nothing(into, x, seen) and prod(x.shape) > MOST_MOVED:
        raise Refused(
            f"reducing {list(axes)} of {list(x.shape)} moves {prod(x.shape)} elements; {MOST_MOVED} are supported"
        )
    if images and others > MOST_IMAGES:
        raise Refused(f"it makes {others} means by themselves; {MOST_IMAGES} are supported")
    return _Row(seen, into, order)


def match_maximum(context: Context, node: ir.Node) -> Match:
    """A ReduceMax, or a GlobalMaxPool, along any dimensions but all."""
    value, x = source(context, operands_of_node(node)[0])
    result = produced(context, node, clamp=False)
    row = _row(node, x, result, images=False)
    most = min(context.config.max_window, window_words(context.config))
    before: list[TensorOperation] = [row.into]
    tensors = [row.seen]
    while tensors[-1].shape[3] > 1:  # of the greatest of a window each, the greatest
        last = tensors[-1]
        size = last.shape[3]
        kernel = min(most, size)
        count = -(-size // kernel)
        made = replace(last, name=f"{result.tensor.name} of {count}", shape=(*last.shape[:3], count))
        before.append(
            MaxPool(
                output=made.name, sources=sources_of(result.nodes), input=last.name, kernel=(1, kernel),
                strides=(1, kernel), pads=(0, 0, 0, count * kernel - size),
            )
        )  # fmt: skip
        tensors.append(made)
    back = row.back(tensors[-1], result.tensor, x, result)
    return match_of_moved(node, [result], value, x, [back], before, tensors)


def match_mean(context: Context, node: ir.Node) -> Match:
    """A ReduceMean or ReduceSum along any dimensions but all, whose result no rounding of floats can change."""
    value, x = source(context, operands_of_node(node)[0])
    result = produced(context, node)
    y = result.tensor
    row = _row(node, x, result, images=True)
    count = row.seen.shape[3]
    scale = y.scale
    if node.op_type == "ReduceSum":
        if y.format.floating:
            raise Refused("sums are supported in int8")
        # a mean in these units is the sum in its own; of powers of two, which alone are exact, no bit is lost
        scale = y.scale / count
    if not y.format.floating:
        problem = average_problem(x.scale, scale, count)
        if problem is not None:
            raise Refused(problem)
    quantization = None if y.quantization is None else Quantization((scale,), y.quantization.zero_point)
    shape = (*row.seen.shape[:3], 1)
    made = replace(y, name=f"{y.name} in rows", shape=shape, channel_axis=1, quantization=quantization)
    mean = GlobalAveragePool(
        output=made.name, sources=sources_of(result.nodes), input=row.seen.name, limits=result.limits
    )
    operations: list[TensorOperation] = [row.into, mean]
    inner = [row.seen, made]
    if made.quantization != y.quantization:
        summed = replace(made, name=f"{y.name} in rows, summed", quantization=y.quantization)
        operations.append(Reinterpret(output=summed.name, sources=sources_of(result.nodes), input=made.name))
        inner.append(summed)
    operations.append(row.back(inner[-1], y, x, result))
    return match_of_several(node, [result], [value], [x], operations, inner=inner)
