"""Functions of one element, by tables that ONNX Runtime computes."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.compiler.frontends.onnx.operators import tables
from npukit.compiler.ir.tensor import Quantization, Tensor
from npukit.compiler.pipeline import check_model, compile_model
from npukit.driver.host import open_session, run_session
from npukit.isa.config import PRESETS
from npukit.isa.formats import INT8, UINT8
from onnx import helper, numpy_helper

SMALL = PRESETS["int8-4x4"]


def reason(model, op: str) -> str:
    """Why the one node of an operator stays."""
    (found,) = [one.reason for one in check_model(model, SMALL).partition.reasons if one.op == op]
    return found


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_chains(graphs, dtype) -> None:
    """Gelu as exporters write it, x * sigmoid(x), and a function of a matrix."""
    graph = graphs.Graph(dtype=dtype)
    x = graph.input((2, 5, 6, 7))
    value = graph.dequantize(x)
    half = graph.constant(np.float32(0.5))
    root = graph.node("Erf", [graph.node("Div", [value, graph.constant(np.float32(1.4142135))])])
    inner = graph.node("Mul", [value, graph.node("Add", [root, graph.constant(np.ones((1, 1, 1, 1), np.float32))])])
    y = graph.quantize(graph.node("Mul", [inner, half]), 0.02)
    value = graph.dequantize(y)
    y = graph.quantize(graph.node("Mul", [value, graph.node("Sigmoid", [value])]), 0.01)
    graph.output(y)
    graph.output(graph.unary("Tanh", graph.input((3, 11)), 0.008))
    graphs.agree(graph.model(), SMALL, runs=2)


def test_what_no_table_holds(graphs) -> None:
    graph = graphs.Graph()
    a, b = (graph.dequantize(graph.input((1, 4, 8, 8))) for _ in "ab")
    graph.output(graph.quantize(graph.node("Sub", [a, b]), 0.04))
    assert reason(graph.model(), "Sub").startswith("it combines q_4, q_")
    graph = graphs.Graph()
    value = graph.dequantize(graph.input((1, 4, 8, 8)))
    slopes = graph.constant(np.linspace(0.1, 0.4, 4, dtype=np.float32).reshape(4, 1, 1))
    graph.output(graph.quantize(graph.node("PRelu", [value, slopes]), 0.02))
    assert reason(graph.model(), "PRelu").endswith("has 4 elements; a table takes single numbers")
    graph = graphs.Graph()
    value = graph.dequantize(graph.input((1, 4, 8, 8)))
    inner = graph.node("Sigmoid", [value])
    graph.output(graph.quantize(graph.node("Mul", [value, inner]), 0.02))
    graph.output_value(inner)
    assert reason(graph.model(), "Mul").endswith("is used elsewhere, too")
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Mul", "Sigmoid"}, subgraphs=0)


@pytest.mark.parametrize("chain", [("Sigmoid", "Relu"), ("Abs", "Relu"), ("Relu", "Relu"), ("Neg", "Clip")])
def test_limits_behind_a_table(graphs, chain) -> None:
    graph = graphs.Graph()
    value = graph.node(chain[0], [graph.dequantize(graph.input((1, 4, 6, 6)))])
    limits = [graph.constant(np.float32(limit)) for limit in (0.1, 0.9)] if chain[1] == "Clip" else []
    graph.output(graph.quantize(graph.node(chain[1], [value, *limits]), 1 / 255, -128))
    x = graph.input((1, 4, 6, 6))
    value = graph.dequantize(x)
    graph.output(graph.quantize(graph.node("Relu", [graph.node("Add", [value, value])]), 0.02, -128))
    graphs.agree(graph.model(), SMALL)


def test_table_that_depends_on_the_place(graphs) -> None:
    """Elu at a value next to a tie: ONNX Runtime's vector kernel and its remainder differ."""
    graph = graphs.Graph()
    x = graph.input((1, 1, 1, 1), float(np.float32(0.1)), 3, integer=True)
    graph.output(
        graph.quantize(graph.node("Elu", [graph.dequantize(x)]), float(np.float32(0.06344172)), 0), integer=True
    )
    assert "depends on the element's place" in reason(graph.model(), "Elu")


