"""Inputs of a seed for a model of which nothing else is known: indices lie within what they index."""

from collections.abc import Iterator

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npukit.errors import UsageError

__all__ = ["random_inputs"]

_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)
_WIDE = (onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64)
"""Integers that count or point at something, where narrow ones are quantised numbers."""
_CARRIERS = frozenset(
    "Cast Concat Expand Flatten Gather Identity Pad Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split()
)
"""Operators that hand elements on."""
_INDEXED = {"EmbedLayerNormalization": (0, 2), "Gather": (1, 0), "GatherElements": (1, 0), "ScatterElements": (1, 0)}
"""Operators that take indices: which input they are, and of which other input they name a part."""


def random_inputs(model: onnx.ModelProto, inputs: list[onnx.ValueInfoProto], seed: int) -> dict[str, NDArray]:
    """Inputs of a seed: floats uniform in [0, 1), quantised numbers over their whole range, wide integers 0 or 1, or,
    where the model takes them for indices, as many as there are parts to choose from.

    Args:
        model: whose inputs they are.
        inputs: with their shapes.
        seed: of the random numbers.

    Raises:
        UsageError: an input of another kind.
    """
    generator = np.random.default_rng(seed)
    arrays = {}
    for value in inputs:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if tensor.elem_type in _WIDE:
            arrays[value.name] = generator.integers(0, _choices(model.graph, value.name), shape, dtype)
        elif np.issubdtype(dtype, np.integer):
            limits = np.iinfo(dtype)
            arrays[value.name] = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        elif dtype == np.bool_:
            arrays[value.name] = generator.integers(0, 2, shape).astype(np.bool_)
        elif tensor.elem_type in _FLOATS:
            arrays[value.name] = generator.random(shape).astype(dtype)
        else:
            kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
            raise UsageError(f"input {value.name} is {kind}, for which there are no random values: give --input F.npz")
    return arrays


def _choices(graph: onnx.GraphProto, name: str) -> int:
    """How many values an input of integers may have: the smallest size of what it is an index of, or 2."""
    shapes = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    names, found = {name}, []
    for node in graph.node:
        if names.isdisjoint(node.input):
            continue
        if node.op_type in _CARRIERS and node.input[0] in names:
            names.update(node.output)
        indices, data = _INDEXED.get(node.op_type, (0, 0))
        if indices != data and len(node.input) > max(indices, data) and node.input[indices] in names:
            shape = sizes.get(node.input[data]) or tuple(_dimensions(shapes.get(node.input[data])))
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            if -len(shape) <= axis < len(shape):
                found.append(shape[axis])
    return max(1, min(found, default=2))


def _dimensions(value: onnx.ValueInfoProto | None) -> Iterator[int]:
    if value is not None:
        yield from (dim.dim_value for dim in value.type.tensor_type.shape.dim)
