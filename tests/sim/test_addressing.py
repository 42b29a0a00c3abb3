"""Which words an instruction touches, against plain loops."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import End, Load, Matrix, Memory, Operation, Store, Vector
from npukit.sim.addressing import Operand, bank_depth, boxes, dram_operand, operands

CONFIG = PRESETS["int8-4x4"]


def addresses(offset: int, loops: tuple[tuple[int, int], ...], wrap: int) -> list[int]:
    found = []
    for index in product(*(range(count) for count, _ in loops)):
        address = offset + sum(i * stride for i, (_, stride) in zip(index, loops, strict=True))
        if wrap:
            size = 1 << wrap
            start = offset // size * size
            address = start + (address - start) % size
        found.append(address)
    return found


@given(
    offset=st.integers(0, 40),
    loops=st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=4).map(tuple),
    wrap=st.integers(0, 6),
)
def test_words_and_extent(offset: int, loops: tuple[tuple[int, int], ...], wrap: int) -> None:
    operand = Operand("one", Memory.ACT, 0, offset, loops, wrap)
    expected = addresses(offset, loops, wrap)
    words = operand.words()
    assert words.shape == tuple(count for count, _ in loops)
    assert words.reshape(-1).tolist() == expected
    low, high = operand.extent
    plain = addresses(offset, loops, 0)
    if operand.run is not None:
        assert set(range(*operand.run)) == set(expected)
    elif not operand.wraps:
        assert sorted(set(expected)) != list(range(low, high + 1)) or len(loops) > 1
    assert operand.count == len(expected)
    if operand.wraps:
        ring = offset >> wrap << wrap
        assert expected != plain
        assert (low, high) == (ring, ring + (1 << wrap) - 1)
        assert all(low <= word <= high for word in expected)
    else:
        assert expected == plain
        assert (low, high) == (min(expected), max(expected))


@settings(max_examples=400)
@given(
    offset=st.integers(0, 40),
    loops=st.lists(st.tuples(st.integers(1, 70), st.integers(-70, 70)), min_size=1, max_size=3).map(tuple),
    wrap=st.integers(0, 6),
)
def test_distinct_words(offset: int, loops: tuple[tuple[int, int], ...], wrap: int) -> None:
    expected = addresses(offset, loops, wrap)
    operand = Operand("one", Memory.ACT, 0, offset, loops, wrap)
    found = operand.distinct()
    words = [*range(found.start, found.stop)] if isinstance(found, slice) else found.tolist()
    assert words == sorted(set(expected))
    assert operand.repeats == (len(set(expected)) < len(expected))
    rows = Operand("one", None, 0, offset, (*loops[:2], (5, 1)))  # as in DRAM, where a row's words follow each other
    expected = addresses(offset, (*loops[:2], (5, 1)), 0)
    assert rows.repeats == (len(set(expected)) < len(expected))


@given(
    offset=st.integers(0, 40),
    loops=st.lists(st.tuples(st.integers(1, 5), st.integers(-9, 9)), min_size=1, max_size=5).map(tuple),
    wrap=st.integers(0, 6),
    most=st.integers(1, 40),
    data=st.data(),
)
def test_boxes(
    offset: int, loops: tuple[tuple[int, int], ...], wrap: int, most: int, data: st.DataObject
) -> None:  # fmt: skip
    """Parts of an operand have its words, in order."""
    operand = Operand("one", Memory.ACT, 0, offset, loops, wrap)
    counts = [count for count, _ in loops][: data.draw(st.integers(0, len(loops)))]
    found = []
    for box in boxes(counts, most):
        assert len(box) == len(counts) and prod(end - first for first, end in box) <= most
        found += operand.box(box).words().reshape(-1).tolist()
    assert found == operand.words().reshape(-1).tolist()


def test_long_loops_take_no_memory() -> None:
    """Those of 2**42 passes over one bank, and of 2**40 over a ring."""
    matrix = Matrix(
        channels=1024, kernel_height=64, kernel_width=64, height=1024, width=1024, act_stride_x=1, act_stride_y=1,
        wgt_wrap=5, wgt_offset=3, blocks=256,
    )  # fmt: skip
    act, wgt, acc = operands(CONFIG, matrix)
    assert act.count == 1 << 42 and act.distinct() == slice(0, 2047)
    assert wgt.wraps and np.array_equal(np.asarray(wgt.distinct()), np.arange(32))
    strided = Operand("one", Memory.ACT, 0, 3, ((1 << 40, 6), (1 << 20, 0)), 4)
    assert np.array_equal(np.asarray(strided.distinct()), range(1, 16, 2))
    assert acc.repeats and strided.repeats


def test_bank_depth() -> None:
    config = NpuConfig(act_banks=3, act_depth=100, acc_banks=2, acc_depth=50, wgt_depth=70, par_depth=40)
    assert bank_depth(config, Memory.ACT) == (3, 100)
    assert bank_depth(config, Memory.ACC) == (2, 50)
    assert bank_depth(config, Memory.WGT) == (1, 70)
    assert bank_depth(config, Memory.PAR) == (1, 40)


def by_name(config: NpuConfig, instruction: Load | Matrix | Vector | Store) -> dict[str, Operand]:
    found = operands(config, instruction)
    assert len({(operand.name, operand.write) for operand in found}) == len(found)
    return {operand.name + ("!" if operand.write else ""): operand for operand in found}


def test_load() -> None:
    load = Load(
        memory=Memory.ACT, bank=3, offset=7, wrap=5, dram=1000, planes=2, rows=3, words=4, plane_stride=20,
        row_stride=-6, word_stride=1, dram_plane_stride=100, dram_row_stride=10,
        pad_top=1, pad_bottom=2, pad_left=3, pad_right=4,
    )  # fmt: skip
    assert by_name(CONFIG, load) == {
        "destination!": Operand("destination", Memory.ACT, 3, 7, ((2, 20), (6, -6), (11, 1)), 5, True)
    }
    assert dram_operand(CONFIG, load) == Operand("dram", None, 0, 1000, ((2, 100), (3, 10), (4, 1)))


@pytest.mark.parametrize(("preset", "units"), [("int8-4x4", 4), ("bf16-4x4", 2)])
def test_a_par_word_takes_several_dram_words(preset: str, units: int) -> None:
    load = Load(memory=Memory.PAR, words=3, rows=2, dram_row_stride=50)
    assert dram_operand(PRESETS[preset], load).loops == ((1, 0), (2, 50), (3 * units, 1))
    assert dram_operand(PRESETS[preset], replace(load, memory=Memory.WGT)).loops[2] == (3, 1)


def test_store() -> None:
    store = Store(
        bank=1, offset=9, wrap=4, dram=5, planes=2, rows=3, words=4, plane_stride=12, row_stride=4,
        word_stride=1, dram_plane_stride=-30, dram_row_stride=10,
    )  # fmt: skip
    assert by_name(CONFIG, store) == {"source": Operand("source", Memory.ACT, 1, 9, ((2, 12), (3, 4), (4, 1)), 4)}
    assert dram_operand(CONFIG, store) == Operand("dram", None, 0, 5, ((2, -30), (3, 10), (4, 1)), 0, True)


def test_matrix() -> None:
    matrix = Matrix(
        act_bank=1, act_offset=2, act_wrap=3, wgt_offset=4, wgt_wrap=5, acc_bank=2, acc_offset=6,
        channels=2, kernel_height=3, kernel_width=4, height=5, width=6, blocks=7,
        act_stride_channel=8, act_stride_kernel_y=9, act_stride_kernel_x=10, act_stride_y=11, act_stride_x=12,
        acc_stride_block=13, acc_stride_y=14, acc_stride_x=15,
    )  # fmt: skip
    act = Operand("act", Memory.ACT, 1, 2, ((5, 11), (6, 12), (2, 8), (3, 9), (4, 10)), 3)
    wgt = Operand("wgt", Memory.WGT, 0, 4, ((7, 24 * 4), (24 * 4, 1)), 5)
    acc = Operand("acc", Memory.ACC, 2, 6, ((7, 13), (5, 14), (6, 15)), 0, True)
    assert by_name(CONFIG, matrix) == {"act": act, "wgt": wgt, "acc!": acc}
    again = by_name(CONFIG, replace(matrix, accumulate=1))
    assert again == {"act": act, "wgt": wgt, "acc": replace(acc, write=False), "acc!": acc}


BASE = Vector(
    parameters=5, blocks=2, height=3, width=4, a_memory=Memory.ACC, a_bank=1, a_offset=6, a_stride_block=20,
    a_stride_y=5, a_stride_x=1, out_bank=2, out_offset=7, out_stride_block=12, out_stride_y=4,
    out_stride_x=-1, wrap=6,
)  # fmt: skip


def test_vector_with_one_source() -> None:
    found = by_name(CONFIG, replace(BASE, operation=Operation.REQUANTIZE, out_wrap=1))
    assert found == {
        "a": Operand("a", Memory.ACC, 1, 6, ((2, 20), (3, 5), (4, 1))),
        "parameters": Operand("parameters", Memory.PAR, 0, 5, ((1 + 2 * 2, 1),)),
        "out!": Operand("out", Memory.ACT, 2, 7, ((2, 12), (3, 4), (4, -1)), 6, True),
    }
    assert set(by_name(CONFIG, replace(BASE, operation=Operation.COPY))) == {"a", "out!"}


def test_vector_with_two_sources() -> None:
    vector = replace(
        BASE, operation=Operation.ADD, b_memory=Memory.ACT, b_bank=3, b_offset=8, b_stride_block=1,
        b_stride_y=2, b_stride_x=3, a_wrap=1, b_wrap=1,
    )  # fmt: skip
    found = by_name(CONFIG, vector)
    assert found["a"].wrap == 6 and found["out!"].wrap == 0
    assert found["b"] == Operand("b", Memory.ACT, 3, 8, ((2, 1), (3, 2), (4, 3)), 6)
    assert found["parameters"].loops == ((1, 1),)


def test_vector_with_a_window() -> None:
    vector = replace(
        BASE, operation=Operation.DEPTHWISE, a_stride_x=0, window_height=3, window_width=2, window_step=2,
        window_stride_y=10, window_stride_x=-3,
    )  # fmt: skip
    found = by_name(CONFIG, vector)
    assert found["a"].loops == ((2, 20), (3, 5), (4, -6), (3, 10), (2, -3))
    assert found["parameters"].loops == ((1 + 2 * (2 + 2), 1),)
    maximum = by_name(CONFIG, replace(vector, operation=Operation.MAX))
    assert "parameters" not in maximum and maximum["a"] == found["a"]


def test_vector_without_a_source() -> None:
    assert set(by_name(CONFIG, replace(BASE, operation=Operation.FILL))) == {"parameters", "out!"}


def test_end() -> None:
    assert operands(CONFIG, End()) == ()
