"""Bad input: one clear line on stderr, exit code 2, no traceback."""

import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npukit.compiler import pipeline
from npukit.driver.device import DeviceError
from npukit.isa.program import VERSION
from onnx import TensorProto, helper, numpy_helper

from npukit import zoo
from npukit.cli import run as run_command
from npukit.npufile import check_apart
from npukit.session import Session

READERS = (("check",), ("compile",), ("run",), ("disasm",))
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def save(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def arguments(command: str, path: object, tmp_path: Path) -> list[object]:
    return [command, path, *(["-o", tmp_path / "out"] if command == "compile" else [])]


# ---- files that are no models


@pytest.mark.parametrize("command", ["check", "compile", "run", "disasm", "asm"])
def test_no_such_file(npukit, tmp_path, command) -> None:
    more = ["-o", tmp_path / "out"] if command in ("compile", "asm") else []
    line = npukit(command, tmp_path / "none.onnx", *more).refused("none.onnx: No such file or directory")
    assert line == f"npukit: cannot read {tmp_path / 'none.onnx'}: No such file or directory"


@pytest.mark.parametrize("command", ["check", "compile", "run", "disasm", "asm"])
def test_a_folder(npukit, tmp_path, command) -> None:
    more = ["-o", tmp_path / "out"] if command in ("compile", "asm") else []
    npukit(command, tmp_path, *more).refused(f"cannot read {tmp_path}: Is a directory")


@pytest.mark.parametrize("command", ["check", "compile", "run", "disasm"])
@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x89PNG\r\n\x1a\n" + bytes(64), b"{}", bytes(100), b"\x08"])
def test_not_onnx(npukit, tmp_path, command, content) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    npukit(*arguments(command, path, tmp_path)).refused(f"{path} is not an ONNX model, or it is cut short")


@MANY
@given(content=st.binary(max_size=300))
def test_random_bytes(npukit, tmp_path, content) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    npukit("run", tmp_path / "model.onnx").refused()


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_truncated_onnx(npukit, tmp_path, precision) -> None:
    data, path = zoo.load("digits", precision), tmp_path / "cut.onnx"
    generator = random.Random(1)
    lengths = [*range(0, 200, 7), *generator.sample(range(len(data)), 60), *range(len(data) - 60, len(data))]
    for length in lengths:
        path.write_bytes(data[:length])
        npukit("check", path).refused("cut.onnx is not an ONNX model, or it is cut short")


def test_onnx_with_flipped_bytes(npukit, tmp_path) -> None:
    """A plain model has no digest: it may load all the same, but never with a traceback or in two lines."""
    data, path = zoo.load("digits"), tmp_path / "model.onnx"
    generator = random.Random(2)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        damaged[generator.choice([*range(3000), *range(len(data) - 14000, len(data))])] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        result = npukit("check", path, "--quiet")
        if result.code:
            result.refused()
            refused += 1
    assert 20 < refused < 130


# ---- models that cannot be compiled


def test_the_configuration_is_named_before_the_failure(npukit, small, compiled, tmp_path) -> None:
    """And nothing but the failure with --quiet."""
    for words in (
        ("check", tmp_path / "none.onnx"),
        ("compile", tmp_path / "none.onnx", "-o", tmp_path / "f"),
        ("compile", small, "-o", tmp_path / "none" / "f"),
        ("run", small, "--input", tmp_path / "none.npz"),
        ("run", compiled, "--compare"),
        ("run", compiled, "--config", "int8-4x4"),
        ("disasm", compiled, "-o", tmp_path / "none" / "f"),
        ("asm", tmp_path / "none.asm", "-o", tmp_path / "f"),
    ):
        result = npukit(*words)
        result.refused()
        assert result.err.startswith("config: int8-") and result.err.count("\n") == 2, words
        quiet = npukit(*words, "--quiet")
        assert quiet.err == result.err.split("\n", 1)[1], words


def test_dynamic_shape_says_how_to_fix_it(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((2, 3, 6, 6), name="image"), 4))
    model = graph.model()
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    path = save(tmp_path / "m.onnx", model)
    for command in ("check", "compile", "run"):
        line = npukit(*arguments(command, path, tmp_path)).refused(
            "input image has the shape [N, 3, 6, 6]; every dimension must be a fixed number above 0"
        )
        assert line.endswith("--input-shape image=1,3,6,6")
        assert npukit(*arguments(command, path, tmp_path), "--input-shape", "image=1,3,6,6").code == 0
    value = npukit("run", path, "--input-shape", "image=3,3,6,6", "--compare", "--json", "--quiet")
    assert value.code == 0 and value.json["layers"][0]["inputs"] == [[3, 3, 6, 6]]
    for text, message in (
        ("image=1,3,6", "input image has 4 dimensions, not 3: [1, 3, 6]"),
        ("image=1,4,6,6", "input image has the fixed dimension 3, not 4"),
        ("picture=1,3,6,6", "the model has the inputs image, not 'picture'"),
        ("image", "--input-shape must be NAME=D,D,... with whole numbers above 0, not 'image'"),
        ("image=1,3,0,6", "with whole numbers above 0, not 'image=1,3,0,6'"),
        ("image=1,x", "with whole numbers above 0, not 'image=1,x'"),
        ("=1,3", "with whole numbers above 0, not '=1,3'"),
    ):
        npukit("check", path, "--input-shape", text).refused(message)


