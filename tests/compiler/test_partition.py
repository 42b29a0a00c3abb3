"""partition: what runs where, in which order, and why the rest stays; each case still equals ONNX Runtime."""

import numpy as np
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from onnx import helper

from npukit.session import Session

SMALL = PRESETS["int8-4x4"]


def reasons(model, op, config=SMALL) -> list[str]:
    """Why the nodes of an operator stay."""
    return [reason.reason for reason in check_model(model, config).partition.reasons if reason.op == op]


def one_conv(graphs, shape=(1, 4, 8, 8), dtype=np.int8, **attributes):
    graph = graphs.Graph(dtype=dtype)
    graph.output(graph.conv(graph.input(shape), 6, **attributes))
    return graph


def conv_node(graph):
    return next(node for node in graph.nodes if node.op_type == "Conv")


def initializer(graph, name):
    return next(tensor for tensor in graph.initializers if tensor.name == name)


def producer(graph, name):
    return next(node for node in graph.nodes if name in node.output)


# ---- reasons: the constraint and the value


def test_float_input(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8))
    value = graph.node("Relu", [graph.dequantize(x)])
    graph.output(graph.conv(x, 6, value=value))
    assert reasons(graph.model(), "Conv") == [
        f"input {value} is float: it does not come from a DequantizeLinear; quantise the model (QDQ)"
    ]


def test_weights_that_are_an_activation(graphs) -> None:
    graph = graphs.Graph()
    x, w = graph.input((1, 4, 8, 8)), graph.input((6, 4, 3, 3))
    graph.output(graph.quantize(graph.node("Conv", [graph.dequantize(x), graph.dequantize(w)]), 0.1))
    (reason,) = reasons(graph.model(), "Conv")
    assert reason.endswith("are not a constant that a DequantizeLinear dequantises")
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv"}, subgraphs=0)


def test_weight_scales_along_another_axis(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8))
    values = graph.random.integers(-9, 9, (4, 4, 3, 3)).astype(np.int8)
    weights = graph.weights(values, np.linspace(0.01, 0.04, 4), axis=1)
    graph.output(graph.quantize(graph.node("Conv", [graph.dequantize(x), weights]), 0.1))
    (reason,) = reasons(graph.model(), "Conv")
    assert reason.endswith("have scales along axis 1, not 0")
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv"}, subgraphs=0)


def test_float_bias(graphs) -> None:
    graph = one_conv(graphs, bias=False)
    conv_node(graph).input.append(graph.constant(np.ones(6, np.float32), "bias"))
    (reason,) = reasons(graph.model(), "Conv")
    assert reason.startswith("bias bias_") and reason.endswith(
        "is not a constant int32 that a DequantizeLinear dequantises"
    )
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv"}, subgraphs=0)


def test_activation_per_channel(graphs) -> None:
    graph = graphs.Graph()
    graph.inputs.append(helper.make_tensor_value_info("x", 1, (1, 4, 8, 8)))
    scales = [
        graph.constant(np.linspace(0.01, 0.02, 4, dtype=np.float32)),
        graph.constant(np.zeros(4, np.int8)),
    ]
    quantized = graph.node("QuantizeLinear", ["x", *scales], "q", axis=1)
    value = graph.node("DequantizeLinear", [quantized, *scales], axis=1)
    tensor = graphs.Quantized(quantized, 0.01, 0, np.int8)
    graph.output(graph.conv(tensor, 6, value=value))
    assert reasons(graph.model(), "Conv") == ["q is quantised per channel; activations must be per tensor"]


def test_sixteen_bits(graphs) -> None:
    graph = graphs.Graph(dtype=np.int16)
    graph.output(graph.add(graph.input((1, 4)), graph.input((1, 4))))
    (reason,) = reasons(graph.model(), "Add")
    assert reason.endswith("is int16; activations must be int8 or uint8")


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (dict(pads=[40, 0, 0, 0]), "padding [40, 0, 0, 0] exceeds 31"),
        (
            dict(kernel=(1, 8), dilations=[1, 5000], pads=[0, 31, 0, 31]),
            "stride [1, 1] or dilation [1, 5000] exceeds the address fields",
        ),
        (dict(strides=[1, 1500]), "stride [1, 1500] or dilation [1, 1] exceeds the address fields"),
    ],
)
def test_convolutions_beyond_the_fields(graphs, attributes, reason) -> None:
    shape = (1, 1, 3, 36000) if "dilations" in attributes else (1, 4, 8, 8)
    assert reasons(one_conv(graphs, shape, **attributes).model(), "Conv") == [reason]


