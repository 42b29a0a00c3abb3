"""Attention as one node: equal to ordered sums, near fp32 ONNX Runtime, in all its forms."""

import secrets
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from npukit.compiler.frontends.onnx.operators.attention import match_attention
from npukit.compiler.frontends.onnx.operators.base import Context, Refused
from npukit.compiler.ir.operations import MatrixProduct, Softmax
from npukit.compiler.pipeline import check_model, compile_model
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import Session
from npukit.compare_floats import compare_floats

CONFIG = PRESETS["bf16-8x8"]
SHARED = [(3, 3), (4, 2), (4, 1), (6, 3)]


class Model:
    """An Attention by itself, its sizes from a seed; `values` are the model's inputs."""

    def __init__(self, seed: int, dimensions: int, heads: tuple[int, int], mask: str = "", **attributes: Any) -> None:
        self.random = random = np.random.default_rng(seed)
        self.rows, self.keys = (int(one) for one in random.integers(1, 40, 2))
        self.size, self.columns = (int(random.choice([4, 8, 12])) for _ in range(2))
        self.batch, (self.heads, shared) = int(random.integers(1, 3)), heads
        sides = [("q", self.heads, self.rows, self.size), ("k", shared, self.keys, self.size)]
        sides.append(("v", shared, self.keys, self.columns))
        self.values: dict[str, np.ndarray] = {}
        for name, count, rows, size in sides:
            shape = (self.batch, count, rows, size) if dimensions == 4 else (self.batch, rows, count * size)
            self.values[name] = random.normal(0, 1, shape).astype(np.float32)
        if dimensions == 3:
            attributes |= {"q_num_heads": self.heads, "kv_num_heads": shared}
        self.attributes = attributes
        self.constants: list[onnx.TensorProto] = []
        self.inputs = ["q", "k", "v"]
        self.outputs = ["y"]
        if mask:
            self.inputs.append("mask")
            kind, _, form = mask.partition(" ")
            shape = {"rows": (), "heads": (self.batch, self.heads), "batch": (self.batch, 1)}[form]
            shown = random.random((*shape, self.rows, self.keys)) < 0.7
            shown[..., 0] = True  # a row of which nothing is left has no result
            data = shown if kind == "bool" else np.where(shown, random.normal(0, 1, shown.shape), -np.inf)
            if kind == "input":
                self.values["mask"] = np.maximum(data, -50).astype(np.float32)
            else:
                data = data if kind == "bool" else data.astype(np.float32)
                self.constants.append(numpy_helper.from_array(data, "mask"))

    def model(self) -> onnx.ModelProto:
        """The model."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in self.values.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in filter(None, self.outputs)]
        node = helper.make_node("Attention", self.inputs, self.outputs, "attention", **self.attributes)
        graph = helper.make_graph([node], "g", inputs, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def agree(model: Model, config: str = "bf16-8x8") -> None:
    """All of it on the accelerator; every layer what is wanted, and near fp32."""
    session = Session(model.model(), PRESETS[config], capture=True)
    outputs = session.run(model.values)
    macs = model.batch * model.heads * model.rows * model.keys * (model.size + model.columns)
    assert session.offload.macs == session.offload.macs_total == macs, session.offload.fallback
    found = compare_floats(session, model.values, outputs)
    assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
    assert found.worst[1] < 0.05, found.worst


@pytest.mark.parametrize("heads", SHARED, ids=str)
@pytest.mark.parametrize("dimensions", [3, 4])
@pytest.mark.parametrize("seed", [1, pytest.param(secrets.randbelow(1 << 30), id="fresh")])
def test_heads(seed: int, dimensions: int, heads: tuple[int, int]) -> None:
    print(f"seed {seed}")
    agree(Model(seed, dimensions, heads))


@pytest.mark.sample(8)
@pytest.mark.parametrize("mask", ["bool rows", "bool heads", "float rows", "float batch", "input rows", "input heads"])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)], ids=str)
@pytest.mark.parametrize("causal", [0, 1])
def test_masks(mask: str, heads: tuple[int, int], causal: int) -> None:
    agree(Model(7, 4, heads, mask, is_causal=causal))


def test_scale_and_a_larger_array() -> None:
    agree(Model(3, 3, (2, 2), "float rows", scale=0.2), "bf16-16x16")


def test_it_stays_on_chip() -> None:
    """Scores, softmax and context are one group, as of a model that has them step by step."""
    (graph,) = compile_model(Model(5, 3, (2, 2), "bool rows").model(), CONFIG, stop_after="fuse").graphs
    makers = graph.makers()
    kinds = [[type(graph.operations[makers[name]]) for name in group] for group in graph.groups]
    (group,) = [one for one in kinds if Softmax in one]
    assert group[0] is group[-1] is MatrixProduct and len(group) == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [("softcap", "softcap is 2.0"), ("past", "it reads past_key"), ("scores", "its output scores is used")],
)
def test_what_stays(change: str, reason: str) -> None:
    model = Model(2, 4, (2, 2))
    if change == "softcap":
        model.attributes["softcap"] = 2.0
    elif change == "past":
        model.inputs += ["", "past_k", "past_v"]
        for name, like in (("past_k", "k"), ("past_v", "v")):
            model.values[name] = model.values[like]
        model.outputs += ["present_k", "present_v"]
    else:
        model.outputs += ["", "", "scores"]
    reasons = [one.reason for one in check_model(model.model(), CONFIG).partition.reasons]
    assert any(reason in one for one in reasons), reasons


def test_an_attribute_that_nobody_knows() -> None:
    """Later operator sets have windows; what is not understood is not computed."""
    model = Model(2, 4, (2, 2)).model()
    model.graph.node[0].attribute.append(helper.make_attribute("window", 3))
    node = ir.from_proto(model).graph[0]
    context = Context(CONFIG, {}, frozenset({"y"}), {"": 99})
    with pytest.raises(Refused, match="its attribute window is not supported"):
        match_attention(context, node)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)], ids=str)
@pytest.mark.parametrize("shape", ["a row more", "three heads", "a batch more", "a key less"])
def test_a_mask_that_does_not_repeat(shape: str, heads: tuple[int, int], computed: bool) -> None:
    model = Model(7, 4, heads)
    batch, rows, keys = model.batch, model.rows, model.keys
    sizes = {
        "a row more": (rows + 1, keys), "three heads": (batch, 3, rows, keys),
        "a batch more": (batch + 1, 1, rows, keys), "a key less": (rows, keys - 1),
    }[shape]  # fmt: skip
    mask = np.zeros(sizes, np.float32)
    model.inputs.append("mask")
    if computed:
        model.values["mask"] = mask
    else:
        model.constants.append(numpy_helper.from_array(mask, "mask"))
    (reason,) = check_model(model.model(), CONFIG).partition.reasons
    assert reason.reason.startswith(f"attn_mask is {[*sizes]}, and scores are"), reason


def test_in_int8_it_stays() -> None:
    reasons = check_model(Model(2, 4, (2, 2)).model(), PRESETS["int8-8x8"]).partition.reasons
    assert any("ONNX Runtime computes it in float" in one.reason for one in reasons), reasons
