"""Models with one thing changed: each runs with ONNX Runtime's results, or stays, or is refused, with a reason.

Most were found by `tests/fuzz.py --only models`; `tests/fuzz_models.py` says what may become of a model.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model, compile_model
from npukit.driver.host import overridable
from npukit.isa.config import PRESETS
from numpy.typing import NDArray
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))  # as when it runs as a script
import fuzz_models  # noqa: E402
from fuzz_models import Verdict  # noqa: E402

SMALL = PRESETS["int8-4x4"]


def validate(model: onnx.ModelProto) -> Verdict:
    found = fuzz_models.examine_model(model, SMALL)
    assert found.verdict not in fuzz_models.BAD, found
    return found.verdict


def stays(model: onnx.ModelProto, op: str) -> str:
    """Why the node of an operator stays, in a model of which what becomes is right."""
    validate(model)
    reasons = [one.reason for one in check_model(model, SMALL).partition.reasons if one.op == op]
    assert len(reasons) == 1, reasons
    return reasons[0]


def conv(graphs, **options: Any) -> onnx.ModelProto:
    graph = graphs.Graph(seed=1, ties=True)
    graph.output(graph.conv(graph.input((1, 4, 6, 6)), 6, **options))
    return graph.model()


def node(model: onnx.ModelProto, op: str) -> onnx.NodeProto:
    return next(one for one in model.graph.node if one.op_type == op)


def put(model: onnx.ModelProto, one: onnx.NodeProto, place: int, array: NDArray) -> None:
    """Another initializer as an input of one node."""
    name = f"{one.input[place]}_changed"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    one.input[place] = name


def parameters(model: onnx.ModelProto, tensor: str, scale: NDArray, zero_point: NDArray) -> None:
    """The same parameters for a tensor's quantiser and dequantisers."""
    for one in model.graph.node:
        if one.op_type in ("QuantizeLinear", "DequantizeLinear") and tensor in (*one.input[:1], *one.output):
            put(model, one, 1, scale)
            put(model, one, 2, zero_point)


def attribute(one: onnx.NodeProto, name: str, value: Any) -> None:
    for old in [old for old in one.attribute if old.name == name]:
        one.attribute.remove(old)
    one.attribute.append(helper.make_attribute(name, value))


# ---- convolutions


@pytest.mark.parametrize("group", [-(2**63), -2, -1, 0, 2, 3, 4, 7, 2**31])
def test_groups(graphs, group) -> None:
    model = conv(graphs)
    attribute(node(model, "Conv"), "group", group)
    assert validate(model) in (Verdict.BOTH_REFUSE, Verdict.KIT_REFUSES)


def test_channels_that_groups_do_not_take(graphs) -> None:
    """ONNX's shape inference looks at neither; ONNX Runtime stops when it runs."""
    for kernel in ((24, 4, 1, 1), (6, 2, 3, 3), (6, 24, 1, 1)):
        model = conv(graphs)
        weights = np.ones(kernel, np.int8)
        put(model, next(one for one in model.graph.node if one.input[0].startswith("weights")), 0, weights)
        validate(model)


def test_kernel_shape_of_other_weights(graphs) -> None:
    for shape in ([2, 2], [3, 2], [3], [3, 3, 3], [0, 3], [-1, 3]):
        model = conv(graphs)
        attribute(node(model, "Conv"), "kernel_shape", shape)
        validate(model)


@pytest.mark.parametrize("name", ["strides", "dilations", "pads"])
@pytest.mark.parametrize("values", [[1], [0, 1], [1, -1], [1, 1, 1], [1, 1, 1, 1, 1], [-1, 0, 0, 0], [2**40, 1]])
def test_windows(graphs, name, values) -> None:
    for op in ("Conv", "MaxPool", "AveragePool"):
        graph = graphs.Graph(seed=2)
        x = graph.input((1, 4, 6, 6))
        y = graph.conv(x, 6) if op == "Conv" else graph.maxpool(x, 3)
        graph.output(graph.average(x, (2, 2), x.scale) if op == "AveragePool" else y)
        model = graph.model()
        attribute(node(model, op), name, values)
        validate(model)


@pytest.mark.parametrize("mode", ["VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET", "", "junk"])
def test_automatic_padding_beside_pads(graphs, mode) -> None:
    """ONNX forbids both; ONNX Runtime takes the mode."""
    model = conv(graphs, pads=[1, 0, 2, 1])
    attribute(node(model, "Conv"), "auto_pad", mode)
    validate(model)


def test_a_window_larger_than_its_input(graphs) -> None:
    """ONNX's shape inference gives it a width of -1."""
    graph = graphs.Graph(seed=3)
    y = graph.maxpool(graph.conv(graph.input((1, 5, 3, 1)), 17, 1), 3)
    graph.output(y)
    validate(graph.model())