def test_kernels_too_large_for_a_configuration(graphs) -> None:
    model = one_conv(graphs, (1, 4, 70, 70), kernel=(65, 2)).model()
    assert reasons(model, "Conv") == ["kernel 65x2 has more than 64 rows: use a larger configuration"]
    model = one_conv(graphs, (1, 4, 2, 1600), kernel=(2, 40), dilations=[1, 40]).model()
    assert reasons(model, "Conv", PRESETS["int8-16x16"]) == [
        "a window's row of 1561 words does not fit in act_depth 1536: use a larger configuration"
    ]


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ((4, 8, 8), "has 3 dimensions and the result 4"),
    ],
)
def test_broadcasting_addition(graphs, size, reason) -> None:
    graph = graphs.Graph()
    graph.output(graph.add(graph.input((1, 4, 8, 8)), graph.input(size)))
    (found,) = reasons(graph.model(), "Add")
    assert found.endswith(reason)
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Add"}, subgraphs=0)


def test_both_operands_repeat(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.add(graph.input((1, 4, 8, 1)), graph.input((1, 4, 1, 8))))
    (found,) = reasons(graph.model(), "Add")
    assert found == "inputs [1, 4, 1, 8] and [1, 4, 8, 1] both repeat; one must have the result's shape"
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Add"}, subgraphs=0)


def test_max_pooling(graphs) -> None:
    def pool(**attributes):
        graph = graphs.Graph()
        x = graph.input((1, 4, 12, 12), zero_point=3)
        graph.output(graph.maxpool(x, **attributes))
        return graph

    assert reasons(pool(kernel=9).model(), "MaxPool") == ["kernel 9x9 exceeds max_window 7"]
    graph = pool(kernel=2)
    next(node for node in graph.nodes if node.op_type == "MaxPool").output.append("indices")
    graph.output_value("indices", 7)
    assert reasons(graph.model(), "MaxPool") == ["its second output, the indices, is used"]


def test_global_average_of_too_many_windows(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.global_average(graph.input((1, 4, 200, 100))))
    assert reasons(graph.model(), "GlobalAveragePool", PRESETS["int8-16x16"]) == [
        "an image of 200x100 makes 435 partial sums; acc_depth is 256"
    ]
    graphs.agree(graph.model(), SMALL)  # which has an acc_depth of 512


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (dict(beta=2.0), "beta is 2.0; 1 is supported"),
    ],
)
def test_gemm(graphs, attributes, reason) -> None:
    graph = graphs.Graph()
    graph.output(graph.gemm(graph.input((5, 5)), 5))
    node = next(node for node in graph.nodes if node.op_type == "Gemm")
    for name, value in attributes.items():
        node.attribute.append(helper.make_attribute(name, value))
    assert reasons(graph.model(), "Gemm") == [reason]


def test_reshape_of_another_kind(graphs) -> None:
    graph = graphs.Graph()
    x = graph.conv(graph.input((2, 4, 6, 6)), 5)
    shape = graph.constant(np.array([2, 8, 10, 1], np.int64))
    y = graph.node("Reshape", [graph.dequantize(x), shape])
    graph.output(graph.add(*[graph.quantize(y, x.scale, x.zero_point)] * 2))
    (reason,) = reasons(graph.model(), "Reshape")
    assert reason.startswith("[2, 5, 4, 4] becomes [2, 8, 10, 1], with channels along axis 1 and 1: its dimensions do")
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Reshape"}, subgraphs=2)


def test_reshape_at_the_edge_stays(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.flatten(graph.conv(graph.input((2, 4, 6, 6)), 5)))
    assert reasons(graph.model(), "Flatten") == [
        "a reshape alone at the accelerator's edge stays, because it moves nothing"
    ]
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Flatten"})


