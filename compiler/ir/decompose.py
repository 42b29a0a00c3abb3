"""Operations in terms of others, without any machine."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Convolution, Dilate, TransposedConvolution
from npukit.compiler.ir.tensor import Constant, Tensor

__all__ = ["convolution_of", "without_padding"]


def convolution_of(
    graph: Graph, operation: TransposedConvolution, free: Callable[[str], str] = lambda name: name
) -> tuple[Dilate | None, Tensor, Constant, Convolution]:
    """A transposed convolution as a convolution in steps of 1 over its input, between whose elements lies padding.

    Element (y, x) of the input adds to the result's (s y - p + k d, s x - p + k d) for each position k of the kernel.
    So the result is a convolution of the kernel, turned by 180 degrees and with its channels exchanged, over the input
    with s - 1 zeros between neighbours and d (kernel - 1) - p around it (Dumoulin and Visin, "A guide to convolution
    arithmetic for deep learning", 2018, section 4).

    Args:
        graph: of the operation.
        operation: to be replaced.
        free: makes of a name one that the graph does not have.

    Returns:
        What makes the spread input, or None where the strides are 1; the spread input; the turned kernel; the
        convolution, whose padding is negative where `pads` go beyond the kernel.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    kernel = graph.constants[operation.weights]
    inner, of_group, height, width = kernel.data.shape
    groups = operation.groups
    split = kernel.data.reshape(groups, inner // groups, of_group, height, width)
    turned = np.ascontiguousarray(split.transpose(0, 2, 1, 3, 4)[..., ::-1, ::-1])
    shape = groups * of_group, inner // groups, height, width
    quantization = kernel.tensor.quantization
    if quantization is not None and quantization.axis is not None:
        # each group has the same scales
        quantization = replace(
            quantization, axis=0, scale=quantization.scale * groups, zero_point=quantization.zero_point * groups
        )
    name = free(f"{kernel.tensor.name} of {operation.node}")
    weights = Constant(Tensor(name, shape, kernel.tensor.format, quantization), turned.reshape(shape))

    size = [(x.view[2 + axis] - 1) * operation.strides[axis] + 1 for axis in (0, 1)]
    spread, dilate = x, None
    if operation.strides != (1, 1):
        spread = replace(x, name=free(f"{x.name} of {operation.node}"), shape=(*x.view[:2], *size), layout=None)
        dilate = Dilate(output=spread.name, sources=operation.sources, input=operation.input, factors=operation.strides)
    reach = [((height, width)[axis] - 1) * operation.dilations[axis] for axis in (0, 1)]
    before = [reach[axis] - operation.pads[axis] for axis in (0, 1)]
    after = [max(0, y.view[2 + axis] - 1 + reach[axis] + 1 - size[axis] - before[axis]) for axis in (0, 1)]
    convolution = Convolution(
        output=operation.output, sources=operation.sources, input=spread.name, weights=name, bias=operation.bias,
        strides=(1, 1), pads=(before[0], before[1], after[0], after[1]), dilations=operation.dilations,
        groups=groups, limits=operation.limits, rounding=operation.rounding,
    )  # fmt: skip
    return dilate, spread, weights, convolution


def without_padding(
    graph: Graph, operation: Convolution, free: Callable[[str], str] = str
) -> tuple[Constant | None, Convolution]:
    """A convolution without the rows and columns of its kernel that see nothing but padding, as those of large
    dilations do; padding counts for nothing.

    Args:
        graph: of the operation.
        operation: to be replaced.
        free: makes of a name one that the graph does not have.

    Returns:
        The kernel that is left, or None where all of it is; the convolution.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    kernel = graph.constants[operation.weights]
    kept = []
    pads = [*operation.pads]
    for axis in (0, 1):
        size, step, dilation = x.view[2 + axis], operation.strides[axis], operation.dilations[axis]
        starts = [place * dilation - pads[axis] for place in range(kernel.data.shape[2 + axis])]
        last = (y.view[2 + axis] - 1) * step
        # a place of the kernel sees the elements from its start on, so many apart, as far as results go
        seen = [any(0 <= start + by < size for by in range(0, last + 1, step)) for start in starts]
        places = [place for place, one in enumerate(seen) if one] or [0]
        first = max(0, min(places[0], pads[axis] // dilation))  # no result begins within the image
        kept.append(slice(first, places[-1] + 1))
        pads[axis] -= first * dilation
        pads[2 + axis] = max(0, last + (places[-1] - first) * dilation + 1 - size - pads[axis])
    data = np.ascontiguousarray(kernel.data[:, :, kept[0], kept[1]])
    if data.shape == kernel.data.shape:
        return None, operation
    name = free(f"{kernel.tensor.name} of {operation.node}")
    weights = Constant(replace(kernel.tensor, name=name, shape=data.shape), data)
    return weights, replace(operation, weights=name, pads=(pads[0], pads[1], pads[2], pads[3]))
