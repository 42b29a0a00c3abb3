"""Real TFLite models, with the outputs that were published for real inputs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from npukit.compiler.frontends.tflite.reader import read_model
from numpy.typing import NDArray

from npukit import Session
from npukit.compare import compare, oracle_of
from npukit.compare_floats import compare_floats

MODELS = os.environ.get("NPUKIT_MODELS")
pytestmark = pytest.mark.skipif(MODELS is None, reason="NPUKIT_MODELS does not name a folder of third-party models")
_ACCELERATED = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "AVERAGE_POOL_2D"}


def _published(name: str) -> tuple[Path, dict[Path, NDArray[np.int8]]]:
    """A model's file, and its inputs' files with their outputs."""
    assert MODELS is not None
    folder = Path(MODELS) / name
    goldens = json.loads((folder / "goldens.json").read_text())
    return folder / f"{name}_int8.tflite", {folder / key: np.array(value, np.int8) for key, value in goldens.items()}


@pytest.mark.parametrize("config", ["int8-8x8", "int8-16x16"])
@pytest.mark.parametrize("name", ["resnet8", "dscnn"])
def test_every_published_output(name: str, config: str) -> None:
    path, goldens = _published(name)
    assert goldens
    session = Session(path, config, capture=True)
    assert session.compilation is not None
    assert not _ACCELERATED & {reason.op for reason in session.offload.reasons}
    assert session.offload.macs == session.offload.macs_total > 0
    oracle = oracle_of(session.compilation.source)
    (value,) = session.inputs
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    total = None
    for file, wanted in goldens.items():
        inputs = {value.name: np.fromfile(file, np.int8).reshape(shape)}
        outputs = session.run(inputs)
        (found,) = outputs.values()
        assert np.array_equal(found.reshape(-1), wanted), file.name
        total = compare(session, oracle, inputs, outputs, total)
    assert total is not None and total.mismatches == 0
    # the softmax is computed by the reference itself
    assert (total.by_itself, total.tensors + 1) == (1, total.tensors_total)
    assert total.tensors_total == len(read_model(path.read_bytes()).operators)


def test_floats_classify_alike() -> None:
    path, goldens = _published("resnet8")
    session = Session(path.with_name("resnet8_fp32.tflite"), "bf16-16x16", capture=True)
    assert session.compilation is not None
    oracle = oracle_of(session.compilation.source)
    (value,) = session.inputs
    for file in goldens:
        image = np.fromfile(file, np.int8).reshape(1, 32, 32, 3)
        inputs = {value.name: (image.astype(np.float32) + 128)}
        outputs = session.run(inputs)
        (found,), (wanted,) = outputs.values(), (oracle.run(inputs)[name] for name in outputs)
        assert found.argmax() == wanted.argmax(), file.name
        assert compare_floats(session, inputs, outputs).mismatches == 0
