"""Small sound inputs, from which the kinds begin."""

from pathlib import Path

import numpy as np
import onnx
from graphs import Graph
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.program import Program
from onnx import helper, numpy_helper

from npukit.npufile import write_artifact

__all__ = ["compiled_model", "float_model", "programs", "quantised_model"]


def quantised_model() -> onnx.ModelProto:
    """A convolution, a pool, a sum and a table, with a node between two programs that stays; integers in and out."""
    graph = Graph(seed=1)
    x = graph.input((1, 3, 6, 6), integer=True, name="image")
    y = graph.conv(x, 9, relu=True, pads=[1, 1, 1, 1])
    y = graph.add(graph.maxpool(y, 3, pads=[1, 1, 1, 1]), graph.conv(y, 9, 1))
    stays = graph.quantize(graph.node("Det", [graph.node("MatMul", [graph.dequantize(y)] * 2)]), 0.5)
    graph.output(stays, integer=True)
    graph.output(graph.gemm(graph.flatten(graph.unary("Sigmoid", y)), 5), integer=True)
    return graph.model()


def float_model() -> onnx.ModelProto:
    """A convolution, an activation and a pool in fp32."""
    random = np.random.default_rng(1)
    weights = random.standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("AveragePool", ["b"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "floats",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 5, 3, 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def model_for(config: NpuConfig) -> onnx.ModelProto:
    """The one of the two that goes with a configuration's data type."""
    return quantised_model() if config.dtype == "int8" else float_model()


def compiled_model(path: Path, config: NpuConfig) -> onnx.ModelProto:
    """One of the two models, compiled; also written to a file."""
    artifact = compile_model(model_for(config), config).artifact
    assert artifact is not None
    write_artifact(path, artifact)
    return onnx.load(path)


def programs() -> dict[str, Program]:
    """Programs that the compiler made, by the name of the configuration."""
    return {
        name: compile_model(model_for(PRESETS[name]), PRESETS[name]).programs[0] for name in ("int8-4x4", "bf16-4x4")
    }
