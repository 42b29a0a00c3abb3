"""Checks what partitioning made: every node runs once, after what it needs, and what stays is as it was imported."""

from collections.abc import Iterator, Mapping

import onnx_ir as ir
from npukit.compiler.frontends.onnx.importer import SourceForm
from npukit.compiler.frontends.onnx.operators.base import graphs_of, used_values
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.compiler.verify import check

__all__ = ["verify_partition"]


def verify_partition(partition: Partition) -> None:
    """Every node is accelerated or stays, never both; what a node needs has run before it; what stays is unchanged.

    Host stage s runs before accelerated stage s, which runs before host stage s + 1. What ONNX Runtime computes must be
    the model's own nodes, or those that stand for one (`zero_points`), however passes have rewritten the graph so that
    the machine can compute more of it.
    """
    absorbed = [node for group in partition.subgraphs for match in group for node in match.nodes]
    check(len(set(absorbed)) == len(absorbed), "a node belongs to two matches")
    check(not set(absorbed) & set(partition.host), "a node is accelerated and stays")
    needs = [(node, value) for node in partition.host for value in used_values(node)]
    needs += [(match.node, value) for group in partition.subgraphs for match in group for value in match.inputs]
    for node, value in needs:
        producer = value.producer()
        if producer is not None:
            crossing = node in partition.host and producer in absorbed
            ready = partition.stages[producer] + crossing
            check(ready <= partition.stages[node], f"{node.name} runs before {producer.name}")
    _verify_host(partition)


def _verify_host(partition: Partition) -> None:
    imported = partition.imported
    for name, value in imported.model.graph.initializers.items():
        same = name not in imported.initializers or value.const_value is imported.initializers[name]
        check(same, f"initializer {name} has another value than in the model")
    outputs = tuple(value.name for value in imported.model.graph.outputs)
    check(outputs == imported.outputs, f"the outputs are {outputs} instead of {imported.outputs}")
    copied = {copy.outputs[0].name: original.outputs[0].name for copy, original in partition.copies.items()}
    for host in partition.host:
        for node in (host, *_inside(host)):
            form = imported.forms.get(partition.copies.get(node, node))
            check(form is not None, f"{node.name} stays, and is no node of the model")
            assert form is not None
            now = SourceForm.of(node)
            same = (now.domain, now.op_type, now.overload) == (form.domain, form.op_type, form.overload)
            same = same and _same(now.attributes, form.attributes)
            check(same, f"{node.name} stays, and is another {form.op_type} than in the model")
            reads = tuple(copied.get(name, name) for name in now.inputs)
            asked = tuple(_renamed(name, imported.renamed) for name in form.inputs)
            check(reads == asked, f"{node.name} stays, and reads {reads} instead of {asked}")


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of the graphs that a node holds (the branches of an If)."""
    for graph in graphs_of(node):
        yield from graph.all_nodes()


def _same(one: Mapping[str, ir.Attr], other: Mapping[str, ir.Attr]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _renamed(name: str | None, renamed: Mapping[str | None, str | None]) -> str | None:
    while name in renamed:
        name = renamed[name]
    return name
