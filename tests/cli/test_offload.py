"""What stays off the accelerator: `--fallback`, `--min-macs`, `npukit ops`; and models with something wrong in them."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def mixed(graphs, tmp_path: Path) -> Path:
    """conv -> LpNormalization -> conv: the LpNormalization stays."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 8, 8)), 5)
    y = graph.quantize(graph.node("LpNormalization", [graph.dequantize(y)]), 0.004, -128)
    graph.output(graph.conv(y, 6))
    path = tmp_path / "mixed.onnx"
    onnx.save(graph.model(), path)
    return path


def test_no_fallback(npukit, mixed: Path, small: Path, tmp_path: Path) -> None:
    for command in (("run", mixed), ("compile", mixed, "-o", tmp_path / "c.onnx")):
        line = npukit(*command, "--fallback", "none").refused(
            "1 node(s) cannot run on the accelerator", "LpNormalization:"
        )
        assert "operator LpNormalization is not supported" in line
    assert not (tmp_path / "c.onnx").exists()
    assert npukit("run", small, "--fallback", "none", "--quiet").code == 0
    # a compiled model has made its choice, and can still be refused
    assert npukit("compile", mixed, "-o", tmp_path / "c.onnx").code == 0
    npukit("run", tmp_path / "c.onnx", "--fallback", "none").refused("1 node(s) run on the host", "LpNormalization:")
    assert npukit("run", tmp_path / "c.onnx", "--quiet").code == 0


@pytest.mark.parametrize("config", ["int8-8x8", "bf16-8x8"])
def test_the_edge_is_no_fallback(npukit, tmp_path: Path, config: str) -> None:
    """Rows of a constant table that an input names, and a copy of an output; a table that is computed is one."""
    random = np.random.default_rng(1)
    table, weights = (
        numpy_helper.from_array(random.normal(0, 1, shape).astype(np.float32), name)
        for shape, name in (((50, 24), "table"), ((24, 10), "weights"))
    )
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, 12])
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, [50, 24])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["x"], "words"),
        helper.make_node("MatMul", ["x", "weights"], ["z"], "product"),
        helper.make_node("Identity", ["z"], ["y"], "copy"),
    ]
    for inputs, constants, code in (([tokens], [table, weights], 0), ([tokens, other], [weights], 1)):
        nodes[0].input[0] = "table" if code == 0 else "other"
        graph = helper.make_graph(nodes, "g", inputs, [y], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        path = tmp_path / "model.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        if config.startswith("int8"):
            data = tmp_path / "data.npz"
            values = {"tokens": random.integers(0, 50, (1, 12)), "other": random.normal(0, 1, (50, 24)).astype("f4")}
            np.savez(data, **{one.name: values[one.name][None] for one in inputs})
            quantised = tmp_path / "quantised.onnx"
            assert npukit("quantize", path, "--data", data, "-o", quantised).code == 0
            path = quantised
        compiled = tmp_path / "compiled.onnx"
        assert npukit("compile", path, "-o", compiled, "--config", config).code == 0
        for one in ((path, "--config", config), (compiled,)):
            result = npukit("run", *one, "--fallback", "none", "--quiet")
            if code == 0:
                assert result.code == 0, result.err
            else:
                result.refused("Gather words")


def test_cuda(npukit, mixed: Path) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        result = npukit("run", mixed, "--fallback", "cuda", "--compare", "--json")
        assert result.code == 0 and result.json["compare"]["mismatches"] == 0
    else:
        npukit("run", mixed, "--fallback", "cuda").refused("has no CUDA", "pip install onnxruntime-gpu")


def test_what_the_boundary_costs(npukit, mixed: Path) -> None:
    """Bytes of both convolutions' inputs and results, int8; text for people, numbers for programs."""
    result = npukit("run", mixed, "--json").json
    assert result["offload"]["boundary_bytes"] == 4 * 64 + 5 * 36 + 5 * 36 + 6 * 16
    assert result["offload"]["gpu_bytes"] == result["seconds"]["gpu"] == 0
    assert result["seconds"]["boundary"] > 0 and result["seconds"]["fallback"] > 0
    line = next(line for line in npukit("run", mixed).err.splitlines() if "to and from the accelerator" in line)
    assert line.startswith("712 bytes to and from the accelerator, laid out in ") and "the host's part in" in line


def test_least_macs(npukit, mixed: Path) -> None:
    """The first convolution has 4 * 5 * 9 * 36 MACs, the second 5 * 6 * 9 * 16."""
    for least, parts in ((0, 2), (4320, 2), (4321, 1), (6480, 1), (6481, 0)):
        found = npukit("check", mixed, "--min-macs", least, "--json").json
        assert found["subgraphs"] == parts, least
    reasons = [one["reason"] for one in found["offload"]["reasons"] if one["op"] == "Conv"]
    assert reasons == [
        "its subgraph has 6480 MACs, fewer than the 6481 that were asked for",
        "its subgraph has 4320 MACs, fewer than the 6481 that were asked for",
    ]
    result = npukit("run", mixed, "--min-macs", 5000, "--compare", "--json")
    assert result.code == 0 and result.json["compare"]["mismatches"] == 0
    assert [layer["op"] for layer in result.json["layers"]] == ["Conv"]
    npukit("check", mixed, "--min-macs", -1).refused("--min-macs must be 0 or above, not -1")


def test_operators(npukit, tmp_path: Path) -> None:
    assert "AveragePool\n" in npukit("ops").out
    found = npukit("ops", "--json").json["operators"]
    by_name = {name: entry for entry in found for name in entry["names"]}
    assert (
        by_name["Resize"] is by_name["Upsample"]
        and "mode is {mode}; nearest and linear are supported" in by_name["Resize"]["reasons"]
    )
    path = tmp_path / "operators.md"
    assert npukit("ops", "--markdown", "-o", path).code == 0
    assert path.read_text() == npukit("ops", "--markdown").out
    documented = Path(__file__).parents[2] / "docs" / "operators.md"
    assert path.read_text() == documented.read_text(), "make docs"
    npukit("ops", "-o", path).refused("-o goes with --markdown")
    npukit("ops", "--markdown", "--json").refused("use one of them")


# ---- something is wrong with the model


def changed(path: Path, change) -> Path:
    """A copy of a model with a change."""
    model = onnx.load(path)
    change(model)
    target = path.with_name("changed.onnx")
    target.write_bytes(model.SerializeToString())
    return target


def weights_of(model: onnx.ModelProto) -> onnx.TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name.startswith("weights"))


