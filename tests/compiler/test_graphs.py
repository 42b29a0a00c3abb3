"""Whole graphs: every quantised tensor equals ONNX Runtime's, and the validator is silent."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from npukit.driver.executor import InputError
from npukit.isa.config import PRESETS, NpuConfig
from onnx import TensorProto

from npukit.session import Session

DTYPES = [pytest.param(np.int8, id="int8"), pytest.param(np.uint8, id="uint8")]
SMALL = PRESETS["int8-4x4"]


def tiny(**fields: int) -> NpuConfig:
    """The smallest machine that each rule allows, with some fields larger."""
    least: dict[str, Any] = dict(
        array=4, act_depth=64, act_banks=1, wgt_depth=8, acc_depth=16, acc_banks=1, par_depth=32,
        vector_lanes=1, fma_lanes=1, vector_taps=1, max_window=2, bus_bytes=4, max_burst=8, queue_depth=1,
    )  # fmt: skip
    return NpuConfig(**{**least, **fields})


CONFIGS = {
    "least but for weights": tiny(wgt_depth=12),
    "one bank each": tiny(act_depth=512, wgt_depth=256, acc_depth=64, max_window=7, vector_lanes=4, fma_lanes=2),
    "two banks": tiny(act_depth=128, act_banks=2, wgt_depth=64, acc_banks=2),
    "odd depths": NpuConfig(
        array=8, act_depth=1021, act_banks=3, wgt_depth=2047, acc_depth=131, acc_banks=2, par_depth=97,
        vector_lanes=4, fma_lanes=1, vector_taps=2, max_window=5, bus_bytes=16, max_burst=3, queue_depth=3,
    ),
    "4x12": tiny(
        array=12, array_rows=4, act_depth=512, act_banks=3, wgt_depth=256, acc_depth=64, max_window=7, vector_lanes=6,
        fma_lanes=3, normalize_cycles=3, par_depth=97,
    ),
    "16x64": NpuConfig(array=64, array_rows=16),
    "wide array": NpuConfig(array=64, vector_lanes=32, fma_lanes=64, bus_bytes=64),
}  # fmt: skip


def residual(graphs, dtype, channels=(20, 33), size=(9, 7), batch=1, seed=1):
    """Two convolutions and their input, added; pooled, averaged, and a Gemm."""
    graph = graphs.Graph(seed=seed, dtype=dtype)
    x = graph.input((batch, channels[0], *size))
    y = graph.conv(x, channels[1], 3, pads=[1] * 4, relu=True)
    y = graph.conv(y, channels[0], 1)
    y = graph.add(y, x, relu=True)
    y = graph.maxpool(y, 2, strides=[2, 2])
    y = graph.global_average(y)
    graph.output(graph.gemm(graph.flatten(y), 10))
    return graph.model()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_residual_block(graphs, dtype, batch) -> None:
    _, found = graphs.agree(residual(graphs, dtype, batch=batch), SMALL, runs=3)
    assert found.tensors == 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_of_every_shape(graphs, dtype, name) -> None:
    model = residual(graphs, dtype, channels=(6, 9), size=(6, 5), batch=2)
    graphs.agree(model, CONFIGS[name], runs=2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_least_configuration(graphs, dtype) -> None:
    """What the smallest legal machine cannot hold stays, with the reason; the rest runs on it."""
    model = residual(graphs, dtype, channels=(6, 9), size=(6, 5), batch=2)
    session, _ = graphs.agree(model, tiny(), stays={*graphs.EDGES, "Conv", "Relu"}, subgraphs=None, runs=2)
    assert session.compilation is not None
    reasons = {reason.op: reason.reason for reason in session.compilation.partition.reasons}
    assert reasons["Conv"] == "a kernel row of 3 tiles does not fit in wgt_depth 8: use a larger configuration"
    assert [node.op for program in session.programs.values() for node in program.nodes] == [
        "Conv", "Add", "MaxPool", "GlobalAveragePool", "Gemm"
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        pytest.param(2, dict(strides=[2, 2]), id="2x2/2"),
        pytest.param(3, dict(strides=[2, 2], pads=[1, 1, 1, 1]), id="3x3/2 padded"),
        pytest.param(3, dict(strides=[1, 1], pads=[0, 1, 2, 0]), id="unequal padding"),
        pytest.param((2, 3), dict(strides=[3, 1]), id="2x3 strides 3, 1"),
        pytest.param((1, 7), dict(strides=[1, 4]), id="1x7"),
        pytest.param(7, dict(pads=[3, 3, 3, 3]), id="7x7"),
        pytest.param(3, dict(strides=[2, 2], ceil_mode=1), id="ceil_mode"),
        pytest.param(3, dict(strides=[2, 3], ceil_mode=1, pads=[1, 1, 1, 1]), id="ceil_mode padded"),
        pytest.param(2, dict(strides=[19, 3], ceil_mode=1), id="gaps, ceil_mode"),
        pytest.param(2, dict(dilations=[2, 3]), id="dilated"),
        pytest.param(3, dict(dilations=[2, 2], strides=[3, 3], pads=[2, 2, 2, 2]), id="dilated, strided"),
        pytest.param(3, dict(dilations=[1, 4], strides=[1, 2], pads=[1, 2, 1, 2]), id="dilation 4, stride 2"),
        pytest.param(2, dict(strides=[17, 17]), id="stride 17"),
        pytest.param(3, dict(auto_pad="SAME_UPPER", strides=[2, 2]), id="SAME_UPPER"),
        pytest.param(2, dict(auto_pad="SAME_LOWER"), id="SAME_LOWER"),
        pytest.param(2, dict(auto_pad="VALID", strides=[2, 2]), id="VALID"),
        pytest.param(1, dict(strides=[2, 2]), id="1x1"),
    ],
)
def test_maxpool(graphs, dtype, kernel, attributes) -> None:
    graph = graphs.Graph(seed=2, dtype=dtype)
    x = graph.input((2, 7, 20, 19))
    graph.output(graph.maxpool(x, kernel, **attributes))
    graphs.agree(graph.model(), SMALL)


@pytest.mark.parametrize("size", [(3, 40), (10, 40), (21, 11), (2, 57)])
def test_global_average_in_small_tiles(graphs, size) -> None:
    """ACT holds neither a window of `max_window` nor a row: tiles of few rows and columns."""
    graph = graphs.Graph(seed=3)
    graph.output(graph.global_average(graph.input((2, 9, *size))))
    config = tiny(act_depth=90, acc_depth=160, max_window=5)
    graphs.agree(graph.model(), config, runs=2)
    graphs.agree(graph.model(), replace(config, act_depth=300), runs=2)


@pytest.mark.parametrize("opset", [21, 22])
def test_maxpool_whose_last_window_lies_outside(graphs, opset) -> None:
    """Before opset 22, ONNX's shape inference counts a window that ONNX Runtime leaves out."""
    graph = graphs.Graph(seed=2, opset=opset)
    x = graph.input((1, 3, 20, 19))
    y = graph.maxpool(graph.maxpool(x, 2, strides=[5, 5], ceil_mode=1), 2)
    graph.output(y)
    if opset == 22:
        graphs.agree(graph.model(), SMALL)
        return
    session = Session(graph.model(), SMALL)
    assert session.compilation is not None
    reasons = [reason.reason for reason in session.compilation.partition.reasons if reason.op == "MaxPool"]
    assert reasons == [
        "with ceil_mode its last window starts at 20, outside of the 20 input rows, where ONNX and ONNX Runtime differ"
    ]
    with pytest.raises(InputError, match=r"has the shape \[1, 3, 4, 4\] when it runs, and \[1, 3, 5, 5\] by ONNX"):
        session.run(graphs.inputs_of(graph.model()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1), (1, 13), (7, 7), (8, 7), (15, 1), (17, 23), (49, 50), (60, 60), (33, 60)])