def test_input_of_unknown_rank(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((2, 3, 6, 6), name="image"), 4))
    model = graph.model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path = save(tmp_path / "m.onnx", model)
    npukit("check", path).refused("input image has no shape; every", "give it, as in --input-shape image=1,3,224,224")
    assert npukit("run", path, "--input-shape", "image=2,3,6,6", "--compare").code == 0


def test_shape_for_a_compiled_model(npukit, compiled) -> None:
    npukit("run", compiled, "--input-shape", "image=1,3,6,6").refused("a compiled model has its shapes already")


def test_input_that_is_no_tensor(npukit, tmp_path) -> None:
    values = helper.make_tensor_sequence_value_info("images", TensorProto.FLOAT, [1, 2])
    node = helper.make_node("SequenceLength", ["images"], ["count"])
    graph = helper.make_graph([node], "g", [values], [helper.make_tensor_value_info("count", TensorProto.INT64, [])])
    path = save(tmp_path / "m.onnx", model_of(graph))
    npukit("run", path).refused("input images is sequence; only tensors are supported")


def test_text_input_has_no_random_values(npukit, tmp_path) -> None:
    value = helper.make_tensor_value_info("text", TensorProto.STRING, [2])
    out = helper.make_tensor_value_info("out", TensorProto.STRING, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["text"], ["out"])], "g", [value], [out])
    path = save(tmp_path / "m.onnx", model_of(graph))
    npukit("run", path).refused("input text is string, for which there are no random values: give --input F.npz")


def test_opset_too_new(npukit, tmp_path) -> None:
    model = onnx.load_from_string(zoo.load("digits"))
    model.opset_import[0].version = 99
    npukit("check", save(tmp_path / "m.onnx", model)).refused("the model uses opset 99; at most 28 is supported")


def test_ir_version_too_new(npukit, tmp_path) -> None:
    model = onnx.load_from_string(zoo.load("digits"))
    model.ir_version = 99
    npukit("check", save(tmp_path / "m.onnx", model)).refused("the model has IR version 99; at most 14 is supported")


def test_cycle(npukit, tmp_path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    graph = helper.make_graph(nodes, "g", [value], [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])])
    path = save(tmp_path / "m.onnx", model_of(graph))
    npukit("check", path).refused("Nodes in a graph must be topologically sorted", "input 'b'", "name: first")


def test_unknown_tensor_and_operator(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 3, 6, 6)), 4))
    model = graph.model()
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    node.input[0] = "nowhere"
    npukit("run", save(tmp_path / "m.onnx", model)).refused("the model is not valid ONNX", "nowhere", node.name)
    node.op_type = "Convolute"
    npukit("run", save(tmp_path / "m.onnx", model)).refused("the model is not valid ONNX", "Convolute")


def test_what_onnx_runtime_refuses(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    graph.output(graph.maxpool(graph.input((1, 3, 6, 6)), 2, pads=[2, 2, 2, 2]))
    path = save(tmp_path / "m.onnx", graph.model())
    npukit("check", path).refused("ONNX Runtime refuses the model", "Pad should be smaller than kernel")


def test_what_onnx_runtime_stops_at(npukit, tmp_path) -> None:
    """An input on which the host's part fails is a tool that failed: exit code 3, and ONNX Runtime's words."""
    index = helper.make_tensor_value_info("index", TensorProto.INT64, [1])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1])
    table = numpy_helper.from_array(np.ones(4, np.float32), "table")
    graph = helper.make_graph([helper.make_node("Gather", ["table", "index"], ["out"])], "g", [index], [out], [table])
    path = save(tmp_path / "m.onnx", model_of(graph))
    np.savez(tmp_path / "in.npz", index=np.array([4]))
    words = ("ONNX Runtime stops: ", "indices element out of data bounds")
    npukit("run", path, "--input", tmp_path / "in.npz").refused(*words, code=3)
    assert npukit("run", path).code == 0, "inputs that are made up lie within what they index"


