"""fp32 models in bf16 on the command line."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from npukit import Session, zoo


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return zoo.write("digits", tmp_path / "digits.onnx", "fp32")


def test_compare(npukit, model: Path) -> None:
    result = npukit("run", model, "--config", "bf16-16x16", "--fallback", "none", "--compare", "--json")
    assert result.code == 0, result.err
    found = result.json["compare"]
    assert found["reference"] == "ordered sums in bf16 of a 16x16 array"
    assert found["mismatches"] == 0 and found["tensors"] == found["tensors_total"] == 11
    assert len(found["errors"]) == 11 and 0 < max(found["errors"].values()) < 0.03
    text = npukit("run", model, "--config", "bf16-8x8", "--compare").out
    assert "0 mismatches in 9 138 elements of 11 of 11 layers\nlargest difference from ONNX Runtime's fp32: 0." in text


def test_a_difference(npukit, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that forgets to flush: found, with the layer."""
    from npukit.sim.bf16_datapath import Bf16Datapath

    compute = Bf16Datapath.compute

    def wrong(self, vector, *rest):
        result = compute(self, vector, *rest)
        return result ^ np.uint16(1) if result.dtype == np.uint16 else result

    monkeypatch.setattr(Bf16Datapath, "compute", wrong)
    result = npukit("run", model, "--config", "bf16-4x4", "--compare", "--json")
    assert result.code == 1
    assert result.json["compare"]["first_mismatch"]["tensor"] == "stem/relu"


def test_compiled(npukit, model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "c.onnx"
    assert npukit("compile", model, "-o", compiled, "--config", "bf16-4x4").code == 0
    once, again = (npukit("run", one, "--config", "bf16-4x4", "--json").json for one in (model, compiled))
    assert once["cycles"] == again["cycles"]
    npukit("run", compiled, "--compare", "--reference", model).refused("give the model itself")


def test_digits_are_classified_as_well() -> None:
    """Within half a point of fp32, over all held-out images."""
    images, labels, _ = zoo.digits_heldout()
    session = Session(zoo.load("digits", "fp32"), "bf16-16x16")
    reference = onnxruntime.InferenceSession(zoo.load("digits", "fp32"), providers=["CPUExecutionProvider"])
    mine = theirs = 0
    for image, label in zip(images, labels, strict=True):
        mine += int(session.run({"image": image})["logits"].argmax() == label)
        theirs += int(np.argmax(np.asarray(reference.run(["logits"], {"image": image})[0])) == label)
    assert abs(mine - theirs) <= 0.005 * len(labels), (mine, theirs)
