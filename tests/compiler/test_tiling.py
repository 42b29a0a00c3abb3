"""tiling: ranges that cover, and tiles within every limit of the configuration."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npukit.compiler.cost import CostModel
from npukit.compiler.errors import CompileError
from npukit.compiler.tiling import (
    ConvShape,
    ConvTiling,
    average_window,
    choose_tiling,
    kernel_problem,
    parts,
    split,
    window_words,
)
from npukit.isa.config import PRESETS, NpuConfig


def covers(ranges: list[tuple[int, int]], total: int) -> bool:
    """Whether ranges follow each other from 0 to total, none of them empty."""
    return (
        ranges[0][0] == 0
        and ranges[-1][1] == total
        and all(low < high for low, high in ranges)
        and all(left[1] == right[0] for left, right in pairwise(ranges))
    )


@given(total=st.integers(1, 5000), pieces=st.integers(1, 300))
def test_split(total, pieces) -> None:
    ranges = split(total, pieces)
    sizes = [high - low for low, high in ranges]
    assert covers(ranges, total) and len(ranges) == min(pieces, total)
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


@given(total=st.integers(1, 5000), most=st.integers(1, 6000))
def test_parts(total, most) -> None:
    ranges = parts(total, most)
    sizes = [high - low for low, high in ranges]
    assert covers(ranges, total)
    assert max(sizes) <= most and len(ranges) == -(-total // most) and max(sizes) - min(sizes) <= 1


def in_program(shape: ConvShape) -> Callable[[ConvTiling], float]:
    """The compiler's estimate, with the reference DRAM."""
    return CostModel(shape.config).convolution(shape).in_program


@st.composite
def shapes(draw) -> ConvShape:
    """Convolutions that the partition lets through, on machines down to the smallest."""
    array = draw(st.sampled_from([4, 8, 16]))
    config = NpuConfig(
        array=array,
        act_depth=draw(st.integers(64, 300) | st.sampled_from([1536, 32768])),
        act_banks=draw(st.integers(1, 8)),
        wgt_depth=draw(st.integers(2 * array, 12 * array) | st.just(7168)),
        acc_depth=draw(st.integers(16, 300)),
        acc_banks=draw(st.integers(1, 4)),
        par_depth=draw(st.integers(32, 300)),
        vector_lanes=array,
        fma_lanes=1,
    )
    kernel = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    dilations = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    if kernel_problem(config, kernel, dilations) is not None:
        kernel, dilations = (1, 1), (1, 1)
    strides = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    out = draw(st.tuples(st.integers(1, 200), st.integers(1, 200)))
    size = tuple((out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in (0, 1))
    return ConvShape(
        config=config,
        batch=draw(st.integers(1, 3)),
        in_blocks=draw(st.integers(1, 80)),
        out_blocks=draw(st.integers(1, 600)),
        in_size=(size[0], size[1]),
        out_size=out,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
    )


@settings(max_examples=200)
@given(shape=shapes())
def test_every_limit_is_respected(shape) -> None:
    tiling, config = choose_tiling(shape, in_program(shape)), shape.config
    words = tiling.blocks * tiling.rows * tiling.columns
    assert 1 <= tiling.rows <= min(shape.out_size[0], 1024)
    assert 1 <= tiling.columns <= min(shape.out_size[1], 1024)
    assert 1 <= tiling.blocks <= min(shape.out_blocks, 256)
    assert 1 <= tiling.channels <= min(shape.in_blocks, 1024)
    assert 1 <= tiling.kernel_rows <= shape.kernel[0]
    assert tiling.channels == 1 or tiling.kernel_rows == shape.kernel[0]
    assert words <= config.acc_depth and words <= config.act_depth
    assert tiling.input_words <= config.act_depth
    if config.act_banks == 1:
        assert tiling.input_words + words <= config.act_depth
    assert tiling.weight_words <= config.wgt_depth
    assert 1 + 2 * tiling.blocks <= config.par_depth // 2
    assert in_program(shape)(tiling) > 0


def test_the_choice_is_the_cheapest_of_its_kind() -> None:
    """A large image on a small machine: no tile that also fits half of each memory costs less."""
    config = PRESETS["int8-4x4"]
    shape = ConvShape(config, 1, 6, 6, (58, 58), (56, 56), (3, 3), (1, 1), (1, 1))
    cost = in_program(shape)
    best = choose_tiling(shape, cost)
    for rows in range(1, 57):
        for columns in range(1, 57):
            other = replace(best, rows=rows, columns=columns)
            words = other.blocks * rows * columns
            if words <= config.acc_depth and other.input_words <= config.act_depth:
                assert cost(best) <= 1.05 * cost(other)


def test_nothing_fits() -> None:
    config = NpuConfig(array=4, act_depth=64, wgt_depth=8, vector_lanes=4, fma_lanes=4)
    shape = ConvShape(config, 1, 1, 1, (9, 9), (1, 1), (9, 9), (1, 1), (1, 1))
    with pytest.raises(CompileError, match=r"a window of 9x9 .* does not fit on chip: act_depth 64, wgt_depth 8"):
        choose_tiling(shape, in_program(shape))


def test_windows_of_pooling() -> None:
    for config in PRESETS.values():
        assert average_window(config) == config.max_window
    small = NpuConfig(act_depth=64, act_banks=1)
    assert window_words(small) == 8 and average_window(small) == 2
    assert all(average_window(NpuConfig(act_depth=64, act_banks=n)) ** 2 <= 8 * min(n, 4) for n in range(1, 17))


def test_kernels() -> None:
    config = NpuConfig(act_depth=64, act_banks=1, wgt_depth=64)
    assert kernel_problem(config, (4, 4)) is None
    assert kernel_problem(config, (1, 5)) == "a kernel row of 5 tiles does not fit in wgt_depth 64"
    assert kernel_problem(config, (4, 4), (7, 1)) is None  # its input comes row by row of the kernel
    assert kernel_problem(config, (4, 4), (1, 21)) == "a window's row of 64 words does not fit in act_depth 64"
    assert kernel_problem(replace(config, act_banks=2), (4, 4), (1, 21)) is None
    assert kernel_problem(NpuConfig(), (65, 1)) == "kernel 65x1 has more than 64 rows"