def test_a_compiled_model_is_not_compiled_again(npukit, compiled, tmp_path) -> None:
    for command in ("check", "compile"):
        npukit(*arguments(command, compiled, tmp_path)).refused("the model is compiled already")


def test_another_tools_context(npukit, compiled, tmp_path) -> None:
    model = onnx.load(compiled)
    del model.metadata_props[:]
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "source":
            attribute.s = b"QNNExecutionProvider"
    npukit("run", save(tmp_path / "m.onnx", model)).refused("was made by QNNExecutionProvider")


# ---- models that compile, but not as one might think


def test_float_model_stays_whole(npukit, tmp_path) -> None:
    path = tmp_path / "fp32.onnx"
    assert npukit("zoo", "digits", "--precision", "fp32", "-o", path).code == 0
    result = npukit("run", path, "--compare", "--json", "--quiet")
    assert result.code == 1, "a comparison of nothing is no success"
    offload = result.json["offload"]
    assert offload["nodes"] == 0 and offload["macs"] == 0 < offload["macs_total"]
    assert "quantise it with npukit quantize" in offload["suggestion"]
    assert "--config bf16-16x16" in offload["suggestion"]
    text = npukit("check", path)
    assert text.code == 0 and f"nothing runs on the accelerator: {offload['suggestion']}" in text.out
    assert "    and likewise 4 x Conv: block1/conv2/Conv, " in text.out, "nodes with one reason are one line"
    compared = npukit("run", path, "--compare")
    assert compared.code == 1 and "nothing ran on the accelerator" in compared.out
    assert npukit("run", path).code == 0
    assert len(offload["reasons"]) == offload["nodes_total"]
    reasons = {reason["op"]: reason["reason"] for reason in offload["reasons"]}
    assert reasons["Conv"].endswith("does not come from a DequantizeLinear; quantise the model (QDQ)")
    assert result.json["cycles"] == 0 and result.json["utilization"] == 0
    compare = result.json["compare"]
    assert (compare["tensors_total"], compare["elements"], compare["mismatches"]) == (0, 10, 0)
    assert f"on the accelerator: 0 of {offload['nodes_total']} nodes, 0 of " in npukit("run", path).out
    compiled = tmp_path / "compiled.onnx"
    assert npukit("compile", path, "-o", compiled).code == 0
    npukit("disasm", compiled).refused("holds no program: compile it first with npukit compile")


