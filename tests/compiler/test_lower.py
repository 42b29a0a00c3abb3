"""lower and legalise: a graph of the model's numbers, and what the machine computes with."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.compiler.arithmetic import (
    channel_parameters,
    elementwise_descriptor,
    requantize_descriptor,
    sum_descriptor,
    weights_of,
    window_border,
)
from npukit.compiler.exact import float32_fma
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Add, Convolution, FullyConnected, GlobalAveragePool, Reshape, SourceNode
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Operation
from onnx import numpy_helper

CONFIG = PRESETS["int8-4x4"]


def lowered(model, stage: str = "lower") -> tuple[Graph, ...]:
    return compile_model(model, CONFIG, stop_after=stage).graphs


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_convolution(graphs, dtype) -> None:
    """The IR has the model's numbers; the machine's have zero points folded, and uint8 loses 128."""
    graph = graphs.Graph(dtype=dtype)
    x = graph.input((1, 3, 5, 5), zero_point=100, scale=0.03)
    y = graph.conv(x, 4, 3, strides=[2, 1], pads=[1, 0, 2, 1], zero_point=7, scale=0.5)
    graph.output(y)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializers}
    conv = next(node for node in graph.nodes if node.op_type == "Conv")
    sources = {node.output[0]: node.input for node in graph.nodes}
    weights, scale, _ = (arrays[name] for name in sources[conv.input[1]])
    bias = arrays[sources[conv.input[2]][0]]
    (found,) = lowered(graph.model())
    (layer,) = found.operations
    assert isinstance(layer, Convolution) and layer.sources[0] == SourceNode(conv.name, "Conv")
    kernel = found.constants[layer.weights]
    assert np.array_equal(kernel.data, weights) and kernel.tensor.quantization is not None
    assert kernel.tensor.quantization.scale == tuple(map(float, scale)) and kernel.tensor.quantization.axis == 0
    for tensor, parameters in ((x, (0.03, 100)), (y, (0.5, 7))):
        made = found.tensors[tensor.name]
        assert made.format.storage is dtype and (made.scale, made.zero_point) == (
            float(np.float32(parameters[0])),
            parameters[1],
        )
    zero = 100 - (128 if dtype is np.uint8 else 0)
    assert window_border(found, layer) == zero
    assert requantize_descriptor(found, layer) == {
        "zero_point": 7 - (128 if dtype is np.uint8 else 0), "low": -128, "high": 127,
    }  # fmt: skip
    folded, multipliers = channel_parameters(found, layer)
    assert np.array_equal(folded, bias - zero * weights.astype(np.int64).sum(axis=(1, 2, 3)))
    assert np.array_equal(multipliers, np.float32(0.03) * scale / np.float32(0.5))
    # the last of the two rows of padding below is never looked at
    assert (layer.strides, layer.pads, layer.dilations) == ((2, 1), (1, 0, 1, 1), (1, 1))
    assert found.macs(layer) == 4 * 3 * 9 * 3 * 4
    assert found.inputs == (x.name,) and found.outputs == (y.name,)


def test_bias_wraps(graphs) -> None:
    """The fold is in int32 arithmetic modulo 2**32, as the machine adds it."""
    graph = graphs.Graph()
    x = graph.input((1, 64, 5, 5), zero_point=-128)
    graph.output(graph.conv(x, 4, 3, zero_point=0))
    bias = next(tensor for tensor in graph.initializers if tensor.name.startswith("bias"))
    bias.CopyFrom(numpy_helper.from_array(np.array([2**31 - 1, -(2**31), 0, 1], np.int32), bias.name))
    model = graph.model()
    (found,) = lowered(model)
    (layer,) = found.operations
    assert isinstance(layer, Convolution)
    sums = weights_of(found.constants[layer.weights]).astype(np.int64).sum(axis=(1, 2, 3))
    exact = np.array([2**31 - 1, -(2**31), 0, 1]) + 128 * sums
    assert np.array_equal(channel_parameters(found, layer)[0], ((exact + 2**31) % 2**32 - 2**31).astype(np.int32))
    graphs.agree(model, "int8-4x4")


def test_addition_and_average(graphs) -> None:
    graph = graphs.Graph(dtype=np.uint8)
    a, b = graph.input((1, 4, 5, 6), 0.02, 3), graph.input((1, 4, 5, 6), 0.05, 9)
    y = graph.add(a, b, zero_point=11)
    graph.output(graph.global_average(y, scale=0.007))
    (found,) = lowered(graph.model())
    addition, average = found.operations
    assert isinstance(addition, Add) and isinstance(average, GlobalAveragePool)
    scale = np.float32(y.scale)
    ra, rb = np.float32(0.02) / scale, np.float32(0.05) / scale
    operation, values = elementwise_descriptor(found, addition)
    assert operation is Operation.ADD
    assert (values["ra"], values["rb"], values["low"], values["high"]) == (ra, rb, 0, 255)
    assert all(values[f"{side}_unsigned"] for side in ("a", "b", "out"))
    assert values["offset"] == np.float32(11) - float32_fma(float(ra), 3, float(rb * np.float32(9)))
    values = sum_descriptor(found, average, 30, 30)
    assert values["bias"] == -(11 - 128) * 30
    assert values["multiplier"] == scale / (np.float32(0.007) * np.float32(30))


def test_reshaped_tensors_lie_where_they_did(graphs) -> None:
    """A reshape is an operation of the model, and for the machine a place; what reads it is a convolution there."""
    graph = graphs.Graph()
    x = graph.conv(graph.input((2, 3, 5, 6)), 4)
    flat = graph.flatten(x)
    again = graph.flatten(flat, "Reshape")
    graph.output(graph.gemm(again, 7))
    graph.output(flat, integer=True)
    model = graph.model()
    (found,) = lowered(model)
    assert [type(one) for one in found.operations] == [Convolution, Reshape, Reshape, FullyConnected]
    (legal,) = lowered(model, "legalise")
    for name in (flat.name, again.name):
        tensor = legal.tensors[name]
        assert (tensor.storage, tensor.view, tensor.shape) == (x.name, (2, 4, 3, 4), (2, 48))
    gemm = legal.operations[-1]
    assert isinstance(gemm, Convolution) and legal.tensor(gemm.weights).shape == (7, 4, 3, 4)
    assert len(legal.operations) == 2 and legal.macs(gemm) == found.macs(found.operations[-1]) == 2 * 7 * 48
    assert legal.outputs == (flat.name, gemm.output)
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


def test_constants_that_share_a_name(graphs) -> None:
    """A bias of one number is broadcast for each product that reads it, to as many outputs as that has."""
    graph = graphs.Graph(seed=2)
    x = graph.input((3, 6))
    first = graph.gemm(x, 5)
    second = graph.gemm(first, 7)
    graph.output(second)
    model = graph.model()
    products = [node for node in model.graph.node if node.op_type == "Gemm"]
    shared = products[0].input[2]
    bias = next(node for node in model.graph.node if node.output[0] == shared)
    array = next(tensor for tensor in model.graph.initializer if tensor.name == bias.input[0])
    array.CopyFrom(numpy_helper.from_array(np.array([37], np.int32), array.name))
    products[1].input[2] = shared
    (found,) = lowered(model)
    biases = [one.bias for one in found.operations if isinstance(one, FullyConnected)]
    assert [found.tensor(name or "").shape for name in biases] == [(5,), (7,)]


def test_a_tensor_that_is_called_like_a_table(graphs) -> None:
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 4, 5, 5))
    y = graph.unary("Tanh", x, 0.008)
    other = graph.conv(y, 4, 3)
    graph.output(other)
    model = graph.model()
    graphs.rename_value(model, other.name, f"{x.name} to {y.name}")
    (found,) = lowered(model)
    assert not set(found.constants) & set(found.tensors)
    graphs.agree(model, "int8-4x4")


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
