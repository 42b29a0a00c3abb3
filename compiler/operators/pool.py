"""Pools."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from npukit.compiler.layers import AverageLayer, GlobalAverageLayer, Layer, MaxPoolLayer, QuantizedTensor
from npukit.compiler.operators.base import (
    MAX_PAD,
    Context,
    Match,
    Produced,
    Refused,
    produced,
    ratio,
    same_parameters,
    source,
    window_of,
)
from npukit.compiler.tiling import MAX_WINDOW_STEP, average_window, window_problem

__all__ = ["match_average", "match_global_average", "match_maxpool"]


def match_maxpool(context: Context, node: ir.Node) -> Match:
    """A two-dimensional MaxPool within `max_window`."""
    value, x = source(context, node.inputs[0])
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise Refused("its second output, the indices, is used")
    result = produced(context, node, clamp=False)
    y = result.tensor
    same_parameters(x, y, "MaxPool")
    window = window_of(node, x, y, node.attributes.get_ints("kernel_shape") or ())
    kernel, strides, pads = window.kernel, window.strides, window.pads
    rows, columns = window.dilations
    dilations = rows if kernel[0] > 1 else 1, columns if kernel[1] > 1 else 1
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    if mode.startswith("SAME") and max(dilations) > 1:
        raise Refused(f"auto_pad is {mode} with dilations {list(dilations)}, where ONNX and ONNX Runtime differ")
    for axis in (0, 1):
        start = (y.view[2 + axis] - 1) * strides[axis] - pads[axis]
        if start >= x.view[2 + axis]:
            raise Refused(
                f"with ceil_mode its last window starts at {start}, outside of the {x.view[2 + axis]} input "
                f"{('rows', 'columns')[axis]}, where ONNX and ONNX Runtime differ"
            )
    if max(pads) > MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {MAX_PAD}")
    problem = window_problem(context.config, kernel, strides, dilations)
    if problem is not None:
        raise Refused(problem)

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        least = -np.inf if context.floats else -128
        return MaxPoolLayer(node.name or "", node.op_type, (x.name,), y.name, kernel, strides, pads, dilations, least)

    return Match(node, result.nodes, (value,), result.value, (x, y), build)


def match_global_average(context: Context, node: ir.Node) -> Match:
    """GlobalAveragePool: an integer sum, then one multiplication."""
    value, x = source(context, node.inputs[0])
    if len(x.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; GlobalAveragePool needs 4 (NCHW)")
    result = produced(context, node, ("QLinearGlobalAveragePool",))
    y = result.tensor
    size = x.view[2] * x.view[3]
    most = average_window(context.config)
    rows, columns = -(-x.view[2] // most), -(-x.view[3] // most)
    windows = rows * columns
    if max(rows, columns) > most:  # the sums of sums lie beside them
        windows += -(-rows // most) * -(-columns // most)
    if windows > context.config.acc_depth:
        raise Refused(
            f"an image of {x.view[2]}x{x.view[3]} makes {windows} partial sums; acc_depth is {context.config.acc_depth}"
        )

    values = _sum_values(context, x, result, size, size)
    if not context.floats and not 2.0**-32 <= values["multiplier"] < 256:  # see MlasQLinearGlobalAveragePool
        raise Refused(f"its scales make the factor {values['multiplier']:g}; ONNX Runtime takes 2**-32 to below 256")

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return GlobalAverageLayer(node.name or "", node.op_type, (x.name,), y.name, values)

    return Match(node, result.nodes, (value,), result.value, (x, y), build)


def _sum_values(context: Context, x: QuantizedTensor, result: Produced, positions: int, count: int) -> dict[str, Any]:
    """SUM's descriptor for windows of so many positions, of which `count` make the average."""
    limits = {"low": result.low, "high": result.high}
    if context.floats:
        return {**limits, "multiplier": np.float32(1) / np.float32(count)}
    multiplier = np.float32(ratio((x.scale,), (result.tensor.scale, count)))
    return {
        **limits, "zero_point": result.tensor.zero_point, "bias": -x.zero_point * positions, "multiplier": multiplier,
    }  # fmt: skip


def match_average(context: Context, node: ir.Node) -> Match:
    """A two-dimensional AveragePool within `max_window` whose result no rounding of floats can change."""
    value, x = source(context, node.inputs[0])
    result = produced(context, node, ("QLinearAveragePool",))
    y = result.tensor
    window = window_of(node, x, y, node.attributes.get_ints("kernel_shape") or ())
    kernel, strides, pads = window.kernel, window.strides, window.pads
    if window.dilations != (1, 1):
        raise Refused("it is dilated, which is not supported")
    if max(pads) > MAX_PAD:
        raise Refused(f"padding {list(pads)} exceeds {MAX_PAD}")
    if strides[1] > MAX_WINDOW_STEP:
        raise Refused(f"stride {list(strides)} exceeds {MAX_WINDOW_STEP}")
    problem = window_problem(context.config, kernel, strides, (1, 1))
    if problem is not None:
        raise Refused(problem)
    given = node.attributes.get_ints("pads") or (0, 0, 0, 0)
    if node.attributes.get_int("ceil_mode", 0) and (pads[2] > given[2] or pads[3] > given[3]):
        raise Refused("with ceil_mode its last windows reach past the padding, where ONNX Runtime's count differs")
    layer = AverageLayer(
        node.name or "", node.op_type, (x.name,), y.name, kernel, strides, pads,
        bool(node.attributes.get_int("count_include_pad", 0)), x.zero_point,
        lambda count: _sum_values(context, x, result, kernel[0] * kernel[1], count),
    )  # fmt: skip
    counts = {
        rows * columns
        for rows in set(layer.counts(0, x.view[2], y.view[2]))
        for columns in set(layer.counts(1, x.view[3], y.view[3]))
    }
    for count in sorted(counts):
        layer.values(count)  # which refuses scales that make no multiplier
        if not context.floats:
            _check_average(x.scale, y.scale, count)
    return Match(node, result.nodes, (value,), result.value, (x, y), lambda _: layer)


def _check_average(x_scale: float, y_scale: float, count: int) -> None:
    """Refuse windows whose exact average lies closer to a tie than ONNX Runtime's float sum is exact.

    ONNX Runtime adds `count` dequantised numbers in fp32, in an order of its own, divides, and rounds. With u =
    2**-24 the sum's relative error is below (count + 4) u of the sum of the magnitudes (Higham, "Accuracy and
    Stability of Numerical Algorithms", 2002, section 4.2). Where the scales are powers of two and so is the
    count, nothing is rounded before the end.
    """
    if all(np.frexp(number)[0] == 0.5 for number in (x_scale, y_scale, count)):
        return
    sums = np.arange(-255 * count, 255 * count + 1, dtype=np.float64)
    exact = sums * x_scale / (count * y_scale)
    tie = np.abs(np.abs(exact - np.floor(exact)) - 0.5)
    inside = np.abs(exact) < 300  # beyond, all is clamped
    error = (count + 4) * 2.0**-24 * 255 * x_scale / y_scale
    if (tie[inside] <= error).any():
        raise Refused(
            f"averages of {count} elements from scale {x_scale:g} to {y_scale:g} can lie on the boundary between two "
            "results, where ONNX Runtime's sum of floats decides by its rounding"
        )
