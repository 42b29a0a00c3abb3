"""Functions of one element in bf16, as straight lines: any chain of elementwise operators of one tensor."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.functions import MORE_INPUTS, ONE_INPUT
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    FloatChain,
    Match,
    Produced,
    alone,
    float_tensor,
    match_of,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.quantisation import ONNX_DOMAINS, constant
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import PiecewiseLinear
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.compiler.lines import ALL_NUMBERS, Lines, fit
from npukit.driver.host import HostError, open_session, run_session
from npukit.isa.formats import FLOAT32
from onnx import TensorProto, helper, numpy_helper

__all__ = ["float_chains", "match_lines"]

_DIRECT = frozenset({"Add", "Clip", "Identity", "Mul", "Relu"})
"""Operators that the machine has anyway: lines are for chains with another one."""
_LONGEST = 32
"""Values before a node, at most, of which it may be the function."""


def float_chains(
    graph: ir.Graph, outputs: Collection[str], opsets: Mapping[str, int], taken: Collection[ir.Node]
) -> dict[ir.Node, FloatChain]:
    """The chain that each node belongs to; a chain's last node is the first of its `nodes`.

    Args:
        graph: of the model.
        outputs: names of the graph's outputs.
        opsets: versions of the operator sets, by domain.
        taken: nodes that belong to something else.
    """
    functions: dict[ir.Node, list[ir.Value]] = {}
    place = {node: index for index, node in enumerate(graph)}
    for node in graph:
        sources = _sources(node, functions) if node not in taken else []
        if sources:
            functions[node] = sources
    known: dict[bytes, tuple[Lines | None, str]] = {}
    found: dict[ir.Node, FloatChain] = {}
    for node in reversed([*functions]):
        if node in found:
            continue
        best: FloatChain | None = None
        for source in reversed(functions[node]):  # the longest chain first
            nodes = tuple(sorted(_between(node, source), key=lambda one: place[one], reverse=True))
            if not alone(nodes, outputs) or all(one.op_type in _DIRECT for one in nodes):
                continue
            model = _model(nodes, source, opsets)
            key = model.SerializeToString()
            if key not in known:
                known[key] = _lines(model)
            best = FloatChain(nodes, source, *known[key])
            if best.lines is not None:
                break
        if best is not None and best.lines is not None:
            found.update(dict.fromkeys(best.nodes, best))
        elif best is not None:
            found[node] = best
    return found


def match_lines(context: Context, node: ir.Node) -> Match:
    """A chain of elementwise operators of one tensor, of which a node is the last."""
    chain = context.lines[node]
    if chain.lines is None:
        raise Refused(f"256 straight lines do not come near it: {chain.problem}")
    if chain.nodes[0] is not node:
        raise Refused("it belongs to the nodes that another one takes with it")
    x, y = float_tensor(chain.source), float_tensor(node.outputs[0])
    if x.shape != y.shape:
        raise Refused(f"it turns the shape {list(x.shape)} into {list(y.shape)}")
    name = free_name(f"{y.name} of {x.name}", {x.name, y.name})
    table = Constant(Tensor(name, chain.lines.table.shape, FLOAT32), chain.lines.table)
    operation = PiecewiseLinear(
        output=y.name, sources=sources_of(chain.nodes), input=x.name, table=name,
        step=chain.lines.step, offset=chain.lines.offset,
    )  # fmt: skip
    return match_of(node, Produced(chain.nodes, node.outputs[0], y), [chain.source], [x], operation, [table])


def _inputs(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, but for constants."""
    return (value for value in node.inputs if value is not None and value.name != "" and constant(value) is None)


def _sources(node: ir.Node, functions: Mapping[ir.Node, list[ir.Value]]) -> list[ir.Value]:
    """Values of an element of which alone a node makes each of its own: its input, and what that is a function of."""
    kinds = ONE_INPUT | MORE_INPUTS
    if node.op_type not in kinds or node.domain not in ONNX_DOMAINS or len(node.outputs) != 1:
        return []
    constants = [array for value in node.inputs if value is not None and (array := constant(value)) is not None]
    inputs = [*_inputs(node)]
    if not inputs or any(array.size != 1 for array in constants):
        return []
    if any(value.dtype != ir.DataType.FLOAT for value in (*inputs, *node.outputs)):
        return []
    lines = []
    for value in inputs:
        producer = value.producer()
        lines.append([value, *(functions.get(producer, ()) if producer is not None else ())])
    return [value for value in lines[0] if all(value in line for line in lines[1:])][:_LONGEST]


def _between(node: ir.Node, source: ir.Value) -> set[ir.Node]:
    """The nodes from a source to a node."""
    found: set[ir.Node] = set()
    pending = [node]
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            producers = (value.producer() for value in _inputs(one) if value is not source)
            pending += [producer for producer in producers if producer is not None]
    return found


def _model(nodes: Sequence[ir.Node], source: ir.Value, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """The nodes as a model of their own, the same for the same functions."""
    names = {source.name: "x"}
    graph = onnx.GraphProto(name="function")
    for node in reversed(nodes):
        proto = ir.to_proto(node)
        proto.ClearField("doc_string")
        proto.ClearField("metadata_props")
        proto.name = f"node {len(graph.node)}"
        for value in node.inputs:
            array = constant(value) if value is not None else None
            if value is not None and array is not None and value.name not in names:
                names[value.name] = f"value {len(names)}"
                graph.initializer.append(numpy_helper.from_array(np.asarray(array, order="C"), names[value.name]))
        for value in node.outputs:
            names[value.name] = f"value {len(names)}"
        for given in (proto.input, proto.output):
            given[:] = [name and names[name] for name in given]
        graph.node.append(proto)
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [ALL_NUMBERS.size]))
    graph.output.append(helper.make_tensor_value_info(names[nodes[0].outputs[0].name], TensorProto.FLOAT, None))
    versions = [helper.make_opsetid(domain, opsets[domain]) for domain in sorted(opsets)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def _lines(model: onnx.ModelProto) -> tuple[Lines | None, str]:
    result = model.graph.output[0].name
    try:
        found = run_session(open_session(model), [result], {"x": ALL_NUMBERS})
    except HostError as error:
        return None, str(error)
    return fit(found[result].reshape(-1))
