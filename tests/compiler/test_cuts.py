"""What stays is computed as in the whole graph, also where ONNX Runtime lays floats out in blocks of channels."""

from typing import Any

import numpy as np
import onnx
from npukit.compiler.pipeline import check_model
from npukit.driver.first_look import layout_look
from npukit.driver.host import open_session, run_session
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit.compare import Oracle, compare
from npukit.session import Session

CONFIG = PRESETS["int8-8x8"]
CHANNELS = 32


class Nodes:
    """A graph that is being made: nodes and constants."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{name}", **attributes))
        return name

    def quantised(self, name: str, scale: float, zero_point: np.ndarray) -> str:
        parameters = [
            self.constant(f"{name}_scale", np.array(scale, np.float32)),
            self.constant(f"{name}_zero", zero_point),
        ]
        self.node("QuantizeLinear", [name, *parameters], f"{name}_quantised")
        return self.node("DequantizeLinear", [f"{name}_quantised", *parameters], f"{name}_again")

    def float_conv(self, x: str, channels: int, name: str) -> str:
        weights = self.random.normal(0, 0.1, (CHANNELS, channels, 3, 3)).astype(np.float32)
        return self.node("Conv", [x, self.constant(f"{name}_weights", weights)], name, pads=[1] * 4)

    def conv(self, x: str, channels: int, name: str) -> str:
        scale = self.constant(f"{name}_weights_scale", np.array(0.01, np.float32))
        zero = self.constant(f"{name}_weights_zero", np.array(0, np.int8))
        values = self.random.integers(-127, 128, (CHANNELS, channels, 3, 3), np.int8)
        weights = self.constant(f"{name}_weights", values)
        self.node("DequantizeLinear", [weights, scale, zero], f"{name}_weights_again")
        return self.node("Conv", [x, f"{name}_weights_again"], name, pads=[1] * 4)

    def model(self, channels: int, size: int, outputs: dict[str, int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
            [
                helper.make_tensor_value_info(name, element, [1, CHANNELS, size, size])
                for name, element in outputs.items()
            ],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_an_addition_that_a_convolution_takes_along() -> None:
    """Laid out in blocks, the second float convolution adds the first one's result as it sums; if the first is computed
    before a program and the second behind it, the addition comes alone, and the sums are others.
    """
    nodes = Nodes()
    zero = np.array(0, np.int8)
    first = nodes.float_conv("x", 16, "first")
    inside = nodes.conv(nodes.quantised(first, 0.05, zero), CHANNELS, "inside")
    second = nodes.float_conv(nodes.quantised(inside, 0.5, zero), CHANNELS, "second")
    nodes.node("Add", [first, second], "sum")
    nodes.quantised("sum", 0.0005, np.array(0, np.int16))
    nodes.nodes.pop()
    model = nodes.model(16, 32, {"sum_quantised": TensorProto.INT16})
    computed = layout_look(model)
    assert "first" not in computed or computed["sum"] != "Add", "there is nothing to be seen on this host"
    reasons = {one.node: one.reason for one in check_model(model, CONFIG).partition.reasons}
    assert "ONNX Runtime would compute sum by Add and not by Conv of 4 inputs" in reasons["Conv_inside"], reasons
    session = Session(model, CONFIG, capture=True)
    x = {"x": np.random.default_rng(2).normal(0, 1, (1, 16, 32, 32)).astype(np.float32)}
    found = compare(session, Oracle(model), x, session.run(x))
    assert found.mismatches == 0 and found.tensors == 3, found


def test_what_is_quantised_twice() -> None:
    """ONNX Runtime would leave out one of the two where nobody sees what is between."""
    nodes = Nodes()
    once = nodes.quantised("x", 0.02, np.array(128, np.uint8))
    twice = nodes.quantised(once, 0.017, np.array(120, np.uint8))
    third = nodes.quantised(nodes.conv(twice, 16, "conv"), 0.5, np.array(128, np.uint8))
    model = nodes.model(16, 16, {nodes.quantised(third, 0.37, np.array(120, np.uint8)): TensorProto.FLOAT})
    x = {"x": np.random.default_rng(2).normal(0, 1, (1, 16, 16, 16)).astype(np.float32)}
    name = model.graph.output[0].name
    plain = run_session(open_session(model), [name], x)[name]
    for config, capture in ((CONFIG, False), (CONFIG, True)):
        assert np.array_equal(Session(model, config, capture=capture).run(x)[name], plain)
    # everything in ONNX Runtime
    assert np.array_equal(Session(model, CONFIG, min_macs=10**12).run(x)[name], plain)
    first = np.clip(np.rint(x["x"] / np.float32(0.02)) + 128, 0, 255).astype(np.float32)
    second = np.clip(np.rint((first - 128) * np.float32(0.02) / np.float32(0.017)) + 120, 0, 255)
    session = Session(model, CONFIG, capture=True)
    session.run(x)
    assert np.array_equal(Oracle(model).run(x)[f"{once}_quantised"], second.astype(np.uint8))


def test_nodes_that_lead_nowhere_are_not_counted() -> None:
    nodes = Nodes()
    x = nodes.quantised("x", 0.02, np.array(128, np.uint8))
    name = nodes.quantised(nodes.conv(x, 16, "conv"), 0.5, np.array(128, np.uint8))
    for number in range(5):
        nodes.node("Softmax", [x], f"unused_{number}")
    partition = check_model(nodes.model(16, 16, {name: TensorProto.FLOAT}), CONFIG).partition
    assert partition.nodes_total == 6 and partition.nodes == 4, partition.reasons
