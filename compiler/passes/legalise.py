"""legalise: operations that the machine has no instruction for become such as it has.

A product of a matrix becomes a convolution, whose kernel is the whole image that was flattened; a transposed
convolution one over its input, spread out; limits alone a product with 1; a convolution of each channel by itself a
depthwise one, where VECTOR can compute it. A reshape, or another reading of the same numbers, is no operation any more,
but the place of its result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from npukit.compiler.ir.decompose import convolution_of, without_padding
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import (
    Clamp,
    Convolution,
    DepthwiseConvolution,
    FullyConnected,
    Multiply,
    Rearrange,
    Reinterpret,
    Reshape,
    TensorOperation,
    TransposedConvolution,
)
from npukit.compiler.ir.rearrange import moves_nothing
from npukit.compiler.ir.tensor import Constant, MemoryLayout, Tensor
from npukit.compiler.legality import is_depthwise
from npukit.compiler.pass_base import GraphsPass
from npukit.isa.config import NpuConfig
from npukit.isa.formats import FLOAT32

__all__ = ["LegalisePass"]


@dataclass(frozen=True)
class LegalisePass(GraphsPass[tuple[Graph, ...]]):
    """Operations of the machine, and the memory of every tensor."""

    config: NpuConfig
    name = "legalise"

    def run(self, graphs: tuple[Graph, ...]) -> tuple[Graph, ...]:
        """The same graphs, of operations that have a schedule."""
        return tuple(self._graph(graph) for graph in graphs)

    def _graph(self, graph: Graph) -> Graph:
        tensors = {name: tensor for name, tensor in graph.tensors.items() if name in graph.inputs}
        constants: dict[str, Constant] = {}
        operations: list[TensorOperation] = []
        for operation in graph.operations:
            result = graph.tensors[operation.output]
            if _stays(graph, operation):
                tensors[result.name] = _in_place(tensors[operation.operands[0]], operation, result)
                continue
            tensors[result.name] = result
            legal, where = operation, graph
            if isinstance(operation, TransposedConvolution):
                dilate, spread, kernel, legal = convolution_of(
                    graph, operation, partial(_fresh, graph, tensors, constants)
                )
                constants[kernel.tensor.name] = kernel
                if dilate is not None:
                    tensors[spread.name] = spread
                    operations.append(dilate)
                where = replace(graph, tensors=tensors, constants=constants)
            elif isinstance(operation, FullyConnected):
                legal = _convolution(graph, operation, tensors, constants)
            elif isinstance(operation, Clamp):
                legal = _product_with_one(graph, operation, tensors, constants)
            if isinstance(legal, Convolution) and legal.weights in where.constants:
                less, legal = without_padding(where, legal, partial(_fresh, graph, tensors, constants))
                if less is not None:
                    constants[less.tensor.name] = less
                    where = replace(where, constants={**where.constants, less.tensor.name: less})
            if isinstance(legal, Convolution) and legal.groups > 1 and is_depthwise(self.config, where, legal):
                legal = _depthwise(legal)
            for name in legal.operands:
                if name in graph.constants:
                    constants.setdefault(name, graph.constants[name])
            operations.append(legal)
        return replace(graph, operations=tuple(operations), tensors=tensors, constants=constants)


def _stays(graph: Graph, operation: TensorOperation) -> bool:
    """Whether an operation leaves all numbers where they are."""
    if isinstance(operation, Rearrange):
        return moves_nothing(operation, graph.tensors[operation.input], graph.tensors[operation.output])
    return isinstance(operation, Reshape | Reinterpret)


def _in_place(source: Tensor, operation: TensorOperation, result: Tensor) -> Tensor:
    """The result of an operation that moves nothing.

    A matrix of flattened images stays images, which the product behind it takes as such, and so does another shape of
    elements that lie there in a way of their own; all else is seen as it is.
    """
    kept = isinstance(operation, Rearrange) or source.order == result.order
    view, order = (result.view, result.order) if kept else (source.view, source.order)
    layout = MemoryLayout(source.storage, view, order, shown=not isinstance(operation, Reinterpret))
    return replace(result, layout=layout)


def _fresh(graph: Graph, tensors: Mapping[str, Tensor], constants: Mapping[str, Constant], name: str) -> str:
    """A name that nothing has, in the graph or in what it becomes."""
    return free_name(name, {*graph.tensors, *graph.constants, *tensors, *constants})


def _convolution(
    graph: Graph, operation: FullyConnected, tensors: Mapping[str, Tensor], constants: dict[str, Constant]
) -> Convolution:
    """A product whose kernel is all that a row of the matrix was made of."""
    weights = graph.constants[operation.weights]
    data = weights.data if operation.transposed else weights.data.T
    x = tensors[operation.input]
    _, channels, height, width = x.view
    # the kernel of flattened images is a whole one; rows are places of one
    shape = len(data), channels, *((1, 1) if channels == data.shape[1] else (height, width))
    quantization = weights.tensor.quantization
    if quantization is not None and quantization.axis is not None:
        quantization = replace(quantization, axis=0)
    name = _fresh(graph, tensors, constants, f"{operation.weights} of {operation.node}")
    constants[name] = Constant(
        Tensor(name, shape, weights.tensor.format, quantization), np.ascontiguousarray(data).reshape(shape)
    )
    return Convolution(
        output=operation.output, sources=operation.sources, input=operation.input, weights=name, bias=operation.bias,
        strides=(1, 1), pads=(0, 0, 0, 0), alpha=operation.alpha, limits=operation.limits, rounding=operation.rounding,
    )  # fmt: skip


def _product_with_one(
    graph: Graph, operation: Clamp, tensors: Mapping[str, Tensor], constants: dict[str, Constant]
) -> Multiply:
    name = _fresh(graph, tensors, constants, f"one of {operation.node}")
    constants[name] = Constant(Tensor(name, (), FLOAT32), np.ones((), np.float32))
    return Multiply(
        output=operation.output, sources=operation.sources, left=operation.input, right=name, limits=operation.limits
    )


def _depthwise(operation: Convolution) -> DepthwiseConvolution:
    return DepthwiseConvolution(
        output=operation.output, sources=operation.sources, input=operation.input, weights=operation.weights,
        bias=operation.bias, strides=operation.strides, pads=operation.pads, dilations=operation.dilations,
        limits=operation.limits, rounding=operation.rounding, counted=operation.counted,
    )  # fmt: skip