def test_nothing_but_host_nodes(npukit, tmp_path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("Exp", ["s"], ["y"])]
    path = save(tmp_path / "m.onnx", model_of(helper.make_graph(nodes, "g", [value], [out])))
    assert npukit("run", path).code == 0
    value = npukit("check", path, "--json", "--quiet").json
    assert [reason["node"] for reason in value["offload"]["reasons"]] == ["Softmax_0", "Exp_1"]


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf"), -0.5])
def test_scale_that_is_no_scale(npukit, graphs, tmp_path, scale) -> None:
    """ONNX Runtime has its own view of such a model; the node stays there, and the reason says why."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    broken = next(tensor for tensor in graph.initializers if tensor.name == graph.nodes[-1].input[1])
    broken.CopyFrom(numpy_helper.from_array(np.asarray(scale, np.float32), broken.name))
    graph.output(y)
    value = npukit("check", save(tmp_path / "m.onnx", graph.model()), "--json", "--quiet").json
    reason = next(reason for reason in value["offload"]["reasons"] if reason["op"] == "Conv")
    assert reason["reason"] == f"the scale of QuantizeLinear:{y.name} must be positive float32, not {scale}"


def test_extreme_scales_leave_no_warning(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    a, b = (graph.input((1, 3, 6, 6), scale=1e38, integer=True) for _ in "ab")
    graph.output(graph.quantize(graph.node("Add", [graph.dequantize(a), graph.dequantize(b)]), 1e-38), integer=True)
    graph.output(graph.conv(a, 4, scale=1e-30), integer=True)
    result = npukit("run", save(tmp_path / "m.onnx", graph.model()), "--quiet", "--json")
    assert result.code == 0 and result.err == ""
    for reason in result.json["offload"]["reasons"]:
        if reason["op"] in ("Add", "Conv"):
            assert reason["reason"] == "its scales make the factor inf, which is no positive, normal fp32 number"


def test_tensor_without_elements(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    bounds = [graph.constant(np.array([n], np.int64)) for n in (0, 0, 1)]
    empty = graph.quantize(graph.node("Slice", [graph.dequantize(y), *bounds]), 0.02)
    graph.output(graph.add(empty, empty))
    path = save(tmp_path / "m.onnx", graph.model())
    reasons = npukit("check", path, "--json", "--quiet").json["offload"]["reasons"]
    reason = next(reason["reason"] for reason in reasons if reason["op"] == "Add")
    assert reason.endswith("has no elements: shape [1, 0, 4, 4]")
    assert npukit("run", path, "--compare").code == 0


def test_control_flow_stays(npukit, graphs, tmp_path) -> None:
    """The branches of an If read a tensor from outside, which an accelerated convolution makes."""
    graph = graphs.Graph()
    a = graph.conv(graph.input((1, 4, 6, 6)), 5, pads=[1] * 4)
    b = graph.conv(a, 5, pads=[1] * 4)
    outer = graph.dequantize(a)
    graph.inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Identity")):
        result = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [1, 5, 6, 6])
        branches[name] = helper.make_graph([helper.make_node(op, [outer], [result.name])], name, [], [result])
    graph.output(graph.add(graph.quantize(graph.node("If", ["flag"], **branches), 0.02), b))
    path = save(tmp_path / "m.onnx", graph.model())
    for seed in (0, 1, 2, 3):
        result = npukit("run", path, "--compare", "--json", "--quiet", "--seed", seed)
        assert result.code == 0
        assert any(reason["op"] == "If" for reason in result.json["offload"]["reasons"])
        assert [layer["op"] for layer in result.json["layers"]] == ["Conv", "Conv", "Add"]


# ---- configurations


def test_unknown_configuration(npukit, digits, compiled) -> None:
    message = "no configuration is called 'int8-5x5'; there are int8-4x4, int8-8x8, int8-16x16"
    for command in (("check", digits), ("run", digits), ("run", compiled), ("compile", digits, "-o", "x")):
        npukit(*command, "--config", "int8-5x5").refused(message)
    npukit("configs", "int8-5x5").refused(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("array = ", "is not a TOML file"),
        ("\x00\x01", "is not a TOML file"),
        ("colour = 3", "not 'colour'"),
        ("array = 5", "array must be a power of two, or have words of whole beats: 5 elements are 5 bytes"),
        ("array = '16'", "array must be a whole number, not '16'"),
        ("array = 8\nvector_lanes = 3", "vector_lanes must divide array (8), not 3"),
        ("act_depth = true", "act_depth must be a whole number, not True"),
        ("dtype = 'int4'", "dtype must be one of int8, bf16, not 'int4'"),
        ("base = 'int8-5x5'", "no configuration is called 'int8-5x5'"),
        ("base = 7", "base must be the name of a preset, not 7"),
        ("wgt_depth = 4", "wgt_depth must be from 32 to 32768, not 4"),
    ],
)
def test_bad_toml(npukit, digits, tmp_path, text, message) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    line = npukit("run", digits, "--config", path).refused(message)
    assert str(path) in line


def test_unreadable_toml(npukit, digits, tmp_path) -> None:
    none = tmp_path / "none.toml"
    npukit("check", digits, "--config", none).refused(f"cannot read configuration file {none}: No such file")
    (tmp_path / "folder.toml").mkdir()
    npukit("check", digits, "--config", tmp_path / "folder.toml").refused("folder.toml: Is a directory")
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\xff")
    npukit("check", digits, "--config", tmp_path / "latin.toml").refused("latin.toml is not a TOML file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("array", "--set must be FIELD=VALUE, not 'array'"),
        ("=4", "not ''"),
        ("arrays=4", "not 'arrays'"),
        ("array=four", "array must be a whole number, not 'four'"),
        ("array=6", "array must be a power of two, or have words of whole beats: 6 elements are 6 bytes"),
        ("array=", "array must be a whole number, not ''"),
        ("acc_banks=99", "acc_banks must be from 1 to 16, not 99"),
        ("bus_bytes=-8", "bus_bytes must be a power of two from 4 to 64, not -8"),
    ],
)
def test_bad_set(npukit, digits, text, message) -> None:
    npukit("check", digits, "--set", text).refused(message)


def test_program_for_another_configuration(npukit, compiled, program) -> None:
    for path in (compiled, program):
        for options in (("--config", "int8-4x4"), ("--set", "act_depth=99")):
            line = npukit("run", path, *options).refused("the model is compiled for another configuration")
            assert ("array: 8, 4" in line) == ("--config" in options)
            assert ("act_depth: 2048, 99" in line) == ("--set" in options)


def test_device_of_another_configuration(digits) -> None:
    """The library's own check, for devices that the caller brings."""
    from npukit.driver.sim_device import SimDevice
    from npukit.isa.config import preset

    with pytest.raises(DeviceError, match="compiled for another configuration .*array: 16, 8"):
        Session(digits, "int8-16x16", SimDevice(preset("int8-8x8")))


