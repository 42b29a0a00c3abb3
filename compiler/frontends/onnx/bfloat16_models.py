"""ONNX models whose tensors are bfloat16, as the same models in fp32.

ONNX Runtime has no bfloat16 kernels for most operators on a CPU, so neither the part of a model that stays on the host
nor a reference could run as it is written. Every bfloat16 is a binary32: nothing is lost on the way in. What a bfloat16
model rounds between its nodes, a bf16 machine rounds, too; on the host it stays fp32.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from npukit.compiler.errors import ModelError
from onnx import TensorProto, numpy_helper

__all__ = ["without_bfloat16"]

_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that name a tensor's type."""


def without_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself if it has no bfloat16, otherwise a copy in which fp32 takes its place.

    Raises:
        ModelError: a tensor whose data do not go with its shape.
    """
    if not any(_is_bfloat16(one) for one in _all(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for one in _all(copy):
        if not _is_bfloat16(one):
            continue
        if isinstance(one, onnx.TypeProto.Tensor):
            one.elem_type = TensorProto.FLOAT
        elif isinstance(one, TensorProto):
            one.CopyFrom(_widened(one))
        else:
            one.i = TensorProto.FLOAT
    return copy


def _widened(tensor: TensorProto) -> TensorProto:
    try:
        values = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:  # of its own, and numpy's
        raise ModelError(f"tensor {tensor.name} is damaged: {error}") from None
    return numpy_helper.from_array(values.astype(np.float32), tensor.name)


_Part = onnx.TypeProto.Tensor | TensorProto | onnx.AttributeProto


def _is_bfloat16(one: _Part) -> bool:
    if isinstance(one, onnx.TypeProto.Tensor):
        return one.elem_type == TensorProto.BFLOAT16
    if isinstance(one, TensorProto):
        return one.data_type == TensorProto.BFLOAT16
    return one.i == TensorProto.BFLOAT16


def _all(model: onnx.ModelProto) -> Iterator[_Part]:
    """Whatever in a model has an element type, its functions included."""
    yield from _parts(model.graph)
    for function in model.functions:
        yield from _types(function.value_info)
        yield from _attributes(function.node)


def _parts(graph: onnx.GraphProto) -> Iterator[_Part]:
    yield from _types((*graph.input, *graph.output, *graph.value_info))
    yield from graph.initializer
    yield from _attributes(graph.node)


def _types(values: Iterable[onnx.ValueInfoProto]) -> Iterator[_Part]:
    for value in values:
        if value.type.HasField("tensor_type"):
            yield value.type.tensor_type


def _attributes(nodes: Iterable[onnx.NodeProto]) -> Iterator[_Part]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.INT and attribute.name in _TYPE_ATTRIBUTES:
                yield attribute
            elif attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _parts(attribute.g)
            yield from attribute.tensors
            for graph in attribute.graphs:
                yield from _parts(graph)
