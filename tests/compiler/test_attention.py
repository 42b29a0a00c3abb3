"""Attention: scores, softmax and context computed together, head by head, equal to ONNX Runtime and to ordered sums."""

import secrets
from dataclasses import replace
from types import ModuleType

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import MatrixProduct, Softmax
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Engine
from onnx import TensorProto, helper

from npukit import Session
from npukit.compare import Oracle, compare
from npukit.compare_floats import compare_floats

SEEDS = [*range(6), pytest.param(secrets.randbelow(1 << 30), id="fresh")]


class Attention:
    """Attention of some heads over a batch of sequences, its sizes from a seed.

    mask: None, "constant" or "input", of one or all heads. shown: a tensor that is an output besides.
    """

    def __init__(self, graphs: ModuleType, seed: int, floating: bool, shown: str | None = None) -> None:
        self.random = random = np.random.default_rng(seed)
        self.graph, self.floating, self.shown = graphs.Graph(seed=seed), floating, shown
        self.batch, self.heads = int(random.integers(1, 3)), int(random.integers(1, 4))
        self.rows, self.keys = int(random.integers(1, 60)), int(random.integers(1, 60))
        self.size = int(random.choice([4, 8, 16, 20]))
        self.mask = [None, None, "constant", "input"][int(random.integers(4))]
        self.scaled = bool(random.random() < 0.5)
        self.values: dict[str, np.ndarray] = {}

    def rounded(self, name: str, scale: float, zero_point: int | None = None) -> str:
        """A value between a quantiser and its inverse; of floats, as it is."""
        if self.floating:
            return name
        return self.graph.dequantize(self.graph.quantize(name, scale, zero_point))

    def constant(self, values: np.ndarray, scale: float) -> str:
        """Constant numbers, quantised around 0."""
        if self.floating:
            return self.graph.constant(values.astype(np.float32))
        return self.graph.weights(np.clip(np.rint(values / scale), -128, 127).astype(np.int8), scale)

    def input(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        """A float input."""
        self.values[name] = self.random.normal(0, 1, shape).astype(np.float32)
        self.graph.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return self.rounded(name, scale)

    def projected(self, name: str, source: str) -> str:
        """A source times constant weights, as matrices of heads."""
        width = self.heads * self.size
        if self.floating:
            weights = self.graph.constant(self.random.normal(0, width**-0.5, (width, width)).astype(np.float32))
        else:
            weights = self.graph.weights(self.graph.random_weights((width, width)), width**-0.5 / 64)
        zero_point = int(self.random.integers(-50, 50))
        found = self.rounded(self.graph.node("MatMul", [source, weights]), 0.02, zero_point)
        shape = self.graph.constant(np.array([self.batch, -1, self.heads, self.size]))
        found = self.rounded(self.graph.node("Reshape", [found, shape]), 0.02, zero_point)
        order = [0, 2, 3, 1] if name == "key" else [0, 2, 1, 3]
        return self.rounded(self.graph.node("Transpose", [found], perm=order), 0.02, zero_point)

    def model(self) -> onnx.ModelProto:
        """The model; `values` are its inputs then."""
        graph, width = self.graph, self.heads * self.size
        x = self.input("x", (self.batch, self.rows, width), 0.02)
        y = self.input("y", (self.batch, self.keys, width), 0.02)
        sides = [self.projected(name, source) for name, source in (("query", x), ("key", y), ("value", y))]
        scores = self.rounded(graph.node("MatMul", sides[:2], "scores"), 0.1)
        if self.scaled:
            factor = self.constant(np.array(self.size**-0.5), 0.005)
            scores = self.rounded(graph.node("Mul", [scores, factor]), 0.03)
        if self.mask is not None:
            shape = (self.batch, int(self.random.choice([1, self.heads])), self.rows, self.keys)
            if self.mask == "input":
                mask = self.input("mask", shape, 0.05)
            else:
                mask = self.constant(np.where(self.random.random(shape) < 0.3, -6, 0), 0.05)
            scores = self.rounded(graph.node("Add", [scores, mask]), 0.05)
        weights = self.rounded(graph.node("Softmax", [scores], "weights"), 1 / 256, -128)
        context = self.rounded(graph.node("MatMul", [weights, sides[2]], "context"), 0.02, 3)
        turned = self.rounded(graph.node("Transpose", [context], perm=[0, 2, 1, 3]), 0.02, 3)
        shape = graph.constant(np.array([self.batch, self.rows, width]))
        result = self.rounded(graph.node("Reshape", [turned, shape]), 0.02, 3)
        for name in filter(None, (result, self.shown)):
            graph.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        return onnx.shape_inference.infer_shapes(graph.model())


def agree(model: onnx.ModelProto, inputs: dict[str, np.ndarray], config: str) -> Session:
    """No difference in any tensor, and no product left to ONNX Runtime."""
    session = Session(model, PRESETS[config], capture=True)
    outputs = session.run(inputs)
    assert session.offload.macs == session.offload.macs_total > 0, session.offload.fallback
    if config.startswith("bf16"):
        floats = compare_floats(session, inputs, outputs)
        assert floats.mismatches == 0 and floats.elements > 0, floats.first_mismatch
    else:
        found = compare(session, Oracle(model), inputs, outputs)
        assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
    return session


def groups_of(model: onnx.ModelProto, config: str) -> list[list[type]]:
    """Kinds of operations of the groups in which there is a softmax."""
    found = []
    for graph in compile_model(model, PRESETS[config], stop_after="fuse").graphs:
        makers = graph.makers()
        kinds = ([type(graph.operations[makers[name]]) for name in group] for group in graph.groups)
        found += [one for one in kinds if Softmax in one]
    return found


@pytest.mark.parametrize("config", ["int8-16x16", "int8-4x4", "bf16-8x8"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_attention(graphs, seed: int, config: str) -> None:
    print(f"seed {seed}")
    attention = Attention(graphs, seed, config.startswith("bf16"))
    model = attention.model()
    agree(model, attention.values, config)
    (kinds,) = groups_of(model, config)
    assert kinds[0] is kinds[-1] is MatrixProduct and len(kinds) == 3 + attention.scaled + (attention.mask is not None)


def test_scores_stay_on_chip(graphs) -> None:
    """Neither scores nor what becomes of them is stored or loaded."""
    attention = Attention(graphs, 3, False)
    (plan,) = compile_model(attention.model(), PRESETS["int8-16x16"], stop_after="schedule").plans
    makers, (group,) = plan.graph.makers(), [one for one in plan.graph.groups if len(one) > 2]
    between = {plan.graph.operations[makers[name]].output for name in group[:-1]}
    moved = {task.dram.tensor for task in plan.tasks if task.dram is not None}
    assert between and not between & moved and group[-1] in moved


def test_projections_come_head_by_head(graphs) -> None:
    """The array works for the next head while VECTOR computes a softmax: not all projections come first."""
    attention = Attention(graphs, 1, False)
    attention.heads, attention.size, attention.rows, attention.keys, attention.batch = 4, 32, 200, 200, 1
    (plan,) = compile_model(attention.model(), PRESETS["int8-16x16"], stop_after="schedule").plans
    softmax = [number for number, one in enumerate(plan.graph.operations) if isinstance(one, Softmax)]
    vector = (index for index, task in enumerate(plan.tasks) if task.engine is Engine.VECTOR and task.node in softmax)
    first = next(vector)
    behind = {task.node for task in plan.tasks[first:] if task.engine is Engine.MATRIX}
    before = {task.node for task in plan.tasks[:first] if task.engine is Engine.MATRIX}
    assert len(before & behind) >= 3  # the scores, and both that they are made of


def test_a_bias_that_is_computed(graphs) -> None:
    """What is added to the scores comes from a product that stays on chip until then."""
    graph = graphs.Graph(seed=3)
    shapes = (1, 2, 40, 16), (1, 2, 16, 40), (1, 2, 40, 16), (1, 2, 40, 16)
    query, key, value, other = (graph.dequantize(graph.input(shape, 0.03)) for shape in shapes)
    weights = graph.weights(graph.random_weights((16, 40)), 0.003)
    bias = graph.quantize(graph.node("MatMul", [other, weights]), 0.05)
    scores = graph.quantize(graph.node("MatMul", [query, key]), 0.05)
    scores = graph.quantize(graph.node("Add", [graph.dequantize(scores), graph.dequantize(bias)]), 0.08)
    softmax = graph.quantize(graph.node("Softmax", [graph.dequantize(scores)]), 1 / 256, -128)
    graph.output(graph.quantize(graph.node("MatMul", [graph.dequantize(softmax), value]), 0.03))
    assert len(groups_of(graph.model(), "int8-8x8")) == 1
    graphs.agree(graph.model(), PRESETS["int8-8x8"])


@pytest.mark.parametrize("shown", ["scores", "weights"])
def test_what_others_read_is_stored(graphs, shown: str) -> None:
    attention = Attention(graphs, 4, True, shown)
    model = attention.model()
    assert groups_of(model, "bf16-8x8") == []
    agree(model, attention.values, "bf16-8x8")


def test_values_that_are_made_of_the_weights(graphs) -> None:
    """The second product's other side waits for the softmax, so that they are not computed together."""
    graph = graphs.Graph(seed=5)
    x = graph.input((1, 2, 20, 20), 0.03)
    scores = graph.quantize(graph.node("MatMul", [graph.dequantize(x), graph.dequantize(x)]), 0.05)
    weights = graph.quantize(graph.node("Softmax", [graph.dequantize(scores)]), 1 / 256, -128)
    mixed = graph.node("MatMul", [graph.dequantize(weights), graph.dequantize(weights)])
    graph.output(graph.quantize(mixed, 0.03))
    assert groups_of(graph.model(), "int8-8x8") == []
    graphs.agree(graph.model(), PRESETS["int8-8x8"])


def test_rows_that_do_not_fit_are_computed_apart(graphs) -> None:
    """A machine whose banks hold no rows of the scores, and one in which only a few fit."""
    graph = graphs.Graph(seed=6)
    query, key, value = (graph.input(shape, 0.03) for shape in ((90, 24), (24, 130), (130, 24)))
    scores = graph.quantize(graph.node("MatMul", [graph.dequantize(query), graph.dequantize(key)]), 0.05)
    weights = graph.quantize(graph.node("Softmax", [graph.dequantize(scores)]), 1 / 256, -128)
    mixed = graph.node("MatMul", [graph.dequantize(weights), graph.dequantize(value)])
    graph.output(graph.quantize(mixed, 0.03))
    for depth in (256, 512, 1024):
        graphs.agree(graph.model(), replace(PRESETS["int8-8x8"], act_depth=depth))
