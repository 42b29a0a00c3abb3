"""A TFLite file as plain data, or one clear sentence why not.

The schema package's accessors do not check where offsets lead: what they raise, and contradictions in what they give,
become errors of a damaged file. They read bytes in Python alone, so that nothing worse can come of it.
"""

import struct
from math import isfinite, prod
from typing import Any

import numpy as np
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.tflite.model import (
    IDENTIFIER,
    TYPES,
    TfliteModel,
    TfliteOperator,
    TfliteQuantization,
    TfliteTensor,
)
from npukit.compiler.frontends.tflite.options import read_options
from npukit.compiler.frontends.tflite.schema import Budget, names_of, schema
from npukit.compiler.frontends.tflite.shapes import check_shapes
from numpy.typing import NDArray

__all__ = ["is_tflite_file", "read_model"]

_MOST_ELEMENTS = 1 << 31
"""Of a tensor."""
_MOST_DIMENSIONS = 8
_DAMAGED = (struct.error, ValueError, IndexError, TypeError, OverflowError, AttributeError, UnicodeDecodeError)
"""What the accessors raise where a file is damaged."""


def is_tflite_file(data: bytes) -> bool:
    """Whether a file says that it is a TFLite model."""
    return data[4:8] == IDENTIFIER


def read_model(data: bytes, name: str = "the model") -> TfliteModel:
    """A model's only graph.

    Args:
        data: of the file.
        name: by which errors call it.

    Raises:
        ModelError: not TFLite, damaged, or of a kind that is not supported.
    """
    if not is_tflite_file(data):
        raise ModelError(f"{name} is not a TFLite model: it does not have the identifier {IDENTIFIER.decode()}")
    tflite = schema()
    try:
        return _Reader(data, tflite.Model.GetRootAs(data, 0)).model()
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    except _DAMAGED:
        raise ModelError(f"{name} is not a TFLite model, or it is damaged or cut short") from None