@pytest.mark.parametrize("count", [2, 5, 7])
def test_scales_that_are_not_one_for_each_channel(graphs, count) -> None:
    model = conv(graphs)
    weights = next(one for one in model.graph.node if one.input[0].startswith("weights"))
    put(model, weights, 1, np.full(count, 0.01, np.float32))
    put(model, weights, 2, np.zeros(count, np.int8))
    validate(model)


@pytest.mark.parametrize("axis", [-5, -4, -3, -1, 1, 2, 4])
def test_axes_of_scales(graphs, axis) -> None:
    model = conv(graphs)
    attribute(next(one for one in model.graph.node if one.input[0].startswith("weights")), "axis", axis)
    validate(model)


def test_zero_points_that_differ_from_channel_to_channel(graphs) -> None:
    model = conv(graphs)
    weights = next(one for one in model.graph.node if one.input[0].startswith("weights"))
    put(model, weights, 2, np.arange(6, dtype=np.int8))
    validate(model)


@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (1, 6), (6, 1), (2,), (1, 1, 1, 1)])
def test_shapes_of_a_bias(graphs, shape, channels) -> None:
    graph = graphs.Graph(seed=1, ties=True)
    graph.output(graph.conv(graph.input((1, 4, 6, 6)), channels))
    model = graph.model()
    bias = next(one for one in model.graph.node if one.input[0].startswith("bias"))
    put(model, bias, 0, np.full(shape, 100, np.int32))
    put(model, bias, 1, np.array(0.0002, np.float32))
    put(model, bias, 2, np.array(0, np.int32))
    validate(model)


# ---- quantisers

SHAPES: Sequence[tuple[int, ...]] = ((), (1,), (1, 1), (0,), (2,), (4,))


@pytest.mark.sample(12)
@pytest.mark.parametrize("scales", SHAPES)
@pytest.mark.parametrize("zero_points", SHAPES)
def test_shapes_of_scales_and_zero_points(graphs, scales, zero_points) -> None:
    for op in ("Add", "MaxPool", "Sigmoid"):
        graph = graphs.Graph(seed=4)
        x = graph.input((1, 4, 6, 6), integer=True, name="x")
        make: dict[str, Callable] = {
            "Add": lambda g, x: g.add(x, x), "MaxPool": lambda g, x: g.maxpool(x, 2),
            "Sigmoid": lambda g, x: g.unary("Sigmoid", x),
        }  # fmt: skip
        graph.output(make[op](graph, x), integer=True)
        model = graph.model()
        # ONNX Runtime crashes on a model with an empty zero point; it is refused before
        parameters(model, "x", np.full(scales, 0.02, np.float32), np.full(zero_points, 3, np.int8))
        if 0 in (*scales, *zero_points):
            with pytest.raises(Exception, match="no elements"):
                check_model(model, SMALL)
            continue
        validate(model)


@pytest.mark.sample(24)
@pytest.mark.parametrize("scale", [0.0, -0.0, -0.02, 1e-45, 1e-39, 1e-30, 1e-8, 1e8, 1e30, 3e38, np.inf, np.nan])
@pytest.mark.parametrize("op", ["Add", "Mul", "Conv", "GlobalAveragePool", "AveragePool", "Pad", "Gelu", "Concat"])
def test_scales_of_any_size(graphs, scale, op) -> None:
    """Of an input, of a result, and of both."""
    for changed in (("x",), ("y",), ("x", "y")):
        graph = graphs.Graph(seed=5)
        x = graph.input((1, 4, 6, 6), integer=True, name="x")
        value = graph.dequantize(x)
        weights = graph.weights(graph.random_weights((5, 4, 1, 1)), 0.01)
        more: dict[str, list[str]] = {
            "Add": [value], "Mul": [value], "Conv": [weights], "Concat": [value],
            "Pad": [graph.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)), graph.constant(np.float32(1))],
        }  # fmt: skip
        attributes: dict[str, Any] = {"AveragePool": {"kernel_shape": [2, 2]}, "Concat": {"axis": 1}}.get(op, {})
        result = graph.node(op, [value, *more.get(op, [])], **attributes)
        graph.output(graph.quantize(result, 0.02, 3, output="y"), integer=True)
        model = graph.model()
        for name in changed:
            parameters(model, name, np.array(scale, np.float32), np.array(3, np.int8))
        validate(model)


@pytest.mark.parametrize("power", [14, 15, 20, 21, 22, 23, 24, 31])
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_results_beyond_32_bits(graphs, op, power) -> None:
    """ONNX Runtime wraps what does not fit before it limits it."""
    graph = graphs.Graph(seed=6)
    values = [graph.dequantize(graph.input((1, 4, 6, 6), scale=1.0, integer=True)) for _ in "ab"]
    graph.output(graph.quantize(graph.node(op, values), 2.0**-power), integer=True)
    validate(graph.model())
    if power > 21:
        assert "ONNX Runtime wraps what is too large" in stays(graph.model(), op)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32])
