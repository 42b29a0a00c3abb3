"""Models in the QOperator form: each operator on integers, what moves integers between them, and what is refused."""

from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import Session
from npukit.compare import Oracle, compare

SMALL = PRESETS["int8-4x4"]
MICROSOFT = "com.microsoft"


class Model:
    """A graph of operators on integers; tensors are names."""

    def __init__(self, rank: int = 4, seed: int = 0) -> None:
        self.rank = rank
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def input(self, shape: tuple[int, ...], dtype: Any = np.uint8) -> str:
        name = f"x{len(self.inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def quantised(self, name: str, scale: Any, zero_point: Any = 3, dtype: Any = np.uint8) -> list[str]:
        """A tensor or constant with its scale and zero point."""
        return [name, *self.parameters(scale, zero_point, dtype)]

    def parameters(self, scale: Any, zero_point: Any = 3, dtype: Any = np.uint8) -> list[str]:
        return [self.constant(scale, np.float32), self.constant(zero_point, dtype)]

    def node(self, op: str, inputs: list[str], domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return name

    def model(self, output: str, dtype: int = onnx.TensorProto.UINT8) -> onnx.ModelProto:
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        result = helper.make_tensor_value_info("result", dtype, [None] * self.rank)
        kept = helper.make_node("Identity", [output], ["result"], "kept")  # as many exporters write it
        graph = helper.make_graph([*self.nodes, kept], "g", self.inputs, [result], self.constants)
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def agree(model: onnx.ModelProto, taken: set[str]) -> Session:
    """Run on the machine: those operators are taken over, and every tensor is ONNX Runtime's."""
    session = Session(model, SMALL, capture=True)
    assert session.compilation is not None
    partition = session.compilation.partition
    left = {reason.op: reason.reason for reason in partition.reasons}
    assert not taken & set(left), left
    random = np.random.default_rng(1)
    inputs = {}
    for value in session.inputs:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        limits = np.iinfo(dtype)
        shape = [dim.dim_value for dim in tensor.shape.dim]
        inputs[value.name] = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
    assert {node.op for program in session.programs.values() for node in program.nodes} >= taken
    return session


def reasons(model: onnx.ModelProto) -> dict[str, str]:
    return {reason.op: reason.reason for reason in check_model(model, SMALL).partition.reasons}


def conv(make: Model, x: list[str], channels: int, out: int, scale: Any = 0.01, zero: Any = 0, dtype: Any = np.int8):
    limits = np.iinfo(dtype)
    weights = make.random.integers(limits.min, limits.max, (out, channels, 3, 3), dtype, endpoint=True)
    bias = make.constant(make.random.integers(-3000, 3000, out), np.int32)
    kernel = make.quantised(make.constant(weights), scale, zero, dtype)
    return make.node("QLinearConv", [*x, *kernel, *make.parameters(0.2, 120), bias], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 131)])
def test_convolutions_with_every_kind_of_weights(per_channel, dtype, zero) -> None:
    make = Model()
    scale = make.random.uniform(0.003, 0.02, 7) if per_channel else 0.01
    zeros = np.full(7, zero) if per_channel else zero
    y = conv(make, make.quantised(make.input((1, 5, 6, 9)), 0.04), 5, 7, scale, zeros, dtype)
    agree(make.model(y), {"QLinearConv"})


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("per_column", [False, True])
def test_products_of_matrices(transposed, per_column) -> None:
    make = Model(rank=2)
    scales, zeros = (make.random.uniform(0.003, 0.02, 11), np.zeros(11)) if per_column else (0.01, 0)
    weights = make.random.integers(-128, 128, (11, 10) if transposed else (10, 11)).astype(np.int8)
    bias = make.constant(make.random.integers(-900, 900, 11), np.int32)
    x = make.quantised(make.input((3, 10)), 0.04)
    kernel = make.quantised(make.constant(weights), scales, zeros, np.int8)
    y = make.node("QGemm", [*x, *kernel, bias, *make.parameters(0.2, 120)], MICROSOFT, transB=transposed, alpha=0.7)
    more = make.quantised(make.constant(make.random.integers(-128, 128, (11, 4)), np.int8), 0.02, 0, np.int8)
    z = make.node("QLinearMatMul", [*make.quantised(y, 0.2, 120), *more, *make.parameters(0.9, 99)])
    agree(make.model(z), {"QGemm", "QLinearMatMul"})


