"""TFLite models on the command line."""

import json
from pathlib import Path

import pytest
from npukit.compiler.frontends.tflite.model import TfliteModel, TfliteOperator
from npukit.compiler.frontends.tflite.writer import write_model

from npukit.cli import main
from tests.tflite_models import random_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An average pool and a softmax behind it, which stays on the host."""
    made = random_model("AVERAGE_POOL_2D", 3)
    (pool,) = made.operators
    output = made.tensors[made.outputs[0]]
    softmax = TfliteOperator("SOFTMAX", pool.outputs, (len(made.tensors),), "SoftmaxOptions", {"Beta": 1.0})
    last = type(output)("last", output.shape, "INT8", type(output.quantization)((1 / 256,), (-128,)))  # type: ignore[misc]
    whole = TfliteModel((*made.tensors, last), (pool, softmax), made.inputs, (len(made.tensors),))
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(whole))
    return path


def test_run_and_compare(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "--config", "int8-4x4", "--compare", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compare"]["mismatches"] == 0 and found["compare"]["elements"] > 0
    assert found["compare"]["reference"].startswith("TensorFlow Lite Micro")
    # what the reference itself computes on the host does not count
    assert (found["compare"]["tensors"], found["compare"]["tensors_total"], found["compare"]["by_itself"]) == (1, 2, 1)
    assert [reason["op"] for reason in found["offload"]["reasons"]] == ["SOFTMAX"]
    assert main(["run", str(model), "--config", "int8-4x4", "--compare"]) == 0
    said = capsys.readouterr()
    assert "0 mismatches" in said.out and "not compared: 1 that TensorFlow Lite Micro" in said.out
    assert main(["run", str(model), "--fallback", "none"]) == 2
    assert "SOFTMAX SOFTMAX_1" in capsys.readouterr().err


def test_compiled(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = tmp_path / "compiled.onnx"
    assert main(["check", str(model), "--config", "int8-4x4"]) == 0
    assert "1 of 2 nodes" in capsys.readouterr().out
    assert main(["compile", str(model), "--config", "int8-4x4", "-o", str(compiled)]) == 0
    assert main(["run", str(compiled), "--compare", "--reference", str(model)]) == 0
    assert "0 mismatches" in capsys.readouterr().out
    assert main(["profile", str(model), "--config", "int8-4x4", "-o", str(tmp_path / "profile")]) == 0


def test_a_damaged_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_bytes(model.read_bytes()[:100])
    assert main(["run", str(model)]) == 2
    said = capsys.readouterr().err
    assert f"{model} is not a TFLite model, or it is damaged or cut short" in said and "Traceback" not in said
