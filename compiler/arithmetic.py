"""The numbers with which the machine computes an operation, so that it rounds as the operation says.

Here alone the IR's quantisation meets the machine's: its elements are int8, so that a uint8 tensor has its top bit
flipped and its zero point lowered by 128; scales become multipliers in fp32, in ONNX Runtime's order of roundings
(docs/numerics.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from math import exp, log
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.exact import float32_fma
from npukit.compiler.fixed_point import (
    LEFT_SHIFT,
    addition_factors,
    average_factor,
    convolution_factors,
    mean_factors,
    product_factors,
)
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    Convolution,
    DepthwiseConvolution,
    Elementwise,
    FullyConnected,
    GlobalAveragePool,
    Limits,
    MatrixProduct,
    MaxPool,
    Multiply,
    Rounding,
    Softmax,
)
from npukit.compiler.ir.tensor import Constant, Tensor, view_axes
from npukit.isa.descriptors import TABLE_ENTRIES
from npukit.isa.formats import UINT8
from npukit.isa.instructions import Operation
from npukit.sim.bfloat16 import narrow
from numpy.typing import NDArray

__all__ = [
    "border",
    "channel_factors",
    "channel_parameters",
    "depthwise_operation",
    "element",
    "elementwise_constant",
    "elementwise_descriptor",
    "lookup_table",
    "machine_limits",
    "product_multiplier",
    "product_parameters",
    "requantize_descriptor",
    "requantize_operation",
    "scaled_mean",
    "softmax_descriptor",
    "sum_descriptor",
    "weights_of",
    "window_border",
    "zero_point",
]

_UNSIGNED = 128
"""By which a uint8 tensor's numbers are lowered on their way to the machine."""
_LARGEST_FACTOR = 1023
"""Of TABLE_DIVIDE."""
_RESERVE = 5
"""Powers of e that QLinearSoftmax leaves between its largest sum and the largest number."""
_TIES = range(30 - LEFT_SHIFT - 7, 30 - LEFT_SHIFT + 1)
"""Powers of two in a multiplier with which a number of eight bits, shifted, may come to an odd multiple of 2**30."""
_LARGEST_RESULT = 2.0**30
"""Half of what a whole number of 32 bits holds: so far away, roundings do not matter."""


def zero_point(tensor: Tensor) -> int:
    """A tensor's zero point on the machine."""
    return tensor.zero_point - (_UNSIGNED if tensor.format is UINT8 else 0)


def border(tensor: Tensor) -> float:
    """What an element of padding is on the machine: 0, in the tensor's numbers."""
    return 0.0 if tensor.format.floating else zero_point(tensor)


def element(tensor: Tensor, value: float) -> float:
    """A number of the tensor's format on the machine."""
    return value - (_UNSIGNED if tensor.format is UINT8 else 0)


def ratio(above: Iterable[NDArray | float], below: Iterable[float]) -> NDArray[np.float32]:
    """A product of scales over another, each step rounded to fp32.

    Raises:
        Refused: when it is not a normal number, which the machine does not compute with.
    """
    one = np.float32(1)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        top, bottom = (reduce(np.multiply, (np.float32(v) for v in values), one) for values in (above, below))
        found = np.asarray(top / bottom)
    wrong = found[~(np.isfinite(found) & (found >= np.finfo(np.float32).tiny))].reshape(-1)
    if wrong.size:
        raise Refused(f"its scales make the factor {wrong[0]:g}, which is no positive, normal fp32 number")
    return found


def machine_limits(tensor: Tensor, limits: Limits) -> dict[str, float]:
    """Of a result as the machine holds it."""
    if tensor.format.floating:
        low, high = limits or (-np.inf, np.inf)
        return {"low": low, "high": high}
    shift = zero_point(tensor) - tensor.zero_point
    low, high = limits or (tensor.format.stored.start, tensor.format.stored.stop - 1)
    return {"low": low + shift, "high": high + shift}


# ---- sums of products

_WEIGHTS: WeakKeyDictionary[Constant, NDArray] = WeakKeyDictionary()
"""Of constants that are in use: what they are on the machine, which several passes ask for."""


def weights_of(constant: Constant) -> NDArray:
    """Weights as the machine multiplies with them: int16 less their zero point, or bfloat16's bits as uint16."""
    found = _WEIGHTS.get(constant)
    if found is None:
        found = _WEIGHTS[constant] = _weights(constant)
    return found


def _weights(constant: Constant) -> NDArray:
    quantization = constant.tensor.quantization
    if quantization is None:
        return narrow(constant.data)
    shape = [1] * constant.data.ndim
    if quantization.axis is not None:
        shape[quantization.axis] = len(quantization.zero_point)
    zeros = np.array(quantization.zero_point, np.int16).reshape(shape)
    return constant.data.astype(np.int16) - zeros


