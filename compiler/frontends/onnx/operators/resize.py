"""Resize: elements that are repeated, and means of neighbours."""

from dataclasses import replace

import numpy as np
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
from npukit.compiler.frontends.onnx.operators.movement import axes_of
from npukit.compiler.frontends.onnx.operators.quantisation import constant
from npukit.compiler.frontends.onnx.operators.windows import check_channels, check_image
from npukit.compiler.ir.operations import Concatenation, Convolution, Repeat, Slice, TensorOperation
from npukit.compiler.ir.tensor import Constant, Quantization, Tensor
from npukit.compiler.tiling import window_problem
from npukit.isa.formats import FLOAT32, INT8

__all__ = ["match_resize"]


def _scales(context: Context, node: ir.Node, dimensions: int) -> list[float] | None:
    """The scales of a Resize or Upsample; None where it has sizes instead."""
    position = 1 if node.op_type == "Upsample" or context.opsets.get("", 0) < 11 else 2
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None:
        return list(node.attributes.get_floats("scales") or ()) or None  # Upsample's, before operator set 9
    given = constant(value)
    if given is None:
        raise Refused(f"its scales {value.name} are not constant")
    if given.size == 0:
        return None
    axes = axes_of(node.attributes.get_ints("axes") or range(dimensions), dimensions)
    if given.size != len(axes):
        raise Refused(f"its scales are {given.reshape(-1).tolist()}, for the axes {axes}")
    scales = [1.0] * dimensions
    for axis, scale in zip(axes, given.reshape(-1), strict=True):
        scales[axis] = float(scale)
    return scales


def match_resize(context: Context, node: ir.Node) -> Match:
    """Resize to a whole multiple of height and width, by the nearest element; or linear, by powers of two, where all
    scales are powers of two as well."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, node.op_type)
    result = produced(context, node, clamp=False)
    y = result.tensor
    check_channels(y, node.op_type)
    mode = node.attributes.get_string("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise Refused(f"mode is {mode}; nearest and linear are supported")
    coordinates = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    rounding = node.attributes.get_string("nearest_mode", "round_prefer_floor")
    exact = coordinates == "asymmetric" and rounding == "floor"
    if (
        mode == "nearest"
        and node.op_type == "Resize"
        and not exact
        and (coordinates, rounding[:5]) != ("half_pixel", "round")
    ):
        raise Refused(f"coordinates are {coordinates}, rounded by {rounding}; asymmetric and floor are supported")
    factors = y.view[2] // x.view[2], y.view[3] // x.view[3]
    expected = (*x.view[:2], x.view[2] * factors[0], x.view[3] * factors[1])
    scales = _scales(context, node, len(x.shape))
    whole = scales is None or scales == [1.0, 1.0, *factors[4 - len(x.shape) :]]
    if y.view != expected or min(factors) < 1 or not whole:
        raise Refused(f"shape {list(x.shape)} becomes {list(y.shape)}; whole factors of height and width are supported")
    if mode == "linear":
        if node.op_type != "Resize" or coordinates not in ("half_pixel", "pytorch_half_pixel"):
            raise Refused(f"coordinates are {coordinates}; half_pixel is supported for linear")
        return _linear(context, node, value, x, result, factors)
    operation = Repeat(output=y.name, sources=sources_of(result.nodes), input=x.name, factors=factors)
    return match_of_moved(node, [result], value, x, [operation])


def _linear(
    context: Context, node: ir.Node, value: ir.Value, x: Tensor, result: Produced, factors: tuple[int, int]
) -> Match:
    """Each element repeated, and then means of what lies around: with a factor f, (1, 2, ... 2, 1) / 2f of f + 1
    neighbours, where the elements at the edges go on outside.

    ONNX Runtime computes it in float. Where factors and scales are powers of two, nothing is rounded before the end.
    """
    y = result.tensor
    if any(factor & (factor - 1) for factor in factors):
        raise Refused(f"its factors are {factors[0]} and {factors[1]}; powers of two are supported for linear")
    neighbours = [factor + 1 if factor > 1 else 1 for factor in factors]
    problem = window_problem(context.config, (neighbours[0], neighbours[1]), (1, 1), (1, 1))
    if problem is not None:  # the array would take much longer than the host
        raise Refused(f"its factors are {factors[0]} and {factors[1]}: {problem}")
    wrong = [one.scale for one in (x, y) if not x.format.floating and np.frexp(one.scale)[0] != 0.5]
    if wrong:
        raise Refused(f"its scale {wrong[0]:g} is no power of two: ONNX Runtime computes it in float, and rounds there")
    sources = sources_of(result.nodes)
    tensors = [replace(x, name=f"{y.name} repeated", shape=y.shape)]
    operations: list[TensorOperation] = [Repeat(output=tensors[0].name, sources=sources, input=x.name, factors=factors)]

    def make(name: str, shape: tuple[int, ...]) -> Tensor:
        tensors.append(replace(x, name=f"{y.name} {name}", shape=shape))
        return tensors[-1]

    dimensions = len(y.shape)
    for factor, axis in zip(factors, (dimensions - 2, dimensions - 1), strict=True):
        if factor == 1:
            continue
        whole, size = tensors[-1], tensors[-1].shape[axis]
        edge = tuple(factor // 2 if one == axis else length for one, length in enumerate(whole.shape))
        ends = []
        for name, first in (("before", 0), ("behind", size - factor // 2)):
            end = make(f"{name} axis {axis}", edge)
            starts = tuple(first if one == axis else 0 for one in range(dimensions))
            operations.append(Slice(output=end.name, sources=sources, input=whole.name, starts=starts))
            ends.append(end.name)
        longer = tuple(size + factor if one == axis else length for one, length in enumerate(whole.shape))
        around = make(f"with edges along axis {axis}", longer)
        inputs = ends[0], whole.name, ends[1]
        operations.append(
            Concatenation(output=around.name, sources=sources, inputs=inputs, tables=(None,) * 3, axis=axis)
        )
    taps = [np.array([1, *[2] * (factor - 1), 1] if factor > 1 else [1]) for factor in factors]
    kernel = np.outer(*taps)
    channels = x.shape[1]
    shape = channels, 1, *kernel.shape
    name, unit = f"weights of {node.name}", 1.0 / kernel.sum()
    data = np.broadcast_to(kernel, shape)
    if x.format.floating:
        weights = Constant(Tensor(name, shape, FLOAT32), np.ascontiguousarray(data * unit, np.float32))
    else:
        quantization = Quantization((unit,), (0,))
        weights = Constant(Tensor(name, shape, INT8, quantization), np.ascontiguousarray(data, np.int8))
    operations.append(
        Convolution(
            output=y.name, sources=sources, input=tensors[-1].name, weights=name, strides=(1, 1), pads=(0, 0, 0, 0),
            groups=channels, limits=result.limits, counted=False,
        )
    )  # fmt: skip
    return match_of_several(node, [result], [value], [x], operations, [weights], tensors)
