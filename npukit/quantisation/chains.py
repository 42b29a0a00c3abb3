"""Functions of one element that are several nodes: the machine looks them up as one, if nothing is quantised inside."""

from collections.abc import Mapping
from math import prod

import onnx

from npukit.compiler.frontends.onnx.operators.unary import UNARY

__all__ = ["inner_nodes"]


def inner_nodes(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Names of the nodes of all such functions of at least two nodes, as x * sigmoid(x) is one.

    The tensor that such a function reads, and the one that it makes, are quantised by their other neighbours. A Relu or
    Clip that a convolution or the like takes along begins none.
    """
    # a table takes single numbers; what reads other constants begins no function
    constants = {tensor.name for tensor in graph.initializer if prod(tensor.dims) == 1}
    producers = {name: node for node in graph.node for name in node.output}
    outputs = {value.name for value in graph.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    roots: dict[str, str] = {}
    for node in graph.node:
        sources = {_root(roots, name) for name in node.input if name and name not in constants}
        alone = node.op_type in ("Relu", "Clip") and next(iter(sources), "") == node.input[0]
        if _elementwise(node) and len(sources) == 1 and not alone:
            roots[node.output[0]] = sources.pop()
    # a tensor inside that others read as well is quantised for them
    chains: dict[str, list[onnx.NodeProto]] = {}
    for name in roots:
        chains.setdefault(roots[name], []).append(producers[name])
    found: list[str] = []
    for members in chains.values():
        found += _whole(members, readers, outputs)
    return tuple(found)


def _root(roots: Mapping[str, str], name: str) -> str:
    return roots.get(name, name)


def _elementwise(node: onnx.NodeProto) -> bool:
    return node.op_type in UNARY and node.domain in ("", "ai.onnx") and len(node.output) == 1


def _whole(members: list[onnx.NodeProto], readers: Mapping[str, list[onnx.NodeProto]], outputs: set[str]) -> list[str]:
    """Names of the members, if there are several and only the last is read by others."""
    names = {node.name for node in members}
    last = [
        node
        for node in members
        if node.output[0] in outputs or any(one.name not in names for one in readers.get(node.output[0], ()))
    ]
    return [node.name for node in members] if len(members) > 1 and len(last) == 1 else []
