"""A TFLite model's bytes: of an operator that runs by itself, and of models that tests and scripts make."""

from typing import Any

import numpy as np
from npukit.compiler.frontends.tflite.model import IDENTIFIER, TfliteModel, TfliteOperator, TfliteTensor
from npukit.compiler.frontends.tflite.options import write_options
from npukit.compiler.frontends.tflite.schema import names_of, schema

__all__ = ["write_model"]

_VERSION = 3
_OLD_CODES = 127
"""Operators above it have their number in another field."""
_ALIGNMENT = 16


def write_model(model: TfliteModel) -> bytes:
    """The file. Raises ModelError where the schema package is missing."""
    schema()
    import flatbuffers

    return _Writer(flatbuffers.Builder(1024)).write(model)


def _number(kind: str, name: str) -> int:
    return next(value for value, one in names_of(kind).items() if one == name)


class _Writer:
    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._schema = schema()

    def write(self, model: TfliteModel) -> bytes:
        """All of it; tables come before those that point to them."""
        builder, tflite = self._builder, self._schema
        codes = list(dict.fromkeys((one.op, one.version) for one in model.operators))
        numbers = {(one.op, one.version): codes.index((one.op, one.version)) for one in model.operators}
        constants = [index for index, tensor in enumerate(model.tensors) if tensor.data is not None]
        buffers = [self._buffer(None), *(self._buffer(model.tensors[index].data) for index in constants)]
        places = {index: place for place, index in enumerate(constants, 1)}
        tensors = [self._tensor(tensor, places.get(index, 0)) for index, tensor in enumerate(model.tensors)]
        operators = [self._operator(one, numbers[one.op, one.version]) for one in model.operators]
        parts = self._offsets(tensors), self._numbers(model.inputs), self._numbers(model.outputs)
        operator_vector = self._offsets(operators)
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, parts[0])
        tflite.SubGraphAddInputs(builder, parts[1])
        tflite.SubGraphAddOutputs(builder, parts[2])
        tflite.SubGraphAddOperators(builder, operator_vector)
        graphs = self._offsets([tflite.SubGraphEnd(builder)])
        code_vector = self._offsets([self._code(*one) for one in codes])
        buffer_vector = self._offsets(buffers)
        description = builder.CreateString(model.description)
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, _VERSION)
        tflite.ModelAddOperatorCodes(builder, code_vector)
        tflite.ModelAddSubgraphs(builder, graphs)
        tflite.ModelAddDescription(builder, description)
        tflite.ModelAddBuffers(builder, buffer_vector)
        builder.Finish(tflite.ModelEnd(builder), IDENTIFIER)
        return bytes(builder.Output())

    def _offsets(self, offsets: list[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return self._builder.EndVector()

    def _numbers(self, values: tuple[int, ...]) -> int:
        return self._builder.CreateNumpyVector(np.array(values, np.int32))

    def _code(self, op: str, version: int) -> int:
        builder, tflite, number = self._builder, self._schema, _number("BuiltinOperator", op)
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, _OLD_CODES))
        tflite.OperatorCodeAddBuiltinCode(builder, number)
        tflite.OperatorCodeAddVersion(builder, version)
        return tflite.OperatorCodeEnd(builder)

    def _operator(self, operator: TfliteOperator, code: int) -> int:
        builder, tflite = self._builder, self._schema
        inputs, outputs = self._numbers(operator.inputs), self._numbers(operator.outputs)
        options = write_options(builder, operator.kind, operator.options) if operator.kind else None
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, code)
        tflite.OperatorAddInputs(builder, inputs)
        tflite.OperatorAddOutputs(builder, outputs)
        if options is not None:
            tflite.OperatorAddBuiltinOptionsType(builder, _number("BuiltinOptions", operator.kind))
            tflite.OperatorAddBuiltinOptions(builder, options)
        return tflite.OperatorEnd(builder)

    def _buffer(self, data: np.ndarray | None) -> int:
        builder, tflite = self._builder, self._schema
        place = None
        if data is not None:
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            builder.StartVector(1, raw.size, _ALIGNMENT)
            builder.head -= raw.size
            builder.Bytes[builder.head : builder.head + raw.size] = raw.tobytes()
            place = builder.EndVector()
        tflite.BufferStart(builder)
        if place is not None:
            tflite.BufferAddData(builder, place)
        return tflite.BufferEnd(builder)

    def _tensor(self, tensor: TfliteTensor, buffer: int) -> int:
        builder, tflite = self._builder, self._schema
        shape, name = self._numbers(tensor.shape), builder.CreateString(tensor.name)
        quantization = None
        if tensor.quantization is not None:
            scale = builder.CreateNumpyVector(np.array(tensor.quantization.scale, np.float32))
            zero_point = builder.CreateNumpyVector(np.array(tensor.quantization.zero_point, np.int64))
            tflite.QuantizationParametersStart(builder)
            tflite.QuantizationParametersAddScale(builder, scale)
            tflite.QuantizationParametersAddZeroPoint(builder, zero_point)
            tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.quantization.axis)
            quantization = tflite.QuantizationParametersEnd(builder)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, shape)
        tflite.TensorAddType(builder, _number("TensorType", tensor.type))
        tflite.TensorAddBuffer(builder, buffer)
        tflite.TensorAddName(builder, name)
        if quantization is not None:
            tflite.TensorAddQuantization(builder, quantization)
        return tflite.TensorEnd(builder)