def test_additions_products_and_averages() -> None:
    make = Model()
    a, b = (make.quantised(make.input((2, 5, 6, 8)), scale, zero) for scale, zero in ((0.04, 7), (0.03, 130)))
    total = make.node("QLinearAdd", [*a, *b, *make.parameters(0.06, 20)], MICROSOFT)
    product = make.node("QLinearMul", [*make.quantised(total, 0.06, 20), *b, *make.parameters(0.3, 128)], MICROSOFT)
    one = make.quantised(make.constant(make.random.integers(0, 256, (5, 1, 1)), np.uint8), 0.02, 90)
    scaled = make.node("QLinearMul", [*make.quantised(product, 0.3, 128), *one, *make.parameters(0.5, 100)], MICROSOFT)
    pool = make.node(
        "QLinearAveragePool", [*make.quantised(scaled, 0.5, 100), *make.parameters(0.5, 100)], MICROSOFT,
        kernel_shape=[2, 2], strides=[2, 2],
    )  # fmt: skip
    mean = make.node(
        "QLinearGlobalAveragePool", [*make.quantised(pool, 0.5, 100), *make.parameters(0.3, 90)], MICROSOFT,
        channels_last=0,
    )  # fmt: skip
    agree(make.model(mean), {"QLinearAdd", "QLinearMul", "QLinearAveragePool", "QLinearGlobalAveragePool"})


def test_functions_and_concatenation() -> None:
    make = Model()
    x = make.quantised(make.input((1, 5, 4, 6)), 0.04, 120)
    leaky = make.node("QLinearLeakyRelu", [*x, *make.parameters(0.03, 60)], MICROSOFT, alpha=0.3)
    gate = make.node("QLinearSigmoid", [*x, *make.parameters(1 / 256, 0)], MICROSOFT)
    parts = [*make.quantised(leaky, 0.03, 60), *make.quantised(gate, 1 / 256, 0), *x]
    agree(
        make.model(make.node("QLinearConcat", [*make.parameters(0.05, 80), *parts], MICROSOFT, axis=1)),
        {"QLinearLeakyRelu", "QLinearSigmoid", "QLinearConcat"},
    )


