"""Tensors: shape, number format, quantisation and place in memory, each a fact of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from operator import add, mul

import numpy as np
from npukit.isa.formats import NumberFormat
from npukit.isa.layout import Layout
from numpy.typing import NDArray

__all__ = ["Constant", "FourDimensions", "MemoryLayout", "Quantization", "Tensor", "view_axes"]

FourDimensions = tuple[int, int, int, int]


def view_axes(dimensions: int, channel_axis: int) -> tuple[int, ...]:
    """For each dimension of a tensor, which of NCHW it is in memory.

    Without that of the channels, the first is the batch, unless channels come before it; the last is the width, and
    what is between them, together, the height. Of a matrix, rows are the batch.
    """
    others = dimensions - 1
    first = [0] if channel_axis and others else []
    last = [3] if others > len(first) else []
    found = [*first, *(2,) * (others - len(first) - len(last)), *last]
    found.insert(channel_axis, 1)
    return tuple(found)


@dataclass(frozen=True)
class Quantization:
    """Real numbers of whole ones: (number - zero_point) * scale.

    Attributes:
        scale: one number, or one for each index along `axis`; each is a float32.
        zero_point: as many numbers, in the tensor's own format.
        axis: of the tensor, or None where there is one scale.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class MemoryLayout:
    """How a tensor lies in the accelerator's memory.

    Attributes:
        storage: the tensor in whose memory it lies: itself, or the one that a reshape took it from.
        view: its dimensions there, NCHW.
        order: its elements in the model's order, numbered by three indices, of which the second is a word's channel;
            words of other channels follow each other as the first and the last index say.
        host: how the host lays it out, where that is not in words of channels, row by row.
        shown: whether it is a value of the model, and not one that is there already under another name.
    """

    storage: str
    view: FourDimensions
    order: tuple[int, int, int]
    host: Layout | None = None
    shown: bool = True


@dataclass(frozen=True)
class Tensor:
    """What is known of a tensor, whose name is its own in a graph.

    Attributes:
        name: as in the model.
        shape: as in the model.
        format: of its elements. An activation of BFLOAT16 is float32 on the host.
        quantization: None where elements stand for themselves.
        layout: None until one is assigned: then it lies in memory of its own.
        channel_axis: the dimension along which a word of the machine holds several elements; of a vector its only one.
        parts: of which each of its elements is made, where the machine's are smaller: they lie in memory as so many
            tensors one behind the other, that of the lowest bits first, as further images of a batch.
    """

    name: str
    shape: tuple[int, ...]
    format: NumberFormat
    quantization: Quantization | None = None
    layout: MemoryLayout | None = field(default=None)
    channel_axis: int = 1
    parts: int = 1

    @property
    def scale(self) -> float:
        """Of a tensor with one scale, or 1 where there is none."""
        if self.quantization is None:
            return 1.0
        (scale,) = self.quantization.scale
        return scale

    @property
    def zero_point(self) -> int:
        """Of a tensor with one zero point, or 0 where there is none."""
        if self.quantization is None:
            return 0
        (zero_point,) = self.quantization.zero_point
        return zero_point

    @property
    def host_type(self) -> str:
        """The framework's element type."""
        return "float32" if self.format.floating else self.format.name

    @property
    def storage(self) -> str:
        """The tensor in whose memory it lies."""
        return self.name if self.layout is None else self.layout.storage

    @property
    def view(self) -> FourDimensions:
        """Its dimensions in memory, NCHW."""
        return self.dimensions if self.layout is None else self.layout.view

    @property
    def dimensions(self) -> FourDimensions:
        """Its shape, NCHW, with images for all its parts."""
        batch, channels, height, width = self.in_nchw(self._at_least_two, 1, mul)
        return batch * self.parts, channels, height, width

    @property
    def _at_least_two(self) -> tuple[int, ...]:
        return (1,) * (2 - len(self.shape)) + self.shape

    def in_nchw(self, values: tuple[int, ...], fill: int, combine: Callable[[int, int], int] = add) -> FourDimensions:
        """Numbers that it has for each of its dimensions as numbers for NCHW.

        Args:
            values: the numbers.
            fill: for what it has no dimension for.
            combine: makes one number of those of several dimensions that are one in memory.
        """
        found: dict[int, int] = {}
        for position, value in zip(view_axes(len(values), self.channel_axis), values, strict=True):
            found[position] = combine(found[position], value) if position in found else value
        return found.get(0, fill), found.get(1, fill), found.get(2, fill), found.get(3, fill)

    def nchw_axis(self, axis: int) -> int:
        """Which dimension of NCHW one of its own is."""
        return view_axes(len(self.shape), self.channel_axis)[axis]

    @property
    def order(self) -> tuple[int, int, int]:
        """Its elements in the model's order, numbered by three indices, of which the second is a word's channel."""
        if self.layout is not None:
            return self.layout.order
        shape = self._at_least_two
        return prod(shape[: self.channel_axis]), shape[self.channel_axis], prod(shape[self.channel_axis + 1 :])

    def seen_as(self, storage: str, view: FourDimensions) -> "Tensor":
        """The same elements in the memory of a tensor that holds them, with dimensions NCHW there."""
        return replace(self, layout=MemoryLayout(storage, view, self.order, self.folded, self.shown))

    @property
    def shown(self) -> bool:
        """Whether it is a value of the model, and not one that is there already under another name."""
        return self.layout is None or self.layout.shown

    def in_memory(self, values: NDArray) -> NDArray:
        """Its elements [shape] as they lie in memory, without words: [channels, places]."""
        return np.ascontiguousarray(values.reshape(self.order).swapaxes(0, 1)).reshape(self.order[1], -1)

    def from_memory(self, memory: NDArray) -> NDArray:
        """The inverse of `in_memory`."""
        outer, channels, inner = self.order
        return np.ascontiguousarray(memory.reshape(channels, outer, inner).swapaxes(0, 1)).reshape(self.shape)

    def in_view(self, memory: NDArray) -> NDArray:
        """What lies in memory, [channels, places], in its dimensions there."""
        batch, channels, height, width = self.view
        return np.ascontiguousarray(memory.reshape(channels, batch, height, width).swapaxes(0, 1))

    @property
    def folded(self) -> Layout | None:
        """How the host lays it out, where it has a layout of its own."""
        return None if self.layout is None else self.layout.host


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor whose elements are known; `data` has its shape and its format's storage."""

    tensor: Tensor
    data: NDArray
