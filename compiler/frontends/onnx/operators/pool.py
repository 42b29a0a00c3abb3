"""Pools."""

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    check_channels,
    check_image,
    match_of,
    match_of_moved,
    produced,
    source,
    sources_of,
    window_of,
    window_pads,
)
from npukit.compiler.frontends.onnx.operators.integer import operands_of_node
from npukit.compiler.ir.operations import AveragePool, GlobalAveragePool, MaxPool

__all__ = ["match_average", "match_global_average", "match_maxpool"]


def match_maxpool(context: Context, node: ir.Node) -> Match:
    """A MaxPool over one or two dimensions within `max_window`."""
    value, x = source(context, operands_of_node(node)[0])
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise Refused("its second output, the indices, is used")
    result = produced(context, node, clamp=False)
    y = result.tensor
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
    operation = MaxPool(
        output=y.name, sources=sources_of(result.nodes), input=x.name, kernel=kernel, strides=strides, pads=pads,
        dilations=dilations,
    )  # fmt: skip
    return match_of_moved(node, [result], value, x, [operation])


def match_global_average(context: Context, node: ir.Node) -> Match:
    """GlobalAveragePool: an integer sum, then one multiplication."""
    value, x = source(context, operands_of_node(node)[0])
    check_image(x, "GlobalAveragePool")
    result = produced(context, node, ("QLinearGlobalAveragePool",))
    check_channels(result.tensor, "GlobalAveragePool")
    operation = GlobalAveragePool(
        output=result.tensor.name, sources=sources_of(result.nodes), input=x.name, limits=result.limits
    )
    return match_of(node, result, [value], [x], operation)


def match_average(context: Context, node: ir.Node) -> Match:
    """An AveragePool over one or two dimensions within `max_window` whose result no rounding of floats can change."""
    value, x = source(context, operands_of_node(node)[0])
    result = produced(context, node, ("QLinearAveragePool",))
    y = result.tensor
    window = window_of(node, x, y, node.attributes.get_ints("kernel_shape") or ())
    pads = window.pads
    if window.dilations != (1, 1):
        raise Refused("it is dilated, which is not supported")
    given = window_pads(node.attributes.get_ints("pads"), len(x.shape) - 2)
    if node.attributes.get_int("ceil_mode", 0) and (pads[2] > given[2] or pads[3] > given[3]):
        raise Refused("with ceil_mode its last windows reach past the padding, where ONNX Runtime's count differs")
    operation = AveragePool(
        output=y.name, sources=sources_of(result.nodes), input=x.name, kernel=window.kernel, strides=window.strides,
        pads=pads, count_padding=bool(node.attributes.get_int("count_include_pad", 0)), limits=result.limits,
    )  # fmt: skip
    return match_of(node, result, [value], [x], operation)
