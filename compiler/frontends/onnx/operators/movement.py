"""Operators that put tensors together and take them apart: concatenation, padding, cutting out."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    match_of,
    match_of_moved,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.binary import given
from npukit.compiler.frontends.onnx.operators.integer import operands_of_node
from npukit.compiler.frontends.onnx.operators.quantisation import constant, static_shape
from npukit.compiler.frontends.onnx.operators.tables import requantising_table
from npukit.compiler.frontends.onnx.operators.windows import check_image
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import Concatenation, Pad, Slice
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import FLOAT32

__all__ = ["axes_of", "match_concat", "match_pad", "match_slice", "match_split"]


def match_concat(context: Context, node: ir.Node) -> Match:
    """Concat of any number of tensors along any axis, some of which may be constant."""
    result = produced(context, node, clamp=False)
    y = result.tensor
    axis = axes_of([node.attributes.get_int("axis", 0)], len(y.shape))[0]
    found = [given(context, operand, y) for operand in operands_of_node(node)]
    activations = [one for one in found if one.value is not None]
    if not activations:
        raise Refused("all of its inputs are constant")
    names = [one.tensor.name for one in activations]
    constants: list[Constant] = []
    inputs, tables = [], []
    for one in found:
        if one.constant is not None:
            constants.append(_as_part(one.constant, y, axis, {*names, *(other.tensor.name for other in constants)}))
            inputs.append(constants[-1].tensor.name)
            tables.append(None)
            continue
        table = None if context.floats else requantising_table(one.tensor, y, names)
        constants += [] if table is None else [table]
        inputs.append(one.tensor.name)
        tables.append(None if table is None else table.tensor.name)
    operation = Concatenation(
        output=y.name, sources=sources_of(result.nodes), inputs=tuple(inputs), tables=tuple(tables), axis=axis
    )
    values = [one.value for one in activations if one.value is not None]
    return match_of(node, result, values, [one.tensor for one in activations], operation, constants)


def _as_part(part: Constant, y: Tensor, axis: int, taken: Collection[str]) -> Constant:
    """A constant in the quantisation of the result of which it is a part, under a name of its own."""
    x, data = part.tensor, part.data
    others = [size for position, size in enumerate(data.shape) if position != axis]
    if data.ndim != len(y.shape) or others != [size for position, size in enumerate(y.shape) if position != axis]:
        raise Refused(f"constant {x.name} has the shape {list(data.shape)} and the result {list(y.shape)}")
    name = free_name(f"{x.name} in {y.name}", {*taken, y.name})
    if y.format.floating:
        return Constant(Tensor(name, data.shape, FLOAT32, channel_axis=y.channel_axis), data)
    table = requantising_table(x, y)
    if table is not None:
        data = table.data.reshape(-1)[data.astype(np.int64) - x.format.stored.start]
    made = replace(y, name=name, shape=data.shape, layout=None)
    return Constant(made, np.ascontiguousarray(data))


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


def axes_of(axes: Sequence[int], dimensions: int) -> list[int]:
    """Axes from 0 on.

    Raises:
        Refused: for one out of range, or given twice.
    """
    found = [axis + dimensions if axis < 0 else axis for axis in axes]
    if any(not 0 <= axis < dimensions for axis in found) or len(set(found)) < len(found):
        raise Refused(f"its axes are {list(axes)}, of {dimensions} dimensions")
    return found


def match_pad(context: Context, node: ir.Node) -> Match:
    """Pad with a constant along height and width; negative padding cuts off."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, "Pad", any_channels=True)
    result = produced(context, node, clamp=False)
    y = result.tensor
    mode = node.attributes.get_string("mode", "constant")
    if mode != "constant":
        raise Refused(f"mode is {mode}; constant is supported")
    given = _integers(node, 1, "pads") or []
    chosen = _integers(node, 3, "axes")
    dimensions = len(x.shape)
    axes = axes_of(range(dimensions) if chosen is None else chosen, dimensions)
    before, after = [0] * dimensions, [0] * dimensions
    if len(given) != 2 * len(axes):
        raise Refused(f"its pads are {given}, for the axes {axes}; two numbers for each axis are supported")
    for position, axis in enumerate(axes):
        before[axis], after[axis] = given[position], given[position + len(axes)]
    if tuple(size + low + high for size, low, high in zip(x.shape, before, after, strict=True)) != y.shape:
        raise Refused(f"padding {given} does not make {list(y.shape)} of {list(x.shape)}")
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    number = constant(filled) if filled is not None else np.array(node.attributes.get_float("value", 0.0))
    if number is None or number.size != 1:
        raise Refused("its value is not a constant number")
    fill = np.float32(number.reshape(-1)[0])
    if np.isnan(fill):
        raise Refused("its value is NaN")
    if not context.floats and len(result.nodes) > 1:  # alone, it pads integers, with one of them
        with np.errstate(over="ignore"):
            element = np.rint(fill / np.float32(x.scale)) + x.zero_point
        stored = x.format.stored
        filled_with = np.clip(element, stored.start, stored.stop - 1)
        _check_fill(x, y, float(fill), int(filled_with))
        fill = filled_with
    operation = Pad(
        output=y.name, sources=sources_of(result.nodes), input=x.name, before=tuple(before), after=tuple(after),
        value=float(fill) if context.floats else int(fill),
    )  # fmt: skip
    return match_of_moved(node, [result], value, x, [operation])


