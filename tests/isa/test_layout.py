"""Affine layouts of tensors in DRAM, against plain loops."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.isa.layout import Layout, LayoutDim, blocked, blocked_parts


def image_by_loops(layout: Layout, tensor: np.ndarray) -> np.ndarray:
    image = np.full(layout.elements, layout.pad, tensor.dtype)
    for index in product(*(range(dim.size) for dim in layout.dims)):
        coordinate = list(layout.origin)
        place = 0
        for i, dim in zip(index, layout.dims, strict=True):
            coordinate[dim.axis] += i * dim.step
            place += i * dim.stride
        inside = all(0 <= at < size for at, size in zip(coordinate, layout.shape, strict=True))
        image[place] = tensor[tuple(coordinate)] if inside else layout.pad
    return image


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 5), st.integers(1, 5)),
    lanes=st.sampled_from([4, 8, 16]),
    pad=st.integers(-128, 127),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocked_round_trip(shape: tuple[int, int, int, int], lanes: int, pad: int, seed: int) -> None:
    tensor = np.random.default_rng(seed).integers(-128, 128, shape, dtype=np.int8)
    layout = blocked(shape, lanes, pad)
    image = layout.to_dram(tensor)
    batch, channels, height, width = shape
    blocks = -(-channels // lanes)
    assert image.dtype == np.int8
    assert image.size == layout.elements == batch * blocks * height * width * lanes
    words = image.reshape(blocks, batch, height, width, lanes)
    for block, lane in product(range(blocks), range(lanes)):
        channel = block * lanes + lane
        expected = tensor[:, channel] if channel < channels else pad
        assert (words[block, :, :, :, lane] == expected).all()
    assert (layout.from_dram(image) == tensor).all()
    assert layout.from_dram(image).dtype == tensor.dtype


@st.composite
def any_layout(draw: st.DrawFn) -> Layout:
    """Any affine map, windows and borders included; loops do not meet in DRAM."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    dims = []
    stride = draw(st.integers(1, 2))
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 4))
        axis, step = draw(st.integers(0, len(shape) - 1)), draw(st.integers(-2, 3))
        dims.append(LayoutDim(size, axis, step, stride))
        stride *= size + draw(st.integers(0, 1))
    origin = tuple(draw(st.integers(-3, 3)) for _ in shape)
    return Layout(shape, tuple(draw(st.permutations(dims))), origin, draw(st.integers(-128, 127)))


@given(layout=any_layout(), seed=st.integers(0, 2**32 - 1))
def test_any_layout_against_loops(layout: Layout, seed: int) -> None:
    tensor = np.random.default_rng(seed).integers(-128, 128, layout.shape, dtype=np.int8)
    assert (layout.to_dram(tensor) == image_by_loops(layout, tensor)).all()


def test_overlapping_windows() -> None:
    # a first layer's 3 columns x 3 channels, stride 2, one column of border: 9 elements in a word of 16
    layout = Layout(
        shape=(1, 3, 4, 6),
        dims=(
            LayoutDim(4, 2, 1, 3 * 16),
            LayoutDim(3, 3, 2, 16),
            LayoutDim(3, 3, 1, 3),
            LayoutDim(3, 1, 1, 1),
        ),
        origin=(0, 0, 0, -1),
        pad=-5,
    )
    tensor = np.arange(72, dtype=np.int8).reshape(1, 3, 4, 6)
    image = layout.to_dram(tensor)
    assert image.size == 3 * 48 + 2 * 16 + 2 * 3 + 2 + 1
    assert (image == image_by_loops(layout, tensor)).all()
    assert image[:9].tolist() == [-5, -5, -5, *tensor[0, :, 0, 0], *tensor[0, :, 0, 1]]
    assert (image[9:16] == -5).all()
    assert image[48 + 16 : 48 + 25].tolist() == tensor[0, :, 1, 1:4].T.reshape(-1).tolist()


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 5)),
    lanes=st.sampled_from([4, 8, 16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocked_parts(shape: tuple[int, int, int], lanes: int, seed: int) -> None:
    """Of each channel block the first part of all places comes first, then the second one of all."""
    tensor = np.random.default_rng(seed).integers(-128, 128, (*shape, 4), dtype=np.int8)
    layout = blocked_parts(shape, lanes, 4)
    image = layout.to_dram(tensor)
    batch, channels, places = shape
    words = image.reshape(-(-channels // lanes), 4, batch, places, lanes)
    for channel, part in product(range(channels), range(4)):
        assert (words[channel // lanes, part, :, :, channel % lanes] == tensor[:, channel, :, part]).all()
    assert layout.elements == image.size == words.size
    assert (layout.from_dram(image) == tensor).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint16, np.float32])
def test_dtypes(dtype: type) -> None:
    tensor = np.arange(2 * 5 * 3, dtype=dtype).reshape(1, 5, 2, 3)
    layout = blocked((1, 5, 2, 3), 4, 7)
    image = layout.to_dram(tensor)
    assert image.dtype == dtype
    assert image[-1] == 7
    assert (layout.from_dram(image) == tensor).all()
