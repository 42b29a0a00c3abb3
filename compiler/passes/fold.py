"""fold: kernel columns and rows of a first layer become channels, laid out so by the host.

An image of three channels would leave most rows of the array idle. Where a convolution reads a tensor that the host
writes, the host's layout can repeat what the windows share: the image then has one place for each output column, and
the words there hold the window's elements. The node, the configuration and who else reads the input decide, and never
tiling or a level of optimisation: floats are summed in the same order at each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from npukit.compiler.layers import ConvLayer, QuantizedTensor, Subgraph
from npukit.isa.config import NpuConfig
from npukit.isa.layout import Layout, LayoutDim
from numpy.typing import NDArray

__all__ = ["FoldPass"]


@dataclass(frozen=True)
class FoldPass:
    """Fold each convolution that reads an input of few channels, which nothing else reads."""

    config: NpuConfig
    name = "fold"

    def run(self, subgraphs: tuple[Subgraph, ...]) -> tuple[Subgraph, ...]:
        """The same layers, some of them over fewer kernel rows and columns."""
        return tuple(self._subgraph(subgraph) for subgraph in subgraphs)

    def _subgraph(self, subgraph: Subgraph) -> Subgraph:
        tensors, layers = dict(subgraph.tensors), list(subgraph.layers)
        for name in subgraph.inputs:
            readers = [number for number, layer in enumerate(layers) if name in layer.inputs]
            others = [other for other in tensors.values() if other.storage == name and other.name != name]
            if len(readers) != 1 or others or name in subgraph.outputs:
                continue
            layer, x = layers[readers[0]], tensors[name]
            if type(layer) is not ConvLayer or layer.group != 1 or x.view[1] >= self.config.array:
                continue
            folds = list(_folds(layer, x, tensors[layer.output], self.config))
            best = min(folds, key=lambda fold: (fold.cycles, fold.words))
            if best.rows:
                layers[readers[0]], tensors[name] = best.layer(), best.tensor()
        return replace(subgraph, layers=tuple(layers), tensors=tensors)


@dataclass(frozen=True)
class _Fold:
    """`rows` of the kernel's rows, and all its columns, as channels; 0 rows: as it is."""

    conv: ConvLayer
    x: QuantizedTensor
    y: QuantizedTensor
    config: NpuConfig
    rows: int

    @property
    def groups(self) -> int:
        """Kernel rows that are left."""
        return self.conv.weights.shape[2] // self.rows

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
        _, inner, _, width = self.conv.weights.shape
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
        batch, _, _, width = self.y.view
        return batch * self.height * width * self.blocks

    @property
    def cycles(self) -> int:
        """The array's, or the bus's if that takes longer."""
        outer, inner, tall, wide = self.conv.weights.shape
        outputs = self.y.view[0] * self.y.view[2] * self.y.view[3] * -(-outer // self.config.array)
        if not self.rows:
            return outputs * tall * wide * -(-inner // self.config.array)
        beats = self.words * max(1, self.config.word_bytes // self.config.bus_bytes)
        return max(outputs * self.groups * self.blocks, beats)

    @property
    def dilation(self) -> int:
        """Rows of the image from one kernel row that is left to the next."""
        return max(1, self.rows * self.conv.dilations[0] // self.unit) if self.groups > 1 else 1

    def layer(self) -> ConvLayer:
        """The convolution over the image."""
        outer, inner, tall, wide = self.conv.weights.shape
        split = self.conv.weights.reshape(outer, inner, self.groups, self.rows, wide)
        weights: NDArray = np.ascontiguousarray(split.transpose(0, 3, 4, 1, 2)).reshape(
            outer, self.channels, self.groups, 1
        )
        return replace(
            self.conv,
            weights=weights,
            strides=(self.conv.strides[0] // self.unit, 1),
            pads=(0, 0, 0, 0),
            dilations=(self.dilation, 1),
        )

    def tensor(self) -> QuantizedTensor:
        """The image: [batch][row][column][channel], channels padded to words."""
        _, inner, _, wide = self.conv.weights.shape
        batch, _, _, columns = self.y.view
        place = self.blocks * self.config.array
        (top, left, *_), (down, across) = self.conv.pads, self.conv.dilations
        pad = int(self.conv.pad_value) if not self.x.floating else 0
        layout = Layout(
            shape=self.x.view,
            dims=(
                LayoutDim(batch, 0, 1, self.height * columns * place),
                LayoutDim(self.height, 2, self.unit, columns * place),
                LayoutDim(columns, 3, self.conv.strides[1], place),
                LayoutDim(self.rows, 2, down, wide * inner),
                LayoutDim(wide, 3, across, inner),
                LayoutDim(inner, 1, 1, 1),
            ),
            origin=(0, 0, -top, -left),
            pad=pad,
            length=batch * self.height * columns * place,
        )
        return replace(self.x, view=(batch, self.channels, self.height, columns), layout=layout)


def _folds(layer: ConvLayer, x: QuantizedTensor, y: QuantizedTensor, config: NpuConfig) -> Iterator[_Fold]:
    yield _Fold(layer, x, y, config, 0)
    tall = layer.weights.shape[2]
    for rows in range(1, tall + 1):
        # a group of fewer rows would multiply what lies beyond the kernel with 0, and that may be infinite
        if tall % rows == 0:
            fold = _Fold(layer, x, y, config, rows)
            if fold.blocks * ((fold.groups - 1) * fold.dilation + 1) <= config.act_depth // 2:
                yield fold