# ---- inputs


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (dict(picture=np.zeros((2, 3, 6, 6), np.int8)), "the model has the inputs image, not 'picture'"),
        (dict(), "input image is missing"),
        (dict(image=np.zeros((1, 3, 6, 6), np.int8)), "must have the shape [2, 3, 6, 6], not [1, 3, 6, 6]"),
        (dict(image=np.zeros((), np.int8)), "must have the shape [2, 3, 6, 6], not []"),
        (dict(image=np.zeros((2, 3, 6, 6), np.uint8)), "input image must be int8, not uint8"),
        (dict(image=np.zeros((2, 3, 6, 6), np.float64)), "input image must be int8, not float64"),
        (dict(image=np.zeros((2, 3, 6, 6), "U3")), "input image must be int8, not <U3"),
    ],
)
def test_wrong_inputs(npukit, small, compiled, tmp_path, arrays, message) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    for path in (small, compiled):
        npukit("run", path, "--input", tmp_path / "in.npz").refused(message)


def test_input_file_that_is_none(npukit, small, tmp_path) -> None:
    npukit("run", small, "--input", tmp_path / "none.npz").refused("none.npz: No such file or directory")
    npukit("run", small, "--input", tmp_path).refused(f"cannot read {tmp_path}: Is a directory")
    np.savez(tmp_path / "good.npz", image=np.zeros((2, 3, 6, 6), np.int8))
    whole = (tmp_path / "good.npz").read_bytes()
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", image=np.array([{}], dtype=object))
    files = {"text": b"hello", "empty": b"", "cut": whole[:-30], "half": whole[: len(whole) // 2]}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name in (*files, "array.npy"):
        npukit("run", small, "--input", tmp_path / name).refused(f"{tmp_path / name} is not a .npz file of arrays")
    npukit("run", small, "--input", tmp_path / "objects.npz").refused("input image must be int8, not object")


def test_a_bfloat16_tensor_without_all_of_its_data(npukit, small, tmp_path) -> None:
    model = onnx.load(small)
    model.graph.initializer.append(TensorProto(name="t", data_type=TensorProto.BFLOAT16, dims=[3], raw_data=b"\0" * 5))
    path = save(tmp_path / "m.onnx", model)
    npukit("check", path).refused("tensor t is damaged: ")


def _npy(head: str, data: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


def test_inputs_are_checked_before_memory_is_taken_for_them(npukit, small, tmp_path) -> None:
    """Little on disk, much when it is read: by its head the wrong input, or more than its head says."""
    head = "{'descr': '|i1', 'fortran_order': False, 'shape': (%s), }"
    size = 1 << 28
    for name, text, message in (
        ("large", head % f"{size},", f"input image must have the shape [2, 3, 6, 6], not [{size}]"),
        ("longer", head % "2, 3, 6, 6", "longer.npz is not a .npz file of arrays, or it is damaged"),
        ("huge", head % f"{1 << 62}, 4", f"must have the shape [2, 3, 6, 6], not [{1 << 62}, 4]"),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            with file.open("image.npy", "w", force_zip64=True) as member:
                member.write(_npy(text, b""))
                for _ in range(size >> 24 if name != "huge" else 1):
                    member.write(bytes(1 << 24))
        tracemalloc.start()
        try:
            npukit("run", small, "--input", tmp_path / f"{name}.npz").refused(message)
            assert tracemalloc.get_traced_memory()[1] < 1 << 26
        finally:
            tracemalloc.stop()


def test_an_input_file_with_a_wrong_checksum_or_a_name_twice(npukit, small, tmp_path) -> None:
    array = _npy("{'descr': '|i1', 'fortran_order': False, 'shape': (2, 3, 6, 6), }", bytes(216))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "twice.npz", "w") as file:
        file.writestr("image.npy", array)
        file.writestr("image.npy", array)
    with zipfile.ZipFile(tmp_path / "damaged.npz", "w") as file:
        file.writestr("image.npy", array + b"\x00")
    data = (tmp_path / "damaged.npz").read_bytes()
    assert data.count(array) == 1
    (tmp_path / "damaged.npz").write_bytes(data.replace(array, array[:-1] + b"\x01"))
    for name in ("twice.npz", "damaged.npz"):
        npukit("run", small, "--input", tmp_path / name).refused(
            f"{name} is not a .npz file of arrays, or it is damaged"
        )


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--compare", "--timing-only"), "--compare needs values, which --timing-only leaves out"),
        (("--output", "o.npz", "--timing-only"), "--output needs values, which --timing-only leaves out"),
        (("--input", "i.npz", "--seed", "1"), "--input and --seed both give the inputs"),
        (("--seed", "-1"), "--seed must be 0 or above, not -1"),
        (("--seed", "x"), "argument --seed: invalid int value: 'x'"),
        (("--dram-latency", "0"), "DRAM latency must be from 1 to 100000, not 0"),
        (("--dram-latency", "-5"), "DRAM latency must be from 1 to 100000, not -5"),
        (("--dram-latency", "1000000"), "DRAM latency must be from 1 to 100000, not 1000000"),
        (("--dram-latency", "fast"), "argument --dram-latency: invalid int value: 'fast'"),
        (("--device", "fpga"), "the devices are sim, rtl, serial, not 'fpga'"),
        (("--reference", "m.onnx"), "--reference goes with --compare"),
        (("--compare", "--reference", "m.onnx"), "--reference goes with a compiled model"),
        (("--colour",), "unrecognized arguments: --colour"),
    ],
)
def test_options_of_run(npukit, small, options, message) -> None:
    npukit("run", small, *options).refused(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("fly",), "argument COMMAND: invalid choice: 'fly'"),
        (("run",), "the following arguments are required: MODEL|F"),
        (("compile", "m.onnx"), "compile needs -o F, or --stop-after PASS, and not both"),
        (("compile", "m.onnx", "-o", "f", "--stop-after", "emit"), "and not both"),
        (
            ("compile", "m.onnx", "--stop-after", "emit", "--json"),
            "--stop-after prints text; leave out --json",
        ),
        (("compile", "m.onnx", "--stop-after", "sleep"), "argument --stop-after: invalid choice: 'sleep'"),
        (("zoo", "cats"), "one of digits, digits-vit, resnet18, resnet50, mobilenetv2, bert-tiny, "),
        (("zoo", "digits", "--precision", "fp8"), "precision of digits must be one of int8, fp32, tflite, not 'fp8'"),
        (("zoo", "digits", "--list"), "zoo takes --list or a NAME, not both"),
        (("zoo", "-o", "f"), "-o goes with the NAME of a model"),
    ],
)
def test_options_of_other_commands(npukit, words, message) -> None:
    npukit(*words).refused(message)