def test_a_zero_point_of_another_type(graphs, dtype) -> None:
    model = conv(graphs)
    put(model, node(model, "QuantizeLinear"), 2, np.array(3, dtype))
    validate(model)


def test_no_zero_point(graphs) -> None:
    """Then it is 0, and a QuantizeLinear's result uint8, unless it says otherwise."""
    for kind in (None, 2, 3):
        graph = graphs.Graph(seed=7)
        x = graph.input((1, 4, 6, 6), integer=True, name="x", dtype=np.int8 if kind == 3 else np.uint8)
        graph.output(graph.maxpool(graph.add(x, x), 2), integer=True)
        model = graph.model()
        for one in model.graph.node:
            if one.op_type in ("QuantizeLinear", "DequantizeLinear"):
                del one.input[2:]
            if one.op_type == "QuantizeLinear" and kind is not None:
                attribute(one, "output_dtype", kind)
        del model.graph.output[0].type.tensor_type.shape.dim[:]
        model.graph.output[0].CopyFrom(
            helper.make_tensor_value_info(model.graph.output[0].name, kind or 2, (1, 4, 5, 5))
        )
        validate(model)


@pytest.mark.parametrize("limits", [(np.nan, 6.0), (0.0, np.nan), (6.0, 0.0), (-np.inf, np.inf), (-9.0, 9.0)])
def test_limits(graphs, limits) -> None:
    graph = graphs.Graph(seed=8, ties=True)
    graph.output(graph.conv(graph.input((1, 4, 6, 6)), 6, clip=limits))
    validate(graph.model())


# ---- operators that move elements


def moved(graphs, op: str, constants: list, opset: int = 21, **attributes: Any) -> onnx.ModelProto:
    graph = graphs.Graph(seed=9, opset=opset)
    x = graph.input((1, 8, 6, 6), integer=True)
    # a Resize's scales, and the number with which a Pad fills
    kinds = [np.float32 if op == "Resize" or (op == "Pad" and place == 1) else np.int64 for place in range(4)]
    arrays = [None if one is None else np.array(one, kind) for one, kind in zip(constants, kinds, strict=False)]
    graph.output(graph.moved(op, x, arrays, **attributes), integer=True)
    return graph.model()


@pytest.mark.parametrize(
    "constants",
    [
        [[0, 0], [4, 3], [1, 2]], [[0, 0], [4, 3], [-3, -2]], [[0, 0], [4], [1, 2]], [[0], [4], [9]], [[0], [4], [-9]],
        [[0, 1], [4, 5], [1, 1]], [[0, 1], [4, 5], [1, -3]], [[0], [4], [1], [2]], [[0], [4], [1], [0]],
        [[0], [4], [1], [-1]], [[5], [2], [2]], [[-100], [100], [3]], [[2**62], [2**63 - 1], [3]], [[], [], []],
        [[0, 0], [4, 4]], [[0], [4], [1], [1, 1]],
    ],
)  # fmt: skip
def test_slices(graphs, constants) -> None:
    try:
        model = moved(graphs, "Slice", constants)
    except KeyError:  # which has no shape at all
        pytest.skip("ONNX's shape inference has no result")
    validate(model)


@pytest.mark.parametrize(
    ("constants", "attributes"),
    [
        ([[0, 0, 1, 1, 0, 0, 1, 1], [1]], {}), ([[0, 0, 1, 1, 0, 0, 1]], {}), ([[1, 1, 1, 1], None, [2, 3]], {}),
        ([[1, 1, 1, 1], None, [-2, -1]], {}), ([[1, 1, 1, 1], None, [2, 2]], {}), ([[1, 1, 1, 1], None, [2, 9]], {}),
        ([[1, 1, 1], None, [2, 3]], {}), ([[0, 0, -1, 1, 0, 0, 1, -2]], {}), ([[0, 0, -4, 0, 0, 0, -4, 0]], {}),
        ([[0, 0, 1, 1, 0, 0, 1, 1], [1, 2]], {}), ([[0, 0, 1, 1, 0, 0, 1, 1], []], {}), ([[]], {}),
        ([[0, 0, 1, 1, 0, 0, 1, 1], [np.nan]], {}), ([[0, 0, 1, 1, 0, 0, 1, 1], [-np.inf]], {}),
        ([[0, 0, 1, 1, 0, 0, 1, 1]], {"mode": "wrap"}), ([[0, 0, 1, 1, 0, 0, 1, 1]], {"mode": "junk"}),
        ([[], None, []], {}),
    ],
)  # fmt: skip
def test_padding(graphs, constants, attributes) -> None:
    validate(moved(graphs, "Pad", constants, **attributes))