def test_one_session_for_all_chains(graphs, monkeypatch) -> None:
    opened = []
    monkeypatch.setattr(tables, "open_session", lambda model: opened.append(model) or open_session(model))
    graph = graphs.Graph()
    x = graph.input((1, 5, 6, 7))
    for operator in ("Tanh", "Sigmoid", "Softplus"):
        x = graph.unary(operator, x, 0.01)
    graph.output(graph.concat([x, graph.input((1, 5, 6, 7), 0.03)], 1))
    compile_model(graph.model(), SMALL)
    assert len(opened) == 1


def chain(operator: str) -> tables.Chain:
    """A function of an int8 tensor, one scale before and behind it."""
    tensor = Tensor("x", (1, 4, 5, 5), INT8, Quantization((0.02,), (3,)))
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["f"]),
        helper.make_node(operator, ["f"], ["g"]),
        helper.make_node("QuantizeLinear", ["g", "scale", "zero"], ["y"]),
    )
    constants = {"scale": np.array(0.02, np.float32), "zero": np.array(3, np.int8)}
    return tables.Chain(nodes, constants, "x", "y", tensor, replace(tensor, name="y"))


def test_a_chain_that_is_refused_leaves_the_others_their_tables() -> None:
    made = tables.tables_of([chain("Tanh"), chain("Unheard"), chain("Sigmoid")], {"": 18})
    assert [table.entries is None for table in made] == [False, True, False], made
    assert "Unheard" in made[1].problem
    for table, operator in ((made[0], "Tanh"), (made[2], "Sigmoid")):
        (alone,) = tables.tables_of([chain(operator)], {"": 18})
        assert np.array_equal(tables.entries_of(table), tables.entries_of(alone))


SCALES = st.one_of(
    st.sampled_from([2.0**power for power in range(-12, 3)]),
    st.floats(0.001, 0.3),
    st.floats(1e-37, 1e37),
)


@st.composite
def quantised(draw, name: str) -> Tensor:
    """A vector of any format, scale and zero point."""
    one = draw(st.sampled_from([INT8, UINT8]))
    scale, zero_point = np.float32(draw(SCALES)), draw(st.integers(one.stored.start, one.stored.stop - 1))
    return Tensor(name, (1, 256), one, Quantization((float(scale),), (zero_point,)))


@st.composite
def two_quantised(draw) -> tuple[Tensor, Tensor]:
    """Two of them, for half of the cases with scales between which numbers lie next to ties."""
    x, y = draw(quantised("x")), draw(quantised("y"))
    if draw(st.booleans()):
        scale = np.float32(x.scale * draw(st.integers(1, 16)) / draw(st.integers(1, 64)))
        y = replace(y, quantization=Quantization((float(scale),), (y.zero_point,)))
    return x, y


def requantiser(x: Tensor, y: Tensor) -> onnx.ModelProto:
    """DequantizeLinear and QuantizeLinear, from one tensor's numbers to the other's."""
    constants = []
    for one in (x, y):
        constants.append(numpy_helper.from_array(np.array(one.scale, np.float32), f"{one.name}_scale"))
        constants.append(numpy_helper.from_array(np.array(one.zero_point, one.format.storage), f"{one.name}_zero"))
    x_type, y_type = (helper.np_dtype_to_tensor_dtype(np.dtype(one.format.storage)) for one in (x, y))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "y_scale", "y_zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "requantise",
        [helper.make_tensor_value_info("x", x_type, x.shape)],
        [helper.make_tensor_value_info("y", y_type, y.shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@given(pair=two_quantised())
def test_requantising_is_onnx_runtimes(pair) -> None:
    x, y = pair
    table = tables.requantising_table(x, y)
    values = np.array(x.format.stored, x.format.storage).reshape(x.shape)
    entries = values if table is None else table.data.reshape(y.shape)
    assert np.array_equal(entries, run_session(open_session(requantiser(x, y)), ["y"], {"x": values})["y"])
