"""fold: kernel columns and rows of a first layer become channels, laid out so by the host.

An image of three channels would leave most rows of the array idle. Where a convolution reads a tensor that the host
writes, the host's layout can repeat what the windows share: the image then has one place for each output column, and
the words there hold the window's elements. The node, the configuration and who else reads the input decide, and never
tiling or a level of optimisation: floats are summed in the same order at each.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from npukit.compiler.arithmetic import border
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import Convolution
from npukit.compiler.ir.tensor import Constant, MemoryLayout, Tensor, view_axes
from npukit.compiler.pass_base import GraphsPass
from npukit.isa.config import NpuConfig
from npukit.isa.layout import Layout, LayoutDim
from numpy.typing import NDArray

__all__ = ["FoldPass"]


@dataclass(frozen=True)
class FoldPass(GraphsPass[tuple[Graph, ...]]):
    """Fold each convolution that reads an input of few channels, which nothing else reads."""

    config: NpuConfig
    name = "fold"

    def run(self, graphs: tuple[Graph, ...]) -> tuple[Graph, ...]:
        """The same operations, some of them over fewer kernel rows and columns."""
        return tuple(self._graph(graph) for graph in graphs)

    def _graph(self, graph: Graph) -> Graph:
        operations, tensors, constants = list(graph.operations), dict(graph.tensors), dict(graph.constants)
        for name in graph.inputs:
            readers = [number for number, one in enumerate(operations) if name in one.operands]
            others = [other for other in tensors.values() if other.storage == name and other.name != name]
            if len(readers) != 1 or others or name in graph.outputs:
                continue
            operation, x = operations[readers[0]], tensors[name]
            if not isinstance(operation, Convolution) or operation.groups != 1 or x.view[1] >= self.config.array:
                continue
            if operation.depth is not None:
                continue
            folds = list(_folds(graph, operation, self.config))
            best = min(folds, key=lambda fold: (fold.cycles, fold.words))
            if best.rows:
                weights = best.weights({*constants, *tensors})
                operations[readers[0]], tensors[name] = best.operation(weights.tensor.name), best.tensor()
                constants[weights.tensor.name] = weights
        used = {name for one in operations for name in one.operands}
        constants = {name: one for name, one in constants.items() if name in used}
        return replace(graph, operations=tuple(operations), tensors=tensors, constants=constants)


@dataclass(frozen=True)
class _Fold:
    """`rows` of the kernel's rows, and all its columns, as channels; 0 rows: as it is."""

    conv: Convolution
    x: Tensor
    y: Tensor
    kernel: Constant
    config: NpuConfig
    rows: int

    @property
    def groups(self) -> int:
        """Kernel rows that are left."""
        return self.kernel.tensor.shape[2] // self.rows

    @property
    def unit(self) -> int:
        """Rows of the input from one row of the image to the next."""
        if self.groups == 1:
            return self.conv.strides[0]
        return gcd(self.conv.strides[0], self.rows * self.conv.dilations[0])

    @property
    def height(self) -> int:
        """Rows of the image."""
        last = (self.y.view[2] - 1) * self.conv.strides[0] + (self.groups - 1) * self.rows * self.conv.dilations[0]
        return last // self.unit + 1

    @property
    def channels(self) -> int:
        """Elements of a place."""
        _, inner, _, width = self.kernel.tensor.shape
        return inner * width * (self.rows or 1)

    @property
    def blocks(self) -> int:
        """Words of a place."""
        return -(-self.channels // self.config.array)

    @property
    def words(self) -> int:
        """Words of the image; 0 if there is none."""
        if not self.rows:
            return 0
        batch, (*_, width) = self.x.view[0], self.y.view
        return batch * self.height * width * self.blocks

    @property
    def cycles(self) -> int:
        """The array's, or the bus's if that takes longer."""
        outer, inner, tall, wide = self.kernel.tensor.shape
        outputs = self.x.view[0] * self.y.view[2] * self.y.view[3] * -(-outer // self.config.array)
        if not self.rows:
            return outputs * tall * wide * -(-inner // self.config.array)
        beats = self.words * max(1, self.config.word_bytes // self.config.bus_bytes)
        return max(outputs * self.groups * self.blocks, beats)

    @property
    def dilation(self) -> int:
        """Rows of the image from one kernel row that is left to the next."""
        return max(1, self.rows * self.conv.dilations[0] // self.unit) if self.groups > 1 else 1

    def weights(self, taken: Collection[str]) -> Constant:
        """The kernel over the image, under a name that is not taken."""
        outer, inner, _, wide = self.kernel.tensor.shape
        split = self.kernel.data.reshape(outer, inner, self.groups, self.rows, wide)
        shape = outer, self.channels, self.groups, 1
        data: NDArray = np.ascontiguousarray(split.transpose(0, 3, 4, 1, 2)).reshape(shape)
        name = free_name(f"{self.kernel.tensor.name} of {self.conv.node}", taken)
        return Constant(replace(self.kernel.tensor, name=name, shape=shape), data)

    def operation(self, weights: str) -> Convolution:
        """The convolution over the image."""
        return replace(
            self.conv,
            weights=weights,
            strides=(self.conv.strides[0] // self.unit, 1),
            pads=(0, 0, 0, 0),
            dilations=(self.dilation, 1),
        )

    def tensor(self) -> Tensor:
        """The image: [batch][row][column][channel], channels padded to words."""
        _, inner, _, wide = self.kernel.tensor.shape
        batch, (*_, columns) = self.x.view[0], self.y.view
        place = self.blocks * self.config.array
        (top, left, *_), (down, across) = self.conv.pads, self.conv.dilations
        order = _order(self.x)
        by_number, by_channel, by_row, by_column = (order.index(axis) for axis in range(4))
        origin = (0, 0, -top, -left)
        layout = Layout(
            shape=tuple(self.x.view[axis] for axis in order),
            dims=(
                LayoutDim(batch, by_number, 1, self.height * columns * place),
                LayoutDim(self.height, by_row, self.unit, columns * place),
                LayoutDim(columns, by_column, self.conv.strides[1], place),
                LayoutDim(self.rows, by_row, down, wide * inner),
                LayoutDim(wide, by_column, across, inner),
                LayoutDim(inner, by_channel, 1, 1),
            ),
            origin=tuple(origin[axis] for axis in order),
            pad=int(border(self.x)),
            length=batch * self.height * columns * place,
        )
        view = batch, self.channels, self.height, columns
        return replace(self.x, layout=MemoryLayout(self.x.name, view, self.x.order, layout))


def _order(x: Tensor) -> tuple[int, ...]:
    """Which of NCHW each dimension is of a tensor with four dimensions whose elements are in the model's order."""
    there = dict.fromkeys(view_axes(len(x.shape), x.channel_axis))
    return (*(axis for axis in range(4) if axis not in there), *there)


def _folds(graph: Graph, operation: Convolution, config: NpuConfig) -> Iterator[_Fold]:
    kernel = graph.constants[operation.weights]
    x, y = graph.tensors[operation.input], graph.tensors[operation.output]
    yield _Fold(operation, x, y, kernel, config, 0)
    tall = kernel.tensor.shape[2]
    for rows in range(1, tall + 1):
        # a group of fewer rows would multiply what lies beyond the kernel with 0, and that may be infinite
        if tall % rows == 0:
            fold = _Fold(operation, x, y, kernel, config, rows)
            if fold.blocks * ((fold.groups - 1) * fold.dilation + 1) <= config.act_depth // 2:
                yield fold
