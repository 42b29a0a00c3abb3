"""Tensors of five dimensions (batch, channels, depth, height, width), on the machine as in ONNX Runtime."""

import re
import secrets
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import Convolution
from npukit.compiler.pipeline import check_model, compile_model
from npukit.isa.config import PRESETS
from onnx import helper

from npukit import Session
from npukit.compare_floats import compare_floats

SMALL = PRESETS["int8-4x4"]


class _Volume:
    """A graph of tensors [batch, channels, depth, height, width] in the making."""

    def __init__(self, graphs: Any, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = graphs.Graph(seed=seed, dtype=np.uint8 if self.random.random() < 0.5 else np.int8)

    def pick(self, *among: int) -> int:
        return int(self.random.choice(among))

    def shape(self, x: Any) -> tuple[int, ...]:
        return self.graph.shape(x.name)

    def window(self, sizes: tuple[int, ...], *kernels: int) -> dict[str, list[int]] | None:
        """Attributes of a window that sees a part of the tensor in each place, or None."""
        kernel = [self.pick(*kernels) for _ in sizes]
        dilations = [self.pick(1, 1, 1, 2) for _ in sizes]
        reach = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
        pads = [self.pick(0, size // 2) for size in kernel] + [self.pick(0, size // 2) for size in kernel]
        room = [size + pads[axis] + pads[3 + axis] for axis, size in enumerate(sizes)]
        if any(have < need for have, need in zip(room, reach, strict=True)):
            return None
        strides = [self.pick(1, 1, 2) for _ in sizes]
        return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}

    def conv(self, x: Any) -> Any:
        channels, *sizes = self.shape(x)[1:]
        window = self.window(tuple(sizes), 1, 1, 2, 3)
        if window is None:
            return x
        kernel = window.pop("kernel_shape")
        flat = kernel[0] == window["strides"][0] == 1 and not window["pads"][0] + window["pads"][3]
        group = channels if flat and self.pick(0, 1) else 1
        out = channels if group > 1 else self.pick(1, 4, 9, 17)
        return self.graph.conv(x, out, tuple(kernel), group=group, relu=bool(self.pick(0, 1)), **window)

    def pool(self, x: Any) -> Any:
        depth, height, width = self.shape(x)[2:]
        kind = self.pick(0, 1, 2, 3)
        if kind == 0:
            return self.graph.add(x, self.graph.global_average(x, x.scale))
        if kind == 1:
            kernel = [(1, 2, 2), (2, 1, 1), (1, height, width), (depth, height, width)][self.pick(0, 1, 2, 3)]
            fits = all(size <= there for size, there in zip(kernel, (depth, height, width), strict=True))
            return self.graph.average(x, kernel, x.scale * np.prod(kernel) / 4) if fits else x
        window = self.window((depth, height, width), 1, 2, 3)
        if window is None:
            return x
        return self.graph.maxpool(x, tuple(window.pop("kernel_shape")), **window)

    def build(self, layers: int) -> onnx.ModelProto:
        size = [self.pick(1, 2, 3, 5), self.pick(3, 4, 7), self.pick(2, 5, 8)]
        x = self.graph.input((self.pick(1, 1, 2), self.pick(1, 3, 4, 6, 9), *size))
        for _ in range(layers):
            x = (self.conv, self.conv, self.pool)[self.pick(0, 1, 2)](x)
        self.graph.output(self.conv(x))
        return self.graph.model()


@pytest.mark.sample(6)
@pytest.mark.parametrize("config", ["int8-4x4", "int8-16x16"])
@pytest.mark.parametrize("seed", [*range(6), pytest.param(secrets.randbelow(1 << 30), id="fresh")])
def test_random_volumes(graphs, seed, config) -> None:
    print("seed", seed)
    made = 0
    for number in range(6):
        model = _Volume(graphs, seed * 100 + number).build(3)
        if not any(node.op_type in ("Conv", "MaxPool", "AveragePool") for node in model.graph.node):
            continue
        fallback = check_model(model, PRESETS[config]).partition.fallback
        # a Relu stays with what it limits
        refused = [one for one in fallback if one.op != "Relu" and not _may_stay(one.reason)]
        assert not refused, refused
        graphs.agree(model, config, stays=graphs.EDGES | {"AveragePool", "MaxPool", "Conv"}, subgraphs=None)
        made += 1
    assert made


def _may_stay(reason: str) -> bool:
    """What is refused of any pool, or has no result in ONNX Runtime's integers; and windows of padding alone."""
    return any(text in reason for text in ("see nothing but padding", "round", "max_window", "integer result"))


def test_every_kind_of_kernel(graphs) -> None:
    """Kernels of one image, of one place, and of both; all that images see, and what they see of padding."""
    graph = graphs.Graph()
    x = graph.conv(graph.input((2, 3, 6, 9, 8)), 9, (3, 3, 3), strides=[1, 2, 1], pads=[1, 1, 1, 1, 1, 1], relu=True)
    x = graph.conv(x, 9, (1, 3, 3), group=9, pads=[0, 1, 1, 0, 1, 1])
    x = graph.conv(x, 18, (3, 1, 1), group=3, strides=[2, 1, 1], pads=[1, 0, 0, 1, 0, 0])
    x = graph.conv(x, 7, (2, 2, 3), dilations=[2, 1, 2], pads=[2, 0, 0, 1, 1, 2])
    x = graph.maxpool(x, (2, 3, 2), strides=[2, 1, 2], pads=[1, 1, 0, 0, 1, 1])
    graph.output(graph.gemm(graph.flatten(x), 5))
    model = graph.model()
    (legal,) = compile_model(model, SMALL, stop_after="legalise").graphs
    deep = [one.depth for one in legal.operations if isinstance(one, Convolution) and one.depth is not None]
    assert [(one.kernel, one.stride, one.pad, one.dilation) for one in deep] == [(3, 1, 1, 1), (2, 1, 2, 2)]
    for config in ("int8-4x4", "int8-16x16"):
        session, _ = graphs.agree(model, config)
        assert len(session.programs) == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda graph, x: graph.conv(x, 6, (3, 3, 3), group=3), "a kernel of 3x3x3 in 3 groups"),
        (lambda graph, x: graph.conv(x, 6, (1, 3, 3), pads=[1, 0, 0, 0, 0, 0]), r"images \[0\] of its result see"),
        (lambda graph, x: graph.average(x, (2, 2, 2), x.scale), "a window of 2x2x2 in images of 7x8"),
        (
            lambda graph, x: graph.average(x, (2, 7, 8), x.scale, pads=[0, 1, 0, 0, 0, 0], strides=[1, 2, 1]),
            "a window of 2x7x8 in images of 7x8",  # of which it sees a part
        ),
    ],
)
def test_reasons(graphs, build, message) -> None:
    graph = graphs.Graph()
    graph.output(build(graph, graph.input((1, 6, 5, 7, 8))))
    (reason,) = [one.reason for one in check_model(graph.model(), SMALL).partition.fallback]
    assert re.search(message, reason), reason


@pytest.mark.parametrize("config", ["bf16-4x4", "bf16-8x8"])
def test_floats(graphs, config) -> None:
    graph = graphs.Graph()

    def weights(*shape: int) -> str:
        return graph.constant(graph.random.standard_normal(shape).astype(np.float32), "weights")

    graph.inputs.append(helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, [2, 5, 4, 7, 6]))
    x = graph.node("Conv", ["input", weights(9, 5, 3, 3, 2), weights(9)], pads=[1, 1, 0, 1, 1, 1], strides=[1, 2, 1])
    x = graph.node("Relu", [x])
    x = graph.node("Conv", [x, weights(6, 9, 2, 1, 1)], dilations=[2, 1, 1])
    x = graph.node("MaxPool", [x], kernel_shape=[2, 2, 2])
    x = graph.node("AveragePool", [x], kernel_shape=[1, 1, 3])
    graph.output_value(graph.node("GlobalAveragePool", [x]))
    session = Session(graph.model(), config, capture=True)
    assert not session.offload.reasons
    given = graphs.inputs_of(graph.model())
    found = compare_floats(session, given, session.run(given))
    assert found.tensors and found.mismatches == 0, found.first_mismatch
