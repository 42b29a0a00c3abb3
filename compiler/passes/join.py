"""join: where images are small, those of a batch become rows of one, so that they share the array's weights.

In memory the images of a batch follow each other within a channel block, so that an operation that works place by place
may see them as one image that is as many times as tall: no word moves. The rows of a matrix are images of one place.
"""

from dataclasses import dataclass, replace
from typing import Any

from npukit.compiler.arithmetic import elementwise_constant
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import (
    ByElement,
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Elementwise,
    MaxPool,
    Slice,
    TensorOperation,
    operands_of,
)
from npukit.compiler.ir.tensor import FourDimensions, MemoryLayout, Tensor
from npukit.compiler.pass_base import GraphsPass
from npukit.isa.config import NpuConfig

__all__ = ["JoinPass"]

_FULL = 4
"""Images of so many times the array's rows keep it at work by themselves."""


@dataclass(frozen=True)
class JoinPass(GraphsPass[tuple[Graph, ...]]):
    """Views of tensors in which the images of a batch are one."""

    config: NpuConfig
    name = "join"

    def run(self, graphs: tuple[Graph, ...]) -> tuple[Graph, ...]:
        """The same operations, on other views of the same memory."""
        return tuple(_Join(self.config, graph).run() for graph in graphs)


class _Join:
    def __init__(self, config: NpuConfig, graph: Graph) -> None:
        self.graph, self.most = graph, _FULL * config.array
        self.tensors = dict(graph.tensors)
        self.makers, self.readers = graph.makers(), graph.readers()

    def run(self) -> Graph:
        operations = []
        for operation in self.graph.operations:
            result = self.graph.tensors[operation.output]
            if self._joins(operation):
                self.tensors[result.name] = result.seen_as(result.name, _one_image(result))
                operations.append(self._reading(operation, True))
            else:
                operations.append(self._reading(operation, False))
        return replace(self.graph, operations=tuple(operations), tensors=self.tensors)

    def _joins(self, operation: TensorOperation) -> bool:
        graph = self.graph
        result = graph.tensors[operation.output]
        images, _, height, width = result.view
        if images == result.parts or height * width >= self.most or not _by_place(graph, operation):
            return False
        if height * width == 1:
            return True
        sources = [graph.tensors[name].storage for name in graph.activations(operation)]
        if isinstance(operation, Convolution):
            # what may be computed in strips with the window operation before or behind it is left to that
            windows = DepthwiseConvolution | MaxPool
            before = [self.makers[name] for name in sources if name in self.makers]
            behind = self.readers.get(operation.output, [])
            return not any(isinstance(graph.operations[number], windows) for number in (*before, *behind))
        if isinstance(operation, Elementwise):  # which is computed tile by tile with a convolution right before it
            sources = sorted(sources, key=lambda name: self.makers.get(name, -1))[-1:]
        return all(self.tensors[name].view != graph.tensors[name].view or name in graph.inputs for name in sources)

    def _reading(self, operation: TensorOperation, joined: bool) -> TensorOperation:
        """The operation on tensors in the view that it wants."""
        changes: dict[str, Any] = {}
        for field in operands_of(type(operation)):
            value = getattr(operation, field)
            several = value if isinstance(value, tuple) else (value,)
            found = tuple(self._seen(name, joined) for name in several)
            changes[field] = found if isinstance(value, tuple) else found[0]
        return replace(operation, **changes)

    def _seen(self, name: str | None, joined: bool) -> str | None:
        """A tensor in its own view or as one image: itself, or another name for its memory."""
        if name is None or name not in self.graph.tensors:
            return name
        tensor, own = self.tensors[name], self.graph.tensors[name]
        wanted = _one_image(own) if joined else own.view
        if tensor.view == wanted:
            return name
        for other in self.tensors.values():
            if _same(other, tensor) and other.view == wanted:
                return other.name
        alias = free_name(f"{name} as {'one image' if joined else 'images'}", {*self.tensors, *self.graph.constants})
        layout = MemoryLayout(tensor.storage, wanted, tensor.order, tensor.folded, shown=False)
        self.tensors[alias] = replace(tensor, name=alias, layout=layout)
        return alias


def _one_image(tensor: Tensor) -> FourDimensions:
    """The images of a tensor, or of each of its parts, as one."""
    images, channels, height, width = tensor.view
    return tensor.parts, channels, images // tensor.parts * height, width


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same, in the same memory."""
    facts = [(two.storage, two.shape, two.order, two.format, two.quantization) for two in (one, other)]
    return facts[0] == facts[1]


def _by_place(graph: Graph, operation: TensorOperation) -> bool:
    """Whether an operation makes each place of its result of the same place of what it reads."""
    y = graph.tensors[operation.output]
    sources: list[Tensor] = [graph.tensors[name] for name in graph.activations(operation)]
    if any((x.view[0] * y.parts, *x.view[2:]) != (y.view[0], *y.view[2:]) for x in sources):
        return False
    match operation:
        case Convolution():
            return (
                graph.kernel(operation) == operation.strides == (1, 1)
                and not any(operation.pads)
                and operation.depth is None
            )
        case Elementwise():
            return all(_per_channel(graph, name, y) for name in operation.operands)
        case Concatenation():
            alone = len(sources) == len(operation.inputs)  # constants lie as their own images do
            return alone and y.nchw_axis(operation.axis) == 1
        case Slice():
            return not any(y.in_nchw(operation.starts, 0)[2:])
        case ByElement():
            return True
    return False


def _per_channel(graph: Graph, name: str, result: Tensor) -> bool:
    """Whether an operand is a tensor of the result's shape, or a constant with one number for each channel, or one."""
    if name in graph.tensors:
        return graph.tensors[name].view == result.view
    batch, _, height, width = elementwise_constant(graph.constants[name], result).shape
    return batch == height == width == 1
