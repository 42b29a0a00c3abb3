"""Tensors of three dimensions (batch, channels, width): every operator of images, on the machine as in ONNX Runtime."""

import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from npukit.isa.config import PRESETS

from npukit import Session
from npukit.compare_floats import compare_floats

SMALL = PRESETS["int8-4x4"]


class _Wave:
    """A graph of tensors [batch, channels, width] in the making."""

    def __init__(self, graphs: Any, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = graphs.Graph(seed=seed, dtype=np.uint8 if self.random.random() < 0.5 else np.int8)

    def pick(self, *among: int) -> int:
        return int(self.random.choice(among))

    def shape(self, x: Any) -> tuple[int, ...]:
        return self.graph.shape(x.name)

    def conv(self, x: Any) -> Any:
        channels, width = self.shape(x)[1:]
        kernel, dilation = self.pick(1, 2, 3, 5, 9), self.pick(1, 1, 2)
        reach = (kernel - 1) * dilation + 1
        pads = [self.pick(0, reach // 2), self.pick(0, reach // 2)]
        if width + sum(pads) < reach:
            return x
        group = self.pick(1, channels)
        out = channels if group > 1 else self.pick(1, 4, 9, 17)
        return self.graph.conv(
            x, out, (kernel,), group=group, strides=[self.pick(1, 1, 2)], dilations=[dilation], pads=pads,
            relu=bool(self.pick(0, 1)),
        )  # fmt: skip

    def pool(self, x: Any) -> Any:
        if self.shape(x)[2] < 4:
            return x
        kind = self.pick(0, 1, 2)
        if kind == 0:
            return self.graph.maxpool(x, (self.pick(2, 3),), strides=[self.pick(1, 2)], pads=[self.pick(0, 1), 0])
        if kind == 1:
            return self.graph.average(x, (2,), x.scale, strides=[2])
        return self.graph.add(x, self.graph.global_average(x, x.scale))

    def move(self, x: Any) -> Any:
        batch, channels, width = self.shape(x)
        kind = self.pick(0, 1, 2, 3, 4)
        if kind == 0:
            pads = np.array([0, 0, self.pick(0, 2), 0, 0, self.pick(1, 3)], np.int64)
            return self.graph.moved("Pad", x, [pads, np.array(0, np.float32)])
        if kind == 1 and width > 3:
            bounds = [np.array([value], np.int64) for value in (1, width - 1, 2)]
            return self.graph.moved("Slice", x, bounds)
        if kind == 2:
            return self.graph.concat([x, x], self.pick(1, 2), same=bool(self.pick(0, 1)))
        if kind == 3 and channels > 1:
            first, _ = self.graph.split(x, [channels - 1, 1], 1)
            return first
        if width > 20:
            return x
        scales = np.array([1, 1, 2], np.float32)
        attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
        return self.graph.moved("Resize", x, [None, scales], **attributes)

    def combine(self, x: Any) -> Any:
        channels = self.shape(x)[1]
        kind = self.pick(0, 1, 2)
        if kind == 0:
            return self.graph.constant_operand("Mul", x, (channels, 1))
        if kind == 1:
            return self.graph.add(x, x)
        return self.graph.unary("Sigmoid", x, 1 / 256)

    def model(self):
        x = self.graph.input((self.pick(1, 2), self.pick(1, 3, 8), self.pick(5, 16, 33)))
        first = x
        for _ in range(4):
            step = (self.conv, self.conv, self.pool, self.move, self.combine)[self.pick(0, 1, 2, 3, 4)]
            x = step(x)
        if x is first:
            x = self.graph.add(x, x)
        self.graph.output(x)
        return self.graph.model()


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_random_graphs(graphs, kind) -> None:
    seed = 3 if kind == "fixed" else secrets.randbelow(1 << 20)
    print(f"repeat with: seed {seed}")
    seen: set[str] = set()
    for number in range(25):
        model = _Wave(graphs, seed * 1000 + number).model()
        session, _ = graphs.agree(model, SMALL, stays={*graphs.EDGES, "AveragePool"}, subgraphs=None)
        seen.update(node.op for program in session.programs.values() for node in program.nodes)
    if kind == "fixed":
        operators = "Add Concat Conv GlobalAveragePool MaxPool Mul Pad Resize Slice Split"
        assert seen >= {*operators.split()}


def test_a_network_of_raw_audio(graphs) -> None:
    """Strides of 4 over a long signal of one channel, then short kernels, as recognisers of sounds have them."""
    graph = graphs.Graph()
    x = graph.conv(graph.input((1, 1, 1000)), 16, (80,), strides=[4], relu=True)
    x = graph.maxpool(x, (4,), strides=[4])
    x = graph.conv(x, 32, (3,), pads=[1, 1], relu=True)
    graph.output(graph.gemm(graph.flatten(graph.global_average(x)), 10))
    session, _ = graphs.agree(graph.model(), PRESETS["int8-16x16"])
    assert len(session.programs) == 1


@pytest.mark.parametrize("options", [{}, {"group": 3}, {"weight_zero": 100, "per_channel": False}])
@pytest.mark.parametrize(("shape", "kernel"), [((1, 9, 150), (130,)), ((1, 6, 7, 90), (3, 70))])
def test_kernels_wider_than_an_instruction_allows(graphs, shape, kernel, options) -> None:
    """A row of the kernel is computed in parts of 64 elements."""
    graph = graphs.Graph(dtype=np.uint8)
    graph.output(graph.conv(graph.input(shape), 9, kernel, **options))
    graphs.agree(graph.model(), replace(SMALL, wgt_depth=8192, act_depth=2048))


def test_between_images_and_waves(graphs) -> None:
    """Unsqueeze and Squeeze of the height move nothing."""
    graph = graphs.Graph()
    x = graph.conv(graph.input((1, 6, 20)), 8, (3,))
    x = graph.moved("Unsqueeze", x, [np.array([2], np.int64)])
    x = graph.conv(x, 5, (1, 3))
    x = graph.moved("Squeeze", x, [np.array([2], np.int64)])
    graph.output(graph.conv(x, 4, (3,)))
    session, _ = graphs.agree(graph.model(), SMALL)
    assert len(session.programs) == 1


def test_a_transposed_convolution(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 6, 9), scale=2.0**-6)
    values = graph.random.integers(-20, 21, (6, 4, 3)).astype(np.int8)
    names = [graph.dequantize(x), graph.weights(values, 2.0**-7)]
    y = graph.node("ConvTranspose", names, strides=[2], pads=[1, 0], output_padding=[1])
    graph.output(graph.quantize(y, 2.0**-3))
    session, _ = graphs.agree(graph.model(), SMALL)
    assert len(session.programs) == 1


def test_in_bf16(floats) -> None:
    """The same shapes of float tensors, every layer equal to ordered sums."""
    model, inputs = floats
    session = Session(model, PRESETS["bf16-4x4"], capture=True)
    found = compare_floats(session, inputs, session.run(inputs))
    assert found.mismatches == 0 and found.tensors == found.tensors_total == 6
    assert session.offload.fallback == ()


@pytest.fixture
def floats():
    from onnx import helper, numpy_helper

    random = np.random.default_rng(1)
    constants = {
        "w": random.normal(0, 0.3, (8, 4, 3)).astype(np.float32),
        "c": random.normal(0, 1, (8, 1)).astype(np.float32),
        "pads": np.array([0, 0, 2, 0, 0, 1]),
        "one": np.array([1]), "six": np.array([6]), "two": np.array([2]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "a", strides=[2], pads=[1, 1]),
        helper.make_node("Mul", ["a", "c"], ["b"], "b"),
        helper.make_node("Pad", ["b", "pads"], ["d"], "d"),
        helper.make_node("Slice", ["d", "one", "six", "two"], ["e"], "e"),
        helper.make_node("Concat", ["e", "e"], ["f"], "f", axis=2),
        helper.make_node("MaxPool", ["f"], ["y"], "y", kernel_shape=[2]),
    ]
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [1, 4, 15]), ("y", [1, 8, 9]))]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": random.normal(0, 1, (1, 4, 15)).astype(np.float32)}
