"""What bf16 layers must give, bit for bit: plain numpy on whole NCHW tensors, sums in the order that is defined.

It shares the arithmetic of single operations with the simulator, and nothing else: no tiles, instructions, layouts or
memories. A layer is computed from the values that the machine gave its inputs, so that one wrong layer is one finding.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from npukit.compiler.layers import (
    AverageLayer,
    BinaryLayer,
    ConcatLayer,
    ConvLayer,
    CopyLayer,
    DepthwiseLayer,
    GlobalAverageLayer,
    Layer,
    MaxPoolLayer,
    ResizeLayer,
)
from npukit.compiler.tiling import average_window
from npukit.isa.config import NpuConfig
from npukit.sim.bfloat16 import add, canonical, clamp, multiply, narrow, widen

__all__ = ["layer_output"]

Floats = NDArray[np.float32]


def layer_output(config: NpuConfig, layer: Layer, inputs: Mapping[str, Floats], shape: tuple[int, ...]) -> Floats:
    """A layer's result [batch, channels, height, width], rounded to bfloat16.

    Args:
        config: its array's size is part of the order.
        layer: of a bf16 configuration.
        inputs: by name, NCHW, rounded to bfloat16.
        shape: the result's, NCHW.
    """
    values = [inputs[name] for name in layer.inputs]
    result = _LAYERS[type(layer)](config, layer, values, shape)
    return widen(narrow(canonical(result)))


def _limited(values: Floats, limits: Mapping) -> Floats:
    return clamp(values, np.float32(limits["low"]), np.float32(limits["high"]))


def _padded(x: Floats, layer: ConvLayer | MaxPoolLayer | AverageLayer, shape: tuple[int, ...], kernel) -> Floats:
    """The input with all that the windows touch; what `pads` lack at the end is added, what is too much stays."""
    need = [
        (shape[2 + axis] - 1) * layer.strides[axis] + (kernel[axis] - 1) * layer.dilations[axis] + 1 for axis in (0, 1)
    ]
    after = [max(0, need[axis] - layer.pads[axis] - x.shape[2 + axis]) for axis in (0, 1)]
    border = ((0, 0), (0, 0), (layer.pads[0], after[0]), (layer.pads[1], after[1]))
    return np.pad(x, border, constant_values=np.float32(layer.pad_value))


def _shifted(
    x: Floats, layer: ConvLayer | MaxPoolLayer | AverageLayer, shape: tuple[int, ...], ky: int, kx: int
) -> Floats:
    """The element of each window at kernel position (ky, kx)."""
    top, left = ky * layer.dilations[0], kx * layer.dilations[1]
    rows = slice(top, top + (shape[2] - 1) * layer.strides[0] + 1, layer.strides[0])
    columns = slice(left, left + (shape[3] - 1) * layer.strides[1] + 1, layer.strides[1])
    return x[:, :, rows, columns]


def _conv(config: NpuConfig, layer: ConvLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    (x,) = values
    weights = widen(layer.weights)
    outer, inner, height, width = weights.shape
    x = _padded(x, layer, shape, (height, width))
    result = np.zeros(shape, np.float32)
    out_of_group = outer // layer.group
    for group in range(layer.group):
        first = group * inner
        outputs = slice(group * out_of_group, (group + 1) * out_of_group)
        total = result[:, outputs]
        for block in range(0, inner, config.array):
            for ky in range(height):
                for kx in range(width):
                    column = np.zeros_like(total)
                    window = _shifted(x, layer, shape, ky, kx)
                    for channel in range(block, min(inner, block + config.array)):
                        factor = weights[outputs, channel, ky, kx][None, :, None, None]
                        column = add(column, multiply(window[:, first + channel, None], factor))
                    total = add(total, column)
        result[:, outputs] = total
    return _limited(add(result, layer.channels[0][None, :, None, None]), layer.values)


def _depthwise(config: NpuConfig, layer: DepthwiseLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    (x,) = values
    weights = widen(layer.weights)
    height, width = weights.shape[2:]
    x = _padded(x, layer, shape, (height, width))
    total = np.zeros(shape, np.float32)
    for ky in range(height):
        for kx in range(width):
            total = add(total, multiply(_shifted(x, layer, shape, ky, kx), weights[None, :, 0, ky, kx, None, None]))
    return _limited(add(total, layer.channels[0][None, :, None, None]), layer.values)


def _binary(config: NpuConfig, layer: BinaryLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    given = iter(values)
    a, b = (next(given) if isinstance(source, str) else widen(source.data) for source in layer.sources)
    operation = add if layer.operation.name == "ADD" else multiply
    return _limited(operation(*np.broadcast_arrays(a, b)), layer.values)


def _maximum(config: NpuConfig, layer: MaxPoolLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    x = _padded(values[0], layer, shape, layer.kernel)
    best: Floats | None = None
    for ky in range(layer.kernel[0]):
        for kx in range(layer.kernel[1]):
            value = _shifted(x, layer, shape, ky, kx)
            best = value if best is None else np.where(np.isnan(value) | (value > best), value, best)
    assert best is not None
    return best


def _average(config: NpuConfig, layer: AverageLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    (x,) = values
    counts = [layer.counts(axis, x.shape[2 + axis], shape[2 + axis]) for axis in (0, 1)]
    x = _padded(x, layer, shape, layer.kernel)
    total = np.zeros(shape, np.float32)
    for ky in range(layer.kernel[0]):
        for kx in range(layer.kernel[1]):
            total = add(total, _shifted(x, layer, shape, ky, kx))
    factors = np.array([[layer.values(rows * columns)["multiplier"] for columns in counts[1]] for rows in counts[0]])
    return _limited(multiply(total, factors.astype(np.float32)), layer.values(1))


def _global_average(
    config: NpuConfig, layer: GlobalAverageLayer, values: list[Floats], shape: tuple[int, ...]
) -> Floats:
    """Windows as large as the machine sums at once, row by row; then windows of their sums, until one is left."""
    (total,) = values
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
            return _limited(multiply(total, np.array(layer.values["multiplier"], np.float32)), layer.values)


def _copy(config: NpuConfig, layer: CopyLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    (x,) = values
    result = np.full(shape, np.float32(layer.pad_value))
    first = layer.first_channel
    for y in range(shape[2]):
        for column in range(shape[3]):
            source = y - layer.offset[0], column - layer.offset[1]
            if 0 <= source[0] < x.shape[2] and 0 <= source[1] < x.shape[3]:
                result[:, :, y, column] = x[:, first : first + shape[1], source[0], source[1]]
    return result


def _concat(config: NpuConfig, layer: ConcatLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    return np.concatenate(values, axis=layer.axis)


def _resize(config: NpuConfig, layer: ResizeLayer, values: list[Floats], shape: tuple[int, ...]) -> Floats:
    return values[0].repeat(layer.factors[0], axis=2).repeat(layer.factors[1], axis=3)


_LAYERS: dict[type, Callable[..., Floats]] = {
    ConvLayer: _conv,
    DepthwiseLayer: _depthwise,
    BinaryLayer: _binary,
    MaxPoolLayer: _maximum,
    AverageLayer: _average,
    GlobalAverageLayer: _global_average,
    CopyLayer: _copy,
    ConcatLayer: _concat,
    ResizeLayer: _resize,
}
