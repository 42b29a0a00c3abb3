"""The digits network as a TFLite file, which comes with the kit."""

import numpy as np
import pytest
from npukit.isa.config import NpuConfig

from npukit import Session, zoo
from npukit.compare import compare, oracle_of


@pytest.mark.parametrize(
    "config", ["int8-4x4", "int8-16x16", NpuConfig(array=8, vector_lanes=2, fma_lanes=1, transpose=0)]
)
def test_digits(config: str | NpuConfig) -> None:
    """All of it on the accelerator, equal in every tensor; nearly every image is what it shows."""
    session = Session(zoo.load("digits", "tflite"), config, capture=True, fallback="none")
    assert session.compilation is not None
    oracle = oracle_of(session.compilation.source)
    images, labels, _ = zoo.digits_heldout()
    right, total = 0, None
    for image, label in zip(images[:60], labels[:60], strict=True):
        inputs = {"image": np.clip(np.rint(image.reshape(1, 8, 8, 1) * 255) - 128, -128, 127).astype(np.int8)}
        outputs = session.run(inputs)
        total = compare(session, oracle, inputs, outputs, total)
        right += int(outputs["logits"].argmax() == label)
    assert total is not None and total.mismatches == 0 and total.tensors == total.tensors_total == 11
    assert right >= 58


def test_digits_on_the_hardware() -> None:
    image = zoo.digits_heldout()[0][3].reshape(1, 8, 8, 1)
    inputs = {"image": np.clip(np.rint(image * 255) - 128, -128, 127).astype(np.int8)}
    runs = []
    for device in ("sim", "rtl"):
        session = Session(zoo.load("digits", "tflite"), "int8-4x4", device)
        runs.append((session.run(inputs)["logits"].tolist(), session.profile.cycles, session.profile.counters))
    assert runs[0] == runs[1]