def test_reshape_of_a_large_image(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.gemm(graph.flatten(graph.conv(graph.input((1, 2, 70, 70)), 3, 1)), 5))
    assert reasons(graph.model(), "Flatten") == [
        "an image of 70x70 is too large to be flattened in place: kernel 70x70 has more than 64 rows"
    ]
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Flatten"}, subgraphs=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_relu_that_its_quantiser_does_not_absorb(graphs, dtype) -> None:
    graph = graphs.Graph(dtype=dtype)
    y = graph.node("Relu", [graph.node("Add", [graph.dequantize(graph.input((1, 4, 8, 8))) for _ in "ab"])])
    graph.output(graph.quantize(y, 0.03, 10))
    model = graph.model()
    (reason,) = reasons(model, "Add")
    assert reason.startswith(f"Relu Relu:{y} is not absorbed by its quantiser: q_")
    low, high = (-0.3, 7.35) if dtype is np.uint8 else (-4.14, 3.51)
    assert reason.endswith(f"holds {low} to {high}, the limits are 0 and inf, so ONNX Runtime computes in float")
    assert len(reasons(model, "Relu")) == 1
    graphs.agree(model, SMALL, stays={*graphs.EDGES, "Add", "Relu"}, subgraphs=0)


def test_float_result_used_twice(graphs) -> None:
    graph = one_conv(graphs)
    value = conv_node(graph).output[0]
    graph.output(graph.quantize(graph.node("LpNormalization", [value]), 0.004, -128))
    assert reasons(graph.model(), "Conv") == [f"its float result {value} is used besides by one QuantizeLinear"]
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv", "LpNormalization"}, subgraphs=0)


def test_float_result_that_is_an_output(graphs) -> None:
    graph = one_conv(graphs)
    value = conv_node(graph).output[0]
    graph.output_value(value)
    assert reasons(graph.model(), "Conv") == [f"its float result {value} is used besides by one QuantizeLinear"]
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv"}, subgraphs=0)


def test_float_result_that_another_operator_takes(graphs) -> None:
    graph = graphs.Graph()
    a, b = (graph.dequantize(graph.input((1, 4, 8, 8))) for _ in "ab")
    value = graph.node("Add", [a, b])
    graph.output(graph.quantize(graph.node("LpNormalization", [value]), 0.004, -128))
    (reason,) = reasons(graph.model(), "Add")
    assert reason.startswith("its result goes to LpNormalization LpNormalization:") and reason.endswith(
        "in float, not to a QuantizeLinear"
    )


def test_what_onnx_runtime_computes_in_float(graphs) -> None:
    """uint8 in, int8 out: ONNX Runtime leaves the group in float, so its bits are not ours to give."""
    graph = graphs.Graph(dtype=np.uint8)
    x = graph.input((1, 4, 8, 8))
    value = graph.node("Add", [graph.dequantize(x), graph.dequantize(graph.input((1, 4, 8, 8)))])
    graph.output(graph.quantize(value, 0.03, 3, np.int8))
    (reason,) = reasons(graph.model(), "Add")
    assert reason.startswith("ONNX Runtime runs it ") and "not as QLinearAdd" in reason
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Add"}, subgraphs=0)


def test_scale_that_is_computed(graphs) -> None:
    graph = one_conv(graphs)
    graph.inputs.append(helper.make_tensor_value_info("s", 1, []))
    quantizer = next(node for node in reversed(graph.nodes) if node.op_type == "QuantizeLinear")
    quantizer.input[1] = "s"
    assert reasons(graph.model(), "Conv") == [f"the scale of {quantizer.name} is not constant"]


def test_other_operators_domains_and_data_types(graphs) -> None:
    graph = graphs.Graph(domains=[helper.make_opsetid("com.microsoft", 1)])
    y = graph.conv(graph.input((1, 4, 8, 8)), 6)
    gelu = graph.node("Gelu", [graph.dequantize(y)], domain="com.microsoft")
    graph.output_value(graph.node("LpNormalization", [gelu]))
    model = graph.model()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, 1, (1, 6, 6, 6)))
    assert reasons(model, "Gelu") == ["operators of domain com.microsoft are not supported"]
    assert reasons(model, "LpNormalization")[0].startswith(
        "operator LpNormalization is not supported (npukit ops lists"
    )
    graphs.agree(model, SMALL, stays={*graphs.EDGES, "Gelu", "LpNormalization"})
    (reason,) = reasons(model, "Conv", PRESETS["bf16-4x4"])
    assert reason.endswith("are not a float32 constant")
    assert "the configuration computes bf16; quantised tensors are for int8" in reasons(
        model, "QuantizeLinear", PRESETS["bf16-4x4"]
    )
    graphs.agree(model, "bf16-4x4", stays={*graphs.EDGES, "Conv", "Gelu", "LpNormalization"}, subgraphs=0)


