"""What TensorFlow Lite Micro computes otherwise than it looks, or not at all, stays on the host or is refused."""

import re

import numpy as np
import pytest
from npukit.compiler.errors import CompileError
from npukit.compiler.frontends.tflite.model import TfliteModel, TfliteOperator, TfliteQuantization, TfliteTensor
from npukit.compiler.frontends.tflite.writer import write_model
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from numpy.typing import NDArray

from npukit import Session
from npukit.compare import compare, oracle_of

CONFIG = PRESETS["int8-4x4"]


def _tensor(name: str, shape: tuple[int, ...], scale: float = 0.5, zero: int = 0) -> TfliteTensor:
    return TfliteTensor(name, shape, "INT8", TfliteQuantization((float(np.float32(scale)),), (zero,)))


def _constant(name: str, values: NDArray, kind: str = "INT32", scale: float = 0.0) -> TfliteTensor:
    quantization = TfliteQuantization((float(np.float32(scale)),), (0,)) if scale else None
    return TfliteTensor(name, values.shape, kind, quantization, values)


def _model(op: str, kind: str, tensors: list[TfliteTensor], **options: int | float) -> bytes:
    """The last tensor is the result."""
    last = len(tensors) - 1
    operator = TfliteOperator(op, tuple(range(last)), (last,), kind, options)
    inputs = tuple(index for index, one in enumerate(tensors[:-1]) if one.data is None)
    return write_model(TfliteModel(tuple(tensors), (operator,), inputs, (last,)))


def _reason(data: bytes) -> str:
    (reason,) = check_model(data, CONFIG).partition.reasons
    return reason.reason


@pytest.mark.parametrize("alpha", [0.1, -0.5, 0.3, 1.2])
@pytest.mark.parametrize("scales", [(0.7, 0.2), (1.0, 1.0), (0.1, 0.05), (0.3, 0.7)])
def test_slopes_whose_results_lie_in_the_middle(alpha: float, scales: tuple[float, float]) -> None:
    data = _model(
        "LEAKY_RELU", "LeakyReluOptions", [_tensor("x", (2, 128), scales[0]), _tensor("y", (2, 128), scales[1])],
        Alpha=float(np.float32(alpha)),
    )  # fmt: skip
    session = Session(data, CONFIG, capture=True, fallback="none")
    assert session.compilation is not None
    inputs = {"x": np.arange(-128, 128).astype(np.int8).reshape(2, 128)}
    assert compare(session, oracle_of(session.compilation.source), inputs, session.run(inputs)).mismatches == 0


def test_padding_with_a_value() -> None:
    """PAD takes a third input as PADV2 does."""
    pairs = _constant("p", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    value = _constant("v", np.array([7], np.int8), "INT8", 0.5)
    data = _model("PAD", "PadOptions", [_tensor("x", (1, 2, 2, 5)), pairs, value, _tensor("y", (1, 4, 4, 5))])
    session = Session(data, CONFIG, capture=True, fallback="none")
    found = session.run({"x": np.zeros((1, 2, 2, 5), np.int8)})["y"]
    assert found[0, 0, 0, 0] == 7 and found[0, 1, 1, 0] == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_model("RELU", "", [_tensor("x", (7,)), _tensor("y", (7,))]), "two dimensions and more"),
        (
            _model("TRANSPOSE", "TransposeOptions", [
                _tensor("x", (2, 3)), _constant("p", np.array([1, 0], np.int64), "INT64"), _tensor("y", (3, 2)),
            ]),
            "p is INT64; a constant of INT32",
        ),
        (_model("ADD", "SubOptions", [_tensor(one, (1, 4)) for one in "aby"]), "its options are SubOptions"),
        (
            _model("ADD", "AddOptions", [*(_tensor(one, (1, 4), 1) for one in "ab"), _tensor("y", (1, 4), 2**-30)]),
            "TensorFlow Lite takes less than 1",
        ),
        (_model("RELU6", "", [_tensor("x", (1, 4), 1e-40), _tensor("y", (1, 4))]), "less than 2\\*\\*30"),
        (_model("LOGISTIC", "", [_tensor("x", (1, 4), 3e38), _tensor("y", (1, 4), 0.5, -128)]), "less than 2\\*\\*4"),
        (_model("LEAKY_RELU", "LeakyReluOptions", [_tensor("x", (1, 4)), _tensor("y", (1, 4))], Alpha=float("inf")),
         "the factor inf"),
        (_model("RELU", "", [_tensor("x", (1, 4)), _tensor("y", (1, 4), zero=300)]), "has the zero point 300"),
    ],
)  # fmt: skip
def test_what_stays(data: bytes, reason: str) -> None:

    assert re.search(reason, _reason(data)), _reason(data)


@pytest.mark.parametrize(
    "data",
    [
        _model("TANH", "", [_tensor("x", (1, 4)), _tensor("y", (1, 5))]),
        write_model(TfliteModel((_tensor("y", (1, 4)),), (TfliteOperator("TANH", (-1,), (0,)),), (), (0,))),
        _model("TRANSPOSE", "TransposeOptions", [
            _tensor("x", (2, 3)), _constant("p", np.array([1, 0], np.int32)), _tensor("y", (3, 1, 2)),
        ]),
        _model("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", [
            _tensor("x", (1, 4, 4, 3)), _constant("w", np.ones((1, 3, 3, 6), np.int8), "INT8", 0.1),
            _constant("b", np.zeros(6, np.int32)), _tensor("y", (1, 4, 4, 6)),
        ], Padding=0, StrideH=1, StrideW=1, DepthMultiplier=1),
    ],
)  # fmt: skip
def test_shapes_that_contradict_are_refused(data: bytes) -> None:
    """They would let the interpreter write where it must not."""
    with pytest.raises(CompileError, match="does not make"):
        Session(data, CONFIG)
