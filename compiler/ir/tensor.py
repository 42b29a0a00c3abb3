"""Tensors: shape, number format, quantisation and place in memory, each a fact of its own."""

from dataclasses import dataclass, field, replace

import numpy as np
from npukit.isa.formats import NumberFormat
from npukit.isa.layout import Layout
from numpy.typing import NDArray

__all__ = ["Constant", "MemoryLayout", "Quantization", "Tensor", "four_dimensions", "in_nchw", "nchw_axis"]

FourDimensions = tuple[int, int, int, int]


def four_dimensions(shape: tuple[int, ...]) -> FourDimensions:
    """A shape of at most 4 dimensions as NCHW: two are batch and channels, and the third of three is the width."""
    return in_nchw((1,) * (2 - len(shape)) + shape, 1)


def in_nchw(values: tuple[int, ...], fill: int) -> FourDimensions:
    """Numbers that a tensor has for each of its 2 to 4 dimensions as numbers for NCHW; `fill` for those it lacks."""
    batch, channels, *image = values
    height, width = (fill,) * (2 - len(image)) + tuple(image)
    return batch, channels, height, width


def nchw_axis(axis: int, dimensions: int) -> int:
    """Which dimension of NCHW a tensor's `axis` is, of so many."""
    return axis + 1 if dimensions == 3 and axis == 2 else axis


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
    """

    name: str
    shape: tuple[int, ...]
    format: NumberFormat
    quantization: Quantization | None = None
    layout: MemoryLayout | None = field(default=None)

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
        return four_dimensions(self.shape) if self.layout is None else self.layout.view

    @property
    def order(self) -> tuple[int, int, int]:
        """Its elements in the model's order, numbered by three indices, of which the second is a word's channel."""
        if self.layout is not None:
            return self.layout.order
        batch, channels, height, width = four_dimensions(self.shape)
        return batch, channels, height * width

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
