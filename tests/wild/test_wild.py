"""A short version of `make wild`: small images, every architecture in one of the quantised forms."""

import importlib.util
import secrets
import sys
from pathlib import Path

import numpy as np
import pytest
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators import match_node
from npukit.compiler.pipeline import check_model
from onnx.version_converter import convert_version

_spec = importlib.util.spec_from_file_location("npukit_wild", Path(__file__).with_name("run.py"))
assert _spec is not None and _spec.loader is not None
wild = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = wild  # dataclasses look their module up
_spec.loader.exec_module(wild)

_WHOLE = {
    "alexnet", "vgg11", "googlenet", "resnext50", "mobilenetv1", "mobilenetv3", "efficientnet", "mnasnet", "regnet",
    "unet", "m5", "tcn", "dscnn", "autoencoder", "shufflenetv2", "yolov8n", "ssdlite", "inceptionv3", "xception",
    "ghostnet", "convmixer", "hrnet", "efficientnetv2", "wavenet", "yolov3tiny", "c3d",
}  # fmt: skip
"""Of these nothing stays in ONNX Runtime but quantisers at the edge."""
_LARGE = {"alexnet", "deeplab", "m5", "mixer", "regnet", "swin", "vit", "yolov8n"}
"""These have nothing left of smaller images."""
_FORMS = (
    wild.QuantiserOptions(),
    wild.QuantiserOptions(format="qoperator", activations="uint8"),
    wild.QuantiserOptions(activations="uint8", weights="uint8", per_channel=False),
)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", list(wild.ARCHITECTURES))
def test_every_tensor_is_onnx_runtimes(name: str) -> None:
    # of a squeeze and its gate, ONNX Runtime's quantiser makes no operators on integers
    form = _FORMS[0 if name == "mobilenetv3" else list(wild.ARCHITECTURES).index(name) % 3]
    outcome = wild.run(name, 64 if name in _LARGE else 32, "int8-8x8", form)
    print(outcome.line())
    assert outcome.mismatches == 0 and outcome.elements > 0 and outcome.subgraphs > 0
    assert outcome.share >= 0.95
    if name in _WHOLE:
        assert outcome.stays == "" and outcome.share == 1 and outcome.subgraphs == 1


@pytest.mark.parametrize("name", ["bert", "squeezenet", "tcn", "vit"])
def test_quantised_while_they_run(name: str) -> None:
    """ONNX Runtime applies the scales to the accelerator's sums; products of two activations alone stay there."""
    outcome = wild.run(name, 64 if name in _LARGE else 32, "int8-8x8", None)
    print(outcome.line())
    assert outcome.mismatches == 0 and outcome.elements > 0
    assert outcome.share > 0.9 and outcome.subgraphs > 1


@pytest.mark.parametrize("opset", [18, 21, 24, 27])
def test_every_operator_set(opset: int) -> None:
    """Later operators have more types and attributes, and cut nothing."""
    model = wild.quantize(wild.ARCHITECTURES["mobilenetv3"](32)).model
    partition = check_model(convert_version(model, opset), wild.PRESETS["int8-8x8"]).partition
    assert len(partition.subgraphs) == 1 and not partition.fallback


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
@pytest.mark.parametrize("name", ["vit", "bert", "gpt", "mobilenetv3"])
def test_random_cuts(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stays in ONNX Runtime, it computes what it computes in the whole model."""
    seed = 1 if kind == "fixed" else secrets.randbelow(1 << 20)
    print(f"repeat with: seed {seed}")
    model = wild.quantize(wild.ARCHITECTURES[name](64 if name in _LARGE else 32)).model
    parts = []
    for number in range(2):
        random = np.random.default_rng([seed, number])
        share = random.choice([0.05, 0.2, 0.5])

        def some(context, node, random=random, share=share):
            if random.random() < share:
                raise Refused("it was chosen to stay")
            return match_node(context, node)

        monkeypatch.setattr("npukit.compiler.frontends.onnx.partition.match_node", some)
        session = wild.Session(model, wild.PRESETS["int8-8x8"], capture=True)
        inputs = wild.random_inputs(session.artifact, session.inputs, number)
        found = wild.compare(session, wild.Oracle(model), inputs, session.run(inputs))
        assert found.mismatches == 0, found.first_mismatch
        parts.append(len(session.programs))
    assert max(parts) > 1