def _check_fill(x: Tensor, y: Tensor, fill: float, element: int) -> None:
    """Refuse a fill that y's quantiser would make another number of than the table behind the padding does of
    `element`, x's number for it."""
    table = requantising_table(x, y)
    if table is None:
        return
    with np.errstate(over="ignore"):
        wanted = np.rint(np.float32(fill) / np.float32(y.scale)) + y.zero_point
    wanted = np.clip(wanted, y.format.stored.start, y.format.stored.stop - 1)
    found = table.data[element - x.format.stored.start]
    if found != wanted:
        raise Refused(f"its value {fill:g} is {wanted:g} in the result's quantisation, and {found} through the input's")


def match_slice(context: Context, node: ir.Node) -> Match:
    """Slice along height, width and channels, in steps of 1."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, "Slice", any_channels=True)
    result = produced(context, node, clamp=False)
    y = result.tensor
    starts, ends = (_integers(node, position, name) for position, name in ((1, "starts"), (2, "ends")))
    chosen, steps = (_integers(node, position, name) for position, name in ((3, "axes"), (4, "steps")))
    if starts is None or ends is None:
        raise Refused("it has no starts or no ends")
    axes = axes_of(range(len(starts)) if chosen is None else chosen, len(x.shape))
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Refused(f"its starts are {starts}, ends {ends}, axes {axes} and steps {steps}: not one for each axis")
    if any(step != 1 for step in steps):
        raise Refused(f"steps are {steps}; 1 is supported")
    first, last = [0] * len(x.shape), list(x.shape)
    for start, end, axis in zip(starts, ends, axes, strict=True):
        first[axis], last[axis] = (
            min(max(place + (x.shape[axis] if place < 0 else 0), 0), x.shape[axis]) for place in (start, end)
        )
    if tuple(end - start for start, end in zip(first, last, strict=True)) != y.shape:
        raise Refused(f"from {first} to {last} it does not make {list(y.shape)} of {list(x.shape)}")
    operation = Slice(output=y.name, sources=sources_of(result.nodes), input=x.name, starts=tuple(first))
    return match_of_moved(node, [result], value, x, [operation])


def match_split(context: Context, node: ir.Node) -> Match:
    """Split along channels, height or width, into parts of any size; parts that nobody reads are not made."""
    value, x = source(context, operands_of_node(node)[0])
    axis = axes_of([node.attributes.get_int("axis", 0)], len(x.shape))[0]
    results, operations, start = [], [], 0
    for position, part in enumerate(node.outputs):
        size = static_shape(part)[axis]
        if list(part.uses()) or part.name in context.graph_outputs:
            result = produced(context, node, clamp=False, output=position)
            y = result.tensor
            starts = tuple(start if one == axis else 0 for one in range(len(x.shape)))
            operations.append(Slice(output=y.name, sources=sources_of(result.nodes), input=x.name, starts=starts))
            results.append(result)
        start += size
    if start != x.shape[axis]:
        raise Refused(f"its parts have {start} of {x.shape[axis]} along axis {axis}")
    if not results:
        raise Refused("none of its parts is read")
    return match_of_moved(node, results, value, x, operations)
