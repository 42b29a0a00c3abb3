"""The compiled model: one ONNX file in which each accelerated subgraph is an `EPContext` node.

The node's blob is the program; all other nodes are ordinary ONNX, so that any viewer opens the file.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields

import onnx
import onnx_ir as ir
from npukit.compiler.frontends.onnx.offload import Offload, Reason
from npukit.compiler.frontends.onnx.operators import used_values
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.compiler.ir.graph import Graph
from npukit.driver.host import overridable
from npukit.isa import schema
from npukit.isa.program import Program
from npukit.isa.schema import SchemaError
from onnx import helper

__all__ = ["TENSOR_TYPES", "build_artifact", "offload_of"]

_OFFLOAD = "npukit.offload"
TENSOR_TYPES = {
    "int8": onnx.TensorProto.INT8,
    "uint8": onnx.TensorProto.UINT8,
    "int32": onnx.TensorProto.INT32,
    "float32": onnx.TensorProto.FLOAT,
}
"""ONNX's number of a type that programs take or give."""


def offload_of(artifact: onnx.ModelProto, programs: Mapping[str, Program]) -> Offload:
    """What a compiled model says of itself; of a bare program, that it is all there is."""
    text = next((entry.value for entry in artifact.metadata_props if entry.key == _OFFLOAD), None)
    if text is not None:
        with suppress(SchemaError):  # another version's
            return _read_offload(text)
    nodes = [node for program in programs.values() for node in program.nodes]
    macs = sum(node.macs for node in nodes)
    count = len({node.name for node in nodes})  # one may be several operations
    return Offload(reasons=(), nodes_total=count, macs=macs, macs_total=macs)


def _read_offload(text: str) -> Offload:
    """The inverse of what `build_artifact` writes.

    Raises:
        SchemaError: when it is not that.
    """
    values = schema.record(schema.parse(text.encode()), [one.name for one in fields(Offload)], _OFFLOAD)
    counts = ("nodes_total", "macs", "macs_total", "macs_unknown")
    return Offload(
        reasons=tuple(
            _read_reason(value, f"{_OFFLOAD}.reasons[{number}]")
            for number, value in enumerate(schema.items(values["reasons"], _OFFLOAD, "reasons"))
        ),
        suggestion=schema.text(values["suggestion"], _OFFLOAD, "suggestion"),
        **{name: schema.whole(values[name], 0, schema.MOST, _OFFLOAD, name) for name in counts},
    )


def _read_reason(value: object, place: str) -> Reason:
    entry = schema.record(value, [one.name for one in fields(Reason)], place)
    texts = {name: schema.text(entry[name], place, name) for name in ("node", "op", "reason")}
    macs = entry["macs"]
    edge = schema.flag(entry["edge"], place, "edge")
    return Reason(**texts, macs=None if macs is None else schema.whole(macs, 0, schema.MOST, place, "macs"), edge=edge)


def build_artifact(
    source: onnx.ModelProto, partition: Partition, subgraphs: Sequence[Graph], programs: Sequence[Program]
) -> onnx.ModelProto:
    """The source model with each subgraph's nodes replaced by one node that holds its program."""
    staying = set(partition.host)
    nodes: list[tuple[int, int, onnx.NodeProto]] = []
    for position, node in enumerate(partition.model.graph):
        if node in staying:
            nodes.append((2 * partition.stages[node], position, ir.to_proto(node)))
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


def _assemble(
    source: onnx.ModelProto, partition: Partition, nodes: list[onnx.NodeProto], subgraphs: Sequence[Graph]
) -> onnx.ModelProto:
    whole = ir.to_proto(partition.model)
    used = {value.name for node in partition.host for value in used_values(node)}
    used.update(name for subgraph in subgraphs for name in subgraph.inputs)
    used.update(value.name for value in whole.graph.output)
    made = {name for node in nodes for name in node.output}
    values = {value.name: value for value in whole.graph.value_info}
    for subgraph in subgraphs:
        for name in (*subgraph.inputs, *subgraph.outputs):
            tensor = subgraph.tensors[name]
            values[name] = helper.make_tensor_value_info(name, TENSOR_TYPES[tensor.host_type], tensor.shape)
    dropped = {tensor.name for tensor in whole.graph.initializer} - (overridable(whole) & used)
    outside = {value.name for value in (*whole.graph.input, *whole.graph.output)}
    graph = helper.make_graph(
        nodes,
        source.graph.name or "npukit",
        [value for value in whole.graph.input if value.name not in dropped],
        list(whole.graph.output),
        [tensor for tensor in whole.graph.initializer if tensor.name in used],
        value_info=[value for name, value in values.items() if name in made | used and name not in outside],
    )
    opsets = list(whole.opset_import)
    if not any(entry.domain == "com.microsoft" for entry in opsets):
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    model = helper.make_model(
        graph,
        opset_imports=opsets,
        ir_version=max(whole.ir_version, 4),  # before, initializers had to be inputs as well
        producer_name="npukit",
        functions=list(whole.functions),
    )
    for entry in source.metadata_props:
        if not entry.key.startswith("npukit."):  # of a compilation that left everything where it was
            model.metadata_props.add(key=entry.key, value=entry.value)
    offload = Offload(**{one.name: getattr(partition, one.name) for one in fields(Offload)})
    model.metadata_props.add(key=_OFFLOAD, value=json.dumps(asdict(offload)))
    return model
