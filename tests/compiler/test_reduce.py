"""Reductions along any dimensions, on the machine as in ONNX Runtime."""

import secrets

import numpy as np
import onnx
import pytest
from npukit.compiler.frontends.onnx.operators.reduce import MOST_MOVED
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from onnx import helper

from npukit import Session, quantize
from npukit.compare import Oracle, compare
from npukit.compare_floats import compare_floats

SMALL = PRESETS["int8-4x4"]
POWER = 2.0**-6
"""A scale with which sums, and means of a power of two of elements, are exact."""


def _reduced(graph, op: str, x, axes: tuple[int, ...], keep: int, scale: float | None = None):
    inputs: list[str] = [graph.dequantize(x)]
    attributes: dict[str, object] = {"keepdims": keep}
    if graph.opset < 13:
        attributes["axes"] = list(axes)
    else:
        inputs.append(graph.constant(np.array(axes, np.int64), "axes"))
    name = graph.node(op, inputs, **attributes)
    return graph.quantize(name, scale or x.scale)


def _may_stay(reason: str) -> bool:
    """Channels that would have to change places with too few others, or with dimensions that do not divide alike, or
    more elements than are moved; and the greatest of one element each."""
    texts = (
        "bringing channels", "do not divide into the channels", "a reshape alone at the accelerator's edge",
        f"elements; {MOST_MOVED} are supported",
    )  # fmt: skip
    return any(text in reason for text in texts)


@pytest.mark.parametrize("seed", [*range(3), pytest.param(secrets.randbelow(1 << 30), id="fresh")])
def test_random_reductions(graphs, seed) -> None:
    print("seed", seed)
    seen: set[str] = set()
    for number in range(12):
        random = np.random.default_rng([seed, number])
        graph = graphs.Graph(
            seed=number, opset=int(random.choice([12, 18])), dtype=np.uint8 if random.random() < 0.5 else np.int8
        )
        rank = int(random.integers(2, 5))
        shape = tuple(int(size) for size in random.choice([1, 2, 4, 8, 16], rank))
        count = int(random.integers(1, rank))
        axes = tuple(int(axis) for axis in sorted(random.choice(rank, count, replace=False)))
        op = str(random.choice(["ReduceMax", "ReduceMean", "ReduceSum"]))
        scale = None if op == "ReduceMax" and random.random() < 0.5 else POWER * float(random.choice([0.5, 1, 4]))
        keep = int(rank - count < 2 or random.integers(2))
        graph.output(_reduced(graph, op, graph.input(shape, POWER), axes, keep, scale))
        model = graph.model()
        left = [one for one in check_model(model, SMALL).partition.fallback if not _may_stay(one.reason)]
        assert not left, left
        session, _ = graphs.agree(model, SMALL, stays=graphs.EDGES | {op}, subgraphs=None)
        seen.update(node.op for program in session.programs.values() for node in program.nodes)
    assert seen


@pytest.mark.parametrize("axes", [(1,), (2,), (3,), (2, 3), (1, 3), (1, 2, 3)])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "ReduceSum"])
def test_between_convolutions(graphs, op, axes) -> None:
    """A reduction of channels or places between layers that want channels second, all in one program."""
    graph = graphs.Graph(opset=18)
    x = graph.conv(graph.input((2, 5, 10, 10)), 16, 3, scale=POWER)
    y = _reduced(graph, op, x, axes, 1, POWER * (8 if op == "ReduceSum" else 1))
    graph.output(graph.conv(graph.mul(x, y), 7, 1))
    session, _ = graphs.agree(graph.model(), SMALL)
    assert len(session.programs) == 1


def test_global_maximum(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((2, 9, 13, 11))
    graph.output(graph.quantize(graph.node("GlobalMaxPool", [graph.dequantize(x)]), 0.03))
    graphs.agree(graph.model(), SMALL)


@pytest.mark.parametrize(
    ("op", "shape", "axes", "scales", "message"),
    [
        ("ReduceMean", (1, 8, 4, 4), (1,), (0.02, 0.02), "can lie on the boundary"),
        ("ReduceMax", (1, 8, 4, 4), (0, 1, 2, 3), (0.02, 0.02), "some, and not all, are supported"),
        ("ReduceMax", (1, 64, 24, 24), (1,), (0.02, 0.02), "moves 36864 elements; 32768 are supported"),
        ("ReduceMean", (1, 4, 1025, 2), (3,), (0.25, 0.25), "it makes 1025 means by themselves; 1024 are supported"),
        ("ReduceSum", (1, 8, 4, 4), (1,), (0.02, 0.04), "can lie on the boundary"),
    ],
)
def test_reasons(graphs, op, shape, axes, scales, message) -> None:
    graph = graphs.Graph(opset=12)
    graph.output(_reduced(graph, op, graph.input(shape, scales[0]), axes, 1, scales[1]))
    (reason,) = [one.reason for one in check_model(graph.model(), SMALL).partition.fallback]
    assert message in reason


def test_spatial_attention_quantised() -> None:
    """Woo et al., "CBAM", 2018: mean and greatest of all channels, and a convolution over both."""
    random = np.random.default_rng(1)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(random.normal(0, 0.2, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["x"], "first", pads=[1] * 4),
        helper.make_node("ReduceMean", ["x"], ["mean"], "mean", axes=[1]),
        helper.make_node("ReduceMax", ["x"], ["most"], "most", axes=[1]),
        helper.make_node("Concat", ["mean", "most"], ["both"], "both", axis=1),
        helper.make_node("Conv", ["both", "w2"], ["place"], "place", pads=[3] * 4),
        helper.make_node("Sigmoid", ["place"], ["gate"], "gate"),
        helper.make_node("Mul", ["x", "gate"], ["y"], "y"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "cbam", [value("image", 1, [1, 3, 16, 16])], [value("y", 1, [1, 32, 16, 16])],
        [weights("w1", 32, 3, 3, 3), weights("w2", 1, 2, 7, 7)],
    )  # fmt: skip
    model = quantize(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).model
    session = Session(model, "int8-8x8", capture=True)
    assert not session.offload.fallback, session.offload.fallback
    inputs = {"image": random.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)}
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert found.tensors == found.tensors_total and found.mismatches == 0


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean"])
def test_floats(graphs, op) -> None:
    graph = graphs.Graph(opset=12)
    graph.inputs.append(helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, [2, 8, 9, 7]))
    graph.output_value(graph.node(op, ["input"], axes=[2], keepdims=0))
    graph.output_value(graph.node(op, ["input"], axes=[2, 3]))
    session = Session(graph.model(), "bf16-4x4", capture=True)
    assert not session.offload.reasons
    given = graphs.inputs_of(graph.model())
    found = compare_floats(session, given, session.run(given))
    assert found.tensors and found.mismatches == 0, found.first_mismatch
