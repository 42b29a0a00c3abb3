"""Operators that move values: reshapes, concatenation, padding, cutting out, repetition."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.layers import ConcatLayer, CopyLayer, Layer, QuantizedTensor, ResizeLayer
from npukit.compiler.operators.base import (
    MAX_PAD,
    Context,
    Match,
    Produced,
    Refused,
    constant,
    produced,
    same_parameters,
    source,
)
from npukit.compiler.operators.unary import requantising_table
from npukit.compiler.tiling import elementwise_words, kernel_problem

__all__ = ["match_concat", "match_pad", "match_reshape", "match_resize", "match_slice"]


def match_reshape(context: Context, node: ir.Node) -> Match:
    """Flatten, Reshape, Squeeze or Unsqueeze that moves nothing: NCHW to [batch, everything], or 1x1 images."""
    value, x = source(context, node.inputs[0])
    result = produced(context, node, clamp=False)
    y = result.tensor
    same_parameters(x, y, node.op_type)
    match = Match(node, result.nodes, (value,), result.value, (x, replace(y, storage=x.name)), None, alias=True)
    if x.view == y.view:
        return match
    if len(y.shape) != 2 or y.shape[0] != x.shape[0]:
        raise Refused(f"shape {list(x.shape)} becomes {list(y.shape)}; [batch, everything else] is supported")
    problem = kernel_problem(context.config, x.view[2:])
    if problem is not None:  # a Gemm behind it is a convolution with the whole image as its kernel
        raise Refused(f"an image of {x.view[2]}x{x.view[3]} is too large to be flattened in place: {problem}")
    return match


def match_concat(context: Context, node: ir.Node) -> Match:
    """Concat of any number of tensors along any axis."""
    found = [source(context, value) for value in node.inputs]
    result = produced(context, node, clamp=False)
    y = result.tensor
    axis = _axes([node.attributes.get_int("axis", 0)], len(y.shape))[0]
    size = context.config.array
    if context.floats and axis == 1 and any(x.view[1] % size for _, x in found[:-1]):
        counts = [x.view[1] for _, x in found]
        raise Refused(f"parts of {counts} channels share words; multiples of {size} are supported in bf16")
    tables = tuple(None if context.floats else requantising_table(x, y) for _, x in found)

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return ConcatLayer(node.name or "", node.op_type, tuple(x.name for _, x in found), y.name, axis, tables)

    return Match(
        node, result.nodes, tuple(value for value, _ in found), result.value, (*(x for _, x in found), y), build
    )


def _integers(node: ir.Node, position: int, name: str) -> list[int] | None:
    """A constant input of integers, or the attribute of older operator sets; None where there is neither."""
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None:
        given = node.attributes.get_ints(name)
        return list(given) if given is not None else None
    array = constant(value)
    if array is None:
        raise Refused(f"its {name} are not constant")
    return [int(one) for one in array.reshape(-1)]


def _axes(axes: Sequence[int], dimensions: int) -> list[int]:
    """Axes from 0 on.

    Raises:
        Refused: for one out of range, or given twice.
    """
    found = [axis + dimensions if axis < 0 else axis for axis in axes]
    if any(not 0 <= axis < dimensions for axis in found) or len(set(found)) < len(found):
        raise Refused(f"its axes are {list(axes)}, of {dimensions} dimensions")
    return found


def _image(x: QuantizedTensor, op: str) -> None:
    if len(x.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {op} needs 4 (NCHW)")


def match_pad(context: Context, node: ir.Node) -> Match:
    """Pad with a constant along height and width; negative padding cuts off."""
    value, x = source(context, node.inputs[0])
    _image(x, "Pad")
    result = produced(context, node, clamp=False)
    y = result.tensor
    same_parameters(x, y, "Pad")
    mode = node.attributes.get_string("mode", "constant")
    if mode != "constant":
        raise Refused(f"mode is {mode}; constant is supported")
    given = _integers(node, 1, "pads") or []
    chosen = _integers(node, 3, "axes")
    axes = _axes(range(4) if chosen is None else chosen, 4)
    before, after = [0] * 4, [0] * 4
    if len(given) != 2 * len(axes):
        raise Refused(f"its pads are {given}, for the axes {axes}; two numbers for each axis are supported")
    for position, axis in enumerate(axes):
        before[axis], after[axis] = given[position], given[position + len(axes)]
    if tuple(size + low + high for size, low, high in zip(x.shape, before, after, strict=True)) != y.shape:
        raise Refused(f"padding {given} does not make {list(y.shape)} of {list(x.shape)}")
    if any(before[:2] + after[:2]):
        raise Refused(f"padding {given} concerns batch or channels; height and width are supported")
    if max(before + after) > MAX_PAD:
        raise Refused(f"padding {given} exceeds {MAX_PAD}")
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    number = constant(filled) if filled is not None else np.array(node.attributes.get_float("value", 0.0))
    if number is None or number.size != 1:
        raise Refused("its value is not a constant number")
    fill = np.float32(number.reshape(-1)[0])
    if np.isnan(fill):
        raise Refused("its value is NaN")
    if x.scale * 255 > float(np.finfo(np.float32).max):
        raise Refused(f"the scale {x.scale:g} of {x.name} makes values beyond fp32")
    if context.floats:
        return _copy(node, result, value, x, (before[2], before[3]), 0, float(fill))
    with np.errstate(over="ignore"):
        pad = np.rint(fill / np.float32(x.scale)) + x.zero_point
    return _copy(node, result, value, x, (before[2], before[3]), 0, int(np.clip(pad, -128, 127)))


def match_slice(context: Context, node: ir.Node) -> Match:
    """Slice along height and width, and along channels from a multiple of the array's size, in steps of 1."""
    value, x = source(context, node.inputs[0])
    _image(x, "Slice")
    result = produced(context, node, clamp=False)
    y = result.tensor
    same_parameters(x, y, "Slice")
    starts, ends = (_integers(node, position, name) for position, name in ((1, "starts"), (2, "ends")))
    chosen, steps = (_integers(node, position, name) for position, name in ((3, "axes"), (4, "steps")))
    if starts is None or ends is None:
        raise Refused("it has no starts or no ends")
    axes = _axes(range(len(starts)) if chosen is None else chosen, 4)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Refused(f"its starts are {starts}, ends {ends}, axes {axes} and steps {steps}: not one for each axis")
    if any(step != 1 for step in steps):
        raise Refused(f"steps are {steps}; 1 is supported")
    first, last = [0] * 4, list(x.shape)
    for start, end, axis in zip(starts, ends, axes, strict=True):
        first[axis], last[axis] = (
            min(max(place + (x.shape[axis] if place < 0 else 0), 0), x.shape[axis]) for place in (start, end)
        )
    if tuple(end - start for start, end in zip(first, last, strict=True)) != y.shape:
        raise Refused(f"from {first} to {last} it does not make {list(y.shape)} of {list(x.shape)}")
    if x.shape[0] != y.shape[0]:
        raise Refused("it cuts the batch; height, width and channels are supported")
    if first[1] % context.config.array:
        raise Refused(f"its first channel {first[1]} is not a multiple of {context.config.array}, the array's size")
    if context.floats and first[1] + y.view[1] < x.view[1] and y.view[1] % context.config.array:
        raise Refused(
            f"its {y.view[1]} channels end within a word of {context.config.array}, which bf16 does not support"
        )
    return _copy(node, result, value, x, (-first[2], -first[3]), first[1], 0)


