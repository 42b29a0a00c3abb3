"""Small images of a batch share the weights that are loaded for them, one by an instruction or many."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import Convolution
from npukit.compiler.pipeline import compile_model
from npukit.compiler.tiling import ConvShape
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Matrix
from onnx import helper

from npukit import Session
from npukit.compare_floats import compare_floats

SMALL = PRESETS["int8-4x4"]


@pytest.mark.sample(30)
@pytest.mark.parametrize("batch", [2, 5, 16, 40])
@pytest.mark.parametrize("size", [(1, 1), (1, 3), (2, 2), (3, 2), (4, 4)])
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((3, 2), {"pads": [1, 0, 1, 1], "strides": [1, 2]}),
        ((1, 1), {"strides": [2, 2]}),
        ((2, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 1]}),
        ((3, 3), {"pads": [1, 1, 1, 1], "weight_zero": 100, "per_channel": False, "rare": True}),
    ],
)
def test_kernels(graphs, batch, size, kernel, options) -> None:
    graph = graphs.Graph(dtype=np.uint8)
    x = graph.conv(graph.input((batch, 7, *size)), 9, kernel, **options)
    graph.output(graph.conv(x, 6, 3, pads=[1] * 4))
    graphs.agree(graph.model(), SMALL)


def _layer(graphs, batch: int, size: int, channels: int, config, **options) -> tuple[ConvShape, list[Matrix]]:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((batch, channels, size, size)), channels, 3, pads=[1] * 4, **options))
    made = compile_model(graph.model(), config)
    (legal,), (program,) = made.graphs, made.programs
    (layer,) = (one for one in legal.operations if isinstance(one, Convolution))
    instructions = [one for one in program.instructions if isinstance(one, Matrix)]
    return ConvShape.of(config, legal, layer), instructions


def test_how_many_by_an_instruction(graphs) -> None:
    """Images of fewer places than the array has rows go as lines into one instruction, larger ones into one each."""
    config = PRESETS["int8-16x16"]
    shape, tiny = _layer(graphs, 8, 2, 32, config)
    assert shape.in_line and shape.line == 6 and shape.together == 8
    assert {(one.height, one.width) for one in tiny} == {(8, 6)}
    shape, small = _layer(graphs, 8, 4, 64, config)
    assert not shape.in_line and shape.together == 8
    assert {(one.height, one.width) for one in small} == {(4, 4)}
    shape, _ = _layer(graphs, 8, 9, 32, config)
    assert shape.together == 1


def test_residents_and_strips(graphs) -> None:
    """Images that stay on chip from layer to layer, additions behind convolutions, and depthwise ones between."""
    graph = graphs.Graph()
    x = graph.conv(graph.input((6, 8, 4, 4)), 12, 1, relu=True)
    y = graph.conv(x, 12, 3, pads=[1] * 4, group=12)
    y = graph.add(graph.conv(y, 12, 3, pads=[1] * 4), x)
    y = graph.conv(y, 20, 3, strides=[2, 2], pads=[1] * 4, relu=True)
    y = graph.unary("Sigmoid", graph.conv(y, 20, 3, pads=[1] * 4))
    graph.output(graph.gemm(graph.flatten(y), 5))
    for config in (SMALL, PRESETS["int8-16x16"], replace(SMALL, act_banks=1, acc_banks=1)):
        for level in (0, 1):
            session = Session(graph.model(), config, capture=True, optimize=level)
            assert len(session.programs) == 1
        graphs.agree(graph.model(), config, runs=2)


@pytest.mark.parametrize("config", ["bf16-4x4", "bf16-16x16"])
def test_floats(graphs, config) -> None:
    """Sums are rounded in the same order, whatever is computed together."""
    graph = graphs.Graph()
    random = graph.random
    graph.inputs.append(helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, [5, 7, 3, 3]))
    x = "input"
    for inner, outer, stride in ((7, 19, 1), (19, 9, 2), (9, 6, 1)):
        weights = graph.constant(random.standard_normal((outer, inner, 3, 3)).astype(np.float32), "weights")
        x = graph.node("Conv", [x, weights], pads=[1] * 4, strides=[stride] * 2)
    graph.output_value(x)
    session = Session(graph.model(), config, capture=True)
    given = graphs.inputs_of(graph.model())
    found = compare_floats(session, given, session.run(given))
    assert found.tensors and found.mismatches == 0, found.first_mismatch
