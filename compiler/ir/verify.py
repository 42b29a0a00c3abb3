"""What holds of every graph, and of each operation in it: names, shapes, number formats and attributes."""

from collections.abc import Callable
from itertools import pairwise
from math import inf, isfinite, prod
from typing import Any

import numpy as np
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    Clamp,
    Concatenation,
    Convolution,
    Depth,
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
    Reinterpret,
    Repeat,
    Reshape,
    Slice,
    Softmax,
    TensorOperation,
    TransposedConvolution,
    Window,
)
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import BFLOAT16, FLOAT32, INT8, INT32, UINT8

__all__ = ["InvalidGraph", "verify_graph"]

_ENTRIES = 256
"""Numbers of a table's input."""


class InvalidGraph(AssertionError):
    """A graph that means nothing: a fault of who made it, never of the model."""


def verify_graph(graph: Graph) -> None:
    """Look at a whole graph.

    Raises:
        InvalidGraph: what is wrong, and where.
    """
    both = graph.tensors.keys() & graph.constants.keys()
    _check(not both, f"{graph.name}: {_list(both)} are tensors and constants")
    for name, tensor in graph.tensors.items():
        _check(tensor.name == name, f"{graph.name}: {tensor.name} is known as {name}")
        _check(tensor.storage in graph.tensors, f"{graph.name}: {name} lies in {tensor.storage}, which is no tensor")
        _tensor(tensor)
    for name, constant in graph.constants.items():
        _check(constant.tensor.name == name, f"{graph.name}: {constant.tensor.name} is known as {name}")
        _constant(constant)
    made = set(graph.inputs)
    _check(made <= graph.tensors.keys(), f"{graph.name}: {_list(made - graph.tensors.keys())} are no tensors")
    for operation in graph.operations:
        _operands(graph, operation, made)
        made.add(operation.output)
        try:
            _FORMS[type(operation)](graph, operation)
        except InvalidGraph as error:
            raise InvalidGraph(f"{operation.mnemonic} {operation.node}: {error}") from None
    for name in graph.outputs:
        known = name in graph.tensors and graph.tensors[name].storage in made
        _check(known, f"{graph.name}: the output {name} is never made")
    _groups(graph)


def _groups(graph: Graph) -> None:
    makers, readers, outside = graph.makers(), graph.readers(), graph.outside()
    seen: set[str] = set()
    for group in graph.groups:
        for name in group:
            _check(name in makers, f"{graph.name}: {name}, of a group, is no operation's result")
            _check(name not in seen, f"{graph.name}: {name} belongs to two groups")
            seen.add(name)
        for before, name in pairwise(group):
            alone = readers.get(before) == [makers[name]] and before not in outside
            _check(alone, f"{graph.name}: {before} is not read by {name} alone, with which it is computed")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidGraph(message)


def _list(names: Any) -> str:
    return ", ".join(sorted(names))


def _operands(graph: Graph, operation: TensorOperation, made: set[str]) -> None:
    _check(bool(operation.sources), f"{operation.mnemonic} {operation.output} stands for no node")
    name = f"{operation.mnemonic} {operation.node}"
    for one in operation.operands:
        ready = one in graph.constants or one in graph.tensors and graph.tensors[one].storage in made
        _check(ready, f"{name} reads {one} before it is made")
    _check(operation.output in graph.tensors, f"{name} makes {operation.output}, which is no tensor")
    _check(operation.output not in made, f"{name} makes {operation.output}, which is there already")


# ---- tensors


def _tensor(tensor: Tensor) -> None:
    _check(min(tensor.shape, default=1) >= 1, f"{tensor.name} has the shape {list(tensor.shape)}")
    axis = tensor.channel_axis
    _check(axis == 1 or 0 <= axis < len(tensor.shape), f"{tensor.name} has no axis {axis} for its channels")
    if tensor.layout is not None and tensor.layout.host is None:
        _check(
            prod(tensor.view) == prod(tensor.shape) * tensor.parts,
            f"{tensor.name} of shape {list(tensor.shape)} is seen as {list(tensor.view)}",
        )
        _check(
            prod(tensor.order) == prod(tensor.shape) and tensor.order[1] == tensor.view[1],
            f"{tensor.name} is seen as {list(tensor.view)}, and its elements are numbered by {list(tensor.order)}",
        )
    quantization = tensor.quantization
    if quantization is None:
        return
    _check(tensor.format in (INT8, UINT8), f"{tensor.name} is {tensor.format.name} and quantized")
    axis = quantization.axis
    _check(axis is None or 0 <= axis < len(tensor.shape), f"{tensor.name} has no axis {axis}")
    count = 1 if axis is None else tensor.shape[axis]
    scales, zeros = quantization.scale, quantization.zero_point
    _check(
        len(scales) == len(zeros) == count,
        f"{tensor.name} has {len(scales)} scales and {len(zeros)} zero points, not {count}",
    )
    _check(all(0 < one < inf for one in scales), f"{tensor.name} has a scale that is not above 0")
    stored = tensor.format.stored
    _check(
        stored.start <= min(zeros) and max(zeros) < stored.stop,
        f"{tensor.name} has a zero point that {tensor.format.name} has not",
    )