def _copy(
    node: ir.Node, result: Produced, value: ir.Value, x: QuantizedTensor, offset: tuple[int, int], first_channel: int,
    pad_value: float,
) -> Match:  # fmt: skip
    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return CopyLayer(node.name or "", node.op_type, (x.name,), result.tensor.name, offset, first_channel, pad_value)

    return Match(node, result.nodes, (value,), result.value, (x, result.tensor), build)


def _scales(context: Context, node: ir.Node) -> list[float] | None:
    """The four scales of a Resize or Upsample; None where it has sizes instead."""
    position = 1 if node.op_type == "Upsample" or context.opsets.get("", 0) < 11 else 2
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None:
        return list(node.attributes.get_floats("scales") or ()) or None  # Upsample's, before operator set 9
    given = constant(value)
    if given is None:
        raise Refused(f"its scales {value.name} are not constant")
    if given.size == 0:
        return None
    axes = _axes(node.attributes.get_ints("axes") or range(4), 4)
    if given.size != len(axes):
        raise Refused(f"its scales are {given.reshape(-1).tolist()}, for the axes {axes}")
    scales = [1.0] * 4
    for axis, scale in zip(axes, given.reshape(-1), strict=True):
        scales[axis] = float(scale)
    return scales


def match_resize(context: Context, node: ir.Node) -> Match:
    """Resize to a whole multiple of height and width, by the nearest element."""
    value, x = source(context, node.inputs[0])
    _image(x, node.op_type)
    result = produced(context, node, clamp=False)
    y = result.tensor
    same_parameters(x, y, node.op_type)
    mode = node.attributes.get_string("mode", "nearest")
    if mode != "nearest":
        raise Refused(f"mode is {mode}; nearest is supported")
    coordinates = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    rounding = node.attributes.get_string("nearest_mode", "round_prefer_floor")
    exact = coordinates == "asymmetric" and rounding == "floor"
    if node.op_type == "Resize" and not exact and (coordinates, rounding[:5]) != ("half_pixel", "round"):
        raise Refused(f"coordinates are {coordinates}, rounded by {rounding}; asymmetric and floor are supported")
    factors = y.view[2] // x.view[2], y.view[3] // x.view[3]
    expected = (*x.view[:2], x.view[2] * factors[0], x.view[3] * factors[1])
    scales = _scales(context, node)
    whole = scales is None or scales == [1.0, 1.0, *factors]
    if y.view != expected or min(factors) < 1 or not whole:
        raise Refused(f"shape {list(x.shape)} becomes {list(y.shape)}; whole factors of height and width are supported")
    if factors[0] * factors[1] > elementwise_words(context.config):
        raise Refused(f"each element becomes {factors[0]}x{factors[1]}, more than a tile holds")

    def build(tensors: Mapping[str, QuantizedTensor]) -> Layer:
        return ResizeLayer(node.name or "", node.op_type, (x.name,), y.name, factors)

    return Match(node, result.nodes, (value,), result.value, (x, y), build)
