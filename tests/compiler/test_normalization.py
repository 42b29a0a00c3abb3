"""LayerNormalization and RMSNormalization of int8 and uint8: as they are defined, and near ONNX Runtime."""

import secrets
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Operation, Vector
from npukit.sim import numerics
from onnx import numpy_helper

from npukit import compare as comparison
from npukit import zoo
from npukit.compare import Oracle, compare, oracle_of
from npukit.sample_inputs import random_inputs
from npukit.session import Session

FEW_BANKS = replace(PRESETS["int8-8x8"], act_banks=1, acc_banks=1, act_depth=1024, acc_depth=16)
SMALL = PRESETS["int8-4x4"]


def normalization(
    graphs: ModuleType, shape: tuple[int, ...], op: str = "LayerNormalization", dtype: type = np.int8,
    scale: float = 0.05, result: float = 0.03, epsilon: float = 1e-5, bias: bool = True, seed: int = 3,
    gamma: np.ndarray | None = None, beta: np.ndarray | None = None, quantized: bool = False, opset: int = 17,
    **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one normalisation; its constants may be quantised, as ONNX Runtime's quantiser leaves them."""
    graph = graphs.Graph(seed=seed, opset=23 if op == "RMSNormalization" else opset)
    random = np.random.default_rng(seed)
    zero = 3 if dtype is np.int8 else 130
    channels = shape[-1]
    x = graph.input(shape, scale, zero, dtype=dtype, integer=True)
    vectors = [random.uniform(0.5, 1.5, channels).astype(np.float32) * random.choice([-1, 1], channels)]
    vectors[0] = vectors[0].astype(np.float32) if gamma is None else gamma
    if bias:
        vectors.append(random.normal(0, 0.4, channels).astype(np.float32) if beta is None else beta)
    names = []
    for vector, limit in zip(vectors, (127, 1 << 30), strict=False):
        if not quantized:
            names.append(graph.constant(vector))
            continue
        unit = np.float32(np.abs(vector).max() / limit)
        kind = np.int8 if limit == 127 else np.int32
        integers = graph.constant(np.rint(vector / unit).astype(kind))
        names.append(graph.node("DequantizeLinear", [integers, graph.constant(unit), graph.constant(kind(0))]))
    y = graph.node(op, [graph.dequantize(x), *names], epsilon=epsilon, **attributes)
    graph.output(graph.quantize(y, result, zero, dtype=dtype), integer=True)
    return graph.model()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ((1, 1), SMALL),
        ((1, 10), SMALL),
        ((5, 4), SMALL),
        ((2, 300, 7), SMALL),
        ((40, 2), PRESETS["int8-16x16"]),
        ((1, 7, 33), PRESETS["int8-32x32"]),
        ((2, 3, 50, 48), PRESETS["int8-16x16"]),
        ((1, 197, 192), PRESETS["int8-16x16"]),
        ((3, 4096), PRESETS["int8-8x8"]),
        ((9, 120), FEW_BANKS),
    ],
    ids=str,
)
def test_layer_normalization(graphs, shape: tuple[int, ...], config: NpuConfig, dtype: type) -> None:
    _, found = graphs.agree(normalization(graphs, shape, dtype=dtype), config)
    assert len(found.defined) == 1


@pytest.mark.parametrize(("shape", "dtype"), [((6, 50), np.int8), ((2, 9, 64), np.uint8)])
def test_without_a_mean(graphs, shape: tuple[int, ...], dtype: type) -> None:
    _, found = graphs.agree(normalization(graphs, shape, "RMSNormalization", dtype, bias=False), PRESETS["int8-8x8"])
    assert len(found.defined) == 1


@pytest.mark.parametrize("bias", [False, True])
def test_constants_that_are_quantised(graphs, bias: bool) -> None:
    graphs.agree(normalization(graphs, (6, 50), bias=bias, quantized=True), PRESETS["int8-8x8"])


def test_a_channel_of_nothing(graphs) -> None:
    gamma, beta = np.linspace(-1, 1, 21, dtype=np.float32), np.linspace(2, -2, 21, dtype=np.float32)
    gamma[10], beta[10] = 0, 0
    graphs.agree(normalization(graphs, (6, 21), gamma=gamma, beta=beta), SMALL)


