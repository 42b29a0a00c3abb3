"""LSTM, GRU and RNN step by step: the same function as ONNX Runtime's layer, and on the machine once quantised."""

import itertools

import numpy as np
import onnx
import pytest
from npukit.driver.host import open_session, run_session
from onnx import TensorProto, helper, numpy_helper

from npukit import Session, quantize
from npukit.compare import Oracle, compare
from npukit.quantisation.recurrent import MOST_STEPS, with_steps
from npukit.sample_inputs import random_inputs

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _layer(
    op: str, direction: str = "forward", steps: int = 5, batch: int = 2, layout: int = 0, bias: bool = True,
    initial: bool = False, outputs: int = 3, hidden: int = 6, **attributes,
) -> onnx.ModelProto:  # fmt: skip
    random = np.random.default_rng(3)
    count = 2 if direction == "bidirectional" else 1
    gates = GATES[op] * hidden
    arrays = {
        "W": random.normal(0, 0.5, (count, gates, 4)), "R": random.normal(0, 0.5, (count, gates, hidden)),
        "B": random.normal(0, 0.5, (count, 2 * gates)),
    }  # fmt: skip
    if not bias:
        del arrays["B"]
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in arrays.items()]
    shape = [batch, steps, 4] if layout else [steps, batch, 4]
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)]
    names = ["X", "W", "R", "B" if bias else "", ""]
    for name in ("H", "C")[: 2 if op == "LSTM" else 1] if initial else ():
        state = [batch, count, hidden] if layout else [count, batch, hidden]
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, state))
        names.append(name)
    results = ["Y", "Y_h", "Y_c"][: min(outputs, 3 if op == "LSTM" else 2)]
    node = helper.make_node(
        op, names, results, "layer", hidden_size=hidden, direction=direction, layout=layout, **attributes
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], "graph", inputs, values, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def _run(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    given = {
        value.name: random.normal(0, 1, [dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    return run_session(open_session(model), [value.name for value in model.graph.output], given)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_the_same_function(op, direction) -> None:
    more = itertools.product((True, False), (False, True), (1, 5))
    for bias, initial, steps in more:
        for reset in (0, 1) if op == "GRU" else (None,):
            attributes = {} if reset is None else {"linear_before_reset": reset}
            model = _layer(op, direction, steps, bias=bias, initial=initial, **attributes)
            expected = _run(model)
            written = with_steps(model)
            onnx.checker.check_model(written, full_check=True)
            assert not any(node.op_type in GATES for node in written.graph.node)
            for name, value in _run(written).items():
                np.testing.assert_allclose(value, expected[name], atol=2e-6, err_msg=name)


@pytest.mark.parametrize("op", GATES)
def test_batch_first(op) -> None:
    """ONNX Runtime does not run that layout, so what it says of the other is turned round."""
    for direction, initial in (("forward", False), ("bidirectional", True)):
        expected = _run_turned(_layer(op, direction, initial=initial))
        found = _run(with_steps(_layer(op, direction, layout=1, initial=initial)))
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], atol=2e-6, err_msg=name)


def _run_turned(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """A model of the usual layout, on the inputs that `_run` gives one with the batch first."""
    turned = onnx.ModelProto()
    turned.CopyFrom(model)
    renamed = []
    for value in turned.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        renamed.append(helper.make_node("Transpose", [f"{value.name} first"], [value.name], perm=[1, 0, 2]))
        value.CopyFrom(
            helper.make_tensor_value_info(f"{value.name} first", TensorProto.FLOAT, [dims[1], dims[0], dims[2]])
        )
    nodes = [*renamed, *turned.graph.node]
    del turned.graph.node[:]
    turned.graph.node.extend(nodes)
    found = _run(turned)
    orders = {"Y": (2, 0, 1, 3), "Y_h": (1, 0, 2), "Y_c": (1, 0, 2)}
    return {name: value.transpose(orders[name]) for name, value in found.items()}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": MOST_STEPS + 1}, {"steps": MOST_STEPS // 2 + 1, "direction": "bidirectional"}, {"clip": 1.0},
        {"activations": ["Relu", "Tanh", "Tanh"]}, {"input_forget": 1},
    ],
)  # fmt: skip
def test_others_stay(change) -> None:
    model = _layer("LSTM", **change)
    assert [node.op_type for node in with_steps(model).graph.node] == ["LSTM"]


def test_weights_that_do_not_fit_stay() -> None:
    """ONNX Runtime then says what is wrong with them."""
    for name, axis in (("B", 1), ("W", 2), ("R", 0)):
        model = _layer("GRU")
        tensor = next(one for one in model.graph.initializer if one.name == name)
        wrong = np.delete(numpy_helper.to_array(tensor), 0, axis)
        tensor.CopyFrom(numpy_helper.from_array(wrong, name))
        assert [node.op_type for node in with_steps(model).graph.node] == ["GRU"]


def test_weights_that_others_read() -> None:
    """A branch of an If reads W as well; and the oldest models have their weights as inputs, too."""
    model = _layer("RNN", outputs=1)
    infos = [helper.make_tensor_value_info(one.name, 1, list(one.dims)) for one in model.graph.initializer]
    model.graph.input.extend(infos)
    branch = [helper.make_node("Identity", ["W"], ["T"])]
    results = [helper.make_tensor_value_info("T", 1, None)]
    bodies = [helper.make_graph(branch, name, [], results) for name in ("then", "else")]
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    node = helper.make_node("If", ["yes"], ["T"], then_branch=bodies[0], else_branch=bodies[1])
    model.graph.node.append(node)
    model.graph.output.append(helper.make_tensor_value_info("T", 1, [1, 6, 4]))
    written = with_steps(model)
    onnx.checker.check_model(written, full_check=True)
    assert [value.name for value in written.graph.input] == ["X", "W"]


@pytest.mark.parametrize("op", GATES)
def test_on_the_machine(op) -> None:
    """All products in one subgraph, every tensor equal to ONNX Runtime's."""
    for batch, hidden in ((1, 16), (2, 9)):
        model = quantize(_layer(op, "bidirectional", steps=4, batch=batch, hidden=hidden, outputs=1)).model
        session = Session(model, "int8-8x8", capture=True)
        inputs = random_inputs(session.artifact, session.inputs, 1)
        found = compare(session, Oracle(model), inputs, session.run(inputs))
        assert found.tensors and found.mismatches == 0, found.first_mismatch
        assert session.offload.macs == session.offload.macs_total and len(session.programs) == 1, [
            (one.op, one.reason) for one in session.offload.fallback
        ]
