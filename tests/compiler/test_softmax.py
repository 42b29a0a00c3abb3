"""Softmax: int8 and uint8, as ONNX Runtime's QLinearSoftmax has it."""

import secrets
from dataclasses import replace
from types import ModuleType

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Operation, Vector
from onnx import TensorProto, helper, numpy_helper

DEEP = replace(PRESETS["int8-16x16"], act_depth=4096)
FEW_BANKS = replace(PRESETS["int8-8x8"], act_banks=1, acc_banks=1, act_depth=1024, acc_depth=16)
ZERO = {np.int8: -128, np.uint8: 0}


def softmax(
    graphs: ModuleType, shape: tuple[int, ...], axis: int = -1, dtype: type = np.int8, scale: float = 0.07,
    result: float = 1 / 256, opset: int = 17,
) -> onnx.ModelProto:  # fmt: skip
    graph = graphs.Graph(seed=3, opset=opset)
    x = graph.input(shape, scale, dtype=dtype, integer=True)
    y = graph.node("Softmax", [graph.dequantize(x)], axis=axis)
    graph.output(graph.quantize(y, result, ZERO[dtype], dtype=dtype), integer=True)
    return graph.model()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("shape", "axis", "config"),
    [
        ((1, 10), -1, PRESETS["int8-4x4"]),
        ((5, 1), -1, PRESETS["int8-4x4"]),
        ((40, 2), 1, PRESETS["int8-16x16"]),
        ((16, 16), -1, PRESETS["int8-16x16"]),
        ((1, 7, 33), -1, PRESETS["int8-32x32"]),
        ((1, 21, 9, 11), 1, PRESETS["int8-8x8"]),
        ((2, 3, 50, 50), -1, PRESETS["int8-16x16"]),
        ((2, 197, 197), -1, PRESETS["int8-16x16"]),
        ((1, 1000), 1, PRESETS["int8-16x16"]),
        ((3, 4096), 1, DEEP),
        ((9, 120), 1, FEW_BANKS),
    ],
    ids=str,
)
def test_softmax(graphs, shape: tuple[int, ...], axis: int, config: NpuConfig, dtype: type) -> None:
    graphs.agree(softmax(graphs, shape, axis, dtype), config)


@pytest.mark.parametrize("seed", [4, pytest.param(secrets.randbelow(1 << 30), id="fresh")])
def test_random_scales(graphs, seed: int) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    for _ in range(6):
        shape = tuple(int(size) for size in random.integers(1, 40, 2))
        dtype = [np.int8, np.uint8][random.integers(2)]
        scales = (
            float(10 ** random.uniform(-5, 1.3)),
            float(random.choice([1 / 255, 1 / 256, random.uniform(0.001, 2)])),
        )
        graphs.agree(softmax(graphs, shape, -1, dtype, *scales), PRESETS["int8-4x4"])


@pytest.mark.parametrize("scale", [1e-6, 0.02, 0.5, 20.0])
def test_edges(graphs, scale: float) -> None:
    """All equal, one dominant, both ends, one after the other."""
    rows = np.zeros((6, 70), np.int8)
    rows[0], rows[1] = -128, 127
    rows[2, 69], rows[3, 0] = 127, 1
    rows[4] = np.where(np.arange(70) % 2, 127, -128)
    rows[5] = np.arange(-60, 10)
    model = softmax(graphs, rows.shape, scale=scale)
    graphs.agree(model, PRESETS["int8-16x16"], inputs={model.graph.input[0].name: rows})


def test_between_products(graphs) -> None:
    """Attention of one head, in one subgraph."""
    graph = graphs.Graph(seed=1)
    query, key, value = (graph.input(shape, 0.03) for shape in ((1, 20, 24), (1, 24, 20), (1, 20, 24)))
    scores = graph.quantize(graph.node("MatMul", [graph.dequantize(query), graph.dequantize(key)]), 0.05)
    weights = graph.quantize(graph.node("Softmax", [graph.dequantize(scores)]), 1 / 256, -128)
    mixed = graph.node("MatMul", [graph.dequantize(weights), graph.dequantize(value)])
    graph.output(graph.quantize(mixed, 0.03))
    graphs.agree(graph.model(), PRESETS["int8-8x8"])


def test_the_operator_on_integers(graphs) -> None:
    """QLinearSoftmax."""
    parameters = [
        numpy_helper.from_array(np.array(value, dtype), name)
        for name, value, dtype in (
            ("xs", 0.04, np.float32),
            ("xz", 100, np.uint8),
            ("ys", 1 / 255, np.float32),
            ("yz", 3, np.uint8),
        )
    ]
    node = helper.make_node(
        "QLinearSoftmax", ["x", "xs", "xz", "ys", "yz"], ["y"], "soft", domain="com.microsoft", axis=-1, opset=13
    )
    x, y = (helper.make_tensor_value_info(name, TensorProto.UINT8, [7, 30]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], parameters), opset_imports=opsets, ir_version=9)
    graphs.agree(model, PRESETS["int8-8x8"])


@pytest.mark.parametrize(
    ("arguments", "config", "reason"),
    [
        ({"axis": 0}, {}, None),
        ({"axis": 1, "shape": (2, 9, 30), "opset": 12}, {}, "goes along all dimensions of [2, 9, 30] from 1"),
        ({"result": 1e-4}, {}, "the result's scale is 0.0001, of which the machine takes 1/1023 at least"),
        ({"shape": (1, 2000)}, {}, "2000 numbers to sum up, with 1536 words of a tile: use a configuration"),
        ({"shape": (1, 1031)}, {}, "1031 numbers to sum up are no product of counts of at most 1024 and 1024"),
        ({}, {"softmax_cycles": 0}, "operations that are not there with softmax_cycles = 0"),
        ({}, {"transpose": 0}, "operations that are not there with transpose = 0"),
        ({}, {"par_depth": 32}, "its tables take 35 words of PAR, which has 32"),
    ],
)  # fmt: skip
def test_what_stays(graphs, arguments: dict, config: dict, reason: str | None) -> None:
    machine = replace(PRESETS["int8-16x16"], **config)
    model = softmax(graphs, **{"shape": (6, 30), **arguments})
    reasons = [one.reason for one in check_model(model, machine).partition.reasons if one.op == "Softmax"]
    assert len(reasons) == (reason is not None) and all((reason or "") in one for one in reasons), reasons


def test_how_it_runs(graphs) -> None:
    """Turned around and back, a table for sums and one for quotients, and no word of it more than once."""
    session, _ = graphs.agree(softmax(graphs, (48, 50)), PRESETS["int8-16x16"])
    (program,) = session.programs.values()
    vectors = [one for one in program.instructions if isinstance(one, Vector)]
    counts = {one: sum(vector.operation is one for vector in vectors) for one in Operation}
    assert counts[Operation.TRANSPOSE] == 2
    assert counts[Operation.TABLE_SUM] == counts[Operation.TABLE_DIVIDE] == 1
    sums = next(one for one in vectors if one.operation is Operation.TABLE_SUM)
    assert (sums.blocks, sums.height, sums.width) == (3, 1, 50)
