"""What bf16 layers must give, bit for bit: plain numpy on whole NCHW tensors, sums in the order that is defined.

It shares the arithmetic of single operations with the simulator, and nothing else: no tiles, instructions, layouts or
memories. A layer is computed from the values that the machine gave its inputs, so that one wrong layer is one finding.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Dilate,
    Elementwise,
    GlobalAveragePool,
    Limits,
    MatrixProduct,
    MaxPool,
    Multiply,
    Normalization,
    Pad,
    PiecewiseLinear,
    Rearrange,
    Repeat,
    Slice,
    Softmax,
    TensorOperation,
    Window,
)
from npukit.compiler.lines import Lines, exponential, reciprocal, reciprocal_root
from npukit.compiler.tiling import average_window
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import Indexing
from npukit.sim.bfloat16 import add, canonical, clamp, function, maximum, multiply, narrow, weigh, widen

__all__ = ["layer_output"]

Floats = NDArray[np.float32]


def layer_output(
    config: NpuConfig, graph: Graph, operation: TensorOperation, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    """An operation's result [batch, channels, height, width], rounded to bfloat16.

    Args:
        config: its array's size is part of the order.
        graph: of a bf16 configuration, with its constants.
        operation: of the graph.
        inputs: activations by name, NCHW, rounded to bfloat16.
        shape: the result's, NCHW.
    """
    result = _OPERATIONS[type(operation)](config, graph, operation, inputs, shape)
    return widen(narrow(canonical(result)))


def _limited(values: Floats, limits: Limits) -> Floats:
    low, high = (-np.inf, np.inf) if limits is None else limits
    return clamp(values, np.float32(low), np.float32(high))


def _rounded(graph: Graph, name: str) -> Floats:
    """A constant, as the machine has it."""
    return widen(narrow(graph.constants[name].data))


def _bias(graph: Graph, operation: Convolution | DepthwiseConvolution) -> Floats:
    if operation.bias is None:
        return np.zeros(1, np.float32)
    return graph.constants[operation.bias].data.astype(np.float32)[None, :, None, None]


def _padded(
    x: Floats, operation: Window, shape: tuple[int, ...], kernel: tuple[int, int], value: float = 0.0
) -> Floats:
    """The input with all that the windows touch; what `pads` lack at the end is added, what is too much stays."""
    need = [
        (shape[2 + axis] - 1) * operation.strides[axis] + (kernel[axis] - 1) * operation.dilations[axis] + 1
        for axis in (0, 1)
    ]
    after = [max(0, need[axis] - operation.pads[axis] - x.shape[2 + axis]) for axis in (0, 1)]
    around = ((0, 0), (0, 0), (operation.pads[0], after[0]), (operation.pads[1], after[1]))
    return np.pad(x, around, constant_values=np.float32(value))


def _shifted(x: Floats, operation: Window, shape: tuple[int, ...], ky: int, kx: int) -> Floats:
    """The element of each window at kernel position (ky, kx)."""
    top, left = ky * operation.dilations[0], kx * operation.dilations[1]
    rows = slice(top, top + (shape[2] - 1) * operation.strides[0] + 1, operation.strides[0])
    columns = slice(left, left + (shape[3] - 1) * operation.strides[1] + 1, operation.strides[1])
    return x[:, :, rows, columns]


def _convolution(
    config: NpuConfig, graph: Graph, operation: Convolution, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    if operation.depth is not None:
        return _deep_convolution(config, graph, operation, inputs[operation.input], shape)
    weights = _rounded(graph, operation.weights)
    x = _padded(inputs[operation.input], operation, shape, weights.shape[2:])
    result = _sums(config, weights, operation, x, np.zeros(shape, np.float32))
    return _limited(add(result, _bias(graph, operation)), operation.limits)


def _deep_convolution(
    config: NpuConfig, graph: Graph, operation: Convolution, x: Floats, shape: tuple[int, ...]
) -> Floats:
    """Windows of three dimensions: an image of the kernel after the other; those that see padding add nothing."""
    assert operation.depth is not None
    weights = _rounded(graph, operation.weights)
    kernels = weights.reshape(len(weights), operation.depth.kernel, -1, *weights.shape[2:])
    x = _padded(x, operation, shape, weights.shape[2:])
    result = np.zeros(shape, np.float32)
    for image in range(shape[0]):
        of_image = slice(image, image + 1)
        for tap, source in operation.depth.seen(image):
            result[of_image] = _sums(config, kernels[:, tap], operation, x[source, None], result[of_image])
    return _limited(add(result, _bias(graph, operation)), operation.limits)


def _sums(config: NpuConfig, weights: Floats, operation: Convolution, x: Floats, start: Floats) -> Floats:
    """Sums over channels and windows of a padded input, added to what is there from the start."""
    outer, inner, height, width = weights.shape
    result, shape = start.copy(), start.shape
    out_of_group = outer // operation.groups
    for group in range(operation.groups):
        first = group * inner
        outputs = slice(group * out_of_group, (group + 1) * out_of_group)
        total = result[:, outputs]
        # a step of the array is a word, of which channels of other groups add nothing
        edges = sorted({first, *range(-(-first // config.array) * config.array, first + inner, config.array)})
        for block in edges:
            for ky in range(height):
                for kx in range(width):
                    window = _shifted(x, operation, shape, ky, kx)
                    word = block - block % config.array
                    for start_of_pass in range(word, word + config.array, config.rows):
                        column = np.zeros_like(total)
                        end = min(first + inner, start_of_pass + config.rows)
                        for channel in range(max(block, start_of_pass), end):
                            factor = weights[outputs, channel - first, ky, kx][None, :, None, None]
                            column = add(column, weigh(window[:, channel, None], factor))
                        total = add(total, column)
        result[:, outputs] = total
    return result


def _depthwise(
    config: NpuConfig, graph: Graph, operation: DepthwiseConvolution, inputs: Mapping[str, Floats],
    shape: tuple[int, ...],
) -> Floats:  # fmt: skip
    weights = _rounded(graph, operation.weights)
    height, width = weights.shape[2:]
    x = _padded(inputs[operation.input], operation, shape, (height, width))
    total = np.zeros(shape, np.float32)
    for ky in range(height):
        for kx in range(width):
            window = _shifted(x, operation, shape, ky, kx)
            total = add(total, weigh(window, weights[None, :, 0, ky, kx, None, None]))
    return _limited(add(total, _bias(graph, operation)), operation.limits)


def _elementwise(
    config: NpuConfig, graph: Graph, operation: Elementwise, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    a, b = (inputs[name] if name in graph.tensors else _constant(graph, operation, name) for name in operation.operands)
    function = add if isinstance(operation, Add) else multiply
    return _limited(function(*np.broadcast_arrays(a, b)), operation.limits)


def _constant(graph: Graph, operation: Elementwise, name: str) -> Floats:
    """A constant operand, NCHW, as often as the result has it."""
    y = graph.tensors[operation.output]
    full = np.broadcast_to(_rounded(graph, name), y.shape)
    return y.in_view(y.in_memory(full))


def _maximum(
    config: NpuConfig, graph: Graph, operation: MaxPool, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    x = _padded(inputs[operation.input], operation, shape, operation.kernel, -np.inf)
    best: Floats | None = None
    for ky in range(operation.kernel[0]):
        for kx in range(operation.kernel[1]):
            value = _shifted(x, operation, shape, ky, kx)
            best = value if best is None else np.where(np.isnan(value) | (value > best), value, best)
    assert best is not None
    return best


def _counted(operation: AveragePool, axis: int, size: int, outputs: int) -> NDArray[np.int64]:
    """How many rows or columns count in each window."""
    inside = np.zeros(operation.pads[axis] + size + operation.pads[2 + axis], np.int64)
    inside[operation.pads[axis] : operation.pads[axis] + size] = 1
    inside |= operation.count_padding
    starts = range(0, outputs * operation.strides[axis], operation.strides[axis])
    return np.array([inside[start : start + operation.kernel[axis]].sum() for start in starts])


def _average(
    config: NpuConfig, graph: Graph, operation: AveragePool, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    x = inputs[operation.input]
    rows, columns = (_counted(operation, axis, x.shape[2 + axis], shape[2 + axis]) for axis in (0, 1))
    x = _padded(x, operation, shape, operation.kernel)
    total = np.zeros(shape, np.float32)
    for ky in range(operation.kernel[0]):
        for kx in range(operation.kernel[1]):
            total = add(total, _shifted(x, operation, shape, ky, kx))
    factors = np.float32(1) / np.outer(rows, columns).astype(np.float32)
    return _limited(multiply(total, factors), operation.limits)


def _global_average(
    config: NpuConfig, graph: Graph, operation: GlobalAveragePool, inputs: Mapping[str, Floats],
    shape: tuple[int, ...],
) -> Floats:  # fmt: skip
    """Windows as large as the machine sums at once, row by row; then windows of their sums, until one is left."""
    total = inputs[operation.input]
    factor = np.array(1 / np.float32(total.shape[2] * total.shape[3]), np.float32)
    most = average_window(config)
    while True:
        *_, height, width = total.shape
        rows, columns = -(-height // most), -(-width // most)
        sums = np.zeros((*total.shape[:2], rows, columns), np.float32)
        for row in range(rows):
            for column in range(columns):
                for y in range(row * most, min(height, row * most + most)):
                    for x in range(column * most, min(width, column * most + most)):
                        sums[:, :, row, column] = add(sums[:, :, row, column], total[:, :, y, x])
        total = sums
        if (rows, columns) == (1, 1):
            return _limited(multiply(total, factor), operation.limits)


def _pad(
    config: NpuConfig, graph: Graph, operation: Pad, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    x = inputs[operation.input]
    cut = tuple(slice(max(0, -low), size - max(0, -high)) for low, size, high in _sides(graph, operation, x))
    around = [(max(0, low), max(0, high)) for low, _, high in _sides(graph, operation, x)]
    return np.pad(x[cut], around, constant_values=np.float32(operation.value))


def _sides(graph: Graph, operation: Pad, x: Floats) -> list[tuple[int, int, int]]:
    tensor = graph.tensors[operation.input]
    before, after = (tensor.in_nchw(one, 0) for one in (operation.before, operation.after))
    return [*zip(before, x.shape, after, strict=True)]


def _slice(
    config: NpuConfig, graph: Graph, operation: Slice, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    starts = graph.tensors[operation.input].in_nchw(operation.starts, 0)
    part = tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))
    return inputs[operation.input][part]


def _concatenation(
    config: NpuConfig, graph: Graph, operation: Concatenation, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    y = graph.tensors[operation.output]
    found = []
    for name in operation.inputs:
        if name in graph.constants:
            part = replace(y, shape=graph.constants[name].data.shape, layout=None)
            found.append(part.in_view(part.in_memory(_rounded(graph, name))))
        else:
            found.append(inputs[name])
    return np.concatenate(found, axis=y.nchw_axis(operation.axis))


def _rearrange(
    config: NpuConfig, graph: Graph, operation: Rearrange, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    x, y = graph.tensors[operation.input], graph.tensors[operation.output]
    values = x.from_memory(inputs[operation.input].swapaxes(0, 1))
    moved = values.reshape(operation.sizes).transpose(operation.permutation).reshape(y.shape)
    return y.in_view(y.in_memory(moved))


def _dilate(
    config: NpuConfig, graph: Graph, operation: Dilate, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    result = np.zeros(shape, np.float32)
    result[:, :, :: operation.factors[0], :: operation.factors[1]] = inputs[operation.input]
    return result


def _repeat(
    config: NpuConfig, graph: Graph, operation: Repeat, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    return inputs[operation.input].repeat(operation.factors[0], axis=2).repeat(operation.factors[1], axis=3)


def _matrix_product(
    config: NpuConfig, graph: Graph, operation: MatrixProduct, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    """Of every pair of matrices, sums of as many products as the array has rows, one after the other."""
    left, right = (graph.tensors[name] for name in (operation.left, operation.right))
    a = _places(inputs[left.name]).reshape(left.shape)
    b = _places(inputs[right.name])
    if right.channel_axis == len(right.shape) - 1:
        b = b.reshape(right.shape)
    else:
        b = b.reshape(*right.shape[:-2], right.shape[-1], right.shape[-2]).swapaxes(-1, -2)
    total: Floats = np.zeros(graph.tensors[operation.output].shape, np.float32)
    for block in range(0, -(-a.shape[-1] // config.array) * config.array, config.rows):
        column: Floats = np.zeros_like(total)
        for inner in range(block, min(a.shape[-1], block + config.rows)):
            column = add(column, weigh(a[..., :, inner, None], b[..., None, inner, :]))
        total = add(total, column)
    if operation.bias is not None:
        total = add(total, graph.constants[operation.bias].data)
    batch, channels, height, width = shape
    return _limited(total, operation.limits).reshape(batch, height, width, channels).transpose(0, 3, 1, 2)


def _piecewise_linear(
    config: NpuConfig, graph: Graph, operation: PiecewiseLinear, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    lines = Lines(graph.constants[operation.table].data, operation.step, operation.offset)
    return _on_lines(inputs[operation.input], lines)


def _on_lines(x: Floats, lines: Lines) -> Floats:
    return function(x, lines.table[:, 0], lines.table[:, 1], Indexing.VALUE, lines.step, lines.offset)


def _of_significand(x: Floats, table: Floats, indexing: Indexing) -> Floats:
    return function(x, table[:, 0], table[:, 1], indexing, 0, 0)


def _softmax(
    config: NpuConfig, graph: Graph, operation: Softmax, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    """Exponentials, rounded; their sums over windows, sums of these sums, and so on; the product with a reciprocal."""
    x = inputs[operation.input]
    largest = maximum(x.transpose(0, 2, 3, 1)[..., None, None])[:, None, ..., 0]
    exponentials = widen(narrow(canonical(_on_lines(add(x, -largest), exponential()))))
    sums = [exponentials[:, channel] for channel in range(x.shape[1])]
    most = config.max_window
    summed = False
    while not summed or len(sums) > 1:
        following, left, summed = [], sums, True
        while left:
            total = np.zeros_like(left[0])
            for term in left[:most]:
                total = add(total, term)
            following.append(total)
            left = left[most:]
        sums = following
    inverse = _of_significand(sums[0], reciprocal(), Indexing.RECIPROCAL)
    return multiply(inverse[:, None], exponentials)


def _normalization(
    config: NpuConfig, graph: Graph, operation: Normalization, inputs: Mapping[str, Floats], shape: tuple[int, ...]
) -> Floats:
    """Less the mean, rounded; by the root of the mean of squares, which are rounded as well, and rounded; scaled."""
    x, channels = inputs[operation.input], shape[1]
    if operation.centred:
        mean = multiply(_channel_sums(config, x, 0.0), np.array(-1 / channels, np.float32))
        x = widen(narrow(canonical(add(mean, x))))
    squares = widen(narrow(canonical(multiply(x, x))))
    sums = _channel_sums(config, squares, channels * operation.epsilon)
    root = _of_significand(sums, reciprocal_root(sqrt(channels)), Indexing.RECIPROCAL_ROOT)
    normal = widen(narrow(canonical(multiply(root, x))))
    scaled = weigh(normal, _rounded(graph, operation.scale)[None, :, None, None])
    bias = np.zeros(1, np.float32) if operation.bias is None else graph.constants[operation.bias].data
    return add(scaled, bias.astype(np.float32)[None, :, None, None])


def _channel_sums(config: NpuConfig, x: Floats, start: float) -> Floats:
    """The sum of each place's channels, as many at once as the array has rows, added to what is there before."""
    total = np.full((x.shape[0], 1, *x.shape[2:]), np.float32(start))
    for block in range(0, -(-x.shape[1] // config.array) * config.array, config.rows):
        column = np.zeros_like(total)
        for channel in range(block, min(x.shape[1], block + config.rows)):
            column = add(column, x[:, channel, None])
        total = add(total, column)
    return total


def _places(image: Floats) -> Floats:
    """NCHW with channels innermost."""
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1))


_OPERATIONS: dict[type[TensorOperation], Callable[..., Floats]] = {
    Convolution: _convolution,
    DepthwiseConvolution: _depthwise,
    MatrixProduct: _matrix_product,
    PiecewiseLinear: _piecewise_linear,
    Softmax: _softmax,
    Normalization: _normalization,
    Add: _elementwise,
    Multiply: _elementwise,
    MaxPool: _maximum,
    AveragePool: _average,
    GlobalAveragePool: _global_average,
    Pad: _pad,
    Slice: _slice,
    Concatenation: _concatenation,
    Repeat: _repeat,
    Rearrange: _rearrange,
    Dilate: _dilate,
}
