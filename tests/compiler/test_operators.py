"""Operators at their limits, each equal to ONNX Runtime bit for bit; random ones are in `random_graphs.py`."""

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import Convolution, DepthwiseConvolution
from npukit.compiler.pipeline import check_model, compile_model
from npukit.compiler.schedule.conv import summands
from npukit.isa.config import PRESETS
from onnx import helper

from npukit.session import Session

SMALL = PRESETS["int8-4x4"]
FEW_PARAMETERS = replace(SMALL, par_depth=64)


def reason(model, op: str, config=SMALL) -> str:
    """Why the one node of an operator stays."""
    (found,) = [one.reason for one in check_model(model, config).partition.reasons if one.op == op]
    return found


# ---- convolutions


@pytest.mark.parametrize(
    ("channels", "out", "group", "kernel", "config", "kind"),
    [
        (40, 40, 40, (3, 3), SMALL, DepthwiseConvolution),
        (90, 90, 90, (7, 7), FEW_PARAMETERS, DepthwiseConvolution),  # a block's parameters are 15 words of 64
        (6, 6, 6, (9, 3), SMALL, Convolution),  # larger than max_window
        (6, 18, 6, (3, 3), SMALL, Convolution),  # three outputs a channel
        (24, 12, 4, (3, 2), SMALL, Convolution),  # groups of 6 and 3, which straddle words
        (32, 32, 2, (1, 1), PRESETS["int8-16x16"], Convolution),
        (10, 15, 5, (5, 5), PRESETS["int8-16x16"], Convolution),
    ],
)
def test_groups(graphs, channels, out, group, kernel, config, kind) -> None:
    graph = graphs.Graph(seed=channels)
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    graph.output(graph.conv(graph.input((2, channels, 11, 10)), out, kernel, group=group, pads=pads, relu=True))
    model = graph.model()
    (subgraph,) = compile_model(model, config, stop_after="legalise").graphs
    assert [type(layer) for layer in subgraph.operations] == [kind]
    graphs.agree(model, config)


@pytest.mark.parametrize("options", [{}, {"strides": [2, 1]}, {"group": 3}, {"weight_zero": 100, "per_channel": False}])
@pytest.mark.parametrize("banks", [1, 4])
def test_windows_larger_than_a_bank(graphs, options, banks) -> None:
    """The input comes once for each row of the kernel, of which it has what that row sees."""
    config = replace(SMALL, act_depth=256, act_banks=banks)
    graph = graphs.Graph(dtype=np.uint8)
    x = graph.conv(graph.input((2, 9, 14, 15)), 6)
    x = graph.conv(x, 9, 3, dilations=[9, 10], pads=[9, 10, 9, 10], **options)
    graph.output(graph.conv(x, 5))
    graphs.agree(graph.model(), config)


def test_an_image_larger_than_a_bank_is_a_kernel(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.gemm(graph.flatten(graph.conv(graph.input((2, 3, 20, 21)), 5)), 6))
    graphs.agree(graph.model(), replace(SMALL, act_depth=256))


@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize("shape", [(2, 1, 6, 5), (1, 1, 6, 1), (2, 1, 1, 1)])
def test_a_tensor_repeats_along_channels(graphs, op, shape) -> None:
    """Its channel comes to all lanes by products with 1, which are not counted as the model's."""
    for dtype in (np.int8, np.uint8):
        graph = graphs.Graph(dtype=dtype)
        x, gate = graph.input((2, 11, 6, 5)), graph.input(shape)
        graph.output(getattr(graph, op)(x, gate))
        session, _ = graphs.agree(graph.model(), SMALL)
        assert session.profile.macs == 0


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 2), (1, 3), (4, 3)])
def test_depthwise_strides_and_dilations(graphs, stride, dilation) -> None:
    graph = graphs.Graph(seed=stride * 10 + dilation, dtype=np.uint8)
    x = graph.input((1, 9, 17, 19))
    options = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [2, 1, 0, 3]}
    graph.output(graph.conv(x, 9, 3, group=9, **options))
    graphs.agree(graph.model(), SMALL, runs=2)


@pytest.mark.parametrize("zero_point", [0, 1, 100, 127, 128, 254, 255])
@pytest.mark.parametrize("group", [1, 5])
def test_uint8_weights(graphs, zero_point, group) -> None:
    """Less their zero point they have 9 bits, and run as sums of int8 tiles."""
    graph = graphs.Graph(seed=zero_point, dtype=np.uint8)
    y = graph.conv(graph.input((1, 5, 7, 6)), 5, 3, group=group, weight_zero=zero_point, per_channel=False)
    graph.output(graph.conv(y, 6, 1, weight_zero=zero_point, per_channel=False))
    graphs.agree(graph.model(), SMALL, runs=2)


