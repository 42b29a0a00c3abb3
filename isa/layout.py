"""How a tensor lies in DRAM: an affine map from loop indices to tensor coordinates and to bytes."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

__all__ = ["Layout", "LayoutDim", "blocked", "blocked_parts"]


@dataclass(frozen=True)
class LayoutDim:
    """One loop of a layout: it moves `step` along tensor axis `axis` and `stride` elements in DRAM."""

    size: int
    axis: int
    step: int
    stride: int


@dataclass(frozen=True)
class Layout:
    """Loops whose DRAM elements together are the tensor's image.

    An index i gives the tensor coordinate `origin[axis] + sum(i_d * step_d)` on each axis; where that
    lies outside of the tensor the image holds `pad`. Loops may overlap in the tensor (windows), so an
    image can hold an element many times; such a layout can be written but not read back.

    `length`: elements of the image, where that is more than the loops reach.
    """

    shape: tuple[int, ...]
    dims: tuple[LayoutDim, ...]
    origin: tuple[int, ...]
    pad: int = 0
    length: int = 0

    @property
    def elements(self) -> int:
        """Elements of the DRAM image, gaps included."""
        return max(self.length, 1 + sum((dim.size - 1) * dim.stride for dim in self.dims))

    def to_dram(self, tensor: NDArray) -> NDArray:
        """The DRAM image [elements] of a tensor [shape], of the same dtype."""
        place, flat, valid = _indices(self)
        image = np.full(self.elements, self.pad, tensor.dtype)
        image[place] = np.where(valid, np.take(tensor.reshape(-1), np.where(valid, flat, 0)), self.pad)
        return image

    def from_dram(self, image: NDArray) -> NDArray:
        """The tensor [shape] that a DRAM image [elements] holds."""
        place, flat, valid = _indices(self)
        tensor = np.zeros(prod(self.shape), image.dtype)
        tensor[flat[valid]] = image[place[valid]]
        return tensor.reshape(self.shape)


@lru_cache(maxsize=64)
def _indices(layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Flat DRAM index, flat tensor index and validity of every loop index."""
    grid = [dim.size for dim in layout.dims]
    place = np.zeros(grid, np.int64)
    coordinates = [np.full((1,) * len(grid), start, np.int64) for start in layout.origin]
    for position, dim in enumerate(layout.dims):
        index = np.arange(dim.size).reshape([-1 if k == position else 1 for k in range(len(grid))])
        place = place + index * dim.stride
        coordinates[dim.axis] = coordinates[dim.axis] + index * dim.step
    flat, valid = np.zeros(grid, np.int64), np.ones(grid, bool)
    for axis, coordinate in enumerate(coordinates):
        flat = flat * layout.shape[axis] + coordinate
        valid = valid & (coordinate >= 0) & (coordinate < layout.shape[axis])
    return place, flat, valid


def blocked(shape: tuple[int, ...], lanes: int, pad: int = 0) -> Layout:
    """Channels along axis 1 as [channel block][the other axes, in their order][lane], padded with `pad`.

    So the images of a batch follow each other within a channel block, as rows of one image would.
    """
    outer, channels, *inner = shape
    places = prod((outer, *inner))
    dims = [LayoutDim(-(-channels // lanes), 1, lanes, places * lanes)]
    for axis, size in ((0, outer), *enumerate(inner, 2)):
        places //= size
        dims.append(LayoutDim(size, axis, 1, places * lanes))
    return Layout(shape, (*dims, LayoutDim(lanes, 1, 1, 1)), (0,) * len(shape), pad)


def blocked_parts(shape: tuple[int, ...], lanes: int, parts: int) -> Layout:
    """The same of numbers that are made of `parts` elements each: first those of the lowest bits of a channel block's
    numbers, as many places as there are, then those of the next. The layout's tensor is [*shape, parts]."""
    inner = blocked((shape[0] * parts, *shape[1:]), lanes)
    block, outer, *others = inner.dims
    part = LayoutDim(parts, len(shape), 1, outer.stride * shape[0])
    return Layout((*shape, parts), (block, part, replace(outer, size=shape[0]), *others), (0,) * (len(shape) + 1))
