"""Float models become int8 ones: what stays float, what is lost, and that the machine runs them."""

import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from onnx import helper, numpy_helper

from npukit import Session, quantize, zoo
from npukit.compare import Oracle, compare
from npukit.errors import UsageError
from npukit.quantisation import QuantiserOptions
from npukit.quantisation.chains import inner_nodes
from npukit.quantisation.losses import losses_of


def _value(name: str, shape: list) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, 1, shape)


def _graph(nodes: list, shape: list, constants: dict, outputs: dict, opset: int = 17) -> onnx.ModelProto:
    named = [helper.make_node(op, inputs, [output], output, **more) for op, inputs, output, more in nodes]
    graph = helper.make_graph(
        named, "g", [_value("x", shape)], [_value(name, size) for name, size in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _network(opset: int = 17, batch: int = 1) -> onnx.ModelProto:
    """Convolution, batch normalisation, SiLU, convolution."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32),
        "v": random.normal(0, 0.2, (5, 8, 1, 1)).astype(np.float32),
        **{name: random.uniform(0.5, 1.5, 8).astype(np.float32) for name in ("scale", "shift", "mean", "variance")},
    }
    nodes = [
        ("Conv", ["x", "w"], "conv", {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", ["conv", "scale", "shift", "mean", "variance"], "norm", {}),
        ("Sigmoid", ["norm"], "gate", {}),
        ("Mul", ["norm", "gate"], "silu", {}),
        ("Conv", ["silu", "v"], "y", {}),
    ]
    return _graph(nodes, [batch, 3, 8, 8], constants, {"y": [batch, 5, 8, 8]}, opset)


def _agree(model: onnx.ModelProto) -> Session:
    session = Session(model, capture=True)
    shape = [dim.dim_value for dim in session.inputs[0].type.tensor_type.shape.dim]
    inputs = {"x": np.random.default_rng(5).random(shape, dtype=np.float32)}
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert found.mismatches == 0 and found.tensors == found.tensors_total > 0
    return session


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_all_of_it_runs_on_the_machine(form, types) -> None:
    """The normalisation is folded, and x * sigmoid(x) is one table."""
    options = QuantiserOptions(format=form, activations=types[0], weights=types[1], per_channel=types[1] == "int8")
    found = quantize(_network(), options=options)
    assert found.excluded == ("gate", "silu") and found.samples == 8
    assert "BatchNormalization" not in {node.op_type for node in found.model.graph.node}
    session = _agree(found.model)
    assert session.offload.fallback == () and session.offload.macs == session.offload.macs_total
    assert [one.op for one in session.profile.layers if one.op in ("Sigmoid", "Mul")] in (["Mul"], ["Sigmoid"])
    assert len(session.profile.layers) == 3
    (output,) = found.outputs
    assert 20 < output.sqnr < 60 and output.op == "Conv" and 0 < output.largest < 0.1 * output.range
    assert [one.tensor for one in found.layers][-1] in ("y", "silu")


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_other_operator_sets(opset) -> None:
    _agree(quantize(_network(opset)).model)


def test_what_is_excluded_stays_float() -> None:
    with pytest.raises(ModelError, match="nothing is left to quantise: the model has Conv, Mul, Sigmoid"):
        quantize(_network(), options=QuantiserOptions(exclude_operators=("Conv", "Mul", "Sigmoid")))
    found = quantize(_network(), options=QuantiserOptions(exclude_operators=("Conv",)))
    assert Session(found.model).offload.macs == 0
    # constants are folded beforehand, so that names are those of what is left
    found = quantize(_network(), options=QuantiserOptions(exclude=("y",)))
    offload = Session(found.model).offload
    assert 0 < offload.macs < offload.macs_total
    with pytest.raises(ModelError, match="no node 'nothing' to exclude"):
        quantize(_network(), options=QuantiserOptions(exclude=("nothing",)))
    with pytest.raises(ModelError, match="no Gemm to exclude; it has Conv, Mul, Sigmoid"):
        quantize(_network(), options=QuantiserOptions(exclude_operators=("Gemm",)))


@pytest.mark.parametrize("calibration", ["minmax", "entropy", "percentile"])
def test_digits_keeps_its_accuracy(calibration) -> None:
    """Of 360 digits that training never saw; ranges come from 64 others."""
    images, labels, _ = zoo.digits_heldout()
    shape = (-1, 1, 1, 8, 8)
    data = [{"image": one} for one in images[:64].reshape(shape)]
    model = onnx.load_from_string(zoo.load("digits", "fp32"))
    found = quantize(model, data, QuantiserOptions(calibration=calibration))
    assert found.samples == 64 and min(one.sqnr for one in found.layers) > 20
    right = {}
    for name, one in (("float", model), ("int8", found.model)):
        oracle = Oracle(one)
        logits = [oracle.run({"image": image})["logits"].argmax() for image in images.reshape(shape)]
        right[name] = int((np.array(logits) == labels).sum())
    assert right["float"] >= 350 and abs(right["float"] - right["int8"]) <= 3, right
    session = Session(found.model, capture=True)
    assert compare(session, Oracle(found.model), data[0], session.run(data[0])).mismatches == 0


def test_losses_by_hand() -> None:
    """One tensor of the numbers 0 to 3 with a scale of 2: 1 and 3 are between two numbers, and go to 0 and 4."""
    model = _graph([("Relu", ["x"], "y", {})], [4], {}, {"y": [4]})
    nodes = [
        ("Relu", ["x"], "y", {}),
        ("QuantizeLinear", ["y", "scale", "zero"], "y_QuantizeLinear_Output", {}),
        ("DequantizeLinear", ["y_QuantizeLinear_Output", "scale", "zero"], "z", {}),
    ]
    constants = {"scale": np.float32(2), "zero": np.int8(0)}
    quantised = _graph(nodes, [4], constants, {"y": [4]})
    samples = [{"x": np.array([0, 1, 2, 3], np.float32)}, {"x": np.array([-1, 2, 2, 2], np.float32)}]
    quantised.graph.output[0].name = "z"
    model.graph.output[0].name = "y"
    layers, _ = losses_of(model, _renamed(quantised), samples)
    (layer,) = layers
    assert (layer.tensor, layer.op, layer.largest, layer.range) == ("y", "Relu", 1.0, 3.0)
    assert layer.sqnr == pytest.approx(10 * np.log10((1 + 4 + 9 + 12) / 2))


def _renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The dequantised tensor takes the name of the output, as the quantiser gives it."""
    for node in model.graph.node:
        node.input[:] = ["y_QuantizeLinear_Input" if name == "y" else name for name in node.input]
        node.output[:] = [{"y": "y_QuantizeLinear_Input", "z": "y"}.get(name, name) for name in node.output]
    model.graph.output[0].name = "y"
    return model


def _chain(nodes: list) -> set[str]:
    outputs = {nodes[-1][2]: [1]}
    return set(inner_nodes(_graph([(*node, {}) for node in nodes], [1], {"c": np.float32(3)}, outputs).graph))


def test_which_nodes_are_one_function() -> None:
    conv = ("Conv", ["x", "c"], "a")
    # x * clip(x + 3) / 6, as exporters write HardSwish
    hard = [("Add", ["a", "c"], "b"), ("Clip", ["b"], "d"), ("Mul", ["a", "d"], "e"), ("Div", ["e", "c"], "f")]
    assert _chain([conv, *hard]) == {"b", "d", "e", "f"}
    # a Relu belongs to the convolution, and what is behind it reads its result
    assert _chain([conv, ("Relu", ["a"], "r")]) == set()
    assert _chain([conv, ("Relu", ["a"], "r"), ("Tanh", ["r"], "t"), ("Exp", ["t"], "y")]) == {"t", "y"}
    # an inner tensor that others read must be quantised for them
    assert _chain([conv, ("Tanh", ["a"], "t"), ("Exp", ["t"], "y"), ("Conv", ["y", "t"], "z")]) == set()
    # two tensors are no function of one
    assert _chain([conv, ("Conv", ["x", "c"], "b"), ("Tanh", ["a"], "t"), ("Mul", ["t", "b"], "y")]) == set()


def test_models_that_cannot_be_quantised() -> None:
    with pytest.raises(ModelError, match="quantised already: it has a DequantizeLinear node"):
        quantize(zoo.load("digits"))
    model = _network()
    model.graph.node[0].op_type = "Convolve"
    with pytest.raises(ModelError, match="is not valid ONNX"):
        quantize(model)


def test_the_given_model_stays_as_it_is() -> None:
    model = _network()
    before = model.SerializeToString()
    quantize(model)
    assert model.SerializeToString() == before


def test_numbers_that_are_not_finite() -> None:
    model = _graph([("Log", ["x"], "l", {}), ("Conv", ["l", "w"], "y", {})], [1, 2, 4, 4],
                   {"w": np.ones((3, 2, 1, 1), np.float32)}, {"y": [1, 3, 4, 4]})  # fmt: skip
    data = [{"x": np.full((1, 2, 4, 4), -1, np.float32)}]
    with pytest.raises(ModelError, match="makes numbers of the samples that are not finite"):
        quantize(model, data)


def test_normalisations_that_no_convolution_takes_along() -> None:
    """Before a Relu, as in DenseNets: a convolution of each channel by itself."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.normal(0, 0.3, (4, 6, 3, 3)).astype(np.float32),
        **{name: random.uniform(0.5, 1.5, 6).astype(np.float32) for name in ("scale", "shift", "mean", "variance")},
    }
    nodes = [
        ("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], "norm", {"epsilon": 0.01}),
        ("Relu", ["norm"], "relu", {}),
        ("Conv", ["relu", "w"], "y", {}),
    ]
    model = _graph(nodes, [1, 6, 8, 8], constants, {"y": [1, 4, 6, 6]})
    found = quantize(model)
    session = _agree(found.model)
    assert session.offload.fallback == () and len(session.programs) == 1
    assert found.outputs[0].sqnr > 25


def test_nodes_without_names() -> None:
    model = _network()
    for node in model.graph.node:
        node.name = ""
    found = quantize(model)
    assert len(found.excluded) == 2 and all(found.excluded)
    session = _agree(found.model)
    assert session.offload.fallback == () and session.offload.macs == session.offload.macs_total


def test_constants_of_several_numbers_begin_no_function() -> None:
    conv = ("Conv", ["x", "c"], "a", {})
    nodes = [conv, ("Mul", ["a", "many"], "b", {}), ("Add", ["b", "many"], "d", {})]
    constants = {"c": np.float32(3), "many": np.ones(4, np.float32)}
    assert inner_nodes(_graph(nodes, [1], constants, {"d": [1]}).graph) == ()


def test_constants_that_are_no_parameters_and_outputs_of_no_size() -> None:
    """A Where of infinite numbers, and an output whose size depends on what is in the image."""
    model = _network()
    model.graph.node.extend(
        [
            helper.make_node("Greater", ["y", "zero"], ["mask"], "mask"),
            helper.make_node("Where", ["mask", "low", "high"], ["limited"], "limited"),
            helper.make_node("NonZero", ["mask"], ["places"], "places"),
        ]
    )
    for name, value in (("zero", 0.0), ("low", -np.inf), ("high", np.inf)):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    model.graph.output.extend(
        [_value("limited", [1, 5, 8, 8]), helper.make_tensor_value_info("places", onnx.TensorProto.INT64, [4, None])]
    )
    found = quantize(model)
    assert [one.node for one in found.outputs][0] == "y"


def test_bad_arguments() -> None:
    good = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    for data, message in (
        ([], "there are no samples"),
        ([{"z": good["x"]}], "'z' is no input of the model; it has x"),
        ([{"x": good["x"][0]}], r"x has the shape \[3, 8, 8\], not \[1, 3, 8, 8\]"),
        ([{}], "sample 0 has no array x"),
        ([5], "is no mapping from names"),
    ):
        with pytest.raises(UsageError, match=message):
            quantize(_network(), data)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one sample is needed, not -8"):
        quantize(_network(), [good], most=-8)
    with pytest.raises(UsageError, match="format must be one of qdq, qoperator, not 'QDQ'"):
        QuantiserOptions(format="QDQ")
    with pytest.raises(UsageError, match="take uint8 activations as well"):
        QuantiserOptions(weights="uint8")


def test_progress_goes_where_the_caller_prints(capsys) -> None:
    quantize(_network(), progress=print)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "preparing" and "calibrating: sample 8 of 8" in lines


def test_scales_for_exact_results() -> None:
    """A ConvTranspose gets powers of two, and an AveragePool a scale of its own: both run on the machine."""
    random = np.random.default_rng(3)
    constants = {
        "w": random.normal(0, 0.3, (3, 8, 4, 4)).astype(np.float32),
        "b": random.normal(0, 1, 8).astype(np.float32),
        "v": random.normal(0, 0.2, (8, 8, 1, 1)).astype(np.float32),
        "c": random.normal(0, 1, 8).astype(np.float32),
    }
    nodes = [
        ("ConvTranspose", ["x", "w", "b"], "up", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Relu", ["up"], "relu", {}),
        ("Conv", ["relu", "v", "c"], "conv", {}),
        ("AveragePool", ["conv"], "mean", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Conv", ["mean", "v", "c"], "y", {}),
    ]
    model = _graph(nodes, [1, 3, 8, 8], constants, {"y": [1, 8, 8, 8]})
    found = quantize(model)
    assert found.exact == ("up", "mean")
    session = _agree(found.model)
    ops = [node.op for program in session.programs.values() for node in program.nodes]
    assert {*ops} == {"AveragePool", "Conv", "ConvTranspose"} and ops.count("Conv") == 2
    free = quantize(model, options=QuantiserOptions(exact_scales=False))
    assert free.exact == ()
    ops = [node.op for program in _agree(free.model).programs.values() for node in program.nodes]
    assert "ConvTranspose" not in ops
    # little is lost by it: less than the bit by which a scale may grow, and its part of the noise
    assert found.outputs[0].sqnr > free.outputs[0].sqnr - 6.5
    values = {one.name: numpy_helper.to_array(one) for one in found.model.graph.initializer}
    scales = [values[name] for name in values if name.endswith("_scale") and "up" not in name]
    assert all(np.isfinite(one).all() and (one > 0).all() for one in scales)
    for name in ("x_scale", "w_scale", "relu_scale"):
        assert (np.frexp(values[name])[0] == 0.5).all(), name
    real = values["b_quantized"] * values["b_quantized_scale"].astype(np.float64)
    assert np.allclose(real, constants["b"], atol=values["b_quantized_scale"].max())


def test_what_hands_averages_on_keeps_their_scale() -> None:
    """A Flatten behind an AveragePool moves nothing, as long as both have one scale."""
    random = np.random.default_rng(4)
    constants = {
        "w": random.normal(0, 0.3, (8, 3, 1, 1)).astype(np.float32),
        "v": random.normal(0, 0.2, (32, 5)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], "conv", {}),
        ("AveragePool", ["conv"], "mean", {"kernel_shape": [4, 4], "strides": [4, 4]}),
        ("Flatten", ["mean"], "flat", {}),
        ("Gemm", ["flat", "v"], "y", {}),
    ]
    found = quantize(_graph(nodes, [1, 3, 8, 8], constants, {"y": [1, 5]}))
    session = _agree(found.model)
    assert session.offload is not None and not session.offload.fallback


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(("shape", "axes"), [((2, 5, 4, 6), (2, 3)), ((2, 9, 5), (1,)), ((2, 6, 4, 5), (-3, 2))])
def test_means_over_places(shape: tuple[int, ...], axes: tuple[int, ...], keep: int) -> None:
    """A ReduceMean over all but batch and channels is a GlobalAveragePool, whatever the order of dimensions."""
    result = list(np.zeros(shape).mean(axis=axes, keepdims=bool(keep)).shape)
    nodes = [
        ("Relu", ["x"], "relu", {}),
        ("ReduceMean", ["relu", "axes"], "mean", {"keepdims": keep}),
        ("Sigmoid", ["mean"], "y", {}),
    ]
    model = _graph(nodes, list(shape), {"axes": np.array(axes)}, {"y": result}, opset=18)
    session = _agree(quantize(model).model)
    assert "GlobalAveragePool" in [node.op for program in session.programs.values() for node in program.nodes]
    result = list(np.zeros(shape).mean(axis=0, keepdims=bool(keep)).shape)
    kept = _graph(nodes, list(shape), {"axes": np.array((0,))}, {"y": result}, opset=18)
    assert "ReduceMean" in [node.op_type for node in quantize(kept).model.graph.node]
