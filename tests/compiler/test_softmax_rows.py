"""A million rows through the tables of a softmax: against ONNX Runtime, and some against fractions."""

import math
import secrets
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
from npukit.compiler.arithmetic import softmax_descriptor
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Softmax, SourceNode
from npukit.compiler.ir.tensor import Quantization, Tensor
from npukit.isa.descriptors import TABLE_ENTRIES
from npukit.isa.formats import INT8, UINT8
from npukit.sim import numerics
from numpy.typing import NDArray
from onnx import TensorProto, helper

ROWS = 1_000_000
LENGTHS = (1, 2, 3, 7, 16, 33, 64)
"""Of most rows."""
FORMATS = {np.int8: (INT8, TensorProto.INT8), np.uint8: (UINT8, TensorProto.UINT8)}


def softmax(rows: NDArray, scale: float, result: float, zero_point: int) -> NDArray:
    """What the machine makes of rows of int8 or uint8."""
    form, _ = FORMATS[rows.dtype.type]
    x = Tensor("x", rows.shape, form, Quantization((scale,), (0,)), channel_axis=1)
    y = Tensor("y", rows.shape, form, Quantization((result,), (zero_point,)), channel_axis=1)
    operation = Softmax(output="y", sources=(SourceNode("s", "Softmax"),), input="x")
    graph = Graph("g", (operation,), {"x": x, "y": y}, {}, ("x",), ("y",))
    fields = softmax_descriptor(graph, operation)
    table = np.array([fields[f"entry_{index}"] for index in range(TABLE_ENTRIES)], np.float32)
    whole = rows.astype(np.int16)
    places = (whole - whole.max(axis=1, keepdims=True) + 127).astype(np.int8)
    # rows are lanes
    sums = numerics.table_sum(table, places.T[None])[0]
    limits = fields["zero_point"], fields["low"], fields["high"]
    found = numerics.table_divide(table, places, np.repeat(sums[:, None], rows.shape[1], 1), fields["factor"], *limits)
    return (found.astype(np.int16) + (128 if form is UINT8 else 0)).astype(rows.dtype)


def onnx_runtime(dtype: type) -> onnxruntime.InferenceSession:
    """QLinearSoftmax with scales and zero points as inputs."""
    kind = FORMATS[dtype][1]
    node = helper.make_node(
        "QLinearSoftmax", ["x", "xs", "xz", "ys", "yz"], ["y"], domain="com.microsoft", axis=-1, opset=13
    )
    kinds = {"x": (kind, [None, None]), "xs": (TensorProto.FLOAT, []), "xz": (kind, []), "ys": (TensorProto.FLOAT, []),
             "yz": (kind, [])}  # fmt: skip
    inputs = [helper.make_tensor_value_info(name, *what) for name, what in kinds.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, [None, None])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.fixture(params=["fixed", "fresh"])
def random(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = 5 if request.param == "fixed" else secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def drawn(random: np.random.Generator, count: int, length: int, dtype: type) -> NDArray:
    """Rows of any numbers, of near ones, all equal, with one that is far above, and at both ends."""
    limits = np.iinfo(dtype)
    rows = random.integers(limits.min, limits.max + 1, (count, length))
    near = random.integers(limits.min, limits.max - 20, (count, 1)) + random.integers(0, 20, (count, length))
    kind = random.integers(0, 8, (count, 1))
    rows = np.where(kind < 3, near, rows)
    rows = np.where(kind == 3, rows[:, :1], rows)
    rows = np.where((kind == 4) & (np.arange(length) != count % length), limits.min, rows)
    rows = np.where(kind == 5, np.where(rows % 2, limits.min, limits.max), rows)
    return rows.astype(dtype)


def test_a_million_rows(random: np.random.Generator) -> None:
    checked = 0
    for dtype in FORMATS:
        session = onnx_runtime(dtype)
        low = np.iinfo(dtype).min
        while checked < (ROWS // 4 if dtype is np.int8 else ROWS // 2):  # the other half with the other seed
            length = int(random.choice(LENGTHS)) if random.random() < 0.97 else int(random.integers(65, 4097))
            rows = drawn(random, 200_000 // length if length > 64 else 12_500, length, dtype)
            scale, result = (
                np.float32(10 ** random.uniform(-5, 1.3)),
                np.float32(random.choice([1 / 255, 1 / 256, 0.0011])),
            )
            if random.random() < 0.4:
                result = np.float32(10 ** random.uniform(-3, 0.2))
            zero = low if random.random() < 0.7 else int(random.integers(low, low + 256))
            given = {"x": rows, "xs": scale, "xz": dtype(0), "ys": result, "yz": dtype(zero)}
            (wanted,) = session.run(None, {name: np.asarray(value) for name, value in given.items()})
            found = softmax(rows, float(scale), float(result), zero)
            assert np.array_equal(found, np.asarray(wanted)), (dtype, length, scale, result, zero)
            checked += len(rows)
    assert checked >= ROWS // 2


def test_some_rows_in_fractions(random: np.random.Generator) -> None:
    """Exponentials rounded once; sums in their order, each rounded; quotients rounded once."""
    for _ in range(150):
        length = int(random.choice([1, 2, 5, 40]))
        rows = drawn(random, 3, length, np.int8)
        scale, result = (
            float(np.float32(10 ** random.uniform(-4, 1))),
            float(np.float32(random.choice([1 / 255, 1 / 256]))),
        )
        shift = max(0.0, float(np.float32(math.log(np.finfo(np.float32).max / np.float32(length)))) - 5)
        found = softmax(rows, scale, result, -128)
        for row, numbers in zip(rows.tolist(), found.tolist(), strict=True):
            entries = [float(np.float32(math.exp((one - max(row) + shift / scale) * scale))) for one in row]
            total = np.float32(0)
            for entry in entries:
                total = np.float32(Fraction(float(total)) + Fraction(entry))
            factor = math.floor(np.float32(1) / np.float32(result))
            exact = [round(Fraction(entry) * factor / Fraction(float(total))) - 128 for entry in entries]
            assert numbers == [min(127, max(-128, one)) for one in exact], (row, scale)


@pytest.mark.parametrize("length", [1, 2, 768, 4096])
@pytest.mark.parametrize("dtype", [*FORMATS])
def test_edges(dtype: type, length: int) -> None:
    """All equal at both ends and between; one dominant; both ends; all but one, all but half, and all masked."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    rows = np.full((8, length), low, dtype)
    rows[1], rows[2], rows[3, -1] = high, 100, high
    rows[4] = np.where(np.arange(length) % 2, low, high)
    rows[5, length // 2] = 100  # the others are masked: at the least number
    rows[6, : (length + 1) // 2] = np.arange((length + 1) // 2) % 50 + 60
    session = onnx_runtime(dtype)
    for scale, result in ((0.05, 1 / 256), (1e-5, 1 / 255), (20.0, 1 / 256)):
        given = {"x": rows, "xs": np.float32(scale), "xz": dtype(0), "ys": np.float32(result), "yz": dtype(low)}
        (wanted,) = session.run(None, {name: np.asarray(value) for name, value in given.items()})
        found = softmax(rows, float(np.float32(scale)), float(np.float32(result)), low)
        np.testing.assert_array_equal(found, np.asarray(wanted))
        one = round(Fraction(256) * Fraction(1, length)) if result == 1 / 256 else None
        if one is not None:  # of rows of equal numbers, all have the same share
            assert (found[[0, 1, 2, 7]].astype(int) - low == min(255, one)).all()