def test_values_that_no_one_knows_the_shape_of_between_parts(graphs) -> None:
    """A result of another domain's operator crosses from one part in ONNX Runtime to the next."""
    graph = graphs.Graph(domains=[helper.make_opsetid("com.microsoft", 1)])
    x = graph.input((1, 4, 8, 8))
    gelu = graph.node("Gelu", [graph.dequantize(x)], domain="com.microsoft")
    y = graph.conv(graph.conv(x, 6), 4, pads=[2] * 4)
    graph.output_value(graph.node("Add", [graph.dequantize(y), gelu]))
    model = graph.model()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, 1, (1, 4, 8, 8)))
    graphs.agree(model, SMALL, stays={*graphs.EDGES, "Gelu", "Add"})


def test_local_function_stays(graphs) -> None:
    opset = helper.make_opsetid("", 21)
    body = [helper.make_node("LpNormalization", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])]
    swish = helper.make_function("mine", "Swish", ["a"], ["b"], body, [opset])
    graph = graphs.Graph(domains=[helper.make_opsetid("mine", 1)], functions=[swish])
    y = graph.conv(graph.input((1, 4, 8, 8)), 6)
    y = graph.quantize(graph.node("Swish", [graph.dequantize(y)], domain="mine"), 0.05)
    graph.output(graph.conv(y, 4))
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Swish"}, subgraphs=2)


# ---- parts and their order


def test_edges_and_counts(graphs) -> None:
    partition = check_model(one_conv(graphs).model(), SMALL).partition
    assert [(reason.op, reason.reason) for reason in partition.reasons] == [
        ("QuantizeLinear", "quantises a float tensor at the accelerator's edge"),
        ("DequantizeLinear", "gives a float tensor to a node that stays, or to the outside"),
    ]
    assert partition.nodes_total == 7 and partition.nodes == 5
    assert partition.macs == partition.macs_total == 6 * 4 * 9 * 36


def test_chain_of_parts(graphs) -> None:
    """accelerated -> host -> accelerated -> host -> accelerated: three programs, in their order."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 8, 8)), 5)
    for channels in (6, 7):
        y = graph.quantize(graph.node("LpNormalization", [graph.dequantize(y)]), 0.004, -128)
        y = graph.conv(y, channels)
    graph.output(y)
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "LpNormalization"}, subgraphs=3)
    assert [program.nodes[0].output[1] for program in session.programs.values()] == [5, 6, 7]
    assert session.compilation is not None
    stages = session.compilation.partition.stages
    order = [stages[match.node] for group in session.compilation.partition.subgraphs for match in group]
    assert order == sorted(order) and len(set(order)) == 3


def test_independent_branches_share_a_program(graphs) -> None:
    """Branches that wait for the same host nodes run in one program, not in one each."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8))
    for channels in (3, 5, 7):
        graph.output(graph.conv(x, channels))
    session, _ = graphs.agree(graph.model(), SMALL)
    assert [len(program.nodes) for program in session.programs.values()] == [3]


def test_shared_dequantiser(graphs) -> None:
    """One DequantizeLinear feeds two convolutions, an addition and the outside."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 8, 8))
    value = graph.dequantize(x)
    a = graph.conv(x, 4, 1, value=value)
    b = graph.conv(x, 4, 3, pads=[1] * 4, value=value)
    graph.output(graph.quantize(graph.node("Add", [graph.node("Relu", [value]), value]), 0.04))
    graph.output(graph.add(a, b))
    graph.output_value(value)
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Relu", "Add"})


def test_unused_nodes_are_not_kept(graphs) -> None:
    """Nodes that nothing needs are neither run nor listed among the reasons."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 8, 8)), 5)
    graph.node("LpNormalization", [graph.dequantize(y)])
    graph.output(y)
    model = graph.model()
    session = Session(model, SMALL)
    assert session.compilation is not None
    assert not [reason for reason in session.compilation.partition.reasons if reason.op == "LpNormalization"]
    session.run(graphs.inputs_of(model))


def test_outputs_that_no_node_makes(graphs) -> None:
    """A graph input, or a constant, that is a graph output."""
    graph = one_conv(graphs)
    constant = graph.constant(np.arange(3, dtype=np.float32))
    graph.outputs += [graph.inputs[0], helper.make_tensor_value_info(constant, 1, (3,))]
    model = graph.model()
    session, _ = graphs.agree(model, SMALL)
    outputs = session.run(graphs.inputs_of(model))
    assert list(outputs) == [value.name for value in model.graph.output]
    assert np.array_equal(outputs[constant], [0, 1, 2])