def test_compare_of_a_compiled_model(npukit, compiled, digits, small, graphs, tmp_path) -> None:
    npukit("run", compiled, "--compare").refused("give its source with --reference MODEL")
    npukit("run", compiled, "--compare", "--reference", tmp_path / "none").refused("No such file or directory")
    npukit("run", compiled, "--compare", "--reference", compiled).refused("ONNX Runtime refuses the reference")
    npukit("run", compiled, "--compare", "--reference", digits).refused(
        "the reference has the outputs logits and the model that runs", "they are different models"
    )
    other = graphs.Graph(seed=1)
    x = other.input((1, 3, 6, 6), integer=True, name="image")
    other.output(other.conv(other.conv(x, 9, relu=True), 5), integer=True)
    path = save(tmp_path / "other.onnx", other.model())
    npukit("run", compiled, "--compare", "--reference", path).refused(
        "image has the shape [1, 3, 6, 6] in the reference and [2, 3, 6, 6] in the model that runs"
    )


# ---- where to write


@pytest.mark.parametrize(
    ("place", "message"), [("none/f", "the folder {0}/none does not exist"), (".", "it is a folder")]
)
def test_output_that_cannot_be_written(npukit, small, compiled, tmp_path, monkeypatch, place, message) -> None:
    """Refused before any work is done."""
    target = tmp_path / place
    (tmp_path / "p.asm").write_text("END\n")

    def work(*_, **__):
        raise AssertionError("work before the output was checked")

    monkeypatch.setattr(pipeline, "load_model", work)
    monkeypatch.setattr(run_command, "Session", work)
    monkeypatch.setattr("npukit.cli.asm.disassemble", work)
    monkeypatch.setattr("npukit.cli.asm.assemble", work)
    for words in (
        ("zoo", "digits", "-o"),
        ("compile", small, "-o"),
        ("run", small, "--output"),
        ("disasm", compiled, "-o"),
        ("asm", tmp_path / "p.asm", "-o"),
    ):
        npukit(*words, target).refused(f"cannot write {target}: {message.format(tmp_path)}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.asm"]


