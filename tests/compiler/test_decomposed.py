"""Normalisations that float models compute step by step: found in all their forms, and equal to the operators'."""

import secrets
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.ir.operations import Normalization
from npukit.compiler.pipeline import check_model, compile_model
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import Session
from npukit.compare_floats import compare_floats

CONFIG = PRESETS["bf16-8x8"]


class Steps:
    """A model of one normalisation, in one of the forms that exporters write."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0, opset: int = 17) -> None:
        self.shape, self.opset = shape, opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs = ["y"]

    def constant(self, value: Any) -> str:
        """A float constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def node(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node of one result."""
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [output], f"{op} {output}", **attributes))
        return output

    def mean(self, value: str, axis: int = -1) -> str:
        """A mean along a dimension."""
        if self.opset < 18:
            return self.node("ReduceMean", value, axes=[axis])
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array([axis]), name))
        return self.node("ReduceMean", value, name)

    def normalised(
        self, centred: bool = True, twice: bool = False, square: str = "Pow", root: str = "Sqrt",
        scale: str | None = "after", bias: bool = True, axis: int = -1,
    ) -> "Steps":  # fmt: skip
        """What the arguments say, up to `y`."""
        base = again = "x"
        if centred:
            base = again = self.node("Sub", "x", self.mean("x", axis))
            if twice:
                again = self.node("Sub", "x", self.mean("x", axis))
        squares = self.node("Pow", base, self.constant(2)) if square == "Pow" else self.node("Mul", base, base)
        variance = self.node("Add", self.mean(squares, axis), self.constant(1e-3))
        if root == "Sqrt":
            value = self.node("Div", again, self.node("Sqrt", variance))
        elif root == "Reciprocal":
            value = self.node("Mul", again, self.node("Reciprocal", self.node("Sqrt", variance)))
        elif root == "Div":
            value = self.node("Mul", self.node("Div", self.constant(1), self.node("Sqrt", variance)), again)
        else:
            value = self.node("Mul", again, self.node("Pow", variance, self.constant(-0.5)))
        channels = self.shape[-1]
        if scale is not None:
            vector = self.constant(self.random.normal(1, 0.3, channels if scale != "one" else ()))
            value = self.node("Mul", *((vector, value) if scale == "before" else (value, vector)))
        if bias:
            value = self.node("Add", value, self.constant(self.random.normal(0, 0.3, channels)))
        self.nodes[-1].output[0] = "y"
        return self

    def model(self) -> onnx.ModelProto:
        """The model."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "g", [x], results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def operations(model: onnx.ModelProto) -> list[type]:
    """What runs on the accelerator."""
    graphs = compile_model(model, CONFIG, stop_after="lower").graphs
    return [type(one) for graph in graphs for one in graph.operations]


def agree(model: onnx.ModelProto, shape: tuple[int, ...]) -> dict[str, float]:
    """Every number the one that is wanted; what layers are away from fp32."""
    session = Session(model, CONFIG, capture=True)
    inputs = {"x": np.random.default_rng(1).normal(0.5, 2, shape).astype(np.float32)}
    outputs = session.run(inputs)
    found = compare_floats(session, inputs, outputs)
    assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
    return found.errors


FORMS = [
    {},
    {"twice": True},
    {"square": "Mul", "root": "Reciprocal"},
    {"root": "Div", "scale": "before"},
    {"root": "Pow", "scale": None, "bias": False},
    {"centred": False, "bias": False},
    {"centred": False, "square": "Mul", "root": "Div", "scale": "before", "bias": False},
    {"centred": False, "root": "Reciprocal", "scale": "one"},
    {"centred": False, "root": "Pow", "scale": None},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("shape", "opset"), [((2, 9, 20), 13), ((1, 5, 64), 18)], ids=str)
def test_every_form_is_one_operation(form: dict[str, Any], shape: tuple[int, ...], opset: int) -> None:
    model = Steps(shape, opset=opset).normalised(**form).model()
    assert operations(model) == [Normalization]
    errors = agree(model, shape)
    assert max(errors.values()) < 0.02, errors


def test_as_the_operator() -> None:
    """The same numbers as LayerNormalization with the same scale, bias and epsilon."""
    shape = (3, 7, 24)
    steps = Steps(shape).normalised()
    whole = Steps(shape)
    whole.constants = steps.constants[-2:]
    whole.node("LayerNormalization", "x", *(one.name for one in whole.constants), output="y", epsilon=1e-3)
    x = np.random.default_rng(2).normal(0, 3, shape).astype(np.float32)
    found, wanted = (Session(one.model(), CONFIG).run({"x": x})["y"] for one in (steps, whole))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("seed", [5, pytest.param(secrets.randbelow(1 << 30), id="fresh")])
def test_between_products(seed: int) -> None:
    """A residual, its normalisation and a product, on the accelerator as one subgraph."""
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    shape = (1, int(random.integers(2, 40)), int(random.integers(2, 50)))
    steps = Steps(shape, seed).normalised(**FORMS[int(random.integers(len(FORMS)))])
    weights = steps.constant(random.normal(0, 0.2, (shape[-1], 12)))
    steps.outputs = [steps.node("MatMul", "y", weights, output="z")]
    model = steps.model()
    report = check_model(model, CONFIG).partition
    assert report.macs == report.macs_total > 0 and not report.fallback, report.fallback
    assert len(report.subgraphs) == 1
    agree(model, shape)


def test_what_is_no_normalisation() -> None:
    """Along another dimension, with a mean of something else, or where somebody reads the variance."""
    assert Normalization not in operations(Steps((2, 9, 20)).normalised(axis=1).model())
    other = Steps((2, 9, 20)).normalised()
    other.nodes[0].input[0] = "w"
    other.nodes.insert(0, helper.make_node("Neg", ["x"], ["w"], "w"))
    kinds = operations(other.model())
    assert kinds.count(Normalization) == 1  # of x less something, without a mean
    shown = Steps((2, 9, 20)).normalised()
    shown.outputs.append(next(node.output[0] for node in shown.nodes if node.op_type == "Sqrt"))
    assert Normalization not in operations(shown.model())


@pytest.mark.parametrize("step", ["Sub", "Pow", "ReduceMean"])
def test_steps_that_others_read_stay(step: str) -> None:
    """One of the steps' results is an output: each step is what the model says."""
    shape = (2, 5, 16)
    steps = Steps(shape).normalised()
    steps.outputs.append(next(node.output[0] for node in steps.nodes if node.op_type == step))
    assert Normalization not in operations(steps.model())
    agree(steps.model(), shape)


def test_the_mean_of_something_else() -> None:
    """x - mean(2 x) has squares, and a root of their mean, and is no distance from its own mean."""
    shape = (2, 5, 16)
    steps = Steps(shape)
    base = steps.node("Sub", "x", steps.mean(steps.node("Add", "x", "x")))
    squares = steps.node("Mul", base, base)
    variance = steps.node("Add", steps.mean(squares), steps.constant(1e-3))
    steps.node("Div", base, steps.node("Sqrt", variance), output="y")
    model = steps.model()
    found = [one for graph in compile_model(model, CONFIG, stop_after="lower").graphs for one in graph.operations]
    assert [one.centred for one in found if isinstance(one, Normalization)] == [False]
    agree(model, shape)