def test_summands() -> None:
    values = np.arange(-255, 256, dtype=np.int16)
    parts = summands(values)
    assert all(part.dtype == np.int8 for part in parts) and len(parts) == 3
    assert np.array_equal(sum(part.astype(int) for part in parts), values)
    assert len(summands(np.array([-128, 127], np.int16))) == 1
    assert len(summands(np.array([-255, 254], np.int16))) == 2


def test_clip_that_its_quantiser_absorbs(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8))
    graph.output(graph.conv(x, 6, clip=(0.0, 6.0), scale=6 / 255, zero_point=-128))
    graphs.agree(graph.model(), SMALL)
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8))
    graph.output(graph.conv(x, 6, clip=(0.0, 5.0), scale=6 / 255, zero_point=-128))
    found = reason(graph.model(), "Conv")
    assert found.startswith("Clip Clip:") and "holds 0 to 6, the limits are 0 and 5" in found
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv", "Clip"}, subgraphs=0)


# ---- two operands


@pytest.mark.sample(16)
@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (6, 1, 1), (1, 6, 1, 1), (2, 1, 5, 7), (1, 1, 1, 7), (6, 5, 1)])
def test_constants(graphs, op, dtype, first, shape) -> None:
    graph = graphs.Graph(seed=3, dtype=dtype)
    graph.output(graph.constant_operand(op, graph.input((2, 6, 5, 7)), shape, first))
    graphs.agree(graph.model(), SMALL)


@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize("shape", [(2, 6, 1, 1), (1, 6, 5, 7), (1, 6, 1, 1), (2, 6, 1, 7), (2, 6, 5, 1)])
@pytest.mark.parametrize("swapped", [False, True])
def test_repetition(graphs, op, shape, swapped) -> None:
    graph = graphs.Graph(seed=4, dtype=np.uint8)
    operands = [graph.input((2, 6, 5, 7)), graph.input(shape, 0.033)]
    graph.output(getattr(graph, op)(*(operands[::-1] if swapped else operands)))
    graphs.agree(graph.model(), SMALL, runs=2)


# ---- pools


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_average(graphs, include, dtype) -> None:
    """With padding, windows at the border have fewer elements, or not."""
    graph = graphs.Graph(seed=5, dtype=dtype)
    x = graph.input((2, 9, 13, 10))
    graph.output(graph.average(x, (3, 3), x.scale, strides=[2, 1], pads=[1] * 4, count_include_pad=include))
    graph.output(graph.average(x, (5, 1), x.scale))
    model = graph.model()
    # without the padding, windows of 4 and 6 elements have averages that end in a half
    stays = {*graphs.EDGES, "AveragePool"} if not include else graphs.EDGES
    graphs.agree(model, SMALL, stays=stays)


def test_average_on_the_boundary(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8), 0.03)
    graph.output(graph.average(x, (2, 2), x.scale))
    assert "averages of 4 elements from scale 0.03 to 0.03 can lie on the boundary" in reason(
        graph.model(), "AveragePool"
    )
    graph = graphs.Graph()
    graph.output(graph.average(graph.input((1, 4, 8, 8), 2.0**-5), (2, 2), 2.0**-5))  # nothing is rounded early
    graphs.agree(graph.model(), SMALL, runs=3)


# ---- movement


@pytest.mark.parametrize("channels", [(4, 8, 3), (3, 5, 1, 9), (1, 1, 1, 1, 1), (17, 4)])
@pytest.mark.parametrize("same", [False, True])
def test_concat_along_channels(graphs, channels, same) -> None:
    graph = graphs.Graph(seed=6)
    parts = [graph.input((2, count, 5, 6), 0.02 if same else 0.01 * (k + 1), 3) for k, count in enumerate(channels)]
    graph.output(graph.conv(graph.concat(parts, 1, same), 5))
    graphs.agree(graph.model(), SMALL)


@pytest.mark.parametrize("axis", [0, 2, 3, -1])
def test_concat_along_other_axes(graphs, axis) -> None:
    graph = graphs.Graph(seed=7, dtype=np.uint8)
    shapes = [[2, 5, 4, 6] for _ in range(3)]
    for k, shape in enumerate(shapes):
        shape[axis] += k
    graph.output(graph.concat([graph.input(shape, 0.02 + 0.01 * k) for k, shape in enumerate(shapes)], axis))
    graphs.agree(graph.model(), SMALL)


def test_padding_and_cutting(graphs) -> None:
    graph = graphs.Graph(seed=8)
    x = graph.input((2, 9, 6, 7), zero_point=5)
    y = graph.moved("Pad", x, [np.array([0, 0, 31, 2, 0, 0, 1, 30]), np.array(0.7, np.float32)])
    y = graph.moved("Slice", y, [np.array([20, -9]), np.array([34, 999]), np.array([2, 3])])
    graph.output(y)
    graph.output(graph.moved("Pad", x, [np.array([0, 0, -1, -2, 0, 0, 3, -1]), None]))
    graph.output(graph.moved("Slice", x, [np.array([4]), np.array([9]), np.array([1])]))
    graph.output(graph.moved("Slice", x, [np.array([2, 1, 3]), np.array([8, 5, 6]), np.array([1, 2, 3])]))
    graphs.agree(graph.model(), SMALL)