def test_global_average_of_any_size(graphs, dtype, size) -> None:
    graph = graphs.Graph(seed=3, dtype=dtype)
    graph.output(graph.global_average(graph.input((2, 9, *size))))
    graphs.agree(graph.model(), SMALL, runs=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_gemm(graphs, dtype, transposed, bias, per_channel, batch) -> None:
    graph = graphs.Graph(seed=4, dtype=dtype)
    x = graph.input((batch, 37))
    y = graph.gemm(x, 21, transposed=transposed, bias=bias, per_channel=per_channel)
    graph.output(graph.gemm(y, 5, transposed=transposed, bias=bias))
    graphs.agree(graph.model(), SMALL, runs=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["Flatten", "Reshape"])
@pytest.mark.parametrize("batch", [1, 4])
def test_flattened_image_into_gemm(graphs, dtype, op, batch) -> None:
    graph = graphs.Graph(seed=5, dtype=dtype)
    x = graph.conv(graph.input((batch, 3, 6, 5)), 7)
    graph.output(graph.gemm(graph.flatten(x, op), 11))
    _, found = graphs.agree(graph.model(), SMALL, runs=2)
    assert found.tensors == 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("integer", [True, False])
def test_outputs_in_the_middle(graphs, dtype, integer) -> None:
    graph = graphs.Graph(seed=6, dtype=dtype)
    x = graph.input((1, 5, 8, 8))
    a = graph.conv(x, 6)
    b = graph.conv(a, 7)
    graph.output(a, integer)
    graph.output(graph.maxpool(b, 2), integer)
    graph.output(b, integer)
    graphs.agree(graph.model(), SMALL, runs=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("integer", [True, False])
def test_several_inputs(graphs, dtype, integer) -> None:
    graph = graphs.Graph(seed=7, dtype=dtype)
    a = graph.input((2, 5, 4, 4), integer=integer)
    b = graph.input((2, 5, 4, 4), scale=0.05, integer=integer)
    c = graph.input((2, 9), integer=integer)
    graph.output(graph.add(graph.add(a, b), a), integer)
    graph.output(graph.gemm(c, 3), integer)
    _, found = graphs.agree(graph.model(), SMALL, runs=2)
    assert found.tensors == (3 if integer else 6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_added_to_itself(graphs, dtype) -> None:
    graph = graphs.Graph(seed=8, dtype=dtype)
    x = graph.conv(graph.input((2, 5, 6, 6)), 5)
    y = graph.add(x, x)
    graph.output(graph.add(y, x))
    graphs.agree(graph.model(), SMALL, runs=2)


def test_one_dequantiser_for_both_sides_of_an_addition(graphs) -> None:
    graph = graphs.Graph(seed=9)
    value = graph.dequantize(graph.input((1, 5, 6, 6)))
    graph.output(graph.quantize(graph.node("Add", [value, value]), 0.05))
    graphs.agree(graph.model(), SMALL, runs=2)


@pytest.mark.parametrize("scales", [(0.02, 0.02), (1e-4, 3.0), (5.0, 1e-3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_addition_of_unlike_scales(graphs, dtype, scales) -> None:
    graph = graphs.Graph(seed=10, dtype=dtype)
    a, b = (graph.input((1, 8, 30, 30), scale=scale, integer=True) for scale in scales)
    graph.output(graph.add(a, b), integer=True)
    graphs.agree(graph.model(), SMALL, runs=3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mixed_signs_in_one_graph(graphs, dtype) -> None:
    """An addition of two signed or unsigned tensors between convolutions of many shapes."""
    graph = graphs.Graph(seed=11, dtype=dtype)
    x = graph.input((3, 3, 17, 13))
    y = graph.conv(x, 10, 5, strides=[2, 2], pads=[2, 1, 0, 2])
    y = graph.conv(y, 18, (1, 3), dilations=[1, 2], pads=[0, 2, 0, 2], per_channel=False)
    z = graph.conv(y, 18, (3, 1), pads=[1, 0, 1, 0], bias=False)
    y = graph.add(y, z)
    y = graph.conv(y, 70, 2, strides=[3, 2], auto_pad="SAME_LOWER")
    graph.output(y)
    for config in (SMALL, PRESETS["int8-16x16"], CONFIGS["odd depths"]):
        graphs.agree(graph.model(), config)


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("size", [(1, 1), (40, 2), (2, 40)])
def test_padding_wider_than_the_image(graphs, kernel, size) -> None:
    graph = graphs.Graph(seed=12)
    graph.output(graph.conv(graph.input((1, 5, *size)), 6, kernel, pads=[kernel - 1] * 4))
    graphs.agree(graph.model(), SMALL)


def test_border_that_fills_whole_tiles(graphs) -> None:
    """Tiles that see nothing but padding are filled, not loaded."""
    graph = graphs.Graph(seed=13)
    x = graph.input((1, 5, 2, 2), zero_point=17)
    graph.output(graph.conv(x, 6, 1, pads=[30, 30, 30, 30]))
    graph.output(graph.conv(x, 6, 2, pads=[31, 0, 0, 31], strides=[3, 4]))
    graphs.agree(graph.model(), CONFIGS["two banks"])


def test_stride_beyond_the_kernel(graphs) -> None:
    graph = graphs.Graph(seed=14)
    x = graph.input((2, 5, 40, 37))
    graph.output(graph.conv(x, 6, 1, strides=[7, 5]))
    graph.output(graph.conv(x, 6, 2, strides=[9, 11], pads=[0, 1, 3, 2]))
    graphs.agree(graph.model(), SMALL)


def test_accumulators_that_saturate_the_result(graphs) -> None:
    """Sums of extreme weights and inputs: results at both ends of the range."""
    graph = graphs.Graph(seed=15)
    x = graph.input((1, 64, 5, 5), integer=True, zero_point=-128)
    y = graph.conv(x, 8, 5, pads=[2] * 4, scale=0.05)
    graph.output(y, integer=True)
    model = graph.model()
    session, _ = graphs.agree(model, SMALL)
    seen = session.run(graphs.inputs_of(model))[y.name]
    assert seen.min() == -128 and seen.max() == 127


def test_residual_across_a_node_that_stays(graphs) -> None:
    """conv -> host -> conv, and the first convolution's result is needed again after it."""
    graph = graphs.Graph(seed=16)
    x = graph.input((2, 5, 6, 6))
    a = graph.conv(x, 6, pads=[1] * 4)
    value = graph.dequantize(a)
    h = graph.quantize(graph.node("Softmax", [value]), 0.01)
    b = graph.conv(h, 6, pads=[1] * 4)
    graph.output(graph.add(a, b))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Softmax"}, subgraphs=2, runs=2)
    first, second = session.programs.values()
    assert [node.op for node in first.nodes] == ["Conv"]
    assert [node.op for node in second.nodes] == ["Conv", "Add"]


def test_diamond_of_host_and_accelerator(graphs) -> None:
    graph = graphs.Graph(seed=17)
    x = graph.conv(graph.input((1, 3, 6, 6)), 4, 1)
    left = graph.conv(x, 5)
    right = graph.quantize(graph.node("LpPool", [graph.dequantize(x)], kernel_shape=[3, 3]), 0.02)
    right = graph.conv(right, 5, 1)
    graph.output(graph.add(left, right))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "LpPool"}, subgraphs=2)
    names = [[node.op for node in program.nodes] for program in session.programs.values()]
    assert names[0][0] == "Conv" and names[1][-1] == "Add" and len(names[0] + names[1]) == 4


def test_reshape_between_two_programs(graphs) -> None:
    """A reshaped tensor that both the next subgraph and a node that stays read."""
    graph = graphs.Graph(seed=18)
    x = graph.conv(graph.input((2, 3, 5, 5)), 4)
    flat = graph.flatten(x)
    y = graph.gemm(flat, 9)
    h = graph.quantize(graph.node("LpNormalization", [graph.dequantize(flat)]), 0.004, zero_point=-128)
    graph.output(graph.gemm(h, 9))
    graph.output(y)
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "LpNormalization"}, subgraphs=2)


def test_convolution_used_as_float_stays(graphs) -> None:
    graph = graphs.Graph(seed=19)
    x = graph.input((1, 4, 6, 6))
    y = graph.conv(x, 5)
    float_result = graph.nodes[-1].input[0]
    graph.output(y)
    graph.output_value(float_result)
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv"}, subgraphs=0)
    assert session.profile.cycles == 0


def test_integers_in_and_out(graphs) -> None:
    """No quantiser at all on the host: the boundary is the model's own."""
    graph = graphs.Graph(seed=20, dtype=np.uint8)
    x = graph.input((2, 3, 6, 6), integer=True, name="image")
    graph.output(graph.conv(x, 5), integer=True)
    session, _ = graphs.agree(graph.model(), SMALL, stays=set())
    assert [value.type.tensor_type.elem_type for value in session.inputs] == [TensorProto.UINT8]


def test_a_product_whose_weights_do_not_fit_behind_its_window(graphs) -> None:
    """Layers that would be computed together, of which the last needs more weights at once than there is room for."""
    graph = graphs.Graph(seed=21)
    y = graph.conv(graph.input((1, 3, 3, 3)), 17, 1)
    y = graph.maxpool(y, 3)
    graph.output(graph.conv(y, 9, 1))
    graphs.agree(graph.model(), tiny(act_depth=512, acc_depth=64, max_window=7, wgt_depth=12))


@pytest.mark.parametrize("seed", range(6))
def test_random_chains(graphs, seed) -> None:
    """Random sequences of all operators on random small machines."""
    print("seed", seed)
    random = np.random.default_rng(1000 + seed)
    dtype = (np.int8, np.uint8)[seed % 2]
    graph = graphs.Graph(seed=seed, dtype=dtype)
    size = [int(v) for v in random.integers(1, 24, 2)]
    x = graph.input((int(random.integers(1, 4)), int(random.integers(1, 40)), *size))
    for _ in range(int(random.integers(2, 7))):
        choice = random.choice(["conv", "add", "pool", "conv"])
        if choice == "conv":
            kernel = (int(random.integers(1, 5)), int(random.integers(1, 5)))
            pads = [int(v) for v in random.integers(0, 4, 4)]
            if kernel[0] > size[0] or kernel[1] > size[1]:
                pads = [3] * 4
            strides = [int(v) for v in random.integers(1, 4, 2)]
            x = graph.conv(x, int(random.integers(1, 40)), kernel, pads=pads, strides=strides)
        elif choice == "add":
            y = graph.conv(x, graph.shape(x.name)[1], 3, pads=[1] * 4, relu=bool(random.integers(2)))
            x = graph.add(x, y)
        else:
            x = graph.maxpool(x, 2, pads=[1] * 4)
        size = list(graph.shape(x.name)[2:])
    graph.output(x)
    array = int(random.choice([4, 8]))
    config = replace(
        tiny(),
        array=array,
        act_depth=int(random.integers(300, 900)),
        act_banks=int(random.integers(1, 5)),
        wgt_depth=int(random.integers(8 * array, 20 * array)),
        acc_depth=int(random.integers(16, 99)),
        acc_banks=int(random.integers(1, 4)),
        par_depth=int(random.integers(32, 80)),
        max_window=int(random.integers(2, 9)),
        bus_bytes=int(random.choice([4, 16])),
        queue_depth=int(random.integers(1, 6)),
    )
    print(config)
    graphs.agree(graph.model(), config)
