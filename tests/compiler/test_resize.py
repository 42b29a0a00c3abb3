"""Linear Resize by powers of two: repeated elements and means of their neighbours, equal to ONNX Runtime's floats."""

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from onnx import helper, numpy_helper

from npukit import Session, quantize
from npukit.compare import Oracle, compare
from npukit.compare_floats import compare_floats

SMALL = PRESETS["int8-4x4"]


def _linear(graph, x, factors, scale: float, mode: str = "half_pixel"):
    scales = graph.constant(np.array([1, 1, *factors], np.float32))
    inputs = [graph.dequantize(x), "", scales]
    return graph.quantize(graph.node("Resize", inputs, mode="linear", coordinate_transformation_mode=mode), scale)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("shape", "factors"),
    [((2, 5, 4, 3), (2, 2)), ((1, 9, 3, 5), (4, 1)), ((1, 3, 1, 1), (2, 4)), ((1, 6, 2, 3), (1, 4)), ((2, 5, 7), (2,))],
)
def test_linear(graphs, dtype, shape, factors) -> None:
    for ratio in (1, 2, 0.5):
        graph = graphs.Graph(dtype=dtype)
        y = _linear(graph, graph.input(shape, 2.0**-6), factors, 2.0**-6 * ratio)
        graph.output(graph.add(y, y))
        session, _ = graphs.agree(graph.model(), SMALL, runs=2)
        assert len(session.programs) == 1 and session.profile.macs == 0


@pytest.mark.parametrize(
    ("scale", "factors", "mode", "message"),
    [
        (0.02, (2, 2), "half_pixel", "its scale 0.02 is no power of two"),
        (2.0**-6, (3, 2), "half_pixel", "its factors are 3 and 2; powers of two are supported for linear"),
        (2.0**-6, (2, 8), "half_pixel", "its factors are 2 and 8: kernel 3x9 exceeds max_window 7"),
        (2.0**-6, (2, 2), "align_corners", "coordinates are align_corners; half_pixel is supported for linear"),
    ],
)
def test_reasons(graphs, scale, factors, mode, message) -> None:
    graph = graphs.Graph()
    graph.output(_linear(graph, graph.input((1, 4, 4, 4), scale), factors, scale, mode))
    (reason,) = [one.reason for one in check_model(graph.model(), SMALL).partition.fallback]
    assert reason.startswith(message)


def test_quantised_whole() -> None:
    """`npukit quantize` gives it powers of two, so that a decoder stays on the machine."""
    random = np.random.default_rng(2)
    weights = [random.normal(0, 0.2, shape).astype(np.float32) for shape in ((12, 3, 3, 3), (5, 12, 1, 1))]
    constants = [numpy_helper.from_array(value, f"w{index}") for index, value in enumerate(weights)]
    constants.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Resize", ["b", "", "scales"], ["c"], "resize", mode="linear"),
        helper.make_node("Conv", ["c", "w1"], ["y"], "last"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "decoder", [value("image", 1, [1, 3, 9, 8])], [value("y", 1, [1, 5, 18, 16])], constants
    )
    model = quantize(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).model
    session = Session(model, "int8-8x8", capture=True)
    assert not session.offload.fallback and len(session.programs) == 1, session.offload.fallback
    inputs = {"image": random.normal(0, 1, (1, 3, 9, 8)).astype(np.float32)}
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert found.tensors == found.tensors_total and found.mismatches == 0


def test_floats(graphs) -> None:
    graph = graphs.Graph()
    graph.inputs.append(helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, [1, 6, 4, 5]))
    scales = graph.constant(np.array([1, 1, 2, 4], np.float32))
    graph.output_value(graph.node("Resize", ["input", "", scales], mode="linear"))
    session = Session(graph.model(), "bf16-4x4", capture=True)
    assert not session.offload.reasons
    given = graphs.inputs_of(graph.model())
    found = compare_floats(session, given, session.run(given))
    assert found.tensors and found.mismatches == 0 and found.worst[1] < 0.02, found
