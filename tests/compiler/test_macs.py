"""Multiply-accumulates of every operator that has some, against counts by hand, and what is not known."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from npukit.compiler.frontends.onnx.operators.macs import macs_of
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from onnx import helper, numpy_helper


def _model(op: str, shapes: list[list[int]], domain: str = "", opset: int = 21, **attributes) -> onnx.ModelProto:
    """One node on inputs of those shapes, and another that keeps its result, whose shape ONNX infers."""
    names = [f"x{number}" for number in range(len(shapes))]
    nodes = [
        helper.make_node(op, names, ["y"], "node", domain=domain, **attributes),
        helper.make_node("Shape", ["y"], ["shape"], "shape"),
    ]
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in zip(names, shapes, strict=True)]
    results = [helper.make_tensor_value_info("shape", 7, [None])]
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, results), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "expected"),
    [
        ("Conv", [[2, 6, 9], [4, 3, 5]], {"group": 2}, 2 * 4 * 5 * 15),
        ("Conv", [[1, 3, 8, 8], [16, 3, 3, 3]], {"pads": [1, 1, 1, 1]}, 16 * 64 * 27),
        ("Conv", [[1, 3, 4, 8, 8], [16, 3, 2, 3, 3]], {}, 16 * 3 * 36 * 54),
        ("ConvTranspose", [[1, 6, 5, 5], [6, 4, 3, 3]], {"strides": [2, 2]}, 6 * 25 * 36),
        ("Gemm", [[7, 5], [5, 11]], {}, 7 * 5 * 11),
        ("Gemm", [[5, 7], [5, 11]], {"transA": 1}, 7 * 5 * 11),
        ("MatMul", [[2, 3, 7, 5], [2, 3, 5, 4]], {}, 6 * 7 * 5 * 4),
        ("MatMul", [[7, 5], [5]], {}, 35),
        ("MatMul", [[5], [5]], {}, 5),
        ("LSTM", [[6, 2, 5], [1, 4 * 3, 5], [1, 4 * 3, 3]], {"hidden_size": 3}, 6 * 2 * 12 * 8),
        (
            "GRU",
            [[6, 2, 5], [2, 3 * 3, 5], [2, 3 * 3, 3]],
            {"hidden_size": 3, "direction": "bidirectional"},
            24 * 9 * 8,
        ),
        ("RNN", [[6, 2, 5], [1, 3, 5], [1, 3, 3]], {"hidden_size": 3}, 12 * 3 * 8),
        ("Einsum", [[2, 3, 4], [2, 4, 5]], {"equation": "bij,bjk->bik"}, 2 * 3 * 4 * 5),
        ("Einsum", [[3, 4]], {"equation": "ij->ji"}, 0),
        ("DeformConv", [[1, 3, 8, 8], [16, 3, 3, 3], [1, 18, 6, 6]], {}, 16 * 36 * 27),
        ("Relu", [[3, 4]], {}, 0),
    ],
)
def test_counts_by_hand(op, shapes, attributes, expected) -> None:
    partition = check_model(_model(op, shapes, **attributes), PRESETS["int8-16x16"]).partition
    assert (partition.macs, partition.macs_total, partition.macs_unknown) == (0, expected, 0)
    assert [reason.macs for reason in partition.reasons] == [expected, 0]


def test_recurrent_layers_with_turned_weights() -> None:
    """ONNX Runtime's dynamic quantiser makes them, with scales and zero points behind."""
    shapes = [[6, 2, 5], [1, 5, 4 * 3], [1, 3, 4 * 3]]
    inputs = [ir.Value(name=f"x{number}", shape=ir.Shape(shape)) for number, shape in enumerate(shapes)]
    node = ir.node("DynamicQuantizeLSTM", inputs, {"hidden_size": 3}, domain="com.microsoft")
    assert macs_of(node) == 6 * 2 * 12 * 8


