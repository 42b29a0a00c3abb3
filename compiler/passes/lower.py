"""lower: matches to layers, with every tensor's place in memory resolved."""

from dataclasses import dataclass, replace

from npukit.compiler.layers import QuantizedTensor, Subgraph
from npukit.compiler.operators import Match, used_values
from npukit.compiler.passes.partition import Partition

__all__ = ["LowerPass"]


@dataclass(frozen=True)
class LowerPass:
    """Build each subgraph's layers; reshapes become aliases of what they reshape."""

    name = "lower"

    def run(self, partition: Partition) -> tuple[Subgraph, ...]:
        """One Subgraph per accelerated part, in the order of execution."""
        outside = {value.name for value in partition.model.graph.outputs}
        for node in partition.host:
            outside.update(value.name for value in used_values(node))
        subgraphs = []
        for index, matches in enumerate(partition.subgraphs):
            others = {
                value.name
                for number, group in enumerate(partition.subgraphs)
                if number != index
                for match in group
                for value in match.inputs
            }
            subgraphs.append(_subgraph(f"npukit_{index}", matches, outside | others))
        return tuple(subgraphs)


def _subgraph(name: str, matches: tuple[Match, ...], used_outside: set[str | None]) -> Subgraph:
    tensors: dict[str, QuantizedTensor] = {}
    layers = []
    made: list[str] = []
    for match in matches:
        for tensor in match.tensors[:-1]:
            tensors.setdefault(tensor.name, tensor)
        output = match.tensors[-1]
        if match.alias:
            source = tensors[match.tensors[0].name]
            output = replace(output, storage=source.storage, view=source.view)
        tensors[output.name] = output
        made.append(output.name)
        if match.build is not None:
            layers.append(match.build(tensors))
    needed = {value.name for match in matches for value in match.inputs}
    return Subgraph(
        name=name,
        layers=tuple(layers),
        tensors=tensors,
        inputs=tuple(tensor for tensor in tensors if tensor in needed and tensor not in made),
        outputs=tuple(tensor for tensor in made if tensor in used_outside),
    )
