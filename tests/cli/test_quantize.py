"""`npukit quantize`: from a float model to one that runs on the machine, and what is said of bad arguments."""

import numpy as np
import onnx
import pytest

from npukit import zoo


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    path = tmp_path_factory.mktemp("float") / "digits_fp32.onnx"
    zoo.write("digits", path, "fp32")
    return path


def test_from_float_to_the_machine(npukit, floats, tmp_path) -> None:
    images, _, _ = zoo.digits_heldout()
    data, path = tmp_path / "data.npz", tmp_path / "q.onnx"
    np.savez(data, image=images[:20].reshape(20, 1, 8, 8))
    result = npukit("quantize", floats, "-o", path, "--data", data, "--samples", 12)
    assert result.code == 0 and "over 12 sample(s), the worst 10 first:" in result.out
    assert "at the outputs:" in result.out and " dB  Gemm head/Gemm: largest difference " in result.out
    assert "random inputs" not in result.err and f"next: npukit run {path} --compare" in result.err
    compared = npukit("run", path, "--compare")
    assert compared.code == 0 and ": 0 mismatches in " in compared.out and "(100.0 %)" in compared.out

    value = npukit("quantize", floats, "-o", path, "--json", "--quiet", "--format", "qoperator").json
    assert value["random"] is True and value["samples"] == 8 and value["float"] == []
    assert {*value["layers"][0]} == {"tensor", "node", "op", "sqnr", "largest", "range"}
    assert [one["tensor"] for one in value["outputs"]] == ["logits"]
    assert any(node.op_type == "QLinearConv" for node in onnx.load(path).graph.node)
    text = npukit("quantize", floats, "-o", path, "--exclude-operator", "Gemm")
    assert text.code == 0 and "note: without --data, ranges are those of random inputs" in text.err
    assert "stays: Gemm" in npukit("check", path).out


def test_bad_arguments(npukit, floats, tmp_path) -> None:
    path = tmp_path / "q.onnx"
    npukit("quantize", floats, "-o", path, "--data", tmp_path / "none.npz").refused("cannot read")
    npukit("quantize", floats, "-o", path, "--samples", 3).refused("--samples goes with --data")
    npukit("quantize", floats, "-o", path, "--data", tmp_path, "--samples", 0).refused("must be 1 or above")
    npukit("quantize", floats, "-o", path, "--exclude", "nobody").refused("no node 'nobody' to exclude")
    npukit("quantize", floats, "-o", floats).refused("which would be lost")
    npukit("quantize", tmp_path / "none.onnx", "-o", path).refused("cannot read")
    assert not path.exists()
