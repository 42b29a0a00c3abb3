"""normalise: constants are initializers, what computes nothing new is gone, and nothing is renamed."""

import numpy as np
from npukit.compiler.passes.importer import ImportPass
from npukit.compiler.passes.normalise import NormalisePass
from onnx import TensorProto, helper

from npukit.compare import Oracle, compare
from npukit.npufile import write_artifact
from npukit.session import Session


def normalised(model):
    return NormalisePass().run(ImportPass({}).run(model))


def test_constant_nodes(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 3, 6, 6)), 4))
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.initializers]
    count = len(graph.nodes)
    graph.nodes, graph.initializers = constants + graph.nodes, []
    model = graph.model()
    after = normalised(model)
    assert len(list(after.graph)) == count and not any(node.op_type == "Constant" for node in after.graph)
    assert set(after.graph.initializers) >= {node.output[0] for node in constants}
    _, found = graphs.agree(model, "int8-4x4")
    assert found.tensors == 2


def test_identities_on_the_way(graphs) -> None:
    """Behind every value: float, quantised, and the quantiser's parameters."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    graph.output(graph.conv(y, 5))
    nodes = []
    for node in graph.nodes:
        names = [graph.name("copy") for _ in node.input]
        nodes += [helper.make_node("Identity", [old], [new]) for old, new in zip(node.input, names, strict=True)]
        del node.input[:]
        node.input.extend(names)
        nodes.append(node)
    graph.nodes = nodes
    model = graph.model()
    assert not any(node.op_type == "Identity" for node in normalised(model).graph)
    graphs.agree(model, "int8-4x4")


def test_identities_to_the_outside_stay(graphs) -> None:
    """One tensor under three names: removing an Identity would leave an output without its name."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    graph.output(y, integer=True)
    for name in ("second", "third"):
        graph.output_value(graph.node("Identity", [y.name], name), TensorProto.INT8)
    model = graph.model()
    after = normalised(model)
    assert [value.name for value in after.graph.outputs] == [y.name, "second", "third"]
    session, _ = graphs.agree(model, "int8-4x4", stays={*graphs.EDGES, "Identity"})
    outputs = session.run(graphs.inputs_of(model))
    assert np.array_equal(outputs["second"], outputs[y.name]) and np.array_equal(outputs["third"], outputs[y.name])


def test_identity_inside_of_control_flow_stays(graphs) -> None:
    """A branch may not return an outer tensor without a node of its own."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    outer = graph.dequantize(y)
    graph.inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    branches = {}
    for branch in ("then_branch", "else_branch"):
        value = helper.make_tensor_value_info(f"{branch}_out", TensorProto.FLOAT, [1, 4, 4, 4])
        node = helper.make_node("Identity", [outer], [value.name])
        branches[branch] = helper.make_graph([node], branch, [], [value])
    graph.output_value(graph.node("If", ["flag"], **branches))
    model = graph.model()
    inner = next(node for node in normalised(model).graph if node.op_type == "If").attributes["then_branch"]
    assert [node.op_type for node in inner.as_graph()] == ["Identity"]
    graphs.agree(model, "int8-4x4", stays={*graphs.EDGES, "If"})


def test_repeated_nodes_are_computed_once(graphs, tmp_path) -> None:
    """Two convolutions with equal weights under other names, and all that follows alike; what differs stays apart."""
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 3, 6, 6))
    rng_state = graph.random.bit_generator.state
    first = graph.conv(x, 4)
    graph.random.bit_generator.state = rng_state
    second = graph.conv(x, 4)
    third = graph.conv(x, 4)
    graph.output(graph.add(first, second))
    graph.output(graph.add(first, third))
    model = graph.model()
    operators = [node.op_type for node in normalised(model).graph]
    assert operators.count("Conv") == 2 and operators.count("Add") == 2
    session, found = graphs.agree(model, "int8-4x4")
    assert [node.op for program in session.programs.values() for node in program.nodes].count("Conv") == 2
    assert found.tensors == found.tensors_total == 6  # the removed one is compared as well
    write_artifact(tmp_path / "compiled.onnx", session.artifact)
    again = Session(tmp_path / "compiled.onnx", capture=True)
    inputs = graphs.inputs_of(model)
    assert compare(again, Oracle(model), inputs, again.run(inputs)).tensors == 6


def test_outputs_keep_their_names(graphs) -> None:
    """Equal nodes that are both outputs, or of which one is."""
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 3, 6, 6), integer=True)
    for integer in (True, False):
        rng_state = graph.random.bit_generator.state
        graph.output(graph.conv(x, 4), integer=integer)
        graph.random.bit_generator.state = rng_state
        graph.output(graph.conv(x, 4), integer=True)
    model = graph.model()
    names = [value.name for value in model.graph.output]
    assert [value.name for value in normalised(model).graph.outputs] == names
    assert [node.op_type for node in normalised(model).graph].count("Conv") == 2
    graphs.agree(model, "int8-4x4", stays={*graphs.EDGES, "Identity"})


def test_random_nodes_do_not_repeat() -> None:
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[2]) for name in "ab"]
    nodes.append(helper.make_node("Sub", ["a", "b"], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [], [output]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    assert [node.op_type for node in normalised(model).graph] == ["RandomNormal", "RandomNormal", "Sub"]


def test_dead_nodes(graphs) -> None:
    """What no output needs is neither computed nor counted."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    graph.conv(graph.conv(y, 5, 1), 6, 1)
    graph.output(y)
    model = graph.model()
    assert [node.op_type for node in normalised(model).graph].count("Conv") == 1
    session, found = graphs.agree(model, "int8-4x4")
    assert [node.op for program in session.programs.values() for node in program.nodes] == ["Conv"]
    assert found.tensors == found.tensors_total == 2