def test_output_that_is_an_input(npukit, small, compiled, program, tmp_path, monkeypatch) -> None:
    """Refused before any work, however the file is called; it stays as it was."""
    names = {"model.onnx": small, "compiled.onnx": compiled, "p.npu": program, "p.asm": program, "in.npz": small}
    for name, source in names.items():
        (tmp_path / name).write_bytes(source.read_bytes())
    onnx.save_model(
        onnx.load(small), str(tmp_path / "large.onnx"), save_as_external_data=True, size_threshold=0,
        location="weights.bin",
    )  # fmt: skip
    (tmp_path / "mine.toml").write_text("")
    (tmp_path / "link").symlink_to("model.onnx")
    (tmp_path / "hard").hardlink_to(tmp_path / "compiled.onnx")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.json").symlink_to(tmp_path / "model.onnx")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "summary.json").symlink_to(tmp_path / "weights.bin")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    monkeypatch.chdir(tmp_path)
    for words, message in (
        ("compile model.onnx -o model.onnx", "-o model.onnx is the same file as MODEL model.onnx, which would be lost"),
        ("compile model.onnx -o ./out/../model.onnx", "is the same file as MODEL model.onnx"),
        ("compile link -o model.onnx", "-o model.onnx is the same file as MODEL link"),
        ("compile large.onnx -o weights.bin", "-o weights.bin is the same file as data file 1 of MODEL, weights.bin"),
        ("run large.onnx --output weights.bin", "--output weights.bin is the same file as data file 1 of MODEL"),
        ("run compiled.onnx --compare --reference large.onnx --output weights.bin", "data file 1 of --reference, "),
        ("profile large.onnx -o data", "-o data/summary.json is the same file as data file 1 of MODEL, weights.bin"),
        ("compile model.onnx --config mine.toml -o mine.toml", "-o mine.toml is the same file as --config mine.toml"),
        ("verilog --config mine.toml -o mine.toml", "-o mine.toml is the same file as --config mine.toml"),
        ("run model.onnx --output link", "--output link is the same file as MODEL model.onnx"),
        ("run model.onnx --input in.npz --output in.npz", "--output in.npz is the same file as --input in.npz"),
        ("run compiled.onnx --compare --reference model.onnx --output model.onnx", "as --reference model.onnx"),
        ("run model.onnx --device rtl --vcd model.onnx", "--vcd model.onnx is the same file as MODEL model.onnx"),
        ("run model.onnx --device rtl --output new --vcd ./new", "--output new and --vcd ./new are the same file"),
        ("run model.onnx --device rtl --output p.asm --vcd p.asm", "--output p.asm and --vcd p.asm are the same file"),
        ("disasm compiled.onnx -o hard", "-o hard is the same file as F compiled.onnx"),
        ("asm p.asm -o p.asm", "-o p.asm is the same file as F p.asm"),
        ("asm p.asm --like p.npu -o p.npu", "-o p.npu is the same file as --like p.npu"),
        ("profile model.onnx -o out", "-o out/summary.json is the same file as MODEL model.onnx"),
        ("verify --replay p.npu --vcd p.npu", "--vcd p.npu is the same file as --replay p.npu"),
    ):
        npukit(*words.split()).refused(message)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_outputs_that_hold_nothing_may_be_the_same(npukit, small, tmp_path) -> None:
    """Several outputs to /dev/null, for instance: nothing is lost."""
    check_apart({"--output": "/dev/null", "--vcd": "/dev/null"}, {"MODEL": small, "--input": "/dev/null"})
    check_apart({"--output": tmp_path / "a", "--vcd": tmp_path / "b"}, {"MODEL": small, "--input": tmp_path / "a"})


# ---- damaged programs


def test_cut_short(npukit, compiled, program, tmp_path) -> None:
    generator = random.Random(3)
    for source in (compiled, program):
        data, path = source.read_bytes(), tmp_path / source.name
        lengths = [*range(0, 80), *generator.sample(range(len(data)), 60), *range(len(data) - 150, len(data))]
        for length in lengths:
            path.write_bytes(data[:length])
            npukit("run", path, "--quiet").refused()


@settings(MANY, max_examples=150)
@given(position=st.integers(0, 10**9), bit=st.integers(0, 7), which=st.sampled_from(["compiled", "program"]))
def test_flipped_bit(npukit, compiled, program, tmp_path, position, bit, which) -> None:
    data = bytearray((compiled if which == "compiled" else program).read_bytes())
    data[position % len(data)] ^= 1 << bit
    (tmp_path / "damaged").write_bytes(data)
    npukit("run", tmp_path / "damaged", "--quiet").refused()


