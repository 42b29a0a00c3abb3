"""Products of two activations: int8 of any zero points as ONNX Runtime has them, bf16 in the order that is defined."""

import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import MatrixProduct
from npukit.compiler.pipeline import check_model, compile_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Memory, Operation, Vector
from onnx import TensorProto, helper, numpy_helper

from npukit import Session
from npukit.compare import Oracle, compare
from npukit.compare_floats import compare_floats

SEEDS = [*range(5), pytest.param(secrets.randbelow(1 << 30), id="fresh")]
_TYPES = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}


class Case:
    """Shapes of two matrices, or of many.

    turned: the second comes through a Transpose of its last dimensions. projected: before, it is multiplied with
    constant weights, which decide how it lies in memory.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        batch = [int(size) for size in random.integers(1, 4, random.integers(0, 3))]
        others = [batch, batch, [1] * len(batch), batch[len(batch) // 2 :]]
        rows, inner, columns = (int(size) for size in random.integers(1, 45, 3))
        if random.random() < 0.2:
            rows = int(random.integers(100, 400))
        if random.random() < 0.2:
            inner = int(random.integers(100, 400))
        self.turned = bool(random.random() < 0.5)
        self.projected = self.turned and bool(random.random() < 0.7)
        self.inner = inner
        right = (columns, inner) if self.turned else (inner, columns)
        self.shapes = {"A": [*batch, rows, inner], "B": [*others[random.integers(4)], *right]}

    def inputs(self) -> dict[str, np.ndarray]:
        """Numbers of both signs."""
        return {name: self.random.normal(0, 2, shape).astype(np.float32) for name, shape in self.shapes.items()}

    def turn(self, name: str) -> onnx.NodeProto:
        """The Transpose of `name`."""
        order = [*range(len(self.shapes["B"]))]
        order[-2:] = order[:-3:-1]
        return helper.make_node("Transpose", [name], [f"{name}_turned"], "turn", perm=order)

    def model(self, nodes: list[Any], output: str, constants: list[Any]) -> onnx.ModelProto:
        """A model of nodes, with all shapes."""
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.shapes.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "g", inputs, [result], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def floats(self) -> onnx.ModelProto:
        """In float, with a Relu behind here and there."""
        nodes, constants, right = [], [], "B"
        if self.projected:
            weights = self.random.normal(0, self.inner**-0.5, (self.inner, self.inner)).astype(np.float32)
            constants.append(numpy_helper.from_array(weights, "w"))
            nodes.append(helper.make_node("MatMul", ["B", "w"], ["p"], "projection"))
            right = "p"
        if self.turned:
            nodes.append(self.turn(right))
            right = nodes[-1].output[0]
        nodes.append(helper.make_node("MatMul", ["A", right], ["y"], "product"))
        if self.random.random() < 0.4:
            nodes.append(helper.make_node("Relu", ["y"], ["z"], "relu"))
        return self.model(nodes, nodes[-1].output[0], constants)

    def quantised(self) -> onnx.ModelProto:
        """Between quantisers; zero points at the ends of the type and anywhere."""
        random = self.random
        dtype = (np.int8, np.uint8)[random.integers(2)]
        low = int(np.iinfo(dtype).min)
        nodes, constants = [], []

        def quantise(source: str, scale: float, zero_point: int) -> str:
            constants.extend(
                [
                    numpy_helper.from_array(np.array(scale, np.float32), f"{source}_scale"),
                    numpy_helper.from_array(np.array(zero_point, dtype), f"{source}_zero"),
                ]
            )
            names = [f"{source}_scale", f"{source}_zero"]
            quantised, real = f"{source}_q", f"{source}_r"
            nodes.append(helper.make_node("QuantizeLinear", [source, *names], [quantised], f"{source}_Q"))
            nodes.append(helper.make_node("DequantizeLinear", [quantised, *names], [real], f"{source}_D"))
            return real

        ends = [low, low + 127, low + 128, low + 255]
        zeros = [[*ends, int(random.integers(low, low + 256))][random.integers(5)] for _ in "aby"]
        left, right = quantise("A", 0.02, zeros[0]), quantise("B", 0.03, zeros[1])
        if self.projected:
            weights = random.integers(-128, 128, (self.inner, self.inner)).astype(np.int8)
            constants.append(numpy_helper.from_array(weights, "w"))
            constants.append(numpy_helper.from_array(np.array(self.inner**-0.5 / 64, np.float32), "w_scale"))
            nodes.append(helper.make_node("DequantizeLinear", ["w", "w_scale"], ["w_r"], "w_D"))
            nodes.append(helper.make_node("MatMul", [right, "w_r"], ["p"], "projection"))
            right = quantise("p", 0.03, zeros[1])
        if self.turned:
            nodes.append(self.turn(right))
            right = quantise(nodes[-1].output[0], 0.03, zeros[1])
        nodes.append(helper.make_node("MatMul", [left, right], ["y"], "product"))
        scale = 0.02 * 0.03 * np.sqrt(self.inner) * random.uniform(20, 80)
        return self.model(nodes, quantise("y", scale, zeros[2]), constants)


def agree(model: onnx.ModelProto, case: Case, config: str) -> Session:
    """All products on the accelerator, and every number the one that is wanted."""
    session, inputs = Session(model, PRESETS[config], capture=True), case.inputs()
    outputs = session.run(inputs)
    assert session.offload.macs == session.offload.macs_total > 0, session.offload.fallback
    if config.startswith("bf16"):
        floats = compare_floats(session, inputs, outputs)
        assert floats.mismatches == 0 and floats.elements > 0, floats.first_mismatch
        assert max(floats.errors.values()) < 0.02
    else:
        found = compare(session, Oracle(model), inputs, outputs)
        assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
    return session


@pytest.mark.parametrize("seed", SEEDS)
def test_of_integers(seed: int) -> None:
    print("seed", seed)
    random = np.random.default_rng([seed, 0])
    for config in ("int8-4x4", "int8-16x16", "int8-32x32"):
        case = Case(random)
        agree(case.quantised(), case, config)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_floats(seed: int) -> None:
    print("seed", seed)
    random = np.random.default_rng([seed, 1])
    for config in ("bf16-4x4", "bf16-16x16"):
        case = Case(random)
        agree(case.floats(), case, config)


_SMALL = PRESETS["int8-4x4"]


@pytest.mark.parametrize(
    "config",
    [
        replace(_SMALL, wgt_depth=8, act_depth=64, acc_depth=16, act_banks=2, acc_banks=1, par_depth=32),
        replace(_SMALL, act_banks=1, acc_banks=1, act_depth=128),
        replace(PRESETS["int8-8x8"], wgt_depth=64, act_depth=64, acc_depth=32, vector_lanes=1, fma_lanes=2),
        replace(PRESETS["int8-16x16"], array=64, wgt_depth=512, vector_lanes=64, fma_lanes=64),
    ],
    ids=["few words", "one bank", "one lane", "64x64"],
)
def test_on_small_and_large_machines(config: NpuConfig) -> None:
    random, made = np.random.default_rng(77), 0
    while made < 4:
        case = Case(random)
        if np.prod(case.shapes["A"]) > 9000 or np.prod(case.shapes["B"]) > 9000:
            continue
        made += 1
        model, inputs = case.quantised(), case.inputs()
        session = Session(model, config, capture=True)
        found = compare(session, Oracle(model), inputs, session.run(inputs))
        assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
        reasons = [one.reason for one in session.offload.fallback if one.macs]
        assert all("of a tile empty" in reason for reason in reasons), reasons


@pytest.mark.parametrize("turned", [False, True])
def test_weights_come_from_activations(turned: bool) -> None:
    """As they lie, or turned around by VECTOR, which alone needs TRANSPOSE for it."""
    random = np.random.default_rng(4)
    case = Case(random)
    while (case.turned, case.projected) != (turned, turned):
        case = Case(random)
    model = case.quantised()
    session = agree(model, case, "int8-8x8")
    (program,) = session.programs.values()
    vectors = [one for one in program.instructions if isinstance(one, Vector)]
    assert any(one.operation is Operation.TRANSPOSE for one in vectors) is turned
    assert all(one.out_memory is Memory.WGT for one in vectors if one.operation is Operation.TRANSPOSE)
    small = check_model(model, PRESETS["ulx3s-int8-8x8"]).partition
    reasons = [one.reason for one in small.fallback if one.op == "MatMul"]
    assert len(reasons) == turned and all("transpose is 0" in one for one in reasons)


def test_a_matrix_times_itself() -> None:
    """One tensor on both sides, of which one is turned around."""
    random = np.random.default_rng(6)
    case = Case(random)
    case.shapes = {"A": [2, 19, 11]}
    nodes = [
        helper.make_node("Relu", ["A"], ["a"], "relu"),
        helper.make_node("Transpose", ["a"], ["turned"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a", "turned"], ["y"], "product"),
    ]
    agree(case.model(nodes, "y", []), case, "bf16-8x8")


@pytest.mark.sample(14)
@pytest.mark.parametrize("config", ["int8-8x8", "bf16-8x8"])
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_gemm_of_activations(graphs, seed: int, turned: tuple[int, int], config: str) -> None:
    """Each side with zero points of its own, with and without a third operand; in int8 with any factor, in bf16 with a
    Relu behind."""
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    rows, inner, columns = (int(size) for size in random.integers(1, 50, 3))
    sides = (rows, inner)[:: -1 if turned[0] else 1], (inner, columns)[:: -1 if turned[1] else 1]
    shapes = dict(zip("ab", sides, strict=True))
    third = [None, (columns,), (1, columns), (1,), ()][random.integers(5)]
    attributes: dict[str, Any] = {"transA": turned[0], "transB": turned[1]}
    if config.startswith("int8"):
        graph = graphs.Graph(seed=seed)
        given = [graph.input(shape, name=name) for name, shape in shapes.items()]
        names = [graph.dequantize(one) for one in given]
        if third is not None:
            term = random.integers(-3000 * inner, 3000 * inner, third).astype(np.int32)
            names.append(graph.bias(term, np.float32(given[0].scale) * np.float32(given[1].scale)))
        # with both, ONNX Runtime computes in float
        alpha = float(random.choice([1, 0.5, 1.7])) if third is None else 1.0
        graph.output(graph.quantize(graph.node("Gemm", names, alpha=alpha, **attributes), 0.02 * inner**0.5, 5))
        model = graph.model()
    else:
        constants, names = [], ["a", "b"]
        if third is not None:
            constants = [numpy_helper.from_array(random.normal(0, 3, third).astype(np.float32), "c")]
            names.append("c")
        nodes = [helper.make_node("Gemm", names, ["y"], **attributes), helper.make_node("Relu", ["y"], ["z"])]
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
        opsets = [helper.make_opsetid("", 18)]
        graph = helper.make_graph(nodes, "g", inputs, [result], constants)
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    session = Session(model, PRESETS[config], capture=True)
    values = {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    outputs = session.run(values)
    assert session.offload.macs == session.offload.macs_total == rows * inner * columns, session.offload.reasons
    if config.startswith("bf16"):
        found = compare_floats(session, values, outputs)
    else:
        found = compare(session, Oracle(model), values, outputs)
    assert found.mismatches == 0 and found.elements > 0, found.first_mismatch


@pytest.mark.parametrize(
    ("change", "third", "config", "reason"),
    [
        ({"beta": 0.5}, (8,), "int8-8x8", "beta is 0.5; 1 is supported"),
        ({}, (7, 8), "int8-8x8", "is not one number for each of 8 outputs"),
        ({}, (7, 1), "int8-8x8", "is not one number for each of 8 outputs"),
        ({}, None, "int8-8x8", "ONNX Runtime runs it in float"),
        ({}, None, "bf16-8x8", "is not a float32 constant"),
        ({"alpha": 0.5}, (8,), "bf16-8x8", "alpha is 0.5; 1 is supported in bf16"),
        ({"alpha": -1.0}, (), "int8-8x8", "which is no positive, normal fp32 number"),
    ],
    ids=str,
)
def test_gemm_of_activations_that_stays(
    graphs, change: dict[str, Any], third: tuple[int, ...] | None, config: str, reason: str
) -> None:
    graph = graphs.Graph(seed=2)
    names = [graph.dequantize(graph.input(shape)) for shape in ((7, 8), (8, 8))]
    if third is None:
        names.append(graph.dequantize(graph.input((7, 8))))
    elif third:
        names.append(graph.bias(np.ones(third, np.int32), 1e-3))
    graph.output(graph.quantize(graph.node("Gemm", names, **change), 0.1, 5))
    model = graph.model()
    if config.startswith("bf16"):
        names = ["a", "b", *(["c"] if third is None else [])]
        nodes = [helper.make_node("Gemm", names, ["y"], **change)]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in (*names, "y")]
        opsets = [helper.make_opsetid("", 18)]
        graph = helper.make_graph(nodes, "g", values[:-1], values[-1:])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    reasons = check_model(model, PRESETS[config]).partition.reasons
    assert any(one.op == "Gemm" and reason in one.reason for one in reasons), reasons


@pytest.mark.parametrize("config", ["int8-8x8", "bf16-8x8"])
def test_a_transposed_input_of_a_gemm_with_constant_weights(graphs, config: str) -> None:
    random = np.random.default_rng(8)
    if config.startswith("int8"):
        graph = graphs.Graph(seed=3)
        x = graph.input((21, 13), name="a")
        weights = graph.weights(graph.random_weights((21, 10)), 0.01)
        result = graph.node("Gemm", [graph.dequantize(x), weights], transA=1)
        graph.output(graph.quantize(result, 0.5, 3))
        model = graph.model()
    else:
        weights = numpy_helper.from_array(random.normal(0, 1, (21, 10)).astype(np.float32), "w")
        x, y = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("a", [21, 13]), ("y", [13, 10])))
        nodes = [helper.make_node("Gemm", ["a", "w"], ["y"], transA=1)]
        graph = helper.make_graph(nodes, "g", [x], [y], [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = Session(model, PRESETS[config], capture=True)
    given = {"a": random.normal(0, 1, (21, 13)).astype(np.float32)}
    outputs = session.run(given)
    assert session.offload.macs == session.offload.macs_total == 13 * 21 * 10, session.offload.reasons
    if config.startswith("bf16"):
        found = compare_floats(session, given, outputs)
    else:
        found = compare(session, Oracle(model), given, outputs)
    assert found.mismatches == 0 and found.elements > 0, found.first_mismatch


def test_a_transposed_side_of_a_gemm_is_not_moved(graphs) -> None:
    """Its words are turned around on their way to the array, as a key's are."""
    graph = graphs.Graph(seed=1)
    names = [graph.dequantize(graph.input(shape)) for shape in ((20, 24), (30, 24))]
    graph.output(graph.quantize(graph.node("Gemm", names, transB=1), 0.1, 5))
    (made,) = compile_model(graph.model(), PRESETS["int8-8x8"], stop_after="fuse").graphs
    assert [type(one) for one in made.operations] == [MatrixProduct]
