"""The compiled model: one ONNX file in which each accelerated subgraph is an `EPContext` node.

The node's blob is the program; all other nodes are ordinary ONNX, so that any viewer opens the file.
"""

from collections.abc import Sequence

import onnx
from onnx import helper

from npukit.compiler.layers import Subgraph
from npukit.compiler.passes.partition import Partition
from npukit.isa.program import Program

__all__ = ["build_artifact"]

_TYPES = {"int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8}


def build_artifact(
    source: onnx.ModelProto, partition: Partition, subgraphs: Sequence[Subgraph], programs: Sequence[Program]
) -> onnx.ModelProto:
    """The source model with each subgraph's nodes replaced by one node that holds its program."""
    staying = {node.name for node in partition.host}
    normalised = _nodes_by_name(partition)
    nodes: list[tuple[int, int, onnx.NodeProto]] = []
    for position, (name, proto) in enumerate(normalised.items()):
        if name in staying:
            nodes.append((2 * partition.stages[_find(partition, name)], position, proto))
    for subgraph, matches, program in zip(subgraphs, partition.subgraphs, programs, strict=True):
        stage = partition.stages[matches[0].node]
        context = helper.make_node(
            "EPContext",
            inputs=list(subgraph.inputs),
            outputs=list(subgraph.outputs),
            name=subgraph.name,
            domain="com.microsoft",
            main_context=1,
            embed_mode=1,
            ep_cache_context=program.to_bytes(),
            ep_sdk_version="npukit 1",
            source="npukit",
            partition_name=subgraph.name,
        )
        nodes.append((2 * stage + 1, 0, context))
    nodes.sort(key=lambda entry: entry[:2])
    return _assemble(source, partition, [node for _, _, node in nodes], subgraphs)


def _find(partition: Partition, name: str):
    return next(node for node in partition.host if node.name == name)


def _nodes_by_name(partition: Partition) -> dict[str, onnx.NodeProto]:
    import onnx_ir as ir

    return {node.name or "": ir.to_proto(node) for node in partition.model.graph}


def _assemble(
    source: onnx.ModelProto, partition: Partition, nodes: list[onnx.NodeProto], subgraphs: Sequence[Subgraph]
) -> onnx.ModelProto:
    import onnx_ir as ir

    whole = ir.to_proto(partition.model)
    used = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output}
    values = {value.name: value for value in whole.graph.value_info}
    for subgraph in subgraphs:
        for name in (*subgraph.inputs, *subgraph.outputs):
            tensor = subgraph.tensors[name]
            values[name] = helper.make_tensor_value_info(name, _TYPES[tensor.dtype], tensor.shape)
    outside = {value.name for value in (*whole.graph.input, *whole.graph.output)}
    graph = helper.make_graph(
        nodes,
        source.graph.name or "npukit",
        list(whole.graph.input),
        list(whole.graph.output),
        [tensor for tensor in whole.graph.initializer if tensor.name in used],
        value_info=[value for name, value in values.items() if name in made | used and name not in outside],
    )
    opsets = list(whole.opset_import)
    if not any(entry.domain == "com.microsoft" for entry in opsets):
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=whole.ir_version, producer_name="npukit")
    for entry in source.metadata_props:
        model.metadata_props.add(key=entry.key, value=entry.value)
    return model