@pytest.mark.parametrize("seed", [4, pytest.param(secrets.randbelow(1 << 30), id="fresh")])
def test_random_scales(graphs, seed: int) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    for _ in range(6):
        shape = tuple(int(size) for size in random.integers(1, 60, 2))
        model = normalization(
            graphs, shape, dtype=[np.int8, np.uint8][random.integers(2)], scale=float(10 ** random.uniform(-3, 1)),
            result=float(10 ** random.uniform(-1.7, 1)), epsilon=float(10 ** random.uniform(-12, -2)),
            seed=int(random.integers(1 << 30)),
        )  # fmt: skip
        graphs.agree(model, SMALL)


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-5, 10.0])
def test_edges(graphs, epsilon: float) -> None:
    """All equal, one that stands out, both ends, one after the other."""
    rows = np.zeros((6, 70), np.int8)
    rows[0], rows[1] = -128, 127
    rows[2, 69], rows[3, 0] = 127, 1
    rows[4] = np.where(np.arange(70) % 2, 127, -128)
    rows[5] = np.arange(-60, 10)
    if epsilon == 0.0:  # ONNX Runtime divides by 0
        rows[:2] = rows[4:]
    model = normalization(graphs, rows.shape, epsilon=epsilon, bias=False, result=0.06)
    graphs.agree(model, PRESETS["int8-16x16"], inputs={model.graph.input[0].name: rows})


def test_between_products(graphs) -> None:
    """A feed-forward part with its residual, in one subgraph; what follows is held to what the normalisation made."""
    graph = graphs.Graph(seed=5)
    x = graph.input((1, 20, 36), 0.05)
    inner = graph.matmul(x, 36)
    added = graph.add(inner, x)
    constants = [graph.constant(np.full(36, one, np.float32)) for one in (1.0, 0.25)]
    normal = graph.node("LayerNormalization", [graph.dequantize(added), *constants], epsilon=1e-5)
    y = graph.quantize(normal, 0.03)
    graph.output(graph.matmul(y, 12))
    _, found = graphs.agree(graph.model(), PRESETS["int8-8x8"], runs=3)
    assert len(found.defined) == 1