def test_attention_in_both_domains() -> None:
    model = _model("Attention", [[2, 4, 10, 8], [2, 4, 12, 8], [2, 4, 12, 6]], opset=23)
    assert check_model(model, PRESETS["int8-16x16"]).partition.macs_total == 2 * 4 * 10 * 12 * (8 + 6)
    model = _model("Attention", [[2, 10, 8], [8, 3 * 12], [36]], domain="com.microsoft", num_heads=3)
    # the projection, then scores and their products with values
    assert check_model(model, PRESETS["int8-16x16"]).partition.macs_total == 20 * 8 * 36 + 2 * 2 * 10 * 10 * 12


def _branch(name: str, columns: int) -> onnx.GraphProto:
    weights = numpy_helper.from_array(np.ones((4, columns), np.float32), f"{name}_w")
    rows = numpy_helper.from_array(np.ones((columns, 2), np.float32), f"{name}_r")
    nodes = [
        helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_t"], f"{name}_first"),
        helper.make_node("MatMul", [f"{name}_t", f"{name}_r"], [f"{name}_y"], f"{name}_second"),
    ]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, [3, 2])], [weights, rows])


def _loop_body() -> onnx.GraphProto:
    """A product of 3x4 with 4x4 in each run."""
    return helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], "product"),
            helper.make_node("Identity", ["going"], ["on"], "on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("going", 9, []),
            helper.make_tensor_value_info("state", 1, [3, 4]),
        ],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("next", 1, [3, 4])],
        [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")],
    )


def test_of_branches_the_larger_counts_and_of_loops_every_run() -> None:
    inputs = [helper.make_tensor_value_info("x", 1, [3, 4]), helper.make_tensor_value_info("c", 9, [])]
    node = helper.make_node("If", ["c"], ["y"], "if", then_branch=_branch("a", 5), else_branch=_branch("b", 7))
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, [3, 2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert check_model(model, PRESETS["int8-16x16"]).partition.macs_total == 3 * 4 * 7 + 3 * 7 * 2

    body = _loop_body()
    for constant, expected in ((True, (6 * 3 * 4 * 4, 0)), (False, (0, 1))):
        loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)
        trips = numpy_helper.from_array(np.array(6, np.int64), "trips")
        given = [] if constant else [helper.make_tensor_value_info("trips", 7, [])]
        graph = helper.make_graph(
            [loop],
            "g",
            [inputs[0], *given],
            [helper.make_tensor_value_info("y", 1, [3, 4])],
            [trips] if constant else [],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        partition = check_model(model, PRESETS["int8-16x16"]).partition
        assert (partition.macs_total, partition.macs_unknown) == expected, "a loop whose runs are counted while it runs"


def test_a_shape_that_is_not_known() -> None:
    """As many rows as there are nonzero elements."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"], "nonzero"),
        helper.make_node("Cast", ["found"], ["floats"], "cast", to=1),
        helper.make_node("MatMul", ["w", "floats"], ["y"], "product"),
    ]
    weights = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [3, 4])], [helper.make_tensor_value_info("y", 1, [3, None])],
        [weights],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    partition = check_model(model, PRESETS["int8-16x16"]).partition
    assert (partition.macs_total, partition.macs_unknown) == (0, 1)
    assert {reason.node: reason.macs for reason in partition.reasons}["product"] is None
    assert [macs_of(node) for node in partition.model.graph] == [0, 0, None]


def test_a_loop_that_a_condition_may_end() -> None:
    """Exporters write `while` so, with more runs than anyone waits for."""
    body = _loop_body()
    loop = helper.make_node("Loop", ["trips", "c", "x"], ["y"], "loop", body=body)
    inputs = [helper.make_tensor_value_info("x", 1, [3, 4]), helper.make_tensor_value_info("c", 9, [])]
    trips = numpy_helper.from_array(np.array(np.iinfo(np.int64).max), "trips")
    graph = helper.make_graph([loop], "g", inputs, [helper.make_tensor_value_info("y", 1, [3, 4])], [trips])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    partition = check_model(model, PRESETS["int8-16x16"]).partition
    assert (partition.macs_total, partition.macs_unknown) == (0, 1)
