"""Pools."""

from dataclasses import replace
from math import prod

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    Produced,
    match_of,
    match_of_moved,
    match_of_several,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.integer import operands_of_node
from npukit.compiler.frontends.onnx.operators.volume import as_columns, as_images, as_volume
from npukit.compiler.frontends.onnx.operators.windows import (
    Window,
    WindowAxis,
    check_channels,
    check_image,
    plane_of,
    window_axes,
    window_pads,
)
from npukit.compiler.ir.operations import AveragePool, GlobalAveragePool, MaxPool, TensorOperation
from npukit.compiler.ir.tensor import Tensor

__all__ = ["match_average", "match_global_average", "match_maxpool"]


def match_maxpool(context: Context, node: ir.Node) -> Match:
    """A MaxPool over one, two or three dimensions within `max_window`."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, "MaxPool", most=3)
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise Refused("its second output, the indices, is used")
    result = produced(context, node, clamp=False)
    y = result.tensor
    axes = [
        replace(axis, dilation=axis.dilation if axis.kernel > 1 else 1)
        for axis in window_axes(node, x, y, node.attributes.get_ints("kernel_shape") or ())
    ]
    dilations = [axis.dilation for axis in axes]
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    if mode.startswith("SAME") and max(dilations) > 1:
        raise Refused(f"auto_pad is {mode} with dilations {dilations}, where ONNX and ONNX Runtime differ")
    names = ("images", "rows", "columns")[-len(axes) :]
    sizes = ((1, *one.shape[2:]) if len(one.shape) == 3 else one.shape[2:] for one in (x, y))
    for axis, name, size, outputs in zip(axes, names, *sizes, strict=True):
        start = (outputs - 1) * axis.stride - axis.before
        if start >= size:
            raise Refused(
                f"with ceil_mode its last window starts at {start}, outside of the {size} input {name}, where ONNX and "
                "ONNX Runtime differ"
            )
    if len(axes) == 2:
        return match_of_moved(node, [result], value, x, [_maximum(result, x.name, y.name, plane_of(*axes))])
    # the maximum over a volume is one over images, and then one over these
    depth, vertical, horizontal = axes
    images, to_images = as_images(x, result)
    batch, channels, *places = y.shape
    flat = replace(images, name=f"{y.name} in images", shape=(images.shape[0], channels, *places[1:]))
    deep = replace(x, name=f"{y.name} in depth", shape=(batch, channels, *x.shape[2:3], *places[1:]))
    stacked, to_columns = as_columns(deep, result)
    made = replace(stacked, name=f"{y.name} in columns", shape=(*y.shape[:3], stacked.shape[3]))
    before: list[TensorOperation] = [
        to_images,
        _maximum(result, images.name, flat.name, plane_of(vertical, horizontal)),
        as_volume(flat, deep, result),
        to_columns,
        _maximum(result, stacked.name, made.name, plane_of(depth, WindowAxis(1, 1, 1, 0, 0))),
    ]
    last = as_volume(made, y, result)
    return match_of_moved(node, [result], value, x, [last], before, [images, flat, deep, stacked, made])


def _maximum(result: Produced, source: str, name: str, window: Window) -> MaxPool:
    return MaxPool(
        output=name, sources=sources_of(result.nodes), input=source, kernel=window.kernel, strides=window.strides,
        pads=window.pads, dilations=window.dilations,
    )  # fmt: skip


def match_global_average(context: Context, node: ir.Node) -> Match:
    """GlobalAveragePool: an integer sum, then one multiplication."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, "GlobalAveragePool", most=3)
    result = produced(context, node, ("QLinearGlobalAveragePool",))
    check_channels(result.tensor, "GlobalAveragePool")
    operation = GlobalAveragePool(
        output=result.tensor.name, sources=sources_of(result.nodes), input=x.name, limits=result.limits
    )
    return match_of(node, result, [value], [x], operation)


def match_average(context: Context, node: ir.Node) -> Match:
    """An AveragePool within `max_window` whose result no rounding of floats can change: over one or two dimensions, or
    over three of which one side's are all that there are."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, "AveragePool", most=3)
    result = produced(context, node, ("QLinearAveragePool",))
    y = result.tensor
    axes = window_axes(node, x, y, node.attributes.get_ints("kernel_shape") or ())
    if any(axis.dilation != 1 for axis in axes):
        raise Refused("it is dilated, which is not supported")
    given = window_pads(node.attributes.get_ints("pads"), len(x.shape) - 2)[len(axes) :]
    if node.attributes.get_int("ceil_mode", 0) and any(axis.after > pad for axis, pad in zip(axes, given, strict=True)):
        raise Refused("with ceil_mode its last windows reach past the padding, where ONNX Runtime's count differs")

    def average(source: str, name: str, window: Window) -> AveragePool:
        return AveragePool(
            output=name, sources=sources_of(result.nodes), input=source, kernel=window.kernel, strides=window.strides,
            pads=window.pads, count_padding=bool(node.attributes.get_int("count_include_pad", 0)), limits=result.limits,
        )  # fmt: skip

    if len(axes) == 2:
        return match_of(node, result, [value], [x], average(x.name, y.name, plane_of(*axes)))
    depth, vertical, horizontal = axes
    seen, made, window = _flattened(x, y, depth, vertical, horizontal, result)
    inner, to_inner = seen
    operations = [to_inner, average(inner.name, made.name, window), as_volume(made, y, result)]
    return match_of_several(node, [result], [value], [x], operations, inner=[inner, made])


def _flattened(
    x: Tensor, y: Tensor, depth: WindowAxis, vertical: WindowAxis, horizontal: WindowAxis, result: Produced
) -> tuple[tuple[Tensor, TensorOperation], Tensor, Window]:
    """An average over a volume as one over two dimensions: the input that it sees, what it makes, and the window.

    Raises:
        Refused: for windows that two averages would have to make.
    """
    height, width = x.shape[3:]
    whole = (vertical.kernel, horizontal.kernel, *y.shape[3:]) == (height, width, 1, 1) and not any(
        (vertical.before, vertical.after, horizontal.before, horizontal.after)
    )
    if depth.idle:
        seen = as_images(x, result)
        shape = seen[0].shape[0], y.shape[1], *y.shape[3:]
        return seen, replace(y, name=f"{y.name} in images", shape=shape), plane_of(vertical, horizontal)
    if not whole and not (vertical.idle and horizontal.idle):
        sizes = "x".join(str(axis.kernel) for axis in (depth, vertical, horizontal))
        raise Refused(
            f"a window of {sizes} in images of {height}x{width}: averages over three dimensions are supported where "
            "windows lie within an image, or are as large as one, or have one place of it"
        )
    seen = as_columns(x, result)
    made = replace(y, name=f"{y.name} in columns", shape=(*y.shape[:3], prod(y.shape[3:])))
    across = WindowAxis(height * width, 1, 1, 0, 0) if whole else horizontal
    return seen, made, plane_of(depth, across)
