"""Compiled models: inputs are checked, parts run in order, and captures show what VECTOR wrote."""

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.driver.executor import ArtifactError, Executor, InputError, programs_of
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper

from npukit.compare import Oracle
from npukit.session import Session

CONFIG = PRESETS["int8-4x4"]


def artifact_of(model: onnx.ModelProto) -> onnx.ModelProto:
    artifact = compile_model(model, CONFIG).artifact
    assert artifact is not None
    return artifact


def two_inputs(graphs):
    graph = graphs.Graph()
    a, b = graph.input((1, 4, 6, 6), name="a"), graph.input((1, 4, 6, 6), name="b", integer=True)
    graph.output(graph.add(graph.conv(a, 4, pads=[1] * 4), b))
    return graph.model()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {**x, "c": x["a"]}, "the model has the inputs a, b, not 'c'"),
        (lambda x: {"a": x["a"]}, "input b is missing"),
        (lambda x: {}, "input a is missing"),
        (lambda x: {**x, "a": x["a"].astype(np.float64)}, "input a must be float32, not float64"),
        (lambda x: {**x, "b": x["b"].view(np.uint8)}, "input b must be int8, not uint8"),
        (lambda x: {**x, "a": x["a"][0]}, r"input a must have the shape \[1, 4, 6, 6\], not \[4, 6, 6\]"),
        (lambda x: {**x, "b": x["b"][:, :, :5]}, r"input b must have the shape \[1, 4, 6, 6\], not \[1, 4, 5, 6\]"),
        (lambda x: {**x, "a": None}, "input a must be float32, not object"),
    ],
)
def test_wrong_inputs(graphs, change, message) -> None:
    model = two_inputs(graphs)
    executor = Executor(artifact_of(model), SimDevice(CONFIG))
    with pytest.raises(InputError, match=message):
        executor.run(change(graphs.inputs_of(model)))
    executor.run(graphs.inputs_of(model))