@pytest.mark.parametrize("first", ["own", "other"])
def test_readings_of_an_input(graphs, first: str) -> None:
    """Whichever DequantizeLinear comes first in the graph, and whoever else reads its floats."""
    graph = graphs.Graph(seed=5)
    x = graph.input((1, 4, 6, 6), 0.02, 3, integer=True)
    other = graphs.Quantized(x.name, 0.05, -7, x.dtype)
    readers = [x, other] if first == "own" else [other, x]
    graph.dequantize(x)  # who reads it first in the graph decides what it is
    for reader in (*readers, *readers):
        graph.output(graph.conv(reader, 4, pads=[1] * 4))
    graph.output(graph.add(x, other))
    graphs.agree(graph.model(), SMALL, runs=2)


@pytest.mark.parametrize("made", [True, False])
def test_a_reading_beside_one_for_each_channel(graphs, made: bool) -> None:
    """Who quantises or reads a tensor with many scales does not say what it is."""
    graph = graphs.Graph(seed=10)
    if made:
        name = graph.name("image")
        graph.inputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4, 6, 6]))
        many = [graph.constant(np.linspace(0.01, 0.04, 4, dtype=np.float32)), graph.constant(np.zeros(4, np.int8))]
        x = graphs.Quantized(graph.node("QuantizeLinear", [name, *many], axis=1), 0.02, 3, np.int8)
    else:
        x = graph.input((1, 4, 6, 6), 0.02, 3, integer=True)
        many = [graph.constant(np.linspace(0.01, 0.04, 4, dtype=np.float32)), graph.constant(np.zeros(4, np.int8))]
    graph.output_value(graph.node("Softmax", [graph.node("DequantizeLinear", [x.name, *many], axis=1)]))
    graph.output(graph.conv(x, 5, 3))
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Softmax"})


@pytest.mark.parametrize("outside", [True, False])
def test_a_reading_that_the_host_shares(graphs, outside: bool) -> None:
    """The float of a DequantizeLinear is the host's, and the outside's, under its own name."""
    graph = graphs.Graph(seed=6)
    y = graph.conv(graph.input((1, 4, 6, 6)), 4)
    again = graphs.Quantized(y.name, 0.07, 11, y.dtype)
    value = graph.dequantize(again)
    weights = graph.weights(graph.random_weights((3, 4, 1, 1)), 0.01)
    graph.output(graph.quantize(graph.node("Conv", [value, weights]), 0.3))
    if outside:
        graph.output_value(value)
    else:
        graph.output_value(graph.node("Softmax", [value]))
    graph.output(y)
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Softmax"}, subgraphs=None)


def test_a_flattened_image_that_is_read_otherwise(graphs) -> None:
    graph = graphs.Graph(seed=7)
    y = graph.flatten(graph.conv(graph.input((2, 3, 5, 6)), 4))
    again = graphs.Quantized(y.name, y.scale, -3, y.dtype)
    flat = graph.flatten(again, "Reshape")
    graph.output(graph.add(flat, graph.input((2, 48))))
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Flatten", "Reshape"}, subgraphs=None)


def test_names_that_the_compiler_would_take(graphs) -> None:
    """Of a folded kernel, and of a table."""
    graph = graphs.Graph(seed=8)
    x = graph.input((1, 3, 8, 8))
    y = graph.conv(x, 4, 3)
    kernel, conv = next((node.input[1], node.name) for node in graph.nodes if node.op_type == "Conv")
    graph.output(graph.conv(y, 4, 1))
    model = graph.model()
    graphs.rename_value(model, y.name, f"{kernel} of {conv}")
    for config in (SMALL, PRESETS["int8-16x16"]):
        graphs.agree(model, config)
    graph = graphs.Graph(seed=8)
    a, b = graph.input((1, 4, 4, 4), 0.02), graph.input((1, 4, 4, 4), 0.03)
    z = graph.concat([a, b], 1)
    graph.output(z)
    model = graph.model()
    graphs.rename_value(model, b.name, f"{a.name} to {z.name}")
    graphs.agree(model, SMALL)