def _constant(constant: Constant) -> None:
    tensor, data = constant.tensor, constant.data
    _tensor(tensor)
    _check(data.shape == tensor.shape, f"{tensor.name} of shape {list(tensor.shape)} has data of {list(data.shape)}")
    _check(data.dtype == tensor.format.storage, f"{tensor.name} is {tensor.format.name} and its data {data.dtype}")


def _activation(graph: Graph, name: str) -> Tensor:
    tensor = graph.tensor(name)
    _check(tensor.format in (INT8, UINT8, BFLOAT16), f"{name} is {tensor.format.name}")
    quantized = tensor.quantization is not None
    _check(quantized is not tensor.format.floating, f"{name} is {tensor.format.name} and its scale is {quantized}")
    _check(not quantized or len(tensor.quantization.scale) == 1, f"{name} has several scales")  # type: ignore[union-attr]
    return tensor


def _sum(graph: Graph, name: str) -> Tensor:
    """An activation, or whole sums of products."""
    tensor = graph.tensor(name)
    if tensor.format is not INT32:
        return _activation(graph, name)
    _check(tensor.quantization is None and tensor.parts == INT32.bits // INT8.bits, f"{name} is int32 in no four parts")
    return tensor


def _same_kind(x: Tensor, y: Tensor) -> None:
    same = x.format.floating == y.format.floating
    _check(same, f"{x.name} is {x.format.name} and {y.name} {y.format.name}")


def _same_quantization(x: Tensor, y: Tensor) -> None:
    same = x.format is y.format and x.quantization == y.quantization
    _check(same, f"{y.name} is not quantized as {x.name}")


# ---- operations


def _window(graph: Graph, operation: Window, kernel: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Input and result, of an image that the windows fit."""
    x, y = _activation(graph, operation.input), _sum(graph, operation.output)
    _same_kind(x, y)
    _check(min(*kernel, *operation.strides, *operation.dilations) >= 1, "a kernel, stride or dilation is below 1")
    _check(min(operation.pads) >= 0, f"pads {list(operation.pads)} are negative")
    if not isinstance(operation, Convolution) or operation.depth is None:
        _check(x.view[0] * y.parts == y.view[0], f"{x.name} has {x.view[0]} images and {y.name} {y.view[0]}")
    for axis in (0, 1):
        reach = (y.view[2 + axis] - 1) * operation.strides[axis] + (kernel[axis] - 1) * operation.dilations[axis] + 1
        room = x.view[2 + axis] + operation.pads[axis] + operation.pads[2 + axis]
        _check(reach <= room, f"its windows reach over {reach} of {room} {('rows', 'columns')[axis]}")
    return x, y


def _weights(
    graph: Graph, x: Tensor, name: str, bias: str | None, dimensions: int, outputs: int, axis: int, groups: int = 1
) -> Tensor:
    _check(name in graph.constants, f"its weights {name} are no constant")
    weights = graph.tensor(name)
    _check(len(weights.shape) == dimensions, f"its weights {name} have {len(weights.shape)} dimensions")
    found = weights.shape[axis] * groups
    _check(found == outputs, f"its weights {name} are for {found} outputs of {outputs}")
    allowed = (FLOAT32,) if x.format.floating else (INT8, UINT8)
    _check(weights.format in allowed, f"its weights {name} are {weights.format.name}")
    quantization = weights.quantization
    if not x.format.floating:
        _check(
            quantization is not None and quantization.axis in (None, axis), f"the scales of {name} are along an axis"
        )
    _bias(graph, x, bias, outputs)
    return weights


def _bias(graph: Graph, x: Tensor, bias: str | None, outputs: int) -> None:
    """A constant for each output, if any, in units of the products."""
    if bias is None:
        return
    _check(bias in graph.constants, f"its bias {bias} is no constant")
    term = graph.tensor(bias)
    wanted = FLOAT32 if x.format.floating else INT32
    _check(term.format is wanted and term.shape == (outputs,), f"its bias {bias} is {term.format.name}{term.shape}")


def _convolution(graph: Graph, operation: Convolution) -> None:
    x, y = _activation(graph, operation.input), _sum(graph, operation.output)
    plain = operation.bias is None and operation.depth is None
    _check(y.format is not INT32 or plain, "sums with a bias, or of volumes")
    weights = _weights(graph, x, operation.weights, operation.bias, 4, y.view[1], 0)
    _window(graph, operation, graph.kernel(operation))
    groups, images = operation.groups, 1
    if operation.depth is not None:
        images = _depth(x, y, operation.depth)
        _check(groups == 1, f"{groups} groups of channels, in windows of three dimensions")
    _check(groups >= 1 and y.view[1] % groups == 0, f"{y.view[1]} channels in {groups} groups")
    _check(
        weights.shape[1] * groups == x.view[1] * images,
        f"{groups} groups of {weights.shape[1]} input channels, of {x.view[1]} in {images} images",
    )


def _depth(x: Tensor, y: Tensor, depth: Depth) -> int:
    """The kernel's images, of a third dimension that the images of both tensors are."""
    _check(min(depth.kernel, depth.stride, depth.dilation, depth.images, depth.results) >= 1, "a number is below 1")
    _check(depth.pad >= 0, f"a pad of {depth.pad} is negative")
    whole = x.view[0] % depth.images == y.view[0] % depth.results == 0
    alike = whole and x.view[0] // depth.images == y.view[0] // depth.results
    _check(alike, f"{x.view[0]} images in volumes of {depth.images} become {y.view[0]} in volumes of {depth.results}")
    blind = [image for image in range(depth.results) if not depth.seen(image)]
    _check(not blind, f"images {blind} of its result see nothing but padding")
    return depth.kernel


def _depthwise(graph: Graph, operation: DepthwiseConvolution) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    weights = _weights(graph, x, operation.weights, operation.bias, 4, y.view[1], 0)
    _window(graph, operation, graph.kernel(operation))
    _check(weights.shape[1] == 1 and x.view[1] == y.view[1], f"{x.view[1]} channels become {y.view[1]}")


def _transposed_convolution(graph: Graph, operation: TransposedConvolution) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_kind(x, y)
    groups = operation.groups
    _check(groups >= 1 and y.view[1] % groups == 0, f"{y.view[1]} channels in {groups} groups")
    weights = _weights(graph, x, operation.weights, operation.bias, 4, y.view[1], 1, groups)
    _check(weights.shape[0] == x.view[1], f"weights for {weights.shape[0]} input channels, of {x.view[1]}")
    _check(min(*operation.strides, *operation.dilations) >= 1, "a stride or dilation is below 1")
    _check(min(operation.pads) >= 0, f"pads {list(operation.pads)} are negative")
    _check(x.view[0] == y.view[0], f"{x.name} has {x.view[0]} images and {y.name} {y.view[0]}")


def _dilate(graph: Graph, operation: Dilate) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_quantization(x, y)
    _check(min(operation.factors) >= 1, "a factor is below 1")
    found = (*x.view[:2], *((size - 1) * by + 1 for size, by in zip(x.view[2:], operation.factors, strict=True)))
    _check(found == y.view, f"{list(x.view)} becomes {list(found)}, not {list(y.view)}")


def _fully_connected(graph: Graph, operation: FullyConnected) -> None:
    x, y = _activation(graph, operation.input), _sum(graph, operation.output)
    _check(y.format is not INT32 or operation.bias is None, "sums with a bias")
    _same_kind(x, y)
    _check(x.shape[:-1] == y.shape[:-1], f"{list(x.shape)} becomes {list(y.shape)}")
    axis = 0 if operation.transposed else 1
    weights = _weights(graph, x, operation.weights, operation.bias, 2, y.shape[-1], axis)
    _check(weights.shape[1 - axis] == x.shape[-1], f"weights for {weights.shape[1 - axis]} inputs, of {x.shape[-1]}")


def _matrix_product(graph: Graph, operation: MatrixProduct) -> None:
    a, b, y = (_activation(graph, name) for name in (operation.left, operation.right, operation.output))
    _same_kind(a, y)
    _same_kind(b, y)
    enough = min(len(a.shape), len(b.shape), len(y.shape)) >= 2
    _check(enough and a.shape[-1] == b.shape[-2], f"{list(a.shape)} times {list(b.shape)}")
    try:
        found = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    except ValueError:
        found = ()
    _check(found == y.shape, f"{list(a.shape)} times {list(b.shape)} make no {list(y.shape)}")
    _bias(graph, a, operation.bias, y.shape[-1])
    axes = (a.channel_axis - len(a.shape), y.channel_axis - len(y.shape), b.channel_axis - len(b.shape))
    _check(axes in ((-1, -1, -1), (-1, -1, -2)), f"its words hold what lies along the axes {list(axes)}")


def _softmax(graph: Graph, operation: Softmax) -> None:
    x, y = _same(graph, operation.input, operation.output)
    _check(x.format is y.format, f"{x.format.name} becomes {y.format.name}")


def _normalization(graph: Graph, operation: Normalization) -> None:
    x, y = _same(graph, operation.input, operation.output)
    for name in operation.operands[1:]:
        tensor = graph.tensor(name)
        _check(
            name in graph.constants and tensor.format is FLOAT32 and tensor.shape == (y.view[1],),
            f"{name} is {tensor.format.name} of {list(tensor.shape)}, for {y.view[1]} channels",
        )
    _check(isfinite(operation.epsilon) and operation.epsilon >= 0, f"an epsilon of {operation.epsilon}")


def _elementwise(graph: Graph, operation: Elementwise) -> None:
    y = _activation(graph, operation.output)
    shapes = []
    for name in operation.operands:
        tensor = graph.tensor(name)
        if name in graph.tensors:
            _same_kind(_activation(graph, name), y)
        else:
            allowed = (FLOAT32,) if y.format.floating else (INT8, UINT8)
            _check(tensor.format in allowed, f"constant {name} is {tensor.format.name}")
            # as ONNX has it: dimensions that are missing come first
            shapes.append((1,) * (len(y.shape) - len(tensor.shape)) + tensor.shape)
            continue
        shapes.append(tensor.shape)
        _check(tensor.view[1] == y.view[1], f"{name} repeats along channels")
    try:
        found = np.broadcast_shapes(*shapes)
    except ValueError:
        found = ()
    _check(found == y.shape, f"{[list(one) for one in shapes]} make no {list(y.shape)}")


def _clamp(graph: Graph, operation: Clamp) -> None:
    _same(graph, operation.input, operation.output)


def _same(graph: Graph, source: str, result: str) -> tuple[Tensor, Tensor]:
    x, y = _activation(graph, source), _activation(graph, result)
    _same_kind(x, y)
    same = x.shape == y.shape and x.order == y.order
    _check(same, f"{list(x.shape)}, of {list(x.order)}, becomes {list(y.shape)}, of {list(y.order)}")
    return x, y


def _table(graph: Graph, name: str, x: Tensor, y: Tensor) -> None:
    _check(name in graph.constants, f"its table {name} is no constant")
    table = graph.tensor(name)
    _check(x.format in (INT8, UINT8), f"a table for {x.format.name}")
    fits = table.shape == (_ENTRIES,) and table.format is y.format
    _check(fits, f"its table {name} is {table.format.name}{list(table.shape)}")


def _lookup(graph: Graph, operation: Lookup) -> None:
    x, y = _same(graph, operation.input, operation.output)
    _table(graph, operation.table, x, y)


def _piecewise_linear(graph: Graph, operation: PiecewiseLinear) -> None:
    x, y = _same(graph, operation.input, operation.output)
    _check(x.format is y.format is BFLOAT16, f"{x.format.name} becomes {y.format.name}")
    table = graph.tensor(operation.table)
    fits = operation.table in graph.constants and table.format is FLOAT32 and table.shape == (_ENTRIES, 2)
    _check(fits, f"its table {operation.table} is {table.format.name}{list(table.shape)}")
    fits = -16 <= operation.step < 16 and -512 <= operation.offset < 512
    _check(fits, f"steps of 2^{operation.step}, of which number {operation.offset} begins at 0")


def _pad(graph: Graph, operation: Pad) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_quantization(x, y)
    _check(len(operation.before) == len(operation.after) == len(x.shape), "its numbers are not one for each dimension")
    found = tuple(sum(one) for one in zip(operation.before, x.shape, operation.after, strict=True))
    _check(found == y.shape, f"{list(x.shape)} becomes {list(found)}, not {list(y.shape)}")


def _slice(graph: Graph, operation: Slice) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_quantization(x, y)
    _check(len(operation.starts) == len(x.shape) == len(y.shape), "its starts are not one for each dimension")
    inside = all(0 <= start <= of - size for start, size, of in zip(operation.starts, y.shape, x.shape, strict=True))
    _check(inside, f"{list(y.shape)} from {list(operation.starts)} on are not within {list(x.shape)}")


def _concatenation(graph: Graph, operation: Concatenation) -> None:
    y, axis = _activation(graph, operation.output), operation.axis
    _check(0 <= axis < len(y.shape), f"axis {axis} of {len(y.shape)}")
    _check(len(operation.tables) == len(operation.inputs) > 0, "not a table, or none, for each input")
    total = 0
    for name, table in zip(operation.inputs, operation.tables, strict=True):
        x = graph.tensor(name)
        others = [size for position, size in enumerate(x.shape) if position != axis]
        wanted = [size for position, size in enumerate(y.shape) if position != axis]
        _check(len(x.shape) == len(y.shape) and others == wanted, f"{list(x.shape)} is no part of {list(y.shape)}")
        total += x.shape[axis]
        if name in graph.constants and y.format.floating:
            _check(x.format is FLOAT32 and table is None, f"{name} is {x.format.name}, through the table {table}")
        elif table is None:
            _same_quantization(_activation(graph, name), y)
        else:
            _check(name in graph.tensors, f"{name} is constant and goes through a table")
            _table(graph, table, _activation(graph, name), y)
    _check(total == y.shape[axis], f"its inputs have {total} along axis {axis}, of {y.shape[axis]}")


def _repeat(graph: Graph, operation: Repeat) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_quantization(x, y)
    found = (*x.view[:2], *(size * factor for size, factor in zip(x.view[2:], operation.factors, strict=True)))
    _check(found == y.view, f"{list(x.view)} becomes {list(found)}, not {list(y.view)}")


def _max_pool(graph: Graph, operation: MaxPool) -> None:
    x, y = _window(graph, operation, operation.kernel)
    _same_quantization(x, y)
    _check(x.view[1] == y.view[1], f"{x.view[1]} channels become {y.view[1]}")


def _average_pool(graph: Graph, operation: AveragePool) -> None:
    x, y = _window(graph, operation, operation.kernel)
    _check(x.view[1] == y.view[1], f"{x.view[1]} channels become {y.view[1]}")
    _check(operation.dilations == (1, 1), "its windows are dilated")


def _global_average_pool(graph: Graph, operation: GlobalAveragePool) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_kind(x, y)
    _check(y.view == (*x.view[:2], 1, 1), f"{list(x.view)} becomes {list(y.view)}")


def _reshape(graph: Graph, operation: Reshape) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _check(prod(x.shape) == prod(y.shape), f"{list(x.shape)} becomes {list(y.shape)}")
    _same_quantization(x, y)


def _rearrange(graph: Graph, operation: Rearrange) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _same_quantization(x, y)
    counts = {prod(one) for one in (x.shape, y.shape, operation.sizes)}
    _check(len(counts) == 1, f"{list(x.shape)} as {list(operation.sizes)} becomes {list(y.shape)}")
    axes = sorted(operation.permutation)
    _check(axes == [*range(len(operation.sizes))], f"{list(operation.permutation)} is no order of its dimensions")


def _reinterpret(graph: Graph, operation: Reinterpret) -> None:
    x, y = _activation(graph, operation.input), _activation(graph, operation.output)
    _check(x.shape == y.shape and x.format is y.format, f"{x.format.name}{x.shape} becomes {y.format.name}{y.shape}")


_FORMS: dict[type[TensorOperation], Callable[[Graph, Any], None]] = {
    Convolution: _convolution,
    DepthwiseConvolution: _depthwise,
    FullyConnected: _fully_connected,
    MatrixProduct: _matrix_product,
    Softmax: _softmax,
    Normalization: _normalization,
    Add: _elementwise,
    Multiply: _elementwise,
    Clamp: _clamp,
    Lookup: _lookup,
    PiecewiseLinear: _piecewise_linear,
    Pad: _pad,
    Slice: _slice,
    Concatenation: _concatenation,
    Repeat: _repeat,
    MaxPool: _max_pool,
    AveragePool: _average_pool,
    GlobalAveragePool: _global_average_pool,
    Reshape: _reshape,
    Rearrange: _rearrange,
    Reinterpret: _reinterpret,
    TransposedConvolution: _transposed_convolution,
    Dilate: _dilate,
}