def test_the_callers_arrays_stay(graphs) -> None:
    model = two_inputs(graphs)
    inputs = graphs.inputs_of(model)
    copies = {name: array.copy() for name, array in inputs.items()}
    execution = Executor(artifact_of(model), SimDevice(CONFIG)).run(inputs)
    assert all(np.array_equal(inputs[name], copy) for name, copy in copies.items()) and list(inputs) == ["a", "b"]
    for output in execution.outputs.values():
        output[...] = 0
    assert execution.boundary.moved == 3 * 4 * 36 and list(execution.records) == ["npukit_0"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_captures(graphs, dtype) -> None:
    """Every quantised tensor, in the framework's shape and dtype, reshaped ones and the host's included."""
    graph = graphs.Graph(dtype=dtype)
    x = graph.input((2, 5, 9, 9))
    y = graph.conv(x, 6, relu=True)
    h = graph.quantize(graph.node("LpNormalization", [graph.dequantize(y)]), 0.004, 0)
    z = graph.flatten(graph.maxpool(graph.add(y, h), 3, strides=[2, 2]))
    graph.output(graph.gemm(z, 7))
    model = graph.model()
    session = Session(model, CONFIG, capture=True)
    inputs = graphs.inputs_of(model)
    session.run(inputs)
    oracle = Oracle(model)
    expected = oracle.run(inputs)
    assert set(oracle.tensors) <= set(session.tensors) and len(oracle.tensors) == 7
    for name in oracle.tensors:
        assert session.tensors[name].dtype == expected[name].dtype == dtype
        assert np.array_equal(session.tensors[name], expected[name]), name


def test_without_captures_nothing_is_observed(graphs) -> None:
    model = two_inputs(graphs)
    device = SimDevice(CONFIG)
    executor = Executor(artifact_of(model), device)
    assert executor.run(graphs.inputs_of(model)).tensors == {}
    assert executor.run(graphs.inputs_of(model), capture=True).tensors and device.observer is None


def test_an_error_leaves_no_observer(graphs) -> None:
    model = two_inputs(graphs)
    device = SimDevice(CONFIG)
    executor = Executor(artifact_of(model), device)
    executor.loaded["npukit_0"].limit = 0  # its first LOAD is past that
    with pytest.raises(RuntimeError, match="npukit_0 stopped at instruction 0"):
        executor.run(graphs.inputs_of(model), capture=True)
    assert device.observer is None


def test_observer_sees_every_vector_instruction(graphs) -> None:
    """What it is given are numbers of instructions and their results, in order."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 6, 6), integer=True, name="image")
    y = graph.conv(x, 4)
    graph.output(y, integer=True)
    model = graph.model()
    device = SimDevice(CONFIG)
    executor = Executor(artifact_of(model), device)
    seen = []
    device.observer = lambda index, instruction, read: seen.append((index, instruction.mnemonic, read().shape))
    result = executor.run(graphs.inputs_of(model))
    (program,) = executor.programs.values()
    assert [entry[0] for entry in seen] == [capture.instruction for capture in program.captures]
    assert all(entry[1] == "VECTOR" for entry in seen)
    assert sum(int(np.prod(entry[2])) for entry in seen) == result.outputs[y.name].size


# ---- what is no compiled model


def test_contexts_of_other_tools(graphs) -> None:
    artifact = artifact_of(two_inputs(graphs))
    node = next(node for node in artifact.graph.node if node.op_type == "EPContext")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    attributes["source"].s = b"OpenVINOExecutionProvider"
    with pytest.raises(ArtifactError, match="npukit_0 was made by OpenVINOExecutionProvider"):
        programs_of(artifact)
    node.attribute.remove(attributes["source"])
    with pytest.raises(ArtifactError, match="was made by another tool"):
        programs_of(artifact)


def test_contexts_without_a_program(graphs) -> None:
    artifact = artifact_of(two_inputs(graphs))
    node = next(node for node in artifact.graph.node if node.op_type == "EPContext")
    blob = next(attribute for attribute in node.attribute if attribute.name == "ep_cache_context")
    blob.s = blob.s[:-1]
    with pytest.raises(ArtifactError, match="EPContext node npukit_0: the program's digest does not match"):
        programs_of(artifact)
    node.attribute.remove(blob)
    with pytest.raises(ArtifactError, match="EPContext node npukit_0 holds no program"):
        programs_of(artifact)


def test_models_without_programs(graphs) -> None:
    """An ordinary model is one part for ONNX Runtime."""
    model = two_inputs(graphs)
    inputs = graphs.inputs_of(model)
    execution = Executor(model, SimDevice(CONFIG)).run(inputs)
    expected = Oracle(model).run(inputs)
    assert all(np.array_equal(expected[name], value) for name, value in execution.outputs.items())
    assert execution.records == {} and execution.boundary.moved == 0


def test_parts_that_onnx_runtime_refuses(graphs) -> None:
    artifact = artifact_of(two_inputs(graphs))
    artifact.graph.node[0].op_type = "Quantise"
    with pytest.raises(ArtifactError, match="ONNX Runtime refuses the part of the model that stays: .*Quantise"):
        Executor(artifact, SimDevice(CONFIG))


@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_that_reads_earlier_parts(graphs, flag) -> None:
    """The branches of an If read a constant, and a value of the part in ONNX Runtime before the program."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 6, 6))
    early = graph.node("LpNormalization", [graph.dequantize(x)])
    late = graph.dequantize(graph.conv(x, 4, pads=[1] * 4))
    constant = graph.constant(np.float32(3))
    graph.inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    branches = {}
    for name, other in (("then_branch", early), ("else_branch", constant)):
        value = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, (1, 4, 6, 6))
        node = helper.make_node("Mul", [late, other], [value.name])
        branches[name] = helper.make_graph([node], name, [], [value])
    graph.output_value(graph.node("If", ["flag"], **branches))
    model = graph.model()
    inputs = {**graphs.inputs_of(model), "flag": np.array(flag)}
    graphs.agree(model, CONFIG, stays={*graphs.EDGES, "If", "LpNormalization"}, inputs=inputs)


def test_values_that_are_no_tensors(graphs) -> None:
    """A sequence crosses from one part in ONNX Runtime to the next."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 6, 6))
    sequence = graph.node("SequenceConstruct", [graph.dequantize(x)])
    y = graph.conv(x, 4, pads=[1] * 4)
    index = graph.constant(np.int64(0))
    graph.output_value(graph.node("Add", [graph.node("SequenceAt", [sequence, index]), graph.dequantize(y)]))
    model = graph.model()
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info(model.graph.output[0].name, TensorProto.FLOAT, (1, 4, 6, 6))
    )
    graphs.agree(model, CONFIG, stays={*graphs.EDGES, "SequenceConstruct", "SequenceAt", "Add"})