@pytest.mark.sample(10)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero_point", [-5, -2, 3, 8])
@pytest.mark.parametrize(("kernel", "factor"), [((2, 2), 1.0), ((1, 2), 2.0), ((4, 4), 0.5), ((2, 1), 0.25)])
def test_averages_at_ties(graphs, dtype, zero_point: int, kernel: tuple[int, int], factor: float) -> None:
    """Where all scales are powers of two, ONNX Runtime rounds to even after it has added the zero point."""
    natural = zero_point + (128 if dtype is np.uint8 else 0)
    graph = graphs.Graph(seed=3, dtype=dtype)
    x = graph.input((2, 5, 8, 8), 2.0**-5, natural + 4)
    for attributes in ({}, {"pads": [0, 0, kernel[0] - 1, kernel[1] - 1], "count_include_pad": 1}):
        result = graph.node("AveragePool", [graph.dequantize(x)], kernel_shape=list(kernel), **attributes)
        graph.output(graph.quantize(result, factor * 2.0**-5, natural))
    graphs.agree(graph.model(), SMALL, runs=2)


def transposed(graph, x, out: int, kernel: tuple[int, int], scale: float, group: int = 1, **attributes):
    """A ConvTranspose whose scales are powers of two."""
    inner = graph.shape(x.name)[1]
    weights = graph.weights(graph.random.integers(-50, 51, (inner, out // group, *kernel)).astype(np.int8), 2.0**-6)
    bias = graph.bias(graph.random.integers(-900, 900, out).astype(np.int32), x.scale * 2.0**-6)
    made = graph.node("ConvTranspose", [graph.dequantize(x), weights, bias], group=group, **attributes)
    return graph.quantize(made, scale)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("channels", "out", "kernel", "attributes"),
    [
        (3, 5, (3, 3), {}),
        (9, 6, (3, 2), {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}),  # U-Net, GAN
        (4, 8, (2, 2), {"strides": [2, 2]}),
        (7, 3, (4, 4), {"strides": [2, 3], "pads": [1, 1, 2, 0]}),
        (5, 4, (3, 3), {"strides": [3, 1], "dilations": [2, 1], "pads": [4, 2, 0, 1]}),
        (6, 6, (3, 3), {"strides": [2, 2], "group": 6, "pads": [1, 1, 1, 1]}),  # each channel by itself
        (6, 9, (3, 3), {"strides": [2, 1], "group": 3}),
        (4, 4, (1, 1), {"strides": [4, 4], "auto_pad": "VALID"}),
        (2, 3, (5, 5), {"strides": [2, 2], "pads": [2, 2, 2, 2], "output_padding": [1, 1]}),
    ],
)
def test_transposed_convolution(graphs, dtype, channels, out, kernel, attributes) -> None:
    graph = graphs.Graph(seed=out, dtype=dtype)
    x = graph.input((2, channels, 6, 5), 2.0**-5)
    y = transposed(graph, x, out, kernel, 2.0**-1, **attributes)
    graph.output(y)
    model = graph.model()
    session, _ = graphs.agree(model, SMALL, runs=2)
    assert (
        session.offload.macs
        == session.offload.macs_total
        == 2 * channels * 30 * out * kernel[0] * kernel[1] // (attributes.get("group", 1))
    )
    if "strides" in attributes:  # else it is a convolution with padding around it, which counts
        nodes = [node for program in session.programs.values() for node in program.nodes]
        assert sum(node.macs for node in nodes) == session.offload.macs
    assert len(np.unique(session.run(graphs.inputs_of(model))[model.graph.output[0].name])) > 10


def test_transposed_convolution_that_may_round(graphs) -> None:
    """ONNX Runtime computes it in float: scales that are no powers of two, and large sums, stay there."""
    graph = graphs.Graph(seed=3)
    graph.output(transposed(graph, graph.input((1, 3, 5, 5), 2.0**-5), 4, (3, 3), 0.3))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "ConvTranspose"}, subgraphs=0)
    reasons = [one.reason for one in session.offload.reasons if one.op == "ConvTranspose"]
    assert reasons == ["its scale 0.3 is no power of two: ONNX Runtime computes it in float, and rounds there"]
    graph = graphs.Graph(seed=3)
    graph.output(transposed(graph, graph.input((1, 600, 3, 3), 2.0**-5), 4, (3, 3), 0.5))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "ConvTranspose"}, subgraphs=0)
    (reason,) = (one.reason for one in session.offload.reasons if one.op == "ConvTranspose")
    assert reason.endswith("units; in ONNX Runtime's floats they are exact below 16777216")


@pytest.mark.parametrize(
    ("x_scale", "weight_scale", "bias_scale", "reason"),
    [
        (2.0**-5, 2.0**-6, 2.0**-9, "has another scale than the products of its input and weights"),
        (2.0**64, 2.0**60, 2.0**124, "its scales make sums of .* units beyond fp32"),
    ],
)
def test_transposed_convolution_in_other_units(graphs, x_scale, weight_scale, bias_scale, reason) -> None:
    graph = graphs.Graph(seed=3)
    x = graph.input((1, 3, 5, 5), x_scale)
    weights = graph.weights(graph.random_weights((3, 4, 3, 3)), weight_scale)
    bias = graph.bias(graph.random.integers(-900, 900, 4).astype(np.int32), bias_scale)
    graph.output(graph.quantize(graph.node("ConvTranspose", [graph.dequantize(x), weights, bias]), x_scale))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "ConvTranspose"}, subgraphs=0)
    (found,) = (one.reason for one in session.offload.reasons if one.op == "ConvTranspose")
    assert re.search(reason, found), found


