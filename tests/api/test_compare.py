"""The comparison itself: it counts what differs, finds who wrote it, and refuses what cannot be compared."""

import json
from itertools import product

import numpy as np
import pytest
from npukit.driver.host import run_session
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Vector
from npukit.isa.program import Capture
from onnx import TensorProto, helper

from npukit.cli.run import comparison_text
from npukit.compare import Comparison, Oracle, compare
from npukit.errors import UsageError
from npukit.session import Session

CONFIG = PRESETS["int8-4x4"]


def network(graphs):
    """Convolutions in several tiles, a dilated pooling in phases, and a Gemm behind a reshape."""
    graph = graphs.Graph(seed=2)
    y = graph.conv(graph.input((2, 5, 24, 24)), 9, pads=[1] * 4)
    y = graph.maxpool(y, 2, dilations=[2, 3], strides=[3, 2])
    graph.output(graph.gemm(graph.flatten(y), 7))
    return graph.model()


def test_every_element_leads_to_the_instruction_that_wrote_it(graphs) -> None:
    model = network(graphs)
    session, _ = graphs.agree(model, CONFIG)
    oracle = Oracle(model)
    inputs = graphs.inputs_of(model)
    outputs = session.run(inputs)
    (program,) = session.programs.values()
    random = np.random.default_rng(3)
    nodes = set()
    for name in oracle.tensors[1:]:
        right = session.tensors[name]
        for _ in range(25):
            index = tuple(int(random.integers(size)) for size in right.shape)
            wrong = right.copy()
            wrong[index] ^= 1
            session.tensors[name] = wrong
            found = compare(session, oracle, inputs, outputs)
            first = found.first_mismatch
            assert found.mismatches == 1 and found.max_abs_diff == 1.0 and first is not None
            assert (first["tensor"], first["index"], first["mismatches"]) == (name, list(index), 1)
            assert first["expected"] == right[index] and first["actual"] == wrong[index]
            node = next(node for node in program.nodes if node.name == first["node"])
            assert first["instructions"] == [node.first, node.last]
            tensor = program.captured[name]
            flat = np.ravel_multi_index(index, right.shape)
            outer, channel, inner = np.unravel_index(flat, tensor.order)
            capture = next(one for one in program.captures if one.instruction == first["instruction"])
            written = program.instructions[capture.instruction]
            assert isinstance(written, Vector) and capture.tensor == tensor.source
            places = tensor.order[0] * tensor.order[2]
            word = channel // 4 * places + outer * tensor.order[2] + inner
            assert word in _words(capture, written)
            nodes.add(first["op"])
        session.tensors[name] = right
    assert nodes == {"Conv", "MaxPool", "Gemm"}


def test_a_difference_that_begins_on_the_host(graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named by the nodes between what is equal and the first tensor that differs."""
    graph = graphs.Graph(seed=4)
    x = graph.conv(graph.input((1, 5, 6, 6)), 4)
    soft = graph.node("LpNormalization", [graph.dequantize(x)], axis=1)
    y = graph.quantize(soft, 1 / 256, output="gates")
    graph.output(graph.conv(y, 3))
    model = graph.model()

    def wrong(session, names, inputs):
        values = run_session(session, names, inputs)
        return {name: value ^ 1 if name == "gates" else value for name, value in values.items()}

    monkeypatch.setattr("npukit.driver.executor.run_session", wrong)
    session = Session(model, CONFIG, capture=True)
    inputs = graphs.inputs_of(model)
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert found.first_mismatch is not None and found.first_mismatch["tensor"] == "gates"
    names = [node.split()[0] for node in found.first_mismatch["host"]]
    assert names == ["DequantizeLinear", "LpNormalization", "QuantizeLinear"]
    text = comparison_text(found)
    assert "it begins in ONNX Runtime on the host, not on the accelerator, in DequantizeLinear" in text
    assert text.endswith("QuantizeLinear QuantizeLinear:gates: what they read is equal")


def _words(capture: Capture, written: Vector) -> set[int]:
    return {
        capture.first + block * capture.stride_block + y * capture.stride_y + x * capture.stride_x
        for block, y, x in product(range(written.blocks), range(written.height), range(written.width))
    }


def test_the_first_in_the_graphs_order_is_named(graphs) -> None:
    model = network(graphs)
    session, _ = graphs.agree(model, CONFIG)
    oracle = Oracle(model)
    inputs = graphs.inputs_of(model)
    outputs = session.run(inputs)
    session.tensors.update({name: value ^ 1 for name, value in session.tensors.items()})
    found = compare(session, oracle, inputs, outputs)
    assert found.first_mismatch is not None and found.first_mismatch["tensor"] == oracle.tensors[0]
    assert "node" not in found.first_mismatch, "the host's quantiser made it, not an instruction"
    assert found.mismatches == sum(value.size for value in session.tensors.values())
    elements = found.elements
    assert compare(session, oracle, inputs, outputs, found) is found and found.elements == 2 * elements


def host_model(kind: int, op: str, **attributes):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    out = helper.make_tensor_value_info("y", kind, [3])
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attributes)], "g", [value], [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_numbers_that_are_none() -> None:
    """NaN equals NaN; what differs is still JSON."""
    model = host_model(TensorProto.FLOAT, "Sqrt")
    session, oracle = Session(model, CONFIG), Oracle(model)
    inputs = {"x": np.array([-1, np.inf, 4], np.float32)}
    outputs = session.run(inputs)
    assert np.isnan(outputs["y"][0]) and compare(session, oracle, inputs, outputs).mismatches == 0
    for wrong, expected in ((np.array([1, 5, 6]), "nan"), (np.array([np.nan, -np.inf, 6]), "inf")):
        found = compare(session, oracle, inputs, {"y": wrong.astype(np.float32)})
        assert found.first_mismatch is not None and found.first_mismatch["expected"] == expected
        assert found.max_abs_diff == 4.0
        json.dumps(found.to_json(), allow_nan=False)


def test_text() -> None:
    model = host_model(TensorProto.STRING, "Cast", to=TensorProto.STRING)
    session, oracle = Session(model, CONFIG), Oracle(model)
    inputs = {"x": np.arange(3, dtype=np.float32)}
    outputs = session.run(inputs)
    assert compare(session, oracle, inputs, outputs).mismatches == 0
    found = compare(session, oracle, inputs, {"y": np.array(["a", "1", "2"], object)})
    assert found.first_mismatch is not None and found.first_mismatch["actual"] == "a"
    assert (found.mismatches, found.max_abs_diff) == (1, 0.0)


def test_other_models(graphs) -> None:
    model = network(graphs)
    session = Session(model, CONFIG)
    inputs = graphs.inputs_of(model)
    outputs = session.run(inputs)
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((2, 5, 24, 24)), 9))
    with pytest.raises(UsageError, match="the reference has the outputs .* they are different models"):
        compare(session, Oracle(graph.model()), inputs, outputs)
    with pytest.raises(UsageError, match="the reference has the inputs x and .* they are different models"):
        compare(session, Oracle(host_model(TensorProto.FLOAT, "Sqrt")), inputs, outputs)
    with pytest.raises(UsageError, match="ONNX Runtime refuses the reference"):
        Oracle(host_model(TensorProto.FLOAT, "Squirt"))


def test_result_as_json() -> None:
    value = Comparison("ONNX Runtime", "avx2", 1, 2, 3, 0).to_json()
    assert list(value) == [
        "reference", "host", "tensors", "tensors_total", "elements", "mismatches", "max_abs_diff", "first_mismatch",
        "defined", "by_itself",
    ]  # fmt: skip
