"""A TFLite model in the form that the other passes take: an ONNX graph whose nodes are TFLite's operators.

Each operator is a node of a domain of its own, of the schema's name, that reads and makes activations alone. Its
attribute is a TFLite model of this operator by itself, with its constants, so that TensorFlow Lite Micro can run it on
the host. The whole file is beside them, as an initializer that nothing reads: it is what comparisons run.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.tflite.model import TfliteModel, TfliteOperator, TfliteTensor
from npukit.compiler.frontends.tflite.reader import read_model
from npukit.compiler.frontends.tflite.writer import write_model
from npukit.compiler.ir.names import free_name
from npukit.driver.tflite_host import ATTRIBUTE, DOMAIN, FILE
from onnx import TensorProto, helper, numpy_helper

__all__ = ["onnx_model", "tensor_numbers"]

_IR_VERSION, _OPSET = 10, 21
_COPIES, _SPARE = 4, 1 << 26
"""Bytes that all operators by themselves may take: as many times the file's, and so many more."""
_TYPES: Mapping[str, int] = {
    "FLOAT32": TensorProto.FLOAT,
    "INT32": TensorProto.INT32,
    "UINT8": TensorProto.UINT8,
    "INT64": TensorProto.INT64,
    "BOOL": TensorProto.BOOL,
    "INT16": TensorProto.INT16,
    "INT8": TensorProto.INT8,
}


def onnx_model(data: bytes, name: str = "the model") -> onnx.ModelProto:
    """The graph of a TFLite file.

    Args:
        data: of the file.
        name: by which errors call it.

    Raises:
        ModelError: it cannot be read, or is of a kind that is not supported.
    """
    model = _with_names(read_model(data, name))
    values = [helper.make_tensor_value_info(one.name, _TYPES[one.type], one.shape) for one in model.tensors]
    nodes, room = [], _COPIES * len(data) + _SPARE
    for number, operator in enumerate(model.operators):
        nodes.append(_node(model, operator, number))
        room -= nodes[-1].ByteSize()
        if room < 0:
            raise ModelError(f"{name}: its operators share so many constants that each by itself takes too much memory")
    made = {index for operator in model.operators for index in operator.outputs}
    constants = [
        numpy_helper.from_array(tensor.data, tensor.name)
        for index, tensor in enumerate(model.tensors)
        if tensor.data is not None and index in model.outputs
    ]
    graph = helper.make_graph(
        nodes,
        "tflite",
        [values[index] for index in model.inputs],
        [values[index] for index in model.outputs],
        [*constants, numpy_helper.from_array(np.frombuffer(data, np.uint8), FILE)],
        value_info=[values[index] for index in sorted(made - {*model.outputs})],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="npukit")


def tensor_numbers(model: onnx.ModelProto) -> dict[str, int]:
    """The numbers that tensors have in the file from which a graph was made, by their names in the graph."""
    file = next(one for one in model.graph.initializer if one.name == FILE)
    named = _with_names(read_model(numpy_helper.to_array(file).tobytes()))
    return {tensor.name: number for number, tensor in enumerate(named.tensors)}


def _with_names(model: TfliteModel) -> TfliteModel:
    """The same with names of their own for all tensors."""
    taken: set[str] = {FILE}
    tensors = []
    for index, tensor in enumerate(model.tensors):
        name = tensor.name if tensor.name and tensor.name not in taken else f"{tensor.name or 'tensor'}_{index}"
        name = free_name(name, taken)
        taken.add(name)
        tensors.append(TfliteTensor(name, tensor.shape, tensor.type, tensor.quantization, tensor.data))
    return TfliteModel(tuple(tensors), model.operators, model.inputs, model.outputs, model.description)


def _node(model: TfliteModel, operator: TfliteOperator, number: int) -> onnx.NodeProto:
    used = dict.fromkeys(index for index in (*operator.inputs, *operator.outputs) if index != -1)
    places = {index: place for place, index in enumerate(used)}
    tensors = tuple(model.tensors[index] for index in used)
    inputs = tuple(dict.fromkeys(index for index in operator.inputs if index != -1))
    inputs = tuple(index for index in inputs if model.tensors[index].data is None)
    alone = TfliteModel(
        tensors,
        (
            TfliteOperator(
                operator.op,
                tuple(places.get(index, -1) for index in operator.inputs),
                tuple(places[index] for index in operator.outputs),
                operator.kind,
                operator.options,
                operator.version,
            ),
        ),
        tuple(places[index] for index in inputs),
        tuple(places[index] for index in operator.outputs),
    )
    node = helper.make_node(
        operator.op,
        [model.tensors[index].name for index in inputs],
        [model.tensors[index].name for index in operator.outputs],
        name=f"{operator.op}_{number}",
        domain=DOMAIN,
    )
    data = np.frombuffer(write_model(alone), np.uint8)
    node.attribute.append(helper.make_attribute(ATTRIBUTE, numpy_helper.from_array(data, ATTRIBUTE)))
    return node