def test_what_moves_integers_between_them() -> None:
    """Each with the meaning that the operators around give its numbers; a pad's value is an integer."""
    make = Model()
    y = conv(make, make.quantised(make.input((1, 5, 8, 8)), 0.04), 5, 6)
    y = make.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2])
    y = make.node("Pad", [y, make.constant([0, 0, 1, 0, 0, 0, 2, 1]), make.constant(37, np.uint8)])
    y = make.node("Slice", [y, make.constant([1]), make.constant([6]), make.constant([1])])
    y = make.node("Resize", [y, "", make.constant([1, 1, 2, 3], np.float32)], mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")  # fmt: skip
    y = make.node("Concat", [y, y], axis=2)
    y = conv(make, make.quantised(y, 0.2, 120), 5, 4)
    agree(make.model(y), {"QLinearConv", "MaxPool", "Pad", "Slice", "Resize", "Concat"})


def test_integers_that_mean_different_things_and_come_together() -> None:
    """A Concat of integers hands them on as they are; who reads them says what they mean there."""
    make = Model()
    a = conv(make, make.quantised(make.input((1, 5, 8, 8)), 0.04), 5, 6)
    b = make.node("QLinearSigmoid", [*make.quantised(a, 0.2, 120), *make.parameters(1 / 256, 0)], MICROSOFT)
    both = make.node("Concat", [a, b], axis=1)
    total = make.node("QLinearAdd", [*make.quantised(both, 0.4, 9), *make.quantised(both, 0.2, 120),
                                     *make.parameters(0.7, 60)], MICROSOFT)  # fmt: skip
    agree(make.model(total), {"QLinearConv", "QLinearSigmoid", "Concat", "QLinearAdd"})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_of_which_nobody_says_what_they_mean(dtype) -> None:
    make = Model()
    y = make.node("MaxPool", [make.input((1, 5, 8, 8), dtype)], kernel_shape=[3, 3])
    y = make.node("Concat", [y, y], axis=1)
    agree(make.model(y, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), {"MaxPool", "Concat"})


def test_reasons() -> None:
    make = Model()
    x = make.quantised(make.input((1, 5, 8, 8)), 0.04)
    mean = make.node("QLinearGlobalAveragePool", [*x, *make.parameters(0.3, 90)], MICROSOFT, channels_last=1)
    assert "channels_last is 1" in reasons(make.model(mean))["QLinearGlobalAveragePool"]

    make = Model(rank=2)
    weights = make.quantised(make.constant(np.ones((10, 4)), np.int8), 0.01, 0, np.int8)
    y = make.node("QGemm", [*make.quantised(make.input((3, 10)), 0.04), *weights], MICROSOFT)
    assert "is not quantised: it has no scale" in reasons(make.model(y, onnx.TensorProto.FLOAT))["QGemm"]

    make = Model()
    x = make.quantised(make.input((1, 5, 8, 8)), 0.04)
    scale = make.node("Exp", [make.constant(-2.0, np.float32)])
    zero = make.constant(3, np.uint8)
    y = make.node("QLinearAdd", [*x, *x, scale, zero], MICROSOFT)
    found = reasons(make.model(y))
    assert found["QLinearAdd"] == f"the scale of {y} is not constant"

    bf16 = {one.op: one.reason for one in check_model(make.model(y), PRESETS["bf16-4x4"]).partition.reasons}
    assert bf16["QLinearAdd"] == "the configuration computes bf16; quantised tensors are for int8"


def test_an_input_of_several_scales() -> None:
    """Refused before its scales are multiplied with those of the weights."""
    make = Model()
    x = make.quantised(make.input((1, 3, 8, 8)), np.full(3, 0.1), np.zeros(3))
    y = conv(make, x, 3, 8, np.full(8, 0.1), np.zeros(8))
    assert "is quantised per channel" in reasons(make.model(y))["QLinearConv"]


def test_long_rows_of_what_moves_integers_are_walked_once() -> None:
    """A thousand in a row, and forks that meet again, of which each would double the paths."""
    make = Model()
    y = make.input((1, 4, 4, 4))
    for _ in range(1100):
        y = make.node("Reshape", [y, make.constant([1, 4, 4, 4])])
    for _ in range(30):
        first = make.node("Slice", [y, make.constant([0]), make.constant([2]), make.constant([1])])
        second = make.node("Slice", [y, make.constant([2]), make.constant([4]), make.constant([1])])
        y = make.node("Concat", [first, second], axis=1)
    assert check_model(make.model(y), SMALL).partition.nodes_total > 1100


def test_the_same_integers_twice_with_different_meanings() -> None:
    """Each input of the operator has a scale and zero point of its own."""
    make = Model()
    x = make.input((1, 5, 4, 6))
    parts = [*make.quantised(x, 0.06, 3), *make.quantised(x, 0.03, 90)]
    y = make.node("QLinearConcat", [*make.parameters(0.05, 80), *parts], MICROSOFT, axis=1)
    z = make.node("QLinearAdd", [*make.quantised(x, 0.06, 3), *make.quantised(x, 0.02, 60), *make.parameters(0.07, 60)],
                  MICROSOFT)  # fmt: skip
    both = make.node("QLinearConcat", [*make.parameters(0.05, 80), *make.quantised(y, 0.05, 80),
                                       *make.quantised(z, 0.07, 60)], MICROSOFT, axis=1)  # fmt: skip
    agree(make.model(both), {"QLinearConcat", "QLinearAdd"})


def test_models_that_are_quantised_while_they_run(graphs) -> None:
    """What ONNX Runtime's dynamic quantiser makes: the products run, and what finds the scales stays."""
    graph = graphs.Graph()
    graph.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 8]))
    graph.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], "quantise"))
    weights = graph.constant(graph.random_weights((8, 6)))
    graph.output_value(graph.node("MatMulInteger", ["q", weights, "zero"]), TensorProto.INT32)
    graph.output_value(graph.node("Identity", ["scale"]))
    offload = check_model(graph.model(), SMALL).partition
    reasons = {one.op: one.reason for one in offload.fallback}
    assert reasons["DynamicQuantizeLinear"].startswith("it is quantised while it runs")
    assert "MatMulInteger" not in reasons and offload.macs == offload.macs_total == 5 * 8 * 6