def requantize_operation(operation: Convolution | DepthwiseConvolution | MatrixProduct) -> Operation:
    """What takes its sums out of ACC."""
    return Operation.REQUANTIZE if operation.rounding is Rounding.ONNXRUNTIME else Operation.REQUANTIZE_FIXED


def depthwise_operation(operation: Convolution | DepthwiseConvolution) -> Operation:
    """What computes it on VECTOR."""
    return Operation.DEPTHWISE if operation.rounding is Rounding.ONNXRUNTIME else Operation.DEPTHWISE_FIXED


def requantize_descriptor(
    graph: Graph, operation: Convolution | DepthwiseConvolution | MatrixProduct
) -> dict[str, Any]:
    """The fields of REQUANTIZE's descriptor, which are those of DEPTHWISE, and of both in fixed point."""
    y = graph.tensor(operation.output)
    limits = machine_limits(y, operation.limits)
    return limits if y.format.floating else {"zero_point": zero_point(y), **limits}


def channel_factors(
    graph: Graph, operation: Convolution | DepthwiseConvolution | FullyConnected
) -> tuple[NDArray[np.float32]] | tuple[NDArray[np.int32], NDArray[np.int32]]:
    """What sums are multiplied with, for each output channel or for all: a multiplier, or in TensorFlow Lite's
    arithmetic a multiplier and a shift.

    Raises:
        Refused: for scales that make no multiplier.
    """
    x, y, weights = (graph.tensor(name) for name in (operation.input, operation.output, operation.weights))
    if operation.rounding is not Rounding.ONNXRUNTIME:
        return convolution_factors(x, weights, y, operation.rounding)
    assert weights.quantization is not None
    alpha = 1.0 if isinstance(operation, DepthwiseConvolution) else operation.alpha
    return (ratio((alpha, x.scale, np.array(weights.quantization.scale, np.float32)), (y.scale,)),)


def channel_parameters(
    graph: Graph, operation: Convolution | DepthwiseConvolution, taps: Sequence[int] | None = None
) -> tuple[NDArray, ...]:
    """What REQUANTIZE or DEPTHWISE reads for each output channel, 32 bits each: the bias, in which the input's zero
    point is (wrapping), and the multiplier, in fixed point with its shift; for floats the bias alone.

    taps: of a third dimension, those images of the kernel that see the input.
    """
    x = graph.tensor(operation.input)
    outputs = graph.tensor(operation.weights).shape[0]
    bias = graph.constants[operation.bias].data if operation.bias is not None else None
    if x.format.floating:
        return (np.zeros(outputs, np.float32) if bias is None else np.ascontiguousarray(bias),)
    weights = weights_of(graph.constants[operation.weights])
    if taps is not None:
        assert isinstance(operation, Convolution) and operation.depth is not None
        weights = weights.reshape(outputs, operation.depth.kernel, -1)[:, list(taps)]
    sums = weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int64)
    whole = np.zeros(outputs, np.int64) if bias is None else bias.astype(np.int64)
    folded = (whole - zero_point(x) * sums).astype(np.uint32, casting="unsafe").view(np.int32)
    return folded, *(np.broadcast_to(one, folded.shape) for one in channel_factors(graph, operation))


def product_multiplier(graph: Graph, operation: MatrixProduct) -> NDArray[np.float32]:
    """What the sums of a product of two activations are multiplied with.

    Raises:
        Refused: for scales that make no multiplier.
    """
    a, b, y = (graph.tensor(name) for name in (operation.left, operation.right, operation.output))
    return ratio((operation.alpha, a.scale, b.scale), (y.scale,))