@pytest.mark.parametrize("axis", [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("op", ["Concat", "Flatten"])
def test_axes(graphs, op, axis) -> None:
    graph = graphs.Graph(seed=10)
    x = graph.conv(graph.input((1, 4, 6, 6)), 4)
    value = graph.dequantize(x)
    result = graph.node(op, [value, value] if op == "Concat" else [value], axis=1)
    graph.output(graph.maxpool(graph.quantize(result, x.scale, x.zero_point), 2) if op == "Concat" else
                 graph.gemm(graph.quantize(result, x.scale, x.zero_point), 5))  # fmt: skip
    model = graph.model()
    attribute(node(model, op), "axis", axis)
    validate(model)


@pytest.mark.parametrize("opset", [7, 8, 9])
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 2.3, 2], [1, 1, 2, 2.01], [1, 2, 1, 1], [1, 1, 2]])
def test_upsample(graphs, opset, scales) -> None:
    """Its scales are an attribute until operator set 8; 2.3 times 3 rows are 6, which are not each row twice."""
    graph = graphs.Graph(seed=11, opset=13)
    x = graph.input((1, 4, 3, 3), integer=True)
    value = graph.dequantize(x)
    # quantisers came with operator set 10, Upsample went with it; ONNX Runtime's own domain has them in any
    graph.domains.append(helper.make_opsetid("com.microsoft", 1))
    names = [value] if opset < 9 else [value, graph.constant(np.array(scales, np.float32))]
    attributes = {"scales": [float(scale) for scale in scales]} if opset < 9 else {}
    result = graph.node("Upsample", names, mode="nearest", **attributes)
    graph.output(graph.quantize(result, x.scale, x.zero_point), integer=True)
    graph.opset = opset
    for one in graph.nodes:
        if one.op_type.endswith("Linear"):
            one.domain = "com.microsoft"
    try:
        model = graph.model()
    except Exception as error:
        pytest.skip(f"no such model: {error}")
    validate(model)


@pytest.mark.parametrize(
    ("constants", "attributes"),
    [
        ([None, [1, 1, 2, 2]], {}), ([None, [2, 2]], {"axes": [2, 3]}), ([None, [2, 2]], {"axes": [-2, -1]}),
        ([None, [2, 2]], {"axes": [2, 9]}), ([None, [2, 2, 2]], {"axes": [2, 3]}), ([None, [1, 1, 2.1, 2]], {}),
        ([None, [1, 1, 0.5, 2]], {}), ([None, [1, 1, 0, 2]], {}), ([None, [1, 1, -1, 2]], {}),
        ([None, [1, 2, 1, 1]], {}),
        ([None, [1, 1, 2, 2]], {"antialias": 1}), ([None, [1, 1, 2, 2]], {"exclude_outside": 1}),
        ([None, [1, 1, 2, 2]], {"extrapolation_value": 5.0}), ([None, [1, 1, 2, 2]], {"mode": "cubic"}),
        ([None, [1, 1, 2, 2]], {"nearest_mode": "junk"}),
    ],
)  # fmt: skip
def test_resizing(graphs, constants, attributes) -> None:
    stated = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    validate(moved(graphs, "Resize", constants, **{**stated, **attributes}))


@pytest.mark.parametrize("version", [3, 8])
def test_a_scale_that_a_caller_may_replace(graphs, version: int) -> None:
    """It is an initializer and an input. ONNX Runtime then computes the node in float, in a part that stays as well.

    Before version 4 of the IR every initializer was an input as well, and a constant nevertheless.
    """
    for seed in range(4):
        graph = graphs.Graph(seed=seed, ties=True)
        graph.output(graph.conv(graph.conv(graph.input((1, 4, 6, 6)), 6), 5))
        model = graph.model()
        model.ir_version = version
        last = [one for one in model.graph.node if one.op_type == "Conv"][-1]
        dequantizer = next(one for one in model.graph.node if last.input[0] in one.output)
        scale = next(one for one in model.graph.initializer if one.name == dequantizer.input[1])
        put(model, dequantizer, 1, numpy_helper.to_array(scale))
        for one in model.graph.initializer if version < 4 else model.graph.initializer[-1:]:
            model.graph.input.append(helper.make_tensor_value_info(one.name, one.data_type, one.dims))
        assert validate(model) is Verdict.AGREE
        reasons = [one.reason for one in check_model(model, SMALL).partition.reasons if one.op == "Conv"]
        assert len(reasons) == (1 if version >= 4 else 0), reasons
        compiled = compile_model(model, SMALL).artifact
        assert compiled is not None
        assert overridable(compiled) == ({dequantizer.input[1]} if version >= 4 else set())