def test_initializer_of_the_wrong_size(npukit, mixed: Path) -> None:
    def shorten(model: onnx.ModelProto) -> None:
        weights_of(model).raw_data = weights_of(model).raw_data[:-7]

    path = changed(mixed, shorten)
    for command in ("check", "run"):
        npukit(command, path).refused("weights")


def test_external_data_that_is_missing(npukit, mixed: Path, tmp_path: Path) -> None:
    model = onnx.load(mixed)
    onnx.save(model, tmp_path / "external.onnx", save_as_external_data=True, location="data.bin", size_threshold=16)
    assert npukit("run", tmp_path / "external.onnx", "--compare", "--quiet").code == 0
    (tmp_path / "data.bin").unlink()
    npukit("run", tmp_path / "external.onnx").refused("data.bin")


def test_external_data_elsewhere(npukit, mixed: Path, tmp_path: Path) -> None:
    """A path out of the model's folder is not followed."""
    folder = tmp_path / "inner"
    folder.mkdir()
    onnx.save(onnx.load(mixed), folder / "m.onnx", save_as_external_data=True, location="data.bin", size_threshold=16)
    shutil.move(folder / "data.bin", tmp_path / "data.bin")
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../data.bin"
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    npukit("run", folder / "m.onnx").refused()


def test_zero_point_of_another_type(npukit, mixed: Path) -> None:
    """int8 data whose zero point is uint8 200."""

    def damage(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == "DequantizeLinear")
        zero = next(tensor for tensor in model.graph.initializer if tensor.name == node.input[2])
        zero.data_type = TensorProto.UINT8
        zero.raw_data = np.uint8(200).tobytes()

    npukit("run", changed(mixed, damage)).refused()


def test_weights_that_are_an_input(npukit, graphs, tmp_path: Path) -> None:
    graph = graphs.Graph()
    x, w = graph.input((1, 4, 8, 8)), graph.input((6, 4, 3, 3))
    graph.output(graph.quantize(graph.node("Conv", [graph.dequantize(x), graph.dequantize(w)]), 0.1))
    onnx.save(graph.model(), tmp_path / "m.onnx")
    reasons = npukit("check", tmp_path / "m.onnx", "--json").json["offload"]["reasons"]
    assert any("not a constant that a DequantizeLinear dequantises" in one["reason"] for one in reasons)
    line = npukit("run", tmp_path / "m.onnx", "--fallback", "none").refused("Conv")
    assert "not a constant" in line
    assert json.dumps(reasons)
