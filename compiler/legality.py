"""Which operations a configuration can run, and the reason when it cannot. The limits are the instructions' own."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import isfinite, prod
from typing import Any

import numpy as np
from npukit.compiler.arithmetic import (
    channel_factors,
    depthwise_operation,
    elementwise_constant,
    elementwise_descriptor,
    product_multiplier,
    scaled_mean,
    softmax_descriptor,
    sum_descriptor,
    weights_of,
)
from npukit.compiler.errors import Refused
from npukit.compiler.ir.decompose import convolution_of, without_padding
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    ByElement,
    Clamp,
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Dilate,
    Elementwise,
    FullyConnected,
    GlobalAveragePool,
    Lookup,
    MatrixProduct,
    MaxPool,
    Multiply,
    Normalization,
    Pad,
    PiecewiseLinear,
    Rearrange,
    Repeat,
    Reshape,
    Rounding,
    Slice,
    Softmax,
    TensorOperation,
    TransposedConvolution,
)
from npukit.compiler.ir.rearrange import loops_of, moves_nothing, turn_of
from npukit.compiler.ir.tensor import Tensor, view_axes
from npukit.compiler.limits import MAX_COLUMN_STRIDE, MAX_COLUMNS, MAX_PAD, MAX_ROWS, MAX_STEP, MAX_STRIDE
from npukit.compiler.normalization import normalization_descriptors, normalization_parameters
from npukit.compiler.tiling import (
    average_window,
    depthwise_blocks,
    elementwise_words,
    kernel_problem,
    normalization_places,
    softmax_accumulators,
    softmax_loops,
    softmax_tile_words,
    softmax_words,
    window_counts,
    window_problem,
)
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import OPTIONAL_OPERATIONS, descriptor_words
from npukit.isa.formats import INT8, INT32
from npukit.isa.instructions import Operation, Vector

__all__ = ["LEGALITY", "average_problem", "check_operation", "is_depthwise"]


def check_operation(config: NpuConfig, graph: Graph, operation: TensorOperation) -> None:
    """Whether the machine can run an operation.

    Raises:
        Refused: it cannot; the message is the constraint and the value that broke it.
    """
    if getattr(operation, "rounding", Rounding.ONNXRUNTIME) is not Rounding.ONNXRUNTIME:
        _check_fixed_point(graph, operation)
    check = LEGALITY.get(type(operation))
    if check is not None:
        check(config, graph, operation)


_FIXED_POINT = (Convolution, DepthwiseConvolution, FullyConnected, Add, Multiply, AveragePool, GlobalAveragePool)
"""What is computed in TensorFlow Lite's arithmetic as well."""


def _check_fixed_point(graph: Graph, operation: TensorOperation) -> None:
    """Refuse what the machine does not compute in TensorFlow Lite's arithmetic."""
    if not isinstance(operation, _FIXED_POINT):
        raise Refused(
            "it rounds as TensorFlow Lite does, which is supported in sums of products, Add, Mul and averages"
        )
    for name in (*graph.activations(operation), operation.output):
        tensor = graph.tensor(name)
        if tensor.format is not INT8:
            raise Refused(f"{name} is {tensor.format.name}; in TensorFlow Lite's arithmetic int8 is supported")
    if getattr(operation, "alpha", 1.0) != 1.0:
        raise Refused("it has a factor, which TensorFlow Lite's arithmetic does not know")
    if isinstance(operation, AveragePool):
        x, y = graph.tensor(operation.input), graph.tensor(operation.output)
        if x.quantization != y.quantization:
            raise Refused("TensorFlow Lite's averages have their input's scale and zero point")