def test_every_byte_flipped_of_the_ends(npukit, compiled, program, tmp_path) -> None:
    """Where the formats keep their structure: the first bytes, and what follows an ONNX file's graph."""
    for source in (compiled, program):
        data = source.read_bytes()
        for position in [*range(100), *range(len(data) - 200, len(data))]:
            damaged = bytearray(data)
            damaged[position] ^= 0xFF
            (tmp_path / "damaged").write_bytes(damaged)
            npukit("run", tmp_path / "damaged", "--quiet").refused()


def test_what_the_messages_of_damaged_programs_say(npukit, compiled, program, tmp_path) -> None:
    data, path = program.read_bytes(), tmp_path / "p.npu"
    path.write_bytes(data[:20])
    npukit("run", path).refused("the program is cut short: 20 bytes, its head alone has 52")
    path.write_bytes(data[:-1])
    npukit("run", path).refused("the program's digest does not match: the file is damaged or cut short")
    path.write_bytes(data[:8] + b"\x09" + data[9:])
    npukit("disasm", path).refused(f"the program has format version 9; this npukit reads {VERSION}")
    model = onnx.load(compiled)
    model.graph.node[0].name = "other"
    npukit("run", save(path, model)).refused("the compiled model's digest does not match")
    del model.metadata_props[:]
    npukit("run", save(path, model)).refused("the compiled model has no digest: the file is cut short or was edited")


# ---- assembly text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the last instruction must be END"),
        ("LOAD\n", "the last instruction must be END"),
        ("JUMP\nEND\n", "line 1: an instruction is one of LOAD, MATRIX, VECTOR, STORE, END, not 'JUMP'"),
        ("END\n\nLOAD colour=1\n", "line 3: LOAD has the fields"),
        ("LOAD words=0\nEND\n", "line 1: LOAD: words must be from 1 to 65536, not 0"),
        ("LOAD words=1 words=2\nEND\n", "line 1: LOAD: words is given twice"),
        ("LOAD wait=MATRIX\nEND\n", "waits for a token of MATRIX that no earlier instruction signals"),
        ("STORE words=2 word_stride=1\nEND\n", "reads word 0 of ACT bank 0, which nothing has written"),
        ("LOAD words=2 word_stride=1 bank=9\nEND\n", "is in bank 9 of ACT, which has 8"),
        ("LOAD words=9 word_stride=1 offset=1530\nEND\n", "across the end of a ACT bank of 1536 words"),
        (
            "LOAD words=9 word_stride=1 dram=99999\nEND\n",
            "DRAM words 99999 to 100007 are outside of the program's",
        ),
        ("LOAD word_stride=1 words=2\nSTORE word_stride=1 words=2\nEND\n", "race in ACT bank 0"),
        ("END\nEND\n", "a program has exactly one END, its last instruction"),
    ],
)
def test_bad_assembly(npukit, tmp_path, text, message) -> None:
    (tmp_path / "p.asm").write_text(text)
    npukit("asm", tmp_path / "p.asm", "-o", tmp_path / "p.npu").refused(message)
    assert not (tmp_path / "p.npu").exists()


def test_assembly_that_is_no_text(npukit, compiled, small, tmp_path) -> None:
    (tmp_path / "p.asm").write_bytes(b"\xff\xfe\x00")
    target = ("-o", tmp_path / "p.npu")
    npukit("asm", tmp_path / "p.asm", *target).refused(f"{tmp_path / 'p.asm'} is not text")
    (tmp_path / "p.asm").write_text("END\n")
    npukit("asm", tmp_path / "p.asm", *target, "--like", small).refused("holds no program")
    npukit("asm", tmp_path / "p.asm", *target, "--like", compiled, "--config", "int8-4x4").refused(
        "--like gives the configuration; leave out --config and --set"
    )
    npukit("asm", tmp_path / "p.asm", *target, "--dram-bytes", "-1").refused("--dram-bytes must be 0 or above, not -1")


def test_every_input_that_is_open_is_named(npukit, tmp_path) -> None:
    """With the options that give all of their shapes; a dimension of -1 is open as well."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 7])
    h = helper.make_tensor_value_info("h", TensorProto.FLOAT, ["b", 5])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 5])
    weights = numpy_helper.from_array(np.ones((7, 5), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "h"], ["y"])]
    path = save(tmp_path / "m.onnx", model_of(helper.make_graph(nodes, "g", [x, h], [out], [weights])))
    shapes = "input x has the shape [-1, 7], input h has the shape [b, 5]; every dimension must be a fixed number"
    npukit("check", path).refused(shapes, "--input-shape x=1,7 --input-shape h=1,5")
    npukit("check", path, "--input-shape", "x=2,7").refused("input h has the shape [b, 5]; every")
    assert npukit("run", path, "--input-shape", "x=2,7", "--input-shape", "h=2,5").code == 0