def test_transposed_convolution_of_many_groups(graphs) -> None:
    """A bilinear enlargement: each channel by itself, with a scale of its own, and a Relu behind."""
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 512, 3, 3), 2.0**-5)
    weights = graph.weights(graph.random.integers(0, 100, (512, 1, 4, 4)).astype(np.int8), np.array([2.0**-6]), axis=1)
    y = graph.node("ConvTranspose", [graph.dequantize(x), weights], group=512, strides=[2, 2], pads=[1] * 4)
    graph.output(graph.quantize(graph.node("Relu", [y]), 0.5, -128))
    graphs.agree(graph.model(), PRESETS["int8-8x8"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("shape", "sizes", "axis"),
    [
        ((2, 11, 6, 7), (3, 1, 7), 1),  # parts that begin and end within words
        ((1, 16, 5, 4), (4, 8, 4), -3),
        ((1, 58, 9, 9), (29, 29), 1),
        ((1, 7, 9, 5), (2, 7), 2),
        ((1, 7, 4, 9), (5, 3, 1), 3),
        ((3, 13), (6, 7), 1),
    ],
)
def test_split(graphs, dtype, shape, sizes, axis) -> None:
    """All parts, one of them read by a convolution and one by nobody but the outside."""
    graph = graphs.Graph(seed=12, dtype=dtype)
    x = graph.input(shape, zero_point=9)
    first, *others = graph.split(x, sizes, axis)
    graph.output(graph.conv(first, 5, 2) if len(shape) == 4 and min(graph.shape(first.name)[2:]) > 1 else first)
    for part in others:
        graph.output(part)
    graphs.agree(graph.model(), SMALL, runs=2)


def test_parts_that_nobody_reads(graphs) -> None:
    """They are not made; with operator set 18, an attribute says how many parts there are."""
    graph = graphs.Graph(seed=13)
    x = graph.input((1, 10, 5, 5))
    graph.nodes.append(
        helper.make_node("Split", [graph.dequantize(x)], ["a", "b", "c"], name="split", axis=1, num_outputs=3)
    )
    graph.output(graph.quantize("b", x.scale, x.zero_point))
    session, _ = graphs.agree(graph.model(), SMALL)
    assert [node.name for program in session.programs.values() for node in program.nodes] == ["split"]


def test_a_shuffle_block(graphs) -> None:
    """ShuffleNetV2's block: half of the channels go through convolutions, the other half around them."""
    graph = graphs.Graph(seed=14)
    x = graph.conv(graph.input((1, 3, 12, 12)), 22, 3, pads=[1] * 4)
    around, through = graph.split(x, (11, 11))
    y = graph.conv(through, 11, 1, relu=True)
    y = graph.conv(y, 11, 3, group=11, pads=[1] * 4)
    graph.output(graph.conv(graph.concat([around, graph.conv(y, 11, 1, relu=True)], 1), 9, 1))
    for config in (SMALL, PRESETS["int8-8x8"], PRESETS["int8-16x16"]):
        graphs.agree(graph.model(), config)


@pytest.mark.parametrize("factors", [(2, 2), (1, 3), (4, 1)])
@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel"])
def test_resize(graphs, factors, mode) -> None:
    graph = graphs.Graph(seed=9)
    nearest = "floor" if mode == "asymmetric" else "round_prefer_floor"
    options = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": nearest}
    x = graph.input((2, 9, 30, 41))
    graph.output(graph.moved("Resize", x, [None, np.array([1, 1, *factors], np.float32)], **options))
    graphs.agree(graph.model(), SMALL)


def test_reshape_of_single_pixels(graphs) -> None:
    """[N, C, 1, 1] and [N, C] lie alike."""
    graph = graphs.Graph()
    pooled = graph.global_average(graph.conv(graph.input((2, 5, 6, 6)), 9))
    flat = graph.flatten(pooled)
    again = graph.moved("Unsqueeze", graph.gemm(flat, 9), [np.array([2, 3])])
    graph.output(graph.mul(pooled, again))
    graphs.agree(graph.model(), SMALL)


def test_matmul(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.matmul(graph.matmul(graph.input((3, 21)), 10), 33))
    graphs.agree(graph.model(), SMALL)


# ---- found by reading: each gave a wrong answer or a crash once


@pytest.mark.parametrize("consumer", ["table", "add", "constant", "concat", "unsqueeze", "reshape"])
def test_flattened_image_for_another_than_a_product(graphs, consumer) -> None:
    graph = graphs.Graph(seed=1)
    flat = graph.flatten(graph.conv(graph.input((2, 5, 3, 4)), 6))
    if consumer == "table":
        y = graph.unary("Sigmoid", flat)
    elif consumer == "add":
        y = graph.add(flat, graph.input((2, 12)))
    elif consumer == "constant":
        y = graph.constant_operand("Mul", flat, (12,))
    elif consumer == "concat":
        y = graph.concat([flat, graph.input((2, 3))], 1)
    elif consumer == "unsqueeze":
        y = graph.conv(graph.moved("Unsqueeze", flat, [np.array([2, 3])]), 4, 1)
    else:
        y = graph.global_average(graph.moved("Reshape", flat, [np.array([2, 12, 1, 1])]), 0.03)
    graph.output(y)
    graph.output(graph.gemm(graph.flatten(graph.conv(graph.input((2, 3, 4, 4)), 3)), 4))
    session, _ = graphs.agree(
        graph.model(), SMALL, stays={*graphs.EDGES, "Flatten", "Unsqueeze", "Reshape"}, subgraphs=None
    )
    assert "Gemm" in [node.op for program in session.programs.values() for node in program.nodes]


def test_two_quantisations_of_one_tensor(graphs) -> None:
    """Each consumer has the parameters of its own DequantizeLinear."""
    graph = graphs.Graph(seed=2)
    x = graph.input((1, 4, 6, 6), 0.02, 3, integer=True)
    other = graphs.Quantized(x.name, 0.05, -7, x.dtype)
    graph.output(graph.conv(x, 4, pads=[1] * 4))
    graph.output(graph.conv(other, 4, pads=[1] * 4))
    y = graph.conv(x, 4)
    graph.output(graph.conv(graphs.Quantized(y.name, y.scale, -20, y.dtype), 5, pads=[1] * 4))
    graph.output(graph.add(x, other))
    graphs.agree(graph.model(), SMALL)
    graph = graphs.Graph(seed=2)
    x = graph.input((1, 4, 6, 6), 0.02, 3, integer=True)
    other = graphs.Quantized(x.name, 0.05, -7, x.dtype)
    inner = graph.node("Sigmoid", [graph.dequantize(other)])
    graph.output(graph.quantize(graph.node("Mul", [graph.dequantize(x), inner]), 0.02, 0))
    assert "through two different DequantizeLinears" in reason(graph.model(), "Mul")
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Mul", "Sigmoid"}, subgraphs=None)


@pytest.mark.parametrize(("shape", "taken"), [((), 1), ((1,), 1), ((1, 3), 1), ((3,), 1), ((3, 1), 0), ((3, 3), 0)])
def test_bias_of_a_product(graphs, shape, taken) -> None:
    graph = graphs.Graph(seed=4)
    x = graph.input((3, 5))
    weights = graph.weights(graph.random.integers(-127, 128, (3, 5)).astype(np.int8), 0.01)
    bias = graph.bias(graph.random.integers(-9000, 9000, shape).astype(np.int32), np.float32(x.scale * 0.01))
    graph.output(graph.quantize(graph.node("Gemm", [graph.dequantize(x), weights, bias], transB=1), 0.05))
    graphs.agree(graph.model(), SMALL, stays=graphs.EDGES if taken else {*graphs.EDGES, "Gemm"}, subgraphs=taken)


def test_scales_of_old_resizes(graphs) -> None:
    for opset, constants in (
        (10, [np.array([1, 1, 2.1, 2.1], np.float32)]),
        (10, [np.array([1, 1, 2, 2], np.float32)]),
    ):
        graph = graphs.Graph(opset=opset)
        graph.output(graph.moved("Resize", graph.input((1, 4, 3, 3)), constants, mode="nearest"))
        whole = constants[0][2] == 2
        stays = graphs.EDGES if whole else {*graphs.EDGES, "Resize"}
        graphs.agree(graph.model(), SMALL, stays=stays, subgraphs=int(whole))
    graph = graphs.Graph(opset=18)
    options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = np.array([2, 2], np.float32)
    graph.output(graph.moved("Resize", graph.input((1, 4, 3, 3)), [None, scales], axes=[2, 3], **options))
    graphs.agree(graph.model(), SMALL)


@pytest.mark.parametrize("shape", [(2, 256), (256, 6, 1, 1), (1, 256, 1, 1)])
def test_single_number_before_single_pixels(graphs, shape) -> None:
    """ONNX Runtime swaps the operands of its sum, which changes a rounding."""
    graph = graphs.Graph()
    x = graph.input(shape, float(np.float32(0.019)), 26, integer=True)
    number = graph.weights(np.full((), -110, np.int8), float(np.float32(0.023)), -2)
    total = graph.node("Add", [number, graph.dequantize(x)])
    graph.output(graph.quantize(total, float(np.float32(0.05)), 46), integer=True)
    graphs.agree(graph.model(), SMALL, inputs={x.name: np.full(shape, 37, np.int8)})


def test_pooling_with_automatic_padding_and_dilation(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.maxpool(graph.input((1, 4, 7, 8)), 3, dilations=[2, 2], auto_pad="SAME_UPPER"))
    assert reason(graph.model(), "MaxPool") == (
        "auto_pad is SAME_UPPER with dilations [2, 2], where ONNX and ONNX Runtime differ"
    )


def test_padding_with_odd_values(graphs) -> None:
    for scale, value, taken in ((1e37, 0.5, 0), (0.02, np.nan, 0), (0.02, np.inf, 1), (0.02, -np.inf, 1)):
        graph = graphs.Graph()
        x = graph.input((1, 4, 5, 5), scale, 3, integer=True)
        constants = [np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.array(value, np.float32)]
        graph.output(graph.moved("Pad", x, constants), integer=True)
        stays = graphs.EDGES if taken else {*graphs.EDGES, "Pad"}
        if not np.isnan(value):
            graphs.agree(graph.model(), SMALL, stays=stays, subgraphs=taken)
        else:
            assert reason(graph.model(), "Pad") == "its value is NaN"


def test_many_copies_of_an_element(graphs) -> None:
    for factors, config, taken in (((40, 40), "int8-16x16", 0), ((30, 30), "int8-16x16", 1), ((3, 300), SMALL, 1)):
        graph = graphs.Graph()
        x = graph.input((1, 4, 1, 1))
        graph.output(graph.moved("Resize", x, [None, np.array([1, 1, *factors], np.float32)], mode="nearest"))
        stays = graphs.EDGES if taken else {*graphs.EDGES, "Resize"}
        graphs.agree(graph.model(), config, stays=stays, subgraphs=taken)


def test_depthwise_with_little_room(graphs) -> None:
    """Too few parameter words for a block's taps, or too few weight words for the array."""
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 5, 9, 9)), 5, 7, group=5, pads=[3] * 4))
    graphs.agree(graph.model(), replace(SMALL, par_depth=32))
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 5, 9, 9)), 5, 3, group=5))
    graphs.agree(graph.model(), replace(SMALL, wgt_depth=8))


