"""Checks what partitioning made: every node runs once, and after what it needs."""

from npukit.compiler.frontends.onnx.operators import used_values
from npukit.compiler.frontends.onnx.partition import Partition
from npukit.compiler.verify import check

__all__ = ["verify_partition"]


def verify_partition(partition: Partition) -> None:
    """Every node is accelerated or stays, never both; what a node needs has run before it.

    Host stage s runs before accelerated stage s, which runs before host stage s + 1.
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