class _Reader:
    def __init__(self, data: bytes, model: Any) -> None:
        self._data = data
        self._model = model
        self._budget = Budget(4 * len(data))
        self._buffers: dict[int, NDArray[np.uint8] | None] = {}

    def model(self) -> TfliteModel:
        """All of it."""
        model = self._model
        if model.Version() != 3:
            raise ModelError(f"it has version {model.Version()} of TFLite's format; 3 is supported")
        if model.SubgraphsLength() != 1:
            raise ModelError(f"it has {model.SubgraphsLength()} graphs; one, without control flow, is supported")
        if model.BuffersLength() and model.Buffers(0).DataLength():
            raise ModelError("its first buffer holds data, and stands for tensors that hold none")
        graph = model.Subgraphs(0)
        codes = [self._code(model.OperatorCodes(index)) for index in self._numbers(model.OperatorCodesLength())]
        tensors = tuple(self._tensor(graph.Tensors(index)) for index in self._numbers(graph.TensorsLength()))
        operators = tuple(
            self._operator(graph.Operators(index), codes) for index in self._numbers(graph.OperatorsLength())
        )
        inputs = tuple(int(graph.Inputs(index)) for index in self._numbers(graph.InputsLength()))
        outputs = tuple(int(graph.Outputs(index)) for index in self._numbers(graph.OutputsLength()))
        description = model.Description()
        found = TfliteModel(tensors, operators, inputs, outputs, "" if description is None else description.decode())
        _check_flow(found)
        check_shapes(found)
        return found

    def _numbers(self, count: Any) -> range:
        return self._budget.numbers(count)

    def _code(self, code: Any) -> tuple[str, int]:
        """An operator's name and version. Old files have its number in a field of eight bits."""
        number = max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
        name = names_of("BuiltinOperator").get(number)
        if name is None:
            raise ModelError(f"it has an operator of the number {number}, which the schema does not know")
        if name == "CUSTOM":
            custom = code.CustomCode()
            text = "" if custom is None else custom.decode()
            raise ModelError(f"it has the custom operator {text!r}, whose arithmetic nobody knows but who made it")
        return name, int(code.Version())

    def _operator(self, operator: Any, codes: list[tuple[str, int]]) -> TfliteOperator:
        op, version = codes[operator.OpcodeIndex()]
        kind, options = names_of("BuiltinOptions").get(operator.BuiltinOptionsType(), "NONE"), {}
        table = operator.BuiltinOptions()
        if kind == "NONE" or table is None:
            kind = ""
        else:
            options = read_options(kind, table, self._budget)
        inputs = tuple(int(operator.Inputs(index)) for index in self._numbers(operator.InputsLength()))
        outputs = tuple(int(operator.Outputs(index)) for index in self._numbers(operator.OutputsLength()))
        return TfliteOperator(op, inputs, outputs, kind, options, version)

    def _tensor(self, tensor: Any) -> TfliteTensor:
        text = tensor.Name()
        name = "" if text is None else text.decode()
        kind = names_of("TensorType").get(tensor.Type(), str(tensor.Type()))
        if kind not in TYPES:
            raise ModelError(f"tensor {name!r} is {kind}; {', '.join(TYPES)} are supported")
        if tensor.Sparsity() is not None:
            raise ModelError(f"tensor {name!r} is sparse; convert the model without sparsity")
        if tensor.IsVariable():
            raise ModelError(f"tensor {name!r} keeps its value from one run to the next, which is not supported")
        count = int(tensor.ShapeLength())
        if count > _MOST_DIMENSIONS:
            raise ModelError(f"tensor {name!r} has {count} dimensions; {_MOST_DIMENSIONS} are supported")
        shape = tuple(int(tensor.Shape(index)) for index in self._numbers(count))
        if any(size < 1 for size in shape) or prod(shape) > _MOST_ELEMENTS:
            raise ModelError(f"tensor {name!r} has the shape {list(shape)}; sizes are 1 and more, {_MOST_ELEMENTS} "
                             "elements at most")  # fmt: skip
        data = self._buffer(tensor.Buffer())
        values = None
        if data is not None:
            values = data.view(TYPES[kind]) if data.size % np.dtype(TYPES[kind]).itemsize == 0 else data
            if values.size != prod(shape) or values.dtype != TYPES[kind]:
                raise ModelError(f"tensor {name!r} has {data.size} bytes for the shape {list(shape)} of {kind}")
            values = values.reshape(shape)
        return TfliteTensor(name, shape, kind, self._quantization(tensor, name, shape), values)

    def _buffer(self, index: int) -> NDArray[np.uint8] | None:
        """A buffer's bytes, or None of an empty one."""
        if index == 0:
            return None
        if index not in self._buffers:
            if not 0 < index < self._model.BuffersLength():
                raise ValueError(f"there is no buffer {index}")
            buffer = self._model.Buffers(index)
            if buffer.Offset() > 1:  # of files of more than 2 GB, behind the tables
                data = np.frombuffer(self._data, np.uint8, buffer.Size(), buffer.Offset())
            elif buffer.DataLength():
                data = np.asarray(buffer.DataAsNumpy(), np.uint8)
            else:
                data = None
            self._buffers[index] = data
        return self._buffers[index]

    def _quantization(self, tensor: Any, name: str, shape: tuple[int, ...]) -> TfliteQuantization | None:
        found = tensor.Quantization()
        if found is None or found.ScaleLength() == 0 or found.ZeroPointLength() == 0:
            return None  # as TensorFlow Lite Micro has it
        scales = tuple(float(found.Scale(index)) for index in self._numbers(found.ScaleLength()))
        zeros = tuple(int(found.ZeroPoint(index)) for index in self._numbers(found.ZeroPointLength()))
        zeros = zeros * len(scales) if len(zeros) == 1 else zeros
        axis = int(found.QuantizedDimension())
        if any(not (isfinite(scale) and scale > 0) for scale in scales):
            wrong = next(scale for scale in scales if not (isfinite(scale) and scale > 0))
            raise ModelError(f"tensor {name!r} has the scale {wrong:g}; a positive number is supported")
        if len(zeros) != len(scales):
            raise ModelError(f"tensor {name!r} has {len(scales)} scales and {len(zeros)} zero points")
        if len(scales) > 1 and not (0 <= axis < len(shape) and shape[axis] == len(scales)):
            raise ModelError(f"tensor {name!r} of the shape {list(shape)} has {len(scales)} scales along axis {axis}")
        return TfliteQuantization(scales, zeros, axis)


def _check_flow(model: TfliteModel) -> None:
    """Refuse operators that read what nobody has made, or make what is there."""
    known = set(range(len(model.tensors)))
    there = {index for index, tensor in enumerate(model.tensors) if tensor.data is not None}
    if not model.outputs:
        raise ModelError("its graph has no output")
    for index in model.inputs:
        if index not in known or index in there:
            raise ModelError(f"its input {index} is a constant, comes twice, or does not exist")
        there.add(index)
    for number, operator in enumerate(model.operators):
        if not operator.outputs:
            raise ModelError(f"operator {number}, {operator.op}, makes nothing")
        for index in operator.inputs:
            if index != -1 and index not in there:
                raise ModelError(
                    f"operator {number}, {operator.op}, reads tensor {index}, which nothing before it makes"
                )
        for index in operator.outputs:
            if index not in known or index in there:
                raise ModelError(f"operator {number}, {operator.op}, makes tensor {index}, which is there or unknown")
            there.add(index)
    if len(set(model.outputs)) < len(model.outputs):
        raise ModelError("one of its outputs is there twice")
    for index in model.outputs:
        if index not in there:
            raise ModelError(f"its output {index} is made by nothing")
