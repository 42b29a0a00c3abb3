"""lower: layers whose constants are the machine's, and tensors whose memory is resolved."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.compiler.exact import float32_fma
from npukit.compiler.layers import BinaryLayer, ConvLayer, GlobalAverageLayer, Subgraph
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS
from onnx import numpy_helper


def lowered(model) -> tuple[Subgraph, ...]:
    return compile_model(model, PRESETS["int8-4x4"], stop_after="lower").subgraphs


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_convolution(graphs, dtype) -> None:
    """Zero points fold into the bias, scales into one multiplier per channel; uint8 loses 128."""
    graph = graphs.Graph(dtype=dtype)
    x = graph.input((1, 3, 5, 5), zero_point=100, scale=0.03)
    y = graph.conv(x, 4, 3, strides=[2, 1], pads=[1, 0, 2, 1], zero_point=7, scale=0.5)
    graph.output(y)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializers}
    conv = next(node for node in graph.nodes if node.op_type == "Conv")
    sources = {node.output[0]: node.input for node in graph.nodes}
    weights, scale, _ = (arrays[name] for name in sources[conv.input[1]])
    bias = arrays[sources[conv.input[2]][0]]
    (subgraph,) = lowered(graph.model())
    (layer,) = subgraph.layers
    assert isinstance(layer, ConvLayer)
    zero = 100 - (128 if dtype is np.uint8 else 0)
    assert layer.pad_value == zero and layer.values["zero_point"] == 7 - (128 if dtype is np.uint8 else 0)
    assert np.array_equal(layer.channels[0], bias - zero * weights.astype(np.int64).sum(axis=(1, 2, 3)))
    assert np.array_equal(layer.channels[1], np.float32(0.03) * scale / np.float32(0.5))
    # the last of the two rows of padding below is never looked at
    assert (layer.strides, layer.pads, layer.dilations) == ((2, 1), (1, 0, 1, 1), (1, 1))
    assert layer.macs == 4 * 3 * 9 * 3 * 4
    assert subgraph.inputs == (x.name,) and subgraph.outputs == (y.name,)
    assert subgraph.tensors[x.name].unsigned == (dtype is np.uint8)


def test_bias_wraps(graphs) -> None:
    """The fold is in int32 arithmetic modulo 2**32, as the machine adds it."""
    graph = graphs.Graph()
    x = graph.input((1, 64, 5, 5), zero_point=-128)
    graph.output(graph.conv(x, 4, 3, zero_point=0))
    bias = next(tensor for tensor in graph.initializers if tensor.name.startswith("bias"))
    bias.CopyFrom(numpy_helper.from_array(np.array([2**31 - 1, -(2**31), 0, 1], np.int32), bias.name))
    model = graph.model()
    (layer,) = lowered(model)[0].layers
    assert isinstance(layer, ConvLayer)
    sums = layer.weights.astype(np.int64).sum(axis=(1, 2, 3))
    exact = np.array([2**31 - 1, -(2**31), 0, 1]) + 128 * sums
    assert np.array_equal(layer.channels[0], ((exact + 2**31) % 2**32 - 2**31).astype(np.int32))
    graphs.agree(model, "int8-4x4")


def test_addition_and_average(graphs) -> None:
    graph = graphs.Graph(dtype=np.uint8)
    a, b = graph.input((1, 4, 5, 6), 0.02, 3), graph.input((1, 4, 5, 6), 0.05, 9)
    y = graph.add(a, b, zero_point=11)
    graph.output(graph.global_average(y, scale=0.007))
    add, average = lowered(graph.model())[0].layers
    assert isinstance(add, BinaryLayer) and isinstance(average, GlobalAverageLayer)
    scale = np.float32(y.scale)
    ra, rb = np.float32(0.02) / scale, np.float32(0.05) / scale
    values = add.values
    assert (values["ra"], values["rb"], values["low"], values["high"]) == (ra, rb, 0, 255)
    assert all(values[f"{side}_unsigned"] for side in ("a", "b", "out"))
    assert values["offset"] == np.float32(11) - float32_fma(float(ra), 3, float(rb * np.float32(9)))
    assert average.values["bias"] == -(11 - 128) * 30
    assert average.values["multiplier"] == scale / (np.float32(0.007) * np.float32(30))


def test_reshaped_tensors_lie_where_they_did(graphs) -> None:
    graph = graphs.Graph()
    x = graph.conv(graph.input((2, 3, 5, 6)), 4)
    flat = graph.flatten(x)
    again = graph.flatten(flat, "Reshape")
    graph.output(graph.gemm(again, 7))
    graph.output(flat, integer=True)
    model = graph.model()
    (subgraph,) = lowered(model)
    for name in (flat.name, again.name):
        tensor = subgraph.tensors[name]
        assert (tensor.storage, tensor.view, tensor.shape) == (x.name, (2, 4, 3, 4), (2, 48))
    gemm = subgraph.layers[-1]
    assert isinstance(gemm, ConvLayer) and gemm.weights.shape == (7, 4, 3, 4)
    assert subgraph.outputs == (flat.name, gemm.output)
    graphs.agree(model, "int8-4x4")


def test_what_other_parts_need_is_an_output(graphs) -> None:
    graph = graphs.Graph()
    a = graph.conv(graph.input((1, 4, 6, 6)), 5, pads=[1] * 4)
    b = graph.conv(a, 5, pads=[1] * 4)
    h = graph.quantize(graph.node("Softmax", [graph.dequantize(b)]), 0.004, -128)
    c = graph.add(a, h)
    graph.output(c)
    first, second = lowered(graph.model())
    assert first.outputs == (a.name, b.name) and second.outputs == (c.name,)
    assert sorted(second.inputs) == sorted((a.name, h.name))
    assert (first.name, second.name) == ("npukit_0", "npukit_1")


@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)] * 3)
def test_fused_multiply_add(a, b, c) -> None:
    """Rounded once: no fp32 value is nearer to the exact result, and ties go to even."""
    result = float32_fma(a, b, c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not np.isfinite(result):
        assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
        return
    distance = abs(Fraction(float(result)) - exact)
    for neighbour in (np.nextafter(result, np.float32(-np.inf)), np.nextafter(result, np.float32(np.inf))):
        if np.isfinite(neighbour):
            other = abs(Fraction(float(neighbour)) - exact)
            assert distance < other or (distance == other and int(result.view(np.uint32)) & 1 == 0)
