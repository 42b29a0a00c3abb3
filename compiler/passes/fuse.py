"""fuse: which operations are computed together, part by part, so that what is between them never leaves the chip.

Additions, products of two tensors, and tables, one after the other, with the convolution whose result they take. A
convolution with the depthwise convolution or the maximum that reads it, and often with the 1x1 convolution that
follows: the blocks of MobileNets. A softmax with the products before and behind it: attention.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    ByElement,
    Convolution,
    DepthwiseConvolution,
    Elementwise,
    MaxPool,
    Softmax,
    TensorOperation,
)
from npukit.compiler.ir.verify import verify_graph
from npukit.compiler.pass_base import Pass
from npukit.compiler.schedule.attention import attention_around
from npukit.compiler.schedule.strips import Chain, plan_chain
from npukit.isa.config import NpuConfig
from npukit.isa.timing import Timing

__all__ = ["FusePass"]


@dataclass(frozen=True)
class FusePass(Pass[Graph, Graph]):
    """Groups of operations. `enabled`: or none."""

    config: NpuConfig
    enabled: bool = True
    name = "fuse"

    def run(self, graph: Graph) -> Graph:
        """The same operations, in groups."""
        if not self.enabled:
            return replace(graph, groups=())
        followers = _followers(graph)
        chains = _chains(self.config, graph, followers)
        groups = []
        taken = {number for chain in chains.values() for number in (chain.window, chain.product)} | {
            *followers.values()
        }
        for number in range(len(graph.operations)):
            chain = chains.get(number)
            if number in taken or chain is None and number not in followers:
                continue
            members = [number] if chain is None else [number, chain.window]
            if chain is not None and chain.product is not None:
                members.append(chain.product)
            while members[-1] in followers:
                members.append(followers[members[-1]])
            groups.append(tuple(graph.operations[one].output for one in members))
        for number, layer in enumerate(graph.operations):
            if isinstance(layer, Softmax) and (together := attention_around(self.config, graph, number)):
                groups.append(tuple(graph.operations[one].output for one in together))
        return replace(graph, groups=tuple(groups))

    def check(self, made: Graph) -> None:
        """Raise InvalidGraph for groups that the IR's rules do not allow."""
        verify_graph(made)


def _followers(graph: Graph) -> dict[int, int]:
    """Number of an operation -> number of the one that takes its result at once, and alone.

    Additions and products, of two tensors or with a constant, follow a convolution, of whose result the last-made of
    their sources is made; tables follow these, a depthwise convolution, or a maximum.
    """
    made, readers, outside = graph.makers(), graph.readers(), graph.outside()
    found: dict[int, int] = {}
    heads: dict[int, int] = {}
    """Number of a follower -> that of the operation whose tile it takes, by way of other followers or not."""
    for number, layer in enumerate(graph.operations):
        sources = graph.activations(layer)
        if isinstance(layer, ByElement):
            kinds: tuple[type[TensorOperation], ...] = (Convolution, DepthwiseConvolution, MaxPool)
        elif isinstance(layer, Elementwise):
            kinds = (Convolution,)
        else:
            continue
        makers = [made.get(graph.tensors[name].storage, -1) for name in sources]
        last = max(makers)
        head = heads.get(last, last)
        # all others must be there before the head's tiles are
        if last < 0 or makers.count(last) > 1 or any(one >= head for one in makers if one != last):
            continue
        if not isinstance(graph.operations[head], kinds):
            continue
        result = graph.operations[last].output
        if any(graph.tensors[name].folded is not None for name in sources):
            continue
        if any(graph.tensors[name].view != graph.tensors[layer.output].view for name in (result, *sources)):
            continue
        if len(readers[result]) == 1 and result not in outside:
            found[last], heads[number] = number, head
    return found


def _chains(config: NpuConfig, graph: Graph, followers: dict[int, int]) -> dict[int, Chain]:
    """The chains of a graph, by their first layer's number; `followers`: see `_followers`."""
    made, readers, outside = graph.makers(), graph.readers(), graph.outside()
    found: dict[int, Chain] = {}
    for number, layer in enumerate(graph.operations):
        if not isinstance(layer, DepthwiseConvolution | MaxPool):
            continue
        name = layer.input
        first = made.get(name)
        if first in {chain.product for chain in found.values()}:
            continue
        if first is None or not _is_flat(graph.operations[first]) or len(readers[name]) > 1 or name in outside:
            continue
        following = readers.get(layer.output, [])
        chain = None
        if len(following) == 1 and layer.output not in outside and _is_product(graph, following[0], number):
            # what is added must be there before the chain begins
            if all(made.get(one, -1) < first for one in _added(graph, following[0], followers)):
                chain = plan_chain(config, graph, first, number, following[0])
        shorter = plan_chain(config, graph, first, number, None)
        if chain is not None and shorter is not None:
            chain = min((chain, shorter), key=lambda one: _cycles(config, graph, one, following))
        chain = chain or shorter
        if chain is not None:
            found[first] = chain
    return found


def _added(graph: Graph, number: int, followers: dict[int, int]) -> Iterator[str]:
    """Storages that an operation's followers read besides what is made of its result."""
    while number in followers:
        result, number = graph.operations[number].output, followers[number]
        storages = (graph.tensors[name].storage for name in graph.activations(graph.operations[number]))
        yield from (name for name in storages if name != result)


def _is_flat(layer: TensorOperation) -> bool:
    """Whether a layer is a convolution whose windows lie within one image."""
    return isinstance(layer, Convolution) and layer.depth is None


def _is_product(graph: Graph, number: int, window: int) -> bool:
    layer = graph.operations[number]
    return (
        isinstance(layer, Convolution)
        and layer.groups == 1
        and layer.depth is None
        and graph.kernel(layer) == (1, 1)
        and layer.strides == (1, 1)
        and not any(layer.pads)
        and layer.input == graph.operations[window].output
    )


def _cycles(config: NpuConfig, graph: Graph, chain: Chain, following: list[int]) -> float:
    """Estimate for a chain's layers and the product that follows: the busier of array and vector lanes."""
    conv, window = graph.operations[chain.first], graph.operations[chain.window]
    assert isinstance(conv, Convolution) and isinstance(window, DepthwiseConvolution | MaxPool)
    x, e, y = (graph.tensors[name] for name in (conv.input, conv.output, window.output))
    passes = Timing(config).requantise_passes
    blocks, kernel = -(-e.view[1] // config.array), graph.kernel(window)
    strips = -(-y.view[2] // chain.rows)
    rows = min(strips * chain.tall, e.view[2] + (strips - 1) * max(0, chain.tall - chain.rows * window.strides[0]))
    steps = -(-x.view[1] // config.array) * prod(graph.kernel(conv))
    computed = blocks * rows * min(e.view[3], chain.wide)
    array, vector = computed * steps, computed * passes
    fresh = min(window.strides[1], kernel[1]) + -(-kernel[1] // config.vector_taps) * passes - 1
    vector += blocks * y.view[2] * y.view[3] * kernel[0] * fresh
    layer = graph.operations[following[0]]
    assert isinstance(layer, Convolution)
    results = -(-graph.tensor(layer.weights).shape[0] // config.array) * y.view[2] * y.view[3]
    then = results * blocks, results * passes
    if chain.product is None:
        return y.view[0] * (max(array, vector) + max(then))
    return y.view[0] * max(array + then[0], vector + then[1])