def product_parameters(graph: Graph, operation: MatrixProduct, lanes: int) -> list[NDArray]:
    """What REQUANTIZE reads, [blocks, lanes] each: the bias, in which the product of both zero points is, of which the
    sums have one too many for each number that is added up, and the multiplier; for floats the bias alone. Where there
    is no bias, all blocks have the same: the one that is given."""
    a, b = graph.tensor(operation.left), graph.tensor(operation.right)
    given = np.zeros(1) if operation.bias is None else graph.constants[operation.bias].data
    blocks = -(-given.size // lanes)
    if a.format.floating:
        bias = np.zeros(blocks * lanes, np.float32)
        bias[: given.size] = given
        return [bias.reshape(blocks, lanes)]
    whole = np.full(blocks * lanes, a.shape[-1] * zero_point(a) * zero_point(b), np.int64)
    whole[: given.size] += given.astype(np.int64)
    folded = whole.astype(np.uint32, casting="unsafe").reshape(blocks, lanes)
    return [folded, np.full((blocks, lanes), product_multiplier(graph, operation), np.float32)]


# ---- softmax


def softmax_descriptor(graph: Graph, operation: Softmax) -> dict[str, Any]:
    """The fields of TABLE_DIVIDE's descriptor, of whose table TABLE_SUM makes the sums: exponentials of all distances
    from the largest number, multiplied by as much as sums of them allow.

    The order of roundings is that of ONNX Runtime's QLinearSoftmax.

    Raises:
        Refused: for a scale of the result whose reciprocal has no room in the descriptor.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    scale = float(np.float32(x.scale))
    factor = np.floor(np.float32(1) / np.float32(y.scale))
    if factor > _LARGEST_FACTOR:
        raise Refused(f"the result's scale is {y.scale:g}, of which the machine takes 1/{_LARGEST_FACTOR} at least")
    most = np.finfo(np.float32).max / np.float32(x.view[1])
    shift = max(0.0, float(np.float32(log(most))) - _RESERVE) / scale
    exponents = [(index - (TABLE_ENTRIES - 1) + shift) * scale for index in range(TABLE_ENTRIES)]
    entries = {f"entry_{index}": np.float32(exp(one)) for index, one in enumerate(exponents)}
    return {**entries, "factor": int(factor), "zero_point": zero_point(y), **machine_limits(y, None)}


# ---- two sources


def elementwise_descriptor(graph: Graph, operation: Elementwise) -> tuple[Operation, dict[str, Any]]:
    """VECTOR's operation and the fields of its descriptor.

    Raises:
        Refused: for scales that make no multiplier, or results that ONNX Runtime wraps.
    """
    if operation.rounding is not Rounding.ONNXRUNTIME:
        return _fixed_elementwise(graph, operation)
    code = {Add: Operation.ADD, Multiply: Operation.MULTIPLY}[type(operation)]
    a, b, y = (graph.tensor(name) for name in (operation.left, operation.right, operation.output))
    if y.format.floating:
        return code, machine_limits(y, operation.limits)
    values: dict[str, Any] = {}
    if isinstance(operation, Add):
        ra, rb = (np.float32(ratio((side.scale,), (y.scale,))) for side in (a, b))
        _check_magnitude(256 * (float(ra) + float(rb)))
        # ONNX Runtime's constant: F = zc - fma(ra, za, rb * zb), each step in fp32
        inner = float32_fma(float(ra), a.zero_point, float(rb * np.float32(b.zero_point)))
        values = {"ra": ra, "rb": rb, "offset": np.float32(y.zero_point) - inner}
    else:
        multiplier = np.float32(ratio((a.scale, b.scale), (y.scale,)))
        _check_magnitude(256 * 256 * float(multiplier))
        values = {
            "multiplier": multiplier,
            "a_zero_point": a.zero_point,
            "b_zero_point": b.zero_point,
            "out_zero_point": y.zero_point,
        }
    unsigned = {f"{name}_unsigned": one.format is UINT8 for name, one in (("a", a), ("b", b), ("out", y))}
    stored = y.format.stored
    low, high = operation.limits or (stored.start, stored.stop - 1)  # numbers as the framework has them
    return code, {**values, "low": low, "high": high, **unsigned}


def _fixed_elementwise(graph: Graph, operation: Elementwise) -> tuple[Operation, dict[str, Any]]:
    """The same in TensorFlow Lite's arithmetic."""
    a, b, y = (graph.tensor(name) for name in (operation.left, operation.right, operation.output))
    limits = machine_limits(y, operation.limits)
    if isinstance(operation, Multiply):
        multiplier, shift = product_factors(a, b, y)
        zeros = {f"{name}_zero_point": zero_point(one) for name, one in (("a", a), ("b", b), ("out", y))}
        return Operation.MULTIPLY_FIXED, {"multiplier": multiplier, "shift": shift, **zeros, **limits}
    values: dict[str, Any] = {"left_shift": LEFT_SHIFT, "out_offset": zero_point(y), **limits}
    values |= {f"{name}_offset": -zero_point(one) for name, one in (("a", a), ("b", b))}
    assert isinstance(operation, Add)
    for name, (multiplier, shift) in zip(("a", "b", "out"), addition_factors(a, b, y), strict=True):
        values |= {f"{name}_multiplier": multiplier, f"{name}_shift": shift}
    if operation.subtract:
        _check_negative(values["b_multiplier"], b)
        values["b_multiplier"] *= -1
    return Operation.ADD_FIXED, values


def _check_negative(multiplier: int, subtracted: Tensor) -> None:
    """Refuse a multiplier whose negative rounds otherwise.

    The doubled high product rounds half towards +infinity, so that -(x m) and x (-m) differ where x m is an odd
    multiple of 2**30. x is a number of up to eight bits and a sign, times 2**20.
    """
    twos = (multiplier & -multiplier).bit_length() - 1
    if _TIES.start <= twos < _TIES.stop:
        raise Refused(
            f"the scale {subtracted.scale:g} of {subtracted.name} makes the multiplier {multiplier}, a multiple of "
            f"2**{twos}, with which differences may lie between two results; TensorFlow Lite rounds them the other way"
        )


def _check_magnitude(most: float) -> None:
    """Refuse results that, before they are limited, may not be whole numbers of 32 bits.

    ONNX Runtime converts them to such numbers first (CVTPS2DQ), and what is too large becomes the least of all.
    """
    if most >= _LARGEST_RESULT:
        raise Refused(
            f"its scales make results up to {most:g} before they are limited; ONNX Runtime wraps what is too "
            f"large, and less than {_LARGEST_RESULT:g} is supported"
        )


def elementwise_constant(constant: Constant, result: Tensor) -> NDArray:
    """A constant operand as the machine has it, NCHW: its channels are repeated, for lanes cannot be.

    So are dimensions of it that are one in memory, where one of them is not 1.
    """
    wanted, axis = (1,) * (2 - len(result.shape)) + result.shape, result.channel_axis
    own = (1,) * (len(wanted) - constant.data.ndim) + constant.data.shape
    places = view_axes(len(wanted), axis)
    kept = {place for place, size in zip(places, own, strict=True) if place != 1 and size > 1}
    shape = tuple(size if place in kept or place == 1 else 1 for place, size in zip(places, wanted, strict=True))
    full = np.moveaxis(np.broadcast_to(constant.data.reshape(own), shape), axis, 0)
    sizes = replace(result, shape=shape, layout=None).dimensions
    by_channel = full.reshape(sizes[1], sizes[0], sizes[2], sizes[3])
    return np.ascontiguousarray(_machine_elements(constant.tensor, by_channel.swapaxes(0, 1)))


def _machine_elements(tensor: Tensor, values: NDArray) -> NDArray:
    if tensor.format.floating:
        return narrow(values)
    return (values ^ np.uint8(_UNSIGNED)).view(np.int8) if tensor.format is UINT8 else values


def lookup_table(constant: Constant) -> NDArray[np.int8]:
    """Entries for the machine's numbers -128 to 127."""
    return np.ascontiguousarray(_machine_elements(constant.tensor, constant.data))


# ---- averages


def sum_descriptor(
    graph: Graph, operation: AveragePool | GlobalAveragePool, positions: int, count: int
) -> dict[str, Any]:
    """SUM's fields for windows of so many positions, of which `count` make the average.

    Raises:
        Refused: for scales that make no multiplier.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    limits = machine_limits(y, operation.limits)
    if y.format.floating:
        return {**limits, "multiplier": np.float32(1) / np.float32(count)}
    if operation.rounding is not Rounding.ONNXRUNTIME:
        # the average of the numbers as they are stored
        bias = -zero_point(x) * (positions - count)
        return {**limits, "zero_point": 0, "bias": bias, "multiplier": average_factor(count)}
    multiplier = np.float32(ratio((x.scale,), (y.scale, count)))
    zero, bias = zero_point(y), -zero_point(x) * positions
    if isinstance(operation, AveragePool) and zero % 2 and multiplier < 1 and np.frexp(multiplier)[0] == 0.5:
        # there are ties, and ONNX Runtime adds the zero point before it rounds: they go to even numbers of the result
        zero, bias = 0, bias + zero * round(1 / float(multiplier))
        if not -(1 << 31) <= bias < 1 << 31:
            raise Refused(f"its scales make the factor {multiplier:g}, with which its zero point has no sum of 32 bits")
    return {**limits, "zero_point": zero, "bias": bias, "multiplier": multiplier}


def scaled_mean(
    graph: Graph, operation: GlobalAveragePool
) -> tuple[dict[str, Any], tuple[NDArray[np.int32], ...]] | None:
    """What REQUANTIZE_FIXED makes a mean with of the sum over height and width, where the result has another scale or
    zero point: its descriptor, and bias, multiplier and shift; None where SUM makes it.

    Raises:
        Refused: for scales that make no multiplier.
    """
    x, y = graph.tensor(operation.input), graph.tensor(operation.output)
    if operation.rounding is Rounding.ONNXRUNTIME or y.format.floating or x.quantization == y.quantization:
        return None
    count = x.view[2] * x.view[3]
    numbers = (-zero_point(x) * count, *mean_factors(x, y, count))
    descriptor = {"zero_point": zero_point(y), **machine_limits(y, operation.limits)}
    return descriptor, tuple(np.array([number], np.int32) for number in numbers)


def window_border(graph: Graph, operation: Convolution | DepthwiseConvolution | MaxPool | AveragePool) -> float:
    """What lies around the image on the machine: 0 in the tensor's numbers, or for a maximum the least."""
    x = graph.tensor(operation.input)
    if isinstance(operation, MaxPool):
        return -np.inf if x.format.floating else -_UNSIGNED
    return border(x)
