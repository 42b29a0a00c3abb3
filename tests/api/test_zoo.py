"""Networks with synthetic weights: their signal lives, they are the same again, and they run bit for bit."""

import json
from importlib import resources
from importlib.metadata import Distribution, PackageNotFoundError

import numpy as np
import onnx
import onnxruntime
import pytest
from npukit.compiler.pipeline import check_model
from npukit.driver.host import session_options
from npukit.isa.config import PRESETS
from onnx import numpy_helper

from npukit import Session, zoo
from npukit.compare import Oracle, compare
from npukit.zoo.architectures import ARCHITECTURES
from npukit.zoo.build import images
from npukit.zoo.layers import VTA_LAYERS
from npukit.zoo.transformers import TRANSFORMERS

NETWORKS = ("resnet18", "resnet50", "mobilenetv2")


def quantised_values(name: str, inputs: np.ndarray) -> tuple[dict[str, list[np.ndarray]], list[int]]:
    """Every quantised tensor for each input, and the top classes."""
    model = onnx.load_from_string(zoo.load(name))
    names = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    outputs = [value.name for value in model.graph.output]
    for tensor in names:
        model.graph.output.add().name = tensor
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
    )
    found: dict[str, list[np.ndarray]] = {tensor: [] for tensor in names}
    tops = []
    for one in inputs:
        values = session.run([*outputs, *names], {"image": one[None]})
        tops.append(int(np.argmax(np.asarray(values[0]))))
        for tensor, value in zip(names, values[1:], strict=True):
            found[tensor].append(np.asarray(value))
    return found, tops


@pytest.mark.parametrize("name", [*NETWORKS, "vta-c2", "vta-c11"])
def test_the_signal_lives(name: str) -> None:
    """In every tensor at least 64 values, and less than 5 % at the rails; the top class depends on the image."""
    shape = [dim.dim_value for dim in onnx.load_from_string(zoo.load(name)).graph.input[0].type.tensor_type.shape.dim]
    found, tops = quantised_values(name, images(4, shape[1:], 12345))
    for tensor, values in found.items():
        together = np.concatenate([value.reshape(-1) for value in values])
        assert len(np.unique(together)) >= 64, tensor
        assert np.isin(together, (-128, 127)).mean() < 0.05, tensor
    assert len(set(tops)) >= 3, tops


@pytest.mark.parametrize("name", ["bert-tiny", "vit-tiny", "gpt2-block-128"])
def test_transformers_live(name: str) -> None:
    """Quantised tensors have many values, and the int8 network says about what the float one says."""
    float_model, _ = TRANSFORMERS[name].build(name, 0)
    _, samples = TRANSFORMERS[name].build(name, 5)
    model = onnx.load_from_string(zoo.load(name))
    tensors = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    for tensor in tensors:
        model.graph.output.add().name = tensor
    sessions = [
        onnxruntime.InferenceSession(one.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
        for one in (model, float_model)
    ]
    seen: dict[str, set[int]] = {tensor: set() for tensor in tensors}
    logits: list[list[np.ndarray]] = [[], []]
    for sample in samples[:4]:
        values = [np.asarray(value) for value in sessions[0].run(["logits", *tensors], dict(sample))]
        logits[0].append(values[0])
        logits[1].append(np.asarray(sessions[1].run(["logits"], dict(sample))[0]))
        for tensor, value in zip(tensors, values[1:], strict=True):
            seen[tensor] |= set(np.unique(value).tolist())
    # the logits are few, and a softmax over many places has small numbers
    few = {tensor: len(found) for tensor, found in seen.items() if len(found) < 64 and "softmax" not in tensor}
    assert set(few) <= {tensors[-1]} and min(len(found) for found in seen.values()) > 4, few
    quantised, exact = (np.stack(one).reshape(-1) for one in logits)
    assert np.corrcoef(quantised, exact)[0, 1] > 0.99
    assert np.stack(logits[1]).std(axis=0).max() > 0.05


def test_what_stays_of_bert() -> None:
    """The lookup of its words, and why; and what gives its result another name."""
    partition = check_model(zoo.load("bert-tiny"), PRESETS["int8-16x16"]).partition
    reasons = {one.op: one.reason for one in partition.reasons if "QuantizeLinear" not in one.op}
    assert set(reasons) - {"DequantizeLinear"} == {"Gather", "Identity"}
    assert len(partition.subgraphs) == 1 and not partition.fallback
    assert "it looks elements up by numbers that are data" in reasons["Gather"]


def test_the_trained_transformer() -> None:
    """Whole on the machine, equal to its rules, and about as good as in float; here on a part of the images."""
    model = onnx.load_from_string(zoo.load("digits-vit"))
    session, oracle = Session(model, "int8-8x8", capture=True, fallback="none"), Oracle(model)
    images, labels, _ = zoo.digits_heldout()
    right, found = 0, None
    for image, label in zip(images[::9], labels[::9], strict=True):
        inputs = {"image": image}
        outputs = session.run(inputs)
        found = compare(session, oracle, inputs, outputs, found)
        right += int(outputs["logits"].argmax() == label)
    assert found is not None and found.mismatches == 0 and len(found.defined) == 5, found
    assert right >= 38
    record = json.loads(resources.files(zoo.__name__).joinpath("digits-vit.json").read_text(encoding="utf-8"))
    assert record["accuracy"]["int8"] >= record["accuracy"]["fp32"] - 0.01 > 0.97


def test_layers_are_those_of_the_list() -> None:
    for name, (size, inner, outer, kernel, pad, stride) in VTA_LAYERS.items():
        graph = onnx.load_from_string(zoo.load(name, "fp32")).graph
        (node,) = [node for node in graph.node if node.op_type == "Conv"]
        given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        assert [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == [1, inner, size, size]
        assert numpy_helper.to_array(graph.initializer[0]).shape == (outer, inner, kernel, kernel)
        assert (given["strides"], given["pads"]) == ([stride] * 2, [pad] * 4)


def test_another_build_of_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package may be called otherwise, as `onnxruntime-gpu` is."""

    def missing(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    zoo.load("bert-tiny")
    monkeypatch.setattr("importlib.metadata.distribution", missing)
    zoo.load("bert-tiny")


def test_made_the_same_again() -> None:
    _, again = ARCHITECTURES["vta-c11"](3)
    assert again.SerializeToString(deterministic=True) == zoo.load("vta-c11", "fp32", 3)
    assert zoo.load("vta-c11", seed=3) != zoo.load("vta-c11", seed=4)


def test_multiplications() -> None:
    """As the papers count them, within the rounding of their tables."""
    networks = (("resnet18", 1.81e9), ("resnet50", 4.09e9), ("mobilenetv2", 0.30e9), ("vit-tiny", 1.25e9))
    for name, expected in networks:
        session = Session(zoo.load(name), "int8-16x16")
        assert session.compilation is not None
        partition = session.compilation.partition
        assert partition.macs == partition.macs_total == pytest.approx(expected, rel=0.01)
        staying = {one.op for one in partition.fallback if one.macs}
        assert not staying and not partition.fallback


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2"])
def test_networks_equal_onnx_runtime(name: str) -> None:
    session = Session(zoo.load(name), capture=True)
    assert session.compilation is not None
    inputs = {"image": images(1, (3, 224, 224), 77)}
    found = compare(session, Oracle(session.compilation.source), inputs, session.run(inputs))
    assert found.mismatches == 0, found.first_mismatch
    assert found.tensors == found.tensors_total
