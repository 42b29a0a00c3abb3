"""Concat of which a part is constant: class tokens, coordinates, padding with more than one number."""

import secrets

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import Concatenation
from npukit.compiler.pipeline import check_model, compile_model
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import Session
from npukit.compare_floats import compare_floats

SEEDS = [*range(4), pytest.param(secrets.randbelow(1 << 30), id="fresh")]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_parts_in_int8(graphs, seed: int) -> None:
    """Parts along any dimension, in the result's quantisation and in others, int8 and uint8."""
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    for _ in range(4):
        dtype = [np.int8, np.uint8][random.integers(2)]
        graph = graphs.Graph(seed=int(random.integers(1 << 20)), dtype=dtype)
        shape = [int(size) for size in random.integers(1, 20, random.integers(3, 5))]
        axis = int(random.integers(len(shape)))
        x = graph.conv(graph.input((shape[0], shape[1], shape[2], 5)), 7, 1) if len(shape) == 4 else graph.input(shape)
        shape = list(graph.shape(x.name))
        part = [*shape]
        part[axis] = int(random.integers(1, 20))
        info = np.iinfo(dtype)
        values = random.integers(info.min, info.max + 1, part).astype(dtype)
        same = bool(random.random() < 0.4)
        scale, zero = (
            (x.scale, x.zero_point) if same else (float(random.uniform(0.005, 0.05)), int(dtype(random.integers(100))))
        )
        constant = graph.dequantize(type(x)(graph.constant(values), scale, zero, dtype))
        parts = [graph.dequantize(x), constant]
        if random.random() < 0.5:
            parts.reverse()
        y = graph.quantize(graph.node("Concat", parts, axis=axis), x.scale, x.zero_point)
        graph.output(y)
        model = graph.model()
        report = check_model(model, PRESETS["int8-8x8"]).partition
        assert "Concat" not in [reason.op for reason in report.reasons], report.reasons
        graphs.agree(model, PRESETS["int8-8x8"])


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("first", [False, True])
def test_class_token_in_bf16(axis: int, first: bool) -> None:
    """Beside the rows of a product, and behind its columns, which do not end with a word."""
    random = np.random.default_rng(3)
    shape = [1, 1, 20] if axis == 1 else [1, 9, 3]
    token, weights = (
        numpy_helper.from_array(random.normal(0, 1, size).astype(np.float32), name)
        for size, name in ((shape, "token"), ((12, 20), "weights"))
    )
    parts = ["token", "y"] if first else ["y", "token"]
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["y"], "product"),
        helper.make_node("Concat", parts, ["z"], "beside", axis=axis),
        helper.make_node("Relu", ["z"], ["out"], "relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 9, 12])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [out], [token, weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    (found,) = compile_model(model, PRESETS["bf16-8x8"], stop_after="lower").graphs
    assert any(isinstance(one, Concatenation) for one in found.operations)
    session = Session(model, PRESETS["bf16-8x8"], capture=True)
    inputs = {"x": random.normal(0, 1, (1, 9, 12)).astype(np.float32)}
    result = compare_floats(session, inputs, session.run(inputs))
    assert result.mismatches == 0 and result.elements > 0, result.first_mismatch
    assert not session.offload.fallback


def test_nothing_but_constants(graphs) -> None:
    graph = graphs.Graph(seed=1)
    x = graph.input((1, 4, 3), integer=True)
    parts = [graph.dequantize(type(x)(graph.constant(np.ones((1, 2, 3), np.int8)), 0.1, 0, np.int8)) for _ in "ab"]
    y = graph.quantize(graph.node("Concat", parts, axis=1), 0.1, 0)
    graph.output(graph.add(x, y))
    report = check_model(graph.model(), PRESETS["int8-8x8"]).partition
    assert any("all of its inputs are constant" in one.reason for one in report.reasons), report.reasons
