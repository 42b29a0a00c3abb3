"""A graph: operations in an order in which they can be computed, and the tensors and constants between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from npukit.compiler.ir.operations import (
    AveragePool,
    Convolution,
    DepthwiseConvolution,
    Dilate,
    FullyConnected,
    MatrixProduct,
    MaxPool,
    TensorOperation,
    TransposedConvolution,
)
from npukit.compiler.ir.tensor import Constant, Tensor

__all__ = ["Graph"]


@dataclass(frozen=True)
class Graph:
    """Operations that one program computes, in order, and the tensors between them.

    Attributes:
        name: of the graph.
        operations: each reads what comes in, a constant, or what an earlier one has made.
        tensors: activations by name.
        constants: by name; no name is both.
        inputs: names of the activations that come in.
        outputs: names of those that go out.
        groups: results of operations that are computed together, part by part, each made of the one before it, so that
            what is between them never is in memory as a whole.
    """

    name: str
    operations: tuple[TensorOperation, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Constant]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...] = ()

    def tensor(self, name: str) -> Tensor:
        """An activation or a constant."""
        return self.tensors[name] if name in self.tensors else self.constants[name].tensor

    def activations(self, operation: TensorOperation) -> tuple[str, ...]:
        """What an operation reads, constants aside."""
        return tuple(name for name in operation.operands if name in self.tensors)

    def makers(self) -> dict[str, int]:
        """The number of the operation that makes a tensor, by its name."""
        return {operation.output: number for number, operation in enumerate(self.operations)}

    def readers(self) -> dict[str, list[int]]:
        """The numbers of the operations that read a tensor, by the name of its storage."""
        found: dict[str, list[int]] = {}
        for number, operation in enumerate(self.operations):
            for name in dict.fromkeys(self.tensors[one].storage for one in self.activations(operation)):
                found.setdefault(name, []).append(number)
        return found

    def units(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the operations that are computed together, in the order in which that happens: groups, each in
        the place of its first operation, and operations by themselves."""
        number = self.makers()
        grouped = [tuple(number[name] for name in group) for group in self.groups]
        first = {group[0]: group for group in grouped}
        others = {one for group in grouped for one in group[1:]}
        return tuple(first.get(one, (one,)) for one in range(len(self.operations)) if one not in others)

    def outside(self) -> set[str]:
        """Storages of the outputs."""
        return {self.tensors[name].storage for name in self.outputs}

    def kernel(
        self, operation: Convolution | DepthwiseConvolution | TransposedConvolution | MaxPool | AveragePool
    ) -> tuple[int, int]:
        """Height and width of an operation's windows."""
        if isinstance(operation, MaxPool | AveragePool):
            return operation.kernel
        height, width = self.tensor(operation.weights).shape[2:]
        return height, width

    def macs(self, operation: TensorOperation) -> int:
        """Multiply-accumulates of an operation. Products with padding around its input count; those with the zeros of a
        Dilate before it do not."""
        spread = {one.output: one for one in self.operations if isinstance(one, Dilate)}
        if isinstance(operation, Convolution | DepthwiseConvolution) and not operation.counted:
            return 0
        if isinstance(operation, TransposedConvolution):
            return prod(self.tensor(operation.input).shape) * prod(self.tensor(operation.weights).shape[1:])
        if isinstance(operation, Convolution | DepthwiseConvolution) and self.tensor(operation.input).storage in spread:
            elements = self.tensor(spread[self.tensor(operation.input).storage].input).shape
            # each element meets the kernels of its group
            return prod(elements) * prod(self.tensor(operation.weights).shape) // elements[1]
        if isinstance(operation, Convolution | DepthwiseConvolution):
            return prod(self.tensor(operation.output).shape) * prod(self.tensor(operation.weights).shape[1:])
        if isinstance(operation, FullyConnected | MatrixProduct):
            return prod(self.tensor(operation.output).shape) * self.tensor(operation.operands[0]).shape[-1]
        return 0
