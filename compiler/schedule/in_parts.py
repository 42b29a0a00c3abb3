"""Operations that are computed some places after the other, because neighbours with long work of VECTOR wait for them.

While VECTOR normalises some places, the array multiplies others; so it must not need all of them at once, nor make
one channel block of all of them before the next.
"""

from collections.abc import Iterator

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    ByElement,
    Convolution,
    Elementwise,
    MatrixProduct,
    Normalization,
    Rearrange,
    TensorOperation,
)

__all__ = ["to_compute_in_parts"]


def to_compute_in_parts(graph: Graph) -> frozenset[int]:
    """Numbers of convolutions beside a normalisation, and of rearrangements beside a product of two activations;
    elementwise operations between them do not count."""
    neighbours = _Neighbours(graph)
    found = set()
    for number, operation in enumerate(graph.operations):
        if isinstance(operation, Normalization):
            found |= neighbours.of(number, Convolution)
        elif isinstance(operation, MatrixProduct):
            found |= neighbours.of(number, Rearrange)
    return frozenset(found)


class _Neighbours:
    def __init__(self, graph: Graph) -> None:
        self._graph, self._makers, self._readers = graph, graph.makers(), graph.readers()

    def of(self, number: int, kind: type[TensorOperation]) -> set[int]:
        """Operations of that kind next to one, before and behind it."""
        found = set()
        for step in (self._before, self._behind):
            coming, seen = [*step(number)], {number}
            while coming:
                other = coming.pop()
                if other in seen:
                    continue
                seen.add(other)
                operation = self._graph.operations[other]
                if isinstance(operation, kind):
                    found.add(other)
                elif isinstance(operation, Elementwise | ByElement):
                    coming += step(other)
        return found

    def _before(self, number: int) -> Iterator[int]:
        graph = self._graph
        for name in graph.activations(graph.operations[number]):
            storage = graph.tensors[name].storage
            if storage in self._makers:
                yield self._makers[storage]

    def _behind(self, number: int) -> Iterator[int]:
        graph = self._graph
        yield from self._readers.get(graph.tensors[graph.operations[number].output].storage, ())