def is_depthwise(config: NpuConfig, graph: Graph, operation: Convolution) -> bool:
    """Whether VECTOR's windows can compute a convolution, each channel by itself."""
    x, weights = graph.tensor(operation.input), graph.constants[operation.weights]
    kernel = graph.kernel(operation)
    if not 1 < operation.groups == weights.tensor.shape[0] == x.view[1] or graph.tensor(operation.output).parts > 1:
        return False
    if window_problem(config, kernel, operation.strides, operation.dilations) or not depthwise_blocks(
        config, kernel, depthwise_operation(operation)
    ):
        return False
    if x.format.floating or -128 <= (values := weights_of(weights)).min() <= values.max() <= 127:
        return True
    # the array computes the blocks in which a weight has 9 bits: a diagonal for each tap
    fits = kernel[0] * kernel[1] * config.array <= config.wgt_depth
    return fits and kernel_problem(config, kernel, operation.dilations) is None


def _check_pads(pads: tuple[int, ...]) -> None:
    if max(pads) > MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {MAX_PAD}")


def _convolution(config: NpuConfig, graph: Graph, operation: Convolution) -> None:
    strides, dilations = operation.strides, operation.dilations
    less, operation = without_padding(graph, operation)
    if less is not None:
        graph = replace(graph, constants={**graph.constants, less.tensor.name: less})
    kernel = graph.kernel(operation)
    _check_pads(operation.pads)
    if strides[1] > MAX_COLUMN_STRIDE or dilations[1] * kernel[1] > MAX_STRIDE:
        raise Refused(f"stride {list(strides)} or dilation {list(dilations)} exceeds the address fields")
    x = graph.tensor(operation.input)
    if not x.format.floating and graph.tensor(operation.output).format is not INT32:
        channel_factors(graph, operation)
    if is_depthwise(config, graph, operation):
        return
    problem = kernel_problem(config, kernel, dilations)
    if problem is not None:
        raise Refused(f"{problem}: use a larger configuration")


def _transposed_convolution(config: NpuConfig, graph: Graph, operation: TransposedConvolution) -> None:
    x = graph.tensor(operation.input)
    dilate, spread, weights, convolution = convolution_of(graph, operation)
    top, left, *_ = convolution.pads
    if min(top, left) < 0:
        raise Refused(f"pads {list(operation.pads)} cut off more than the kernel reaches")
    if not x.format.floating:
        _check_exact(graph, operation)
    tensors = {**graph.tensors, spread.name: spread}
    whole = replace(graph, tensors=tensors, constants={**graph.constants, weights.tensor.name: weights})
    if dilate is not None:
        _repeat(config, whole, dilate)
    _convolution(config, whole, convolution)


