"""The energy model: the published figures, operations counted by hand, and sums."""

from math import exp, log

import pytest
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Load, Matrix, Memory, Operation, Store, Vector
from npukit.isa.program import Program

import npukit
from npukit import zoo
from npukit.profiling.energy import Energy, energy_of, sram_picojoules

CONFIG = PRESETS["int8-4x4"]


def _of(instruction, config=CONFIG) -> Energy:
    return energy_of(Program(config, (instruction,)), [0])


def test_published_figures() -> None:
    """Horowitz, ISSCC 2014, figure 1.1.9: 10, 20 and 100 pJ for 64 bits of 8 KB, 32 KB and 1 MB."""
    for size, picojoules in ((8 << 10, 10), (32 << 10, 20), (1 << 20, 100)):
        assert sram_picojoules(size, 64) == pytest.approx(picojoules)
        assert sram_picojoules(size, 32) == pytest.approx(picojoules / 2)
    sizes = [sram_picojoules(1 << power, 64) for power in range(6, 24)]
    assert sizes == sorted(sizes)
    assert sram_picojoules(16 << 10, 64) == pytest.approx(exp((log(10) + log(20)) / 2))


def _sram(memory: Memory, words: float) -> float:
    depth = {Memory.ACT: CONFIG.act_depth, Memory.WGT: CONFIG.wgt_depth, Memory.ACC: CONFIG.acc_depth,
             Memory.PAR: CONFIG.par_depth}[memory]  # fmt: skip
    size = 4 if memory in (Memory.ACT, Memory.WGT) else 16
    return words * sram_picojoules(depth * size, 8 * size)


def test_counts_by_hand() -> None:
    # 3 rows of 5 words, 2 of a border on the left; a DRAM word of 4 bytes: 15 * 4 * 8 / 64 accesses of 64 bits
    found = _of(Load(memory=Memory.ACT, rows=3, words=5, pad_left=2))
    assert found.dram == pytest.approx(15 * 4 / 8 * 1950) and found.memory == pytest.approx(_sram(Memory.ACT, 3 * 7))
    found = _of(Store(rows=3, words=5))
    assert found.dram == pytest.approx(15 * 4 / 8 * 1950) and found.memory == pytest.approx(_sram(Memory.ACT, 15))
    # 2 blocks, 3 * 2 * 2 steps each, 4 * 5 places: 480 words of 4 elements meet 4 columns
    matrix = Matrix(blocks=2, channels=3, kernel_height=2, kernel_width=2, height=4, width=5)
    found = _of(matrix)
    assert found.array == pytest.approx(480 * 16 * (0.2 + 0.1)) and found.dram == found.vector == 0
    sums = 480 + (480 - 40)  # written in every step, read in all but the first
    assert found.memory == pytest.approx(_sram(Memory.ACT, 480) + _sram(Memory.WGT, 24 * 4) + _sram(Memory.ACC, sums))
    more = _of(Matrix(**{**vars(matrix), "accumulate": 1}))
    assert more.memory - found.memory == pytest.approx(_sram(Memory.ACC, 40))
    # 6 words of sums become elements: a product of 32 bits and an addition each
    found = _of(Vector(operation=Operation.REQUANTIZE, height=2, width=3, a_memory=Memory.ACC))
    assert found.vector == pytest.approx(6 * 4 * 3.2)
    assert found.memory == pytest.approx(_sram(Memory.ACC, 6) + _sram(Memory.ACT, 6))
    # 2 by 3 results of windows of 3 by 3, two columns apart: rows of 7 words, three for each row of results
    found = _of(
        Vector(operation=Operation.MAX, height=2, width=3, window_height=3, window_width=3, window_step=2)
    )  # fmt: skip
    assert found.memory == pytest.approx(_sram(Memory.ACT, 2 * 3 * 7 + 6))
    assert found.vector == pytest.approx(6 * 4 * 9 * 0.03)


def test_sums() -> None:
    """Layers add up to the model; every product that is counted as useful is paid for; a bus costs nothing."""
    timed = npukit.profile(zoo.load("digits"), "int8-8x8")
    assert timed.energy.array >= 0.3 * sum(layer.macs for layer in timed.profile.layers if layer.array)
    value = timed.to_json()
    assert sum(layer["energy_picojoules"] for layer in value["layers"]) == pytest.approx(timed.energy.total)
    assert value["energy_picojoules"]["total"] == pytest.approx(timed.energy.total)
    assert list(timed.to_dataframe()["energy_picojoules"]) == [one.total for one in timed.energies]
    moved = value["dram"]["read_bytes"] + value["dram"]["write_bytes"]
    assert timed.energy.dram == pytest.approx(moved / 8 * 1950)
    assert all(min(vars(one).values()) >= 0 for one in timed.energies)


def test_bf16() -> None:
    matrix = Matrix(height=4, width=5)
    assert _of(matrix, PRESETS["bf16-4x4"]).array == pytest.approx(20 * 16 * (1.1 + 0.9))