def test_planes_of_many_words(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 3, 256, 128)), 5, 1))
    graphs.agree(graph.model(), replace(SMALL, act_depth=32768, acc_depth=32768))


def test_limits_of_another_domain(graphs) -> None:
    """A function called Relu that is none."""
    body = [helper.make_node("Neg", ["a"], ["b"])]
    other = helper.make_function("mine", "Relu", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    graph = graphs.Graph(domains=[helper.make_opsetid("mine", 1)], functions=[other])
    x = graph.input((1, 4, 6, 6), zero_point=-128)
    value = graph.node("MaxPool", [graph.dequantize(x)], kernel_shape=[2, 2])
    graph.output(graph.quantize(graph.node("Relu", [value], domain="mine"), x.scale, -128))
    graph.output(graph.conv(x, 4))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "MaxPool", "Relu"})
    assert [node.op for program in session.programs.values() for node in program.nodes] == ["Conv"]


def test_quantiser_inside_of_a_branch(graphs) -> None:
    """The only user of a float result is a QuantizeLinear within an If: the node stays outside, and so does it."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 6, 6))
    value = graph.node("Sigmoid", [graph.dequantize(x)])
    scale, zero = graph.constant(np.float32(0.004)), graph.constant(np.int8(0))
    branches = []
    other = graph.constant(np.zeros((1, 4, 6, 6), np.float32))
    for name, quantised in (("then", value), ("else", other)):
        inner = helper.make_node("QuantizeLinear", [quantised, scale, zero], [f"{name}_out"])
        info = helper.make_tensor_value_info(f"{name}_out", onnx.TensorProto.INT8, (1, 4, 6, 6))
        branches.append(helper.make_graph([inner], name, [], [info]))
    condition = graph.constant(np.array(True))
    graph.node("If", [condition], "chosen", then_branch=branches[0], else_branch=branches[1])
    graph.outputs.append(helper.make_tensor_value_info("chosen", onnx.TensorProto.INT8, (1, 4, 6, 6)))
    graph.output(graph.conv(x, 4))
    model = graph.model()
    session = Session(model, SMALL)
    assert session.run(graphs.inputs_of(model))["chosen"].shape == (1, 4, 6, 6)
    assert [node.op for program in session.programs.values() for node in program.nodes] == ["Conv"]


_MOVES = {
    "MaxPool": ((), {"kernel_shape": [2, 2]}),
    "Pad": ((np.array([0, 0, 1, 0, 0, 0, 2, 1]), np.array(0, np.float32)), {}),
    "Slice": ((np.array([1]), np.array([6]), np.array([1])), {}),
    "Resize": (
        (None, np.array([1, 1, 2, 1], np.float32)),
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    ),
    "Unsqueeze": ((np.array([2]),), {}),
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", list(_MOVES))
def test_what_moves_elements_may_change_their_quantisation(graphs, op, dtype) -> None:
    """They are looked up in a table behind it, as ONNX's quantisers have them."""
    graph = graphs.Graph()
    constants, attributes = _MOVES[op]
    shape = (1, 7, 8) if op == "Unsqueeze" else (2, 7, 8, 9)
    names = ["" if value is None else graph.constant(value) for value in constants]
    x = graph.input(shape, scale=0.02)
    moved = graph.node(op, [graph.dequantize(x), *names], **attributes)
    graph.output(graph.quantize(moved, 0.031, 5, dtype))
    session, _ = graphs.agree(graph.model(), SMALL)
    (program,) = session.programs.values()
    assert program.nodes[-1].op == op