@pytest.mark.parametrize(
    ("arguments", "config", "reason"),
    [
        ({"axis": -1}, {}, None),
        ({"axis": 1, "shape": (2, 3, 4)}, {}, "goes along the dimensions of [2, 3, 4] from 1 on"),
        ({}, {"normalize_cycles": 0}, "operations that are not there with normalize_cycles = 0"),
        ({"gamma": np.zeros(30, np.float32)}, {}, "channel 0 has the scale 0 and the bias"),
        ({"gamma": np.full(30, 1e-6, np.float32)}, {}, "their quotient must be below 16384"),
        ({"epsilon": -1e-3}, {}, "its epsilon is -0.001; a number that is not negative is supported"),
        ({"epsilon": float("nan")}, {}, "its epsilon is nan"),
        ({"epsilon": 1e20}, {}, "its epsilon 1e+20 is too large beside the scale 0.05 of"),
        ({"shape": (1, 5000)}, {"array": 4}, "5000 numbers are normalised together; 4096 are supported"),
        ({"shape": (1, 2000)}, {"act_depth": 64}, "with 64 words of a tile: use a configuration with a larger"),
        ({"shape": (1, 40000)}, {"array": 64, "act_depth": 8192}, "40000 numbers are normalised together; 32767 are"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_what_stays(graphs, arguments: dict, config: dict, reason: str | None) -> None:
    lanes = {"vector_lanes": config["array"], "fma_lanes": config["array"]} if "array" in config else {}
    machine = replace(PRESETS["int8-16x16"], **lanes, **config)
    model = normalization(graphs, **{"shape": (6, 30), **arguments})
    partition = check_model(model, machine).partition
    reasons = [one.reason for one in partition.reasons if one.op == "LayerNormalization"]
    assert len(reasons) == (reason is not None) and all((reason or "") in one for one in reasons), reasons


def test_statistics_that_are_used_stay(graphs) -> None:
    graph = graphs.Graph(seed=1)
    x = graph.input((4, 9), 0.05)
    scale = graph.constant(np.ones(9, np.float32))
    normal, mean = graph.name("normal"), graph.name("mean")
    graph.nodes.append(onnx.helper.make_node("LayerNormalization", [graph.dequantize(x), scale], [normal, mean], "n"))
    graph.output(graph.quantize(normal, 0.03))
    graph.output(graph.quantize(mean, 0.03))
    reasons = check_model(graph.model(), SMALL).partition.reasons
    assert any("are used" in one.reason for one in reasons if one.op == "LayerNormalization")


def test_how_it_runs(graphs) -> None:
    """Statistics once for a place, then channel blocks by them."""
    session, _ = graphs.agree(normalization(graphs, (48, 50)), PRESETS["int8-16x16"])
    (program,) = session.programs.values()
    vectors = [one for one in program.instructions if isinstance(one, Vector)]
    moments = [one for one in vectors if one.operation is Operation.MOMENTS]
    roots = [one for one in vectors if one.operation is Operation.RECIPROCAL_ROOT]
    normals = [one for one in vectors if one.operation is Operation.NORMALIZE]
    assert sum(one.blocks for one in moments) == sum(one.width for one in roots) == 48
    assert sum(one.blocks * one.width for one in normals) == 4 * 48


# ---- the comparison


def run(graphs, **arguments: Any) -> tuple[Session, Oracle, dict, dict]:
    model = normalization(graphs, (30, 40), **arguments)
    session = Session(model, SMALL, capture=True)
    inputs = graphs.inputs_of(model, 0)
    return session, Oracle(model), inputs, session.run(inputs)


def test_a_result_that_is_not_the_definition_s_differs(graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roots that are short by their last bits, of which some results are rounded another way."""
    exact = numerics.reciprocal_root

    def coarse(*given: Any) -> np.ndarray:
        found = exact(*given)
        found[..., 1] &= ~0x3FF
        return found

    monkeypatch.setattr(numerics, "reciprocal_root", coarse)
    session, oracle, inputs, outputs = run(graphs, result=0.02)
    found = compare(session, oracle, inputs, outputs)
    assert 0 < found.mismatches < 20 and found.max_abs_diff == 1
    assert found.first_mismatch is not None and found.first_mismatch["op"] == "LayerNormalization"


def test_a_definition_that_is_far_from_onnx_runtime_differs(graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in more elements than may be, and more than one step."""
    session, oracle, inputs, outputs = run(graphs)
    assert compare(session, oracle, inputs, outputs).mismatches == 0
    (name,) = oracle.definitions
    honest = oracle.run

    def apart(by: int, count: int) -> None:
        def shifted(*given: Any) -> dict:
            values = honest(*given)
            values[name].reshape(-1)[:count] += np.int8(by)
            return values

        monkeypatch.setattr(oracle, "run", shifted)

    apart(1, 4)
    assert compare(session, oracle, inputs, outputs).mismatches == 0
    apart(1, 30)
    assert compare(session, oracle, inputs, outputs).mismatches >= 28
    apart(2, 1)
    assert compare(session, oracle, inputs, outputs).mismatches == 1
    assert comparison._FEW == 0.005


def test_zero_points_that_are_absent(graphs) -> None:
    """They are 0, and a quantiser without one makes uint8."""
    model = normalization(graphs, (5, 12), dtype=np.uint8)
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            del node.input[2:]
    _, found = graphs.agree(model, SMALL)
    assert len(found.defined) == 1


def test_constants_of_nodes_are_read(graphs) -> None:
    """Scales and vectors that Constant nodes hold, as other exporters write them."""
    model = normalization(graphs, (5, 12))
    tensors = list(model.graph.initializer)
    del model.graph.initializer[:]
    nodes = [onnx.helper.make_node("Constant", [], [one.name], value=one) for one in tensors]
    old = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *old])
    assert all(numpy_helper.to_array(one).size for one in tensors)
    _, found = graphs.agree(model, SMALL)
    assert len(found.defined) == 1


def test_a_device_that_shows_its_outputs_alone() -> None:
    """The normalisations between are computed as they are defined, and not taken from ONNX Runtime."""
    model = onnx.load_from_string(zoo.load("bert-tiny"))
    with Session(model, "int8-8x8") as session:
        assert session.compilation is not None
        oracle = oracle_of(session.compilation.source)
        for seed in range(3):
            inputs = random_inputs(session.artifact, session.inputs, seed)
            found = compare(session, oracle, inputs, session.run(inputs))
            assert (found.mismatches, found.tensors, found.elements) == (0, 0, 2)
