"""normalise: constants are initializers, identities are gone, and nothing is renamed."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from npukit.compiler.frontends.onnx.importer import Imported, ImportPass
from npukit.compiler.frontends.onnx.normalise import NormalisePass
from npukit.compiler.frontends.onnx.partition import PartitionPass
from npukit.compiler.frontends.onnx.verify import verify_partition
from npukit.compiler.verify import VerifyError
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper


def normalised(model: onnx.ModelProto) -> ir.Model:
    return NormalisePass().run(ImportPass({}).run(model)).model


class _Rewriting(NormalisePass):
    """A pass that has the host compute something else, in a branch of an If as well."""

    def run(self, imported: Imported) -> Imported:
        made = super().run(imported)
        (node,) = [node for node in made.model.graph.all_nodes() if node.op_type == "Cos"]
        node.op_type = "Sin"
        return made


def test_a_rewritten_branch_is_found(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 3, 6, 6))
    graph.output(graph.conv(x, 4))
    condition = graph.constant(np.array(True))
    outer = graph.dequantize(x)
    branches = {}
    for name, operator in (("then_branch", "Cos"), ("else_branch", "Tan")):
        out = helper.make_tensor_value_info(f"{name} out", TensorProto.FLOAT, [1, 3, 6, 6])
        node = helper.make_node(operator, [outer], [f"{name} out"], name=f"{operator} inside")
        branches[name] = helper.make_graph([node], name, [], [out])
    graph.output_value(graph.node("If", [condition], **branches))
    imported = ImportPass({}).run(graph.model())
    config = PRESETS["int8-4x4"]
    right = PartitionPass(config).run(NormalisePass().run(imported))
    verify_partition(right)
    wrong = PartitionPass(config).run(_Rewriting().run(ImportPass({}).run(graph.model())))
    with pytest.raises(VerifyError, match="Cos inside stays, and is another Cos than in the model"):
        verify_partition(wrong)


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