def _check_exact(graph: Graph, operation: TransposedConvolution) -> None:
    """Refuse sums that ONNX Runtime may round: it adds products of dequantised numbers in fp32, in an order of its own.

    Where all scales are powers of two, products and sums are whole numbers of one unit, and exact below 2**24 of it.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    kernel = graph.constants[operation.weights]
    assert kernel.tensor.quantization is not None
    scales = (x.scale, y.scale, *kernel.tensor.quantization.scale)
    wrong = [scale for scale in scales if np.frexp(scale)[0] != 0.5]
    if wrong:
        raise Refused(f"its scale {wrong[0]:g} is no power of two: ONNX Runtime computes it in float, and rounds there")
    stored = x.format.stored
    most = max(x.zero_point - stored.start, stored.stop - 1 - x.zero_point)
    weights = np.abs(weights_of(kernel).astype(np.int64))
    of_groups = weights.reshape(operation.groups, -1, *weights.shape[1:])
    bias = 0 if operation.bias is None else int(np.abs(graph.constants[operation.bias].data.astype(np.int64)).max())
    # an element of the result meets those elements of the kernel that are a stride apart
    rows, columns = (
        [np.flatnonzero(np.arange(size) * step % stride == first) for first in range(stride)]
        for size, step, stride in zip(weights.shape[2:], operation.dilations, operation.strides, strict=True)
    )
    met = max(int(of_groups[:, :, :, tall][..., wide].sum(axis=(1, 3, 4)).max()) for tall in rows for wide in columns)
    total = met * most + bias
    if not total * x.scale * max(kernel.tensor.quantization.scale) < float(np.finfo(np.float32).max):
        raise Refused(f"its scales make sums of {total} units beyond fp32")
    if total >= 1 << 24:
        raise Refused(f"its sums may reach {total} units; in ONNX Runtime's floats they are exact below {1 << 24}")


def _fully_connected(config: NpuConfig, graph: Graph, operation: FullyConnected) -> None:
    x = graph.tensor(operation.input)
    if graph.tensor(operation.output).format is INT32:
        return
    if not x.format.floating:
        channel_factors(graph, operation)
    elif operation.alpha != 1.0:
        raise Refused(f"alpha is {operation.alpha}; 1 is supported in bf16")


def _matrix_product(config: NpuConfig, graph: Graph, operation: MatrixProduct) -> None:
    left, right = graph.tensor(operation.left), graph.tensor(operation.right)
    if not left.format.floating:
        product_multiplier(graph, operation)
    elif operation.alpha != 1.0:
        raise Refused(f"alpha is {operation.alpha}; 1 is supported in bf16")
    if right.channel_axis == len(right.shape) - 1:
        return
    if not config.transpose:
        raise Refused(f"words of {right.name} hold what is summed up, and transpose is 0")
    beside = -right.shape[-1] % config.array
    if beside > MAX_PAD:
        raise Refused(f"{right.shape[-1]} columns leave {beside} of a tile empty, and a border has {MAX_PAD}")


def _softmax(config: NpuConfig, graph: Graph, operation: Softmax) -> None:
    x = graph.tensor(operation.input)
    for field in ("softmax_cycles", "transpose"):
        if not getattr(config, field):
            raise Refused(f"a softmax takes operations that are not there with {field} = 0")
    channels = x.view[1]
    words = -(-channels // config.array) * config.array
    if words > softmax_tile_words(config):
        raise Refused(
            f"{channels} numbers to sum up, with {softmax_tile_words(config)} words of a tile: "
            "use a configuration with a larger act_depth"
        )
    if softmax_loops(channels) is None:
        raise Refused(f"{channels} numbers to sum up are no product of counts of at most {MAX_ROWS} and {MAX_COLUMNS}")
    _check_tables(config, softmax_words(config))
    if not x.format.floating:
        softmax_descriptor(graph, operation)
        return
    windows = -(-channels // config.max_window)
    if windows > softmax_accumulators(config):
        raise Refused(
            f"{channels} numbers make {windows} partial sums, and there is room for {softmax_accumulators(config)}: "
            "use a configuration with a larger acc_depth"
        )


def _normalization(config: NpuConfig, graph: Graph, operation: Normalization) -> None:
    floating = config.activation.floating
    field = "softmax_cycles" if floating else "normalize_cycles"
    if not getattr(config, field):
        raise Refused(f"a normalisation takes operations that are not there with {field} = 0")
    channels = graph.tensor(operation.input).view[1]
    if -(-channels // config.array) > MAX_ROWS:
        raise Refused(f"{channels} numbers are normalised together; {MAX_ROWS * config.array} are supported")
    if not normalization_places(config, channels):
        raise Refused(
            f"{channels} numbers are normalised together, with {softmax_tile_words(config)} words of a tile: "
            "use a configuration with a larger act_depth"
        )
    if not floating:
        normalization_descriptors(graph, operation, config.array)
        normalization_parameters(graph, operation)
        return
    if not (isfinite(operation.epsilon) and operation.epsilon >= 0):
        raise Refused(f"its epsilon is {operation.epsilon:g}; a number that is not negative is supported")
    weights = -(-channels // config.array) * config.array
    if weights > config.wgt_depth // 2:
        raise Refused(
            f"{channels} numbers are summed up by {weights} words of weights; wgt_depth {config.wgt_depth} has room "
            f"for {config.wgt_depth // 2}: use a configuration with a larger wgt_depth"
        )
    _check_tables(config, softmax_words(config))


def _check_tables(config: NpuConfig, words: int) -> None:
    """Refuse tables for which PAR has no room."""
    if words > config.par_depth:
        raise Refused(
            f"its tables take {words} words of PAR, which has {config.par_depth}: "
            "use a configuration with a larger par_depth"
        )


def _elementwise(config: NpuConfig, graph: Graph, operation: Elementwise) -> None:
    if isinstance(operation, Add) and operation.subtract and operation.rounding is Rounding.ONNXRUNTIME:
        raise Refused("differences are supported in TensorFlow Lite's arithmetic")
    y = graph.tensor(operation.output)
    if graph.tensors.keys().isdisjoint(operation.operands):
        raise Refused("both of its inputs are constant")
    views = []
    for name in operation.operands:
        if name not in graph.tensors:
            views.append(elementwise_constant(graph.constants[name], y).shape)
            continue
        x = graph.tensors[name]
        _check_channel_axis(x, y.channel_axis)
        if x.view[1] != y.view[1]:
            raise Refused(f"input {list(x.shape)} repeats along channels; only a constant may")
        if any(size not in (1, wanted) for size, wanted in zip(x.view, y.view, strict=True)):
            raise Refused(f"input {list(x.shape)} repeats along some of the dimensions that are one in memory")
        views.append(x.view)
    if y.view not in views:
        shapes = [list(graph.tensor(name).shape) for name in operation.operands]
        raise Refused(f"inputs {shapes[0]} and {shapes[1]} both repeat; one must have the result's shape")
    code, _ = elementwise_descriptor(graph, operation)
    field = OPTIONAL_OPERATIONS.get(code)
    if field is not None and not getattr(config, field):
        raise Refused(f"it takes {code.name}, which is not there with {field} = 0")


def _check_channel_axis(x: Tensor, axis: int) -> None:
    """Refuse a tensor whose words hold other elements than those along an axis of it."""
    if replace(x, channel_axis=axis, layout=None).order != x.order:
        raise Refused(f"words of {x.name} hold what lies along its axis {x.channel_axis}, and axis {axis} is wanted")


def _max_pool(config: NpuConfig, graph: Graph, operation: MaxPool) -> None:
    _check_pads(operation.pads)
    problem = window_problem(config, operation.kernel, operation.strides, operation.dilations)
    if problem is not None:
        raise Refused(problem)


def _average_pool(config: NpuConfig, graph: Graph, operation: AveragePool) -> None:
    _check_pads(operation.pads)
    strides = operation.strides
    if strides[1] > MAX_STEP:
        raise Refused(f"stride {list(strides)} exceeds {MAX_STEP}")
    problem = window_problem(config, operation.kernel, strides, (1, 1))
    if problem is not None:
        raise Refused(problem)
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    rows, columns = (set(window_counts(operation, axis, x, y)) for axis in (0, 1))
    for count in sorted({one * other for one in rows for other in columns}):
        sum_descriptor(graph, operation, operation.kernel[0] * operation.kernel[1], count)
        if not x.format.floating and operation.rounding is Rounding.ONNXRUNTIME:
            problem = average_problem(x.scale, y.scale, count)
            if problem is not None:
                raise Refused(problem)


def average_problem(x_scale: float, y_scale: float, count: int) -> str | None:
    """Why an average of so many quantised numbers is not defined: it may lie closer to a tie than ONNX Runtime's float
    sum is exact.

    ONNX Runtime adds `count` dequantised numbers in fp32, in an order of its own, divides, and rounds. With u =
    2**-24 the sum's relative error is below (count + 4) u of the sum of the magnitudes (Higham, "Accuracy and
    Stability of Numerical Algorithms", 2002, section 4.2). Where the scales are powers of two and so is the
    count, nothing is rounded before the end, as long as an average is no subnormal number.
    """
    exact_units = x_scale / count >= float(np.finfo(np.float32).tiny)
    if exact_units and all(np.frexp(number)[0] == 0.5 for number in (x_scale, y_scale, count)):
        return None
    sums = np.arange(-255 * count, 255 * count + 1, dtype=np.float64)
    exact = sums * x_scale / (count * y_scale)
    tie = np.abs(np.abs(exact - np.floor(exact)) - 0.5)
    inside = np.abs(exact) < 300  # beyond, all is clamped
    error = (count + 4) * 2.0**-24 * 255 * x_scale / y_scale
    if (tie[inside] <= error).any():
        return (
            f"averages of {count} elements from scale {x_scale:g} to {y_scale:g} can lie on the boundary between two "
            "results, where ONNX Runtime's sum of floats decides by its rounding"
        )
    return None


def _global_average_pool(config: NpuConfig, graph: Graph, operation: GlobalAveragePool) -> None:
    x = graph.tensor(operation.input)
    height, width = x.view[2:]
    most = average_window(config)
    rows, columns = -(-height // most), -(-width // most)
    windows = rows * columns
    if max(rows, columns) > most and config.acc_banks == 1:  # the sums of sums lie beside them
        windows += -(-rows // most) * -(-columns // most)
    if windows > config.acc_depth:
        raise Refused(f"an image of {height}x{width} makes {windows} partial sums; acc_depth is {config.acc_depth}")
    if scaled_mean(graph, operation) is not None:
        return
    multiplier = sum_descriptor(graph, operation, height * width, height * width)["multiplier"]
    exact = x.format.floating or operation.rounding is not Rounding.ONNXRUNTIME
    if not exact and not 2.0**-32 <= multiplier < 256:  # see MlasQLinearGlobalAveragePool
        raise Refused(f"its scales make the factor {multiplier:g}; ONNX Runtime takes 2**-32 to below 256")


def _check_place(tensor: Tensor, axes: Iterable[int]) -> None:
    """Refuse to change dimensions of a tensor that are one with others in memory."""
    places = view_axes(len(tensor.shape), tensor.channel_axis)
    for axis in axes:
        others = [size for one, size in enumerate(tensor.shape) if one != axis and places[one] == places[axis]]
        if any(size > 1 for size in others):
            raise Refused(f"it changes axis {axis} of {list(tensor.shape)}, which is one with others in memory")


def _concatenation(config: NpuConfig, graph: Graph, operation: Concatenation) -> None:
    parts = [graph.tensor(name) for name in operation.inputs]
    y = graph.tensor(operation.output)
    for part in parts:
        _check_channel_axis(part, y.channel_axis)
    _check_place(y, [operation.axis])


def _pad(config: NpuConfig, graph: Graph, operation: Pad) -> None:
    x = graph.tensor(operation.input)
    given = [*operation.before, *operation.after]
    _check_channel_axis(graph.tensor(operation.output), x.channel_axis)
    changed = [axis for axis, both in enumerate(zip(operation.before, operation.after, strict=True)) if any(both)]
    for tensor in (x, graph.tensor(operation.output)):
        _check_place(tensor, changed)
    if any(x.in_nchw(operation.before, 0)[:2] + x.in_nchw(operation.after, 0)[:2]):
        raise Refused(f"padding {given} concerns batch or channels; height and width are supported")
    if max(given) > MAX_PAD:
        raise Refused(f"padding {given} exceeds {MAX_PAD}")
    if x.scale * 255 > float(np.finfo(np.float32).max):
        raise Refused(f"the scale {x.scale:g} of {x.name} makes values beyond fp32")


def _slice(config: NpuConfig, graph: Graph, operation: Slice) -> None:
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    _check_channel_axis(y, x.channel_axis)
    changed = [axis for axis, sizes in enumerate(zip(x.shape, y.shape, strict=True)) if sizes[0] != sizes[1]]
    for tensor in (x, y):
        _check_place(tensor, changed)
    if x.view[0] != y.view[0]:
        raise Refused("it cuts the batch; height, width and channels are supported")


def _repeat(config: NpuConfig, graph: Graph, operation: Repeat | Dilate) -> None:
    tall, wide = operation.factors
    if tall * wide > elementwise_words(config):
        raise Refused(f"each element becomes {tall}x{wide}, more than a tile holds")


def _reshape(config: NpuConfig, graph: Graph, operation: Reshape) -> None:
    """Only what moves nothing: NCHW to [batch, everything], or what keeps the channels and the order of places."""
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    if x.order == y.order:
        return
    if len(y.shape) != 2 or y.shape[0] != x.shape[0]:
        raise Refused(f"shape {list(x.shape)} becomes {list(y.shape)}; [batch, everything else] is supported")
    height, width = x.view[2:]
    problem = kernel_problem(config, (height, width))
    if problem is not None:  # a product behind it is a convolution with the whole image as its kernel
        raise Refused(f"an image of {height}x{width} is too large to be flattened in place: {problem}")


MOST_CYCLES = 64
"""Of the array for a word of a result whose elements come from other lanes."""


def _piecewise_linear(config: NpuConfig, graph: Graph, operation: PiecewiseLinear) -> None:
    if not config.softmax_cycles:
        raise Refused("a function of one element takes an operation that is not there with softmax_cycles = 0")
    _check_tables(config, descriptor_words(config, Vector(operation=Operation.FUNCTION)))
    _by_element(config, graph, operation)


def _by_element(config: NpuConfig, graph: Graph, operation: Clamp | ByElement) -> None:
    _check_channel_axis(graph.tensor(operation.input), graph.tensor(operation.output).channel_axis)


def _rearrange(config: NpuConfig, graph: Graph, operation: Rearrange) -> None:
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    loops = loops_of(operation, x, y)
    if loops is None:
        raise Refused(
            f"{list(x.shape)} becomes {list(y.shape)}, with channels along axis {x.channel_axis} and {y.channel_axis}: "
            "its dimensions do not divide into the channels and places of both"
        )
    if moves_nothing(operation, x, y) or config.transpose and turn_of(loops, x, y) is not None:
        return
    crossing = [loop for loop in loops if loop.from_channel != loop.to_channel]
    whole = all(
        loop.source == loop.target
        if loop.from_channel and loop.to_channel
        else (loop.source if loop.from_channel else loop.target) % config.array == 0
        for loop in loops
        if loop.from_channel or loop.to_channel
    )
    if whole:
        return  # words move as they are
    # each lane of a word may come from another place, and places in between may have channels of their own
    sources = min(config.array, 2 * prod(loop.size for loop in crossing if loop.to_channel))
    places = prod(loop.size for loop in loops if not (loop.from_channel or loop.to_channel))
    cycles = sources * max(1, config.array // places)
    if cycles > MOST_CYCLES:
        raise Refused(
            f"{list(x.shape)} becomes {list(y.shape)}: bringing channels to other places takes {cycles} cycles for "
            f"each word; {MOST_CYCLES} are supported"
        )


LEGALITY: Mapping[type[TensorOperation], Callable[[NpuConfig, Graph, Any], None]] = {
    Convolution: _convolution,
    FullyConnected: _fully_connected,
    MatrixProduct: _matrix_product,
    Softmax: _softmax,
    Normalization: _normalization,
    TransposedConvolution: _transposed_convolution,
    Dilate: _repeat,
    Add: _elementwise,
    Multiply: _elementwise,
    MaxPool: _max_pool,
    AveragePool: _average_pool,
    GlobalAveragePool: _global_average_pool,
    Concatenation: _concatenation,
    Pad: _pad,
    Slice: _slice,
    Repeat: _repeat,
    Reshape: _reshape,
    Rearrange: _rearrange,
    Clamp: _by_element,
    Lookup: _by_element,
    PiecewiseLinear: _piecewise_linear,
}
"""The check of each operation that has limits of its own."""
