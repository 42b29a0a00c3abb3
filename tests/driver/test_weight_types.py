"""Models whose weights become unsigned compute the same, and exactly, on processors of every kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.driver import host
from npukit.driver.weight_types import has_signed_activations, with_alike_weights
from onnx import TensorProto, helper, numpy_helper

SIZE = 48


def _q(x: str, y: str, kind: str = "uint8") -> onnx.NodeProto:
    return helper.make_node("QuantizeLinear", [x, "one", f"zero_{kind}"], [y])


def _dq(x: str, y: str, zero: str = "zero_uint8", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [x, "one", zero], [y], **attributes)


def _product(weights: str, before: list[onnx.NodeProto], op: str = "MatMul", **attributes: Any) -> list[onnx.NodeProto]:
    return [
        _q("x", "qx"), _dq("qx", "a"), *before, helper.make_node(op, ["a", weights], ["sum"], **attributes),
        helper.make_node("QuantizeLinear", ["sum", "far", "zero_uint8"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "far", "zero_uint8"], ["y"]),
    ]  # fmt: skip


def _plain() -> list[onnx.NodeProto]:
    return _product("wf", [_dq("w", "wf", "zero_int8")])


def _without_zero_point() -> list[onnx.NodeProto]:
    return _product("wf", [helper.make_node("DequantizeLinear", ["w", "one"], ["wf"])])


def _turned() -> list[onnx.NodeProto]:
    nodes = [_dq("w_turned", "wd", "zero_int8"), helper.make_node("Transpose", ["wd"], ["wf"], perm=[1, 0])]
    return _product("wf", nodes)


def _moved() -> list[onnx.NodeProto]:
    return _product("wf", [helper.make_node("Identity", ["w"], ["wi"]), _dq("wi", "wf", "zero_int8")])


def _from_floats() -> list[onnx.NodeProto]:
    return _product("wf", [_q("w_float", "wq", "int8"), _dq("wq", "wf", "zero_int8")])


def _gemm() -> list[onnx.NodeProto]:
    return _product("wf", [_dq("w_turned", "wf", "zero_int8")], "Gemm", transB=1)


def _channels() -> list[onnx.NodeProto]:
    scales = helper.make_node("DequantizeLinear", ["w", "ones", "zeros_int8"], ["wf"], axis=1)
    return _product("wf", [scales])


def _integers() -> list[onnx.NodeProto]:
    inputs = ["qx", "one", "zero_uint8", "w", "one", "zero_int8", "far", "zero_uint8"]
    return [_q("x", "qx"), helper.make_node("QLinearMatMul", inputs, ["qy"]),
            helper.make_node("DequantizeLinear", ["qy", "far", "zero_uint8"], ["y"])]  # fmt: skip


def _clash() -> list[onnx.NodeProto]:
    nodes = _plain()
    nodes[2].input[0] = "w"
    return [*nodes[:-1], helper.make_node("Identity", ["qy"], ["w_npukit_alike"]),
            helper.make_node("DequantizeLinear", ["w_npukit_alike", "far", "zero_uint8"], ["y"])]  # fmt: skip


FORMS: list[Callable[[], list[onnx.NodeProto]]] = [
    _plain, _without_zero_point, _turned, _moved, _from_floats, _gemm, _channels, _integers, _clash,
]  # fmt: skip


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("form", FORMS)
def test_same_sums(form: Callable[[], list[onnx.NodeProto]], opset: int) -> None:
    """No node has a name, and all numbers are extremes, whose products saturate where kernels let them."""
    random = np.random.default_rng(opset)
    w = random.choice(np.array([-128, 127], np.int8), (SIZE, SIZE))
    x = random.choice(np.array([0, 255], np.float32), (5, SIZE))
    constants = {
        "w": w, "w_turned": np.ascontiguousarray(w.T), "w_float": w.astype(np.float32), "one": np.float32(1),
        "far": np.float32(4096), "ones": np.ones(SIZE, np.float32), "zero_uint8": np.uint8(0), "zero_int8": np.int8(0),
        "zeros_int8": np.zeros(SIZE, np.int8),
    }  # fmt: skip
    nodes = form()
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if name in used],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    changed = with_alike_weights(model)
    assert not has_signed_activations(model) or form is _from_floats
    kinds = [one.data_type for one in changed.graph.initializer if "npukit_alike" in one.name and one.dims]
    assert TensorProto.UINT8 in kinds
    expected = np.clip(np.rint(x.astype(np.int64) @ w / np.float32(4096)), 0, 255) * 4096
    (found,) = host.open_session(changed).run(None, {"x": x})
    np.testing.assert_array_equal(found, expected)
    (found,) = host.open_session(model).run(None, {"x": x})
    np.testing.assert_array_equal(found, expected)


def test_what_is_no_product_stays() -> None:
    """A function of a model's own that is called like an operator, and an operator without all that it needs."""
    zeros = [numpy_helper.from_array(np.array(0, kind), f"zero_{kind}") for kind in ("uint8", "int8")]
    w = numpy_helper.from_array(np.ones((2, 2), np.int8), "w")
    constants = [*zeros, numpy_helper.from_array(np.array(1, np.float32), "one"), w]
    before = [_q("x", "qx"), _dq("qx", "a"), _dq("w", "wf", "zero_int8")]
    for domain, inputs in (("my", ["a"]), ("", ["a"]), ("my", ["a", "wf"])):
        node = helper.make_node("MatMul", inputs, ["y"], domain=domain)
        model = helper.make_model(helper.make_graph([*before, node], "g", [], [], constants))
        assert with_alike_weights(model) == model


def test_damaged_models_stay() -> None:
    """ONNX Runtime says what is wrong with them: a constant without its data, nodes without inputs, a circle."""
    constants = {"w": np.ones((2, 2), np.int8), "one": np.float32(1), "far": np.float32(4096)}
    constants |= {"zero_uint8": np.uint8(0), "zero_int8": np.int8(0)}
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    good = helper.make_model(helper.make_graph(_plain(), "g", [], [], tensors))
    assert with_alike_weights(good) != good
    empty = onnx.ModelProto()
    empty.CopyFrom(good)
    next(one for one in empty.graph.initializer if one.name == "zero_uint8").raw_data = b""
    bare = onnx.ModelProto()
    bare.CopyFrom(good)
    for node in bare.graph.node:
        if node.op_type == "DequantizeLinear":
            del node.input[:]
    circle = onnx.ModelProto()
    circle.CopyFrom(good)
    circle.graph.node[1].input[0] = "round"
    del circle.graph.node[1].input[2]
    circle.graph.node.extend(helper.make_node("Identity", [a], [b]) for a, b in (("round", "trip"), ("trip", "round")))
    for model in (empty, bare, circle):
        assert with_alike_weights(model) == model
