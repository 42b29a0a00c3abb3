"""`npukit.backend`: ONNX's own interface."""

from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from onnx import TensorProto, helper

import npukit.backend as backend
from npukit.errors import UsageError


def _relu(shape: list[int | str]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    outputs = [value("y", TensorProto.FLOAT, shape), value("z", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "graph", [value("x", TensorProto.FLOAT, shape)], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_inputs_and_outputs() -> None:
    x = np.array([[-1, 2]], np.float32)
    rep = backend.prepare(_relu([1, 2]))
    for given in (x, [x], (x,), {"x": x}):
        outputs: Any = rep.run(given)
        assert outputs[0].tolist() == [[0, 2]] and outputs.z.tolist() == [[0, -2]] and outputs["y"] is outputs[0]
    assert backend.run(_relu([1, 2]), [x])[1].tolist() == [[0, -2]]
    with pytest.raises(UsageError, match="the model has 1 inputs \\(x\\), not 2"):
        rep.run([x, x])
    with pytest.raises(UsageError, match="the model has the inputs x, not y"):
        rep.run({"y": x})
    with pytest.raises(UsageError, match="run takes inputs alone, not verbose"):
        rep.run(x, verbose=True)


def test_quantised_model_on_the_accelerator(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 4, 6, 6)), 8))
    model = graph.model()
    rep = backend.prepare(model, config="int8-4x4", optimize=0)
    assert rep.offload is not None and rep.offload.nodes and rep.refusal is None
    (found,) = rep.run(graphs.inputs_of(model)[model.graph.input[0].name])
    assert found.shape == (1, 8, 4, 4)
    rep.close()


def test_open_shapes() -> None:
    """Each set of shapes is compiled once; the oldest is given up."""
    rep = backend.prepare(_relu(["batch", 2]))
    assert rep.offload is None
    for batch in (*range(1, backend.KEPT + 3), 1):
        assert rep.run(np.ones((batch, 2), np.float32))[0].shape == (batch, 2)
    assert len(rep._sessions) == backend.KEPT


def test_options() -> None:
    with pytest.raises(UsageError, match="the options are config, accelerator, .*, not colour"):
        backend.prepare(_relu([1, 2]), colour="red")
    with pytest.raises(UsageError, match="the devices are CPU and CUDA, on which the fallback runs, not TPU"):
        backend.prepare(_relu([1, 2]), "TPU")
    assert backend.supports_device("CPU") and not backend.supports_device("TPU")
    assert backend.is_compatible(_relu([1, 2])) and not backend.is_compatible(_relu([1, 2]), "TPU")


def test_what_the_kit_does_not_take_in() -> None:
    """ONNX Runtime runs the whole model, and says why; what it refuses is refused with both reasons."""
    rep = backend.prepare(_relu([0, 2]))
    assert rep.refusal is not None and "no elements" in rep.refusal and rep.offload is None
    assert rep.run(np.ones((0, 2), np.float32))[1].shape == (0, 2)
    wrong = _relu([1, 2])
    wrong.graph.node[0].op_type = "Nothing"
    with pytest.raises(ModelError, match="ONNX Runtime refuses it as well"):
        backend.prepare(wrong)


def test_a_bad_input_changes_nothing_for_later_ones(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 4, 6, 6)), 8))
    model = graph.model()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    rep = backend.prepare(model, config="int8-4x4")
    for shape in ((0, 4, 6, 6), (4, 6, 6)):
        if len(shape) == 4:
            assert rep.run(np.zeros(shape, np.float32))[0].shape == (0, 8, 4, 4) and rep.refusal
        else:
            with pytest.raises(UsageError, match="has 4 dimensions; given is \\[4, 6, 6\\]"):
                rep.run(np.zeros(shape, np.float32))
        rep.run(np.ones((2, 4, 6, 6), np.float32))
        assert rep.refusal is None and rep.offload is not None and rep.offload.nodes


def test_odd_arguments() -> None:
    for wrong in (None, 3):
        with pytest.raises(UsageError, match="a model is a ModelProto, its bytes, or a path, not"):
            backend.prepare(wrong)  # type: ignore[arg-type]
    assert backend.prepare(_relu([1, 2]).SerializeToString()).run(np.array([[-1, 2]], np.float32))[0].sum() == 2
    rep = backend.prepare(_relu(["N", 2]))
    with pytest.raises(UsageError, match="input x is no array"):
        rep.run([[[1, 2], [3]]])
    with pytest.raises(UsageError, match="input x has 2 dimensions; given is nothing"):
        rep.run([None])


def test_one_node() -> None:
    a, b = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    node = helper.make_node("Add", ["a", "b"], ["sum"])
    assert backend.run_node(node, [a, b])[0].tolist() == [4, 7]
    assert backend.run_node(node, {"b": b, "a": a}, opset_version=13)[0].tolist() == [4, 7]
    assert backend.run_node(node, [a, b], outputs_info=[(np.dtype(np.float32), (2,))])[0].tolist() == [4, 7]
    with pytest.raises(UsageError, match="the node has 2 inputs \\(a, b\\), not 1"):
        backend.run_node(node, [a])
    with pytest.raises(UsageError, match="the node has the input b, which is not given"):
        backend.run_node(node, {"a": a})
    with pytest.raises(UsageError, match="the node has 1 outputs, and outputs_info 2"):
        backend.run_node(node, [a, b], outputs_info=[(np.dtype(np.float32), (2,))] * 2)
    assert backend.run_node(helper.make_node("Add", ["a", "a"], ["sum"]), [a, a])[0].tolist() == [2, 4]
    assert backend.run_node(helper.make_node("Neg", ["a"], ["b"]), np.float32(-2))[0] == 2
    gelu = helper.make_node("Gelu", ["a"], ["b"], domain="com.microsoft")
    assert backend.run_node(gelu, a, outputs_info=[(np.dtype(np.float32), (2,))])[0][1] > 1.9