def test_parts_of_a_split_may_have_quantisations_of_their_own(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 9, 5, 5), scale=0.02)
    first, second = graph.split(x, [4, 5])
    graph.nodes[-1].input[1] = graph.constant(np.float32(0.05), "scale")
    graph.output(first)
    graph.output(graphs.Quantized(second.name, 0.05, second.zero_point, second.dtype))
    graphs.agree(graph.model(), SMALL)


def test_a_flattened_image_keeps_its_quantisation(graphs) -> None:
    graph = graphs.Graph()
    x = graph.conv(graph.input((1, 4, 6, 6)), 5)
    flat = graph.quantize(graph.node("Flatten", [graph.dequantize(x)]), 0.3, 1)
    graph.output(graph.gemm(flat, 3))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Flatten"}, subgraphs=2)
    assert "and the quantisation as well" in {one.op: one.reason for one in session.offload.reasons}["Flatten"]


@pytest.mark.parametrize(
    ("x_scale", "y_scale", "fill"), [(0.5, 0.1, 0.2), (0.5, 0.1, -3.3), (0.1, 0.5, -50), (0.5, 0.1, 1)]
)
def test_a_pad_that_requantises_fills_with_what_the_quantiser_behind_it_makes(graphs, x_scale, y_scale, fill) -> None:
    """Not with what becomes of the fill in the input's scale, or in its range."""
    graph = graphs.Graph()
    x = graph.conv(graph.input((1, 4, 6, 6)), 4, scale=x_scale, zero_point=0)
    names = [graph.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])), graph.constant(np.array(fill, np.float32))]
    y = graph.quantize(graph.node("Pad", [graph.dequantize(x), *names]), y_scale, 0)
    graph.output(graph.conv(y, 3))
    exact = fill == 1
    session, _ = graphs.agree(
        graph.model(), SMALL, stays=graphs.EDGES if exact else {*graphs.EDGES, "Pad"}, subgraphs=1 if exact else 2
    )
    assert ("Pad" in {one.op for one in session.offload.fallback}) is not exact


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes", "left"),
    [
        ((1, 5, 7, 7), (3, 3), {"dilations": [36, 36], "pads": [36] * 4}, (1, 1)),
        ((2, 5, 1, 3), (3, 3), {"pads": [1] * 4}, (1, 3)),
        ((1, 5, 9, 4), (5, 3), {"dilations": [4, 5], "pads": [8, 5, 8, 5]}, (5, 1)),
        ((1, 5, 6, 6), (3, 3), {"dilations": [40, 2], "pads": [40, 2, 40, 2], "strides": [2, 3]}, (1, 3)),
        ((1, 6, 3, 3), (5, 5), {"pads": [2, 0, 4, 6], "group": 6}, (5, 3)),
        ((1, 6, 4, 4), (3, 3), {"dilations": [7, 7], "pads": [3, 9, 12, 6]}, (1, 1)),
    ],
)
def test_a_kernel_that_sees_padding(graphs, shape, kernel, attributes, left) -> None:
    """Rows and columns of it that see nothing else are left out, and large paddings go with them."""
    graph = graphs.Graph(seed=shape[2])
    x = graph.input(shape, zero_point=-9)
    graph.output(graph.conv(x, 12, kernel, **attributes))
    model = graph.model()
    (legal,) = compile_model(model, SMALL, stop_after="legalise").graphs
    (operation,) = legal.operations
    assert isinstance(operation, Convolution | DepthwiseConvolution)
    assert legal.kernel(operation) == left
    graphs.agree(model, SMALL, runs=2)
    graphs.agree(model, "int8-16x16")


@pytest.mark.parametrize("config", ["int8-16x16", "int8-32x32"])
def test_partial_sums_that_fill_a_bank(graphs, config: str) -> None:
    """16 by 16 sums of windows; the sums of those lie in another bank."""
    graph = graphs.Graph(seed=12)
    x = graph.conv(graph.input((1, 3, 112, 112)), 33, 1)
    graph.output(graph.global_average(x))
    graph.output(graph.conv(x, 4, 1))
    graphs.agree(graph.model(), config)
