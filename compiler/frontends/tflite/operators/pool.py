"""AVERAGE_POOL_2D, MAX_POOL_2D and MEAN."""

from dataclasses import replace

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.tflite.operators.activations import fused_limits
from npukit.compiler.frontends.tflite.operators.base import Node, Operand, same_quantization
from npukit.compiler.frontends.tflite.operators.windows import check_image, windows_of
from npukit.compiler.ir.operations import (
    AveragePool,
    Clamp,
    GlobalAveragePool,
    Lookup,
    MaxPool,
    Rearrange,
    TensorOperation,
)
from npukit.compiler.ir.tensor import Constant, Tensor

__all__ = ["match_average_pool", "match_max_pool", "match_mean"]


def match_average_pool(node: Node) -> Match:
    """AVERAGE_POOL_2D, in which padding does not count."""
    value, x = node.activation(0)
    result = node.result(fused_limits(node))
    y = result.tensor
    same_quantization(x, y)
    kernel = node.option("FilterHeight"), node.option("FilterWidth")
    windows = windows_of(node, x, y, kernel, dilated=False)
    operation: TensorOperation
    if kernel == x.shape[1:3] and y.shape[1:3] == (1, 1) and not any(windows.pads):
        operation = GlobalAveragePool(
            output=y.name, sources=node.sources, input=x.name, limits=result.limits, rounding=node.rounding
        )
    else:
        operation = AveragePool(
            output=y.name, sources=node.sources, input=x.name, kernel=kernel, strides=windows.strides,
            pads=windows.pads, count_padding=False, limits=result.limits, rounding=node.rounding,
        )  # fmt: skip
    return node.match(result, [Operand(x, value)], [operation])


def match_max_pool(node: Node) -> Match:
    """MAX_POOL_2D; limits come behind it."""
    value, x = node.activation(0)
    result = node.result(fused_limits(node))
    y, limits = result.tensor, result.limits
    same_quantization(x, y)
    kernel = node.option("FilterHeight"), node.option("FilterWidth")
    windows = windows_of(node, x, y, kernel, dilated=False)
    made = y if limits is None else replace(y, name=f"{y.name} before limits")
    pool = MaxPool(
        output=made.name, sources=node.sources, input=x.name, kernel=kernel, strides=windows.strides, pads=windows.pads
    )
    if limits is None:
        return node.match(result, [Operand(x, value)], [pool])
    if node.floats:
        clamp = Clamp(output=y.name, sources=node.sources, input=made.name, limits=limits)
        return node.match(result, [Operand(x, value)], [pool, clamp], inner=[made])
    numbers = np.arange(-128, 128)
    entries = np.clip(numbers, limits[0], limits[1]).astype(np.int8)
    table = Constant(Tensor(f"limits of {y.name}", (256,), y.format, y.quantization), entries)
    lookup = Lookup(output=y.name, sources=node.sources, input=made.name, table=table.tensor.name)
    return node.match(result, [Operand(x, value)], [pool, lookup], [table], [made])


def match_mean(node: Node) -> Match:
    """MEAN over height and width, of an image as a whole."""
    value, x = node.activation(0)
    result = node.result()
    y = result.tensor
    check_image(x, "input")
    axes = sorted({axis + len(x.shape) if axis < 0 else axis for axis in node.integers(1)})
    if axes != [1, 2]:
        raise Refused(f"it is a mean along dimensions {axes}; height and width, 1 and 2, are supported")
    if not node.floats and x.quantization == y.quantization:
        raise Refused("its result has its input's scale, for which TensorFlow Lite cuts off in place of rounding")
    shape = (x.shape[0], 1, 1, x.shape[3])
    if y.shape not in (shape, (x.shape[0], x.shape[3])):
        raise Refused(f"a mean over height and width does not make {list(y.shape)} of {list(x.shape)}")
    made = y if y.shape == shape else replace(y, name=f"{y.name} as an image", shape=shape, channel_axis=3)
    mean = GlobalAveragePool(output=made.name, sources=node.sources, input=x.name, rounding=node.rounding)
    if made is y:
        return node.match(result, [Operand(x, value)], [mean])
    sizes = tuple(size for size in y.shape if size > 1) or (1,)
    flat = Rearrange(
        output=y.name, sources=node.sources, input=made.name, sizes=sizes, permutation=tuple(range(len(sizes)))
    )
    return node.match(result, [Operand(x, value)], [mean, flat], inner=[made])
