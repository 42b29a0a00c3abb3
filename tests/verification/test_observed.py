"""What an observer finds of values, and what the schedule tells of engines beside each other."""

import numpy as np
import pytest
from npukit.isa.config import PRESETS
from npukit.isa.descriptors import encode_descriptor
from npukit.isa.instructions import End, Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.sim.dram import DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing

from npukit.verify.concurrency import engines_meanwhile
from npukit.verify.observed import Observer

CONFIG = PRESETS["int8-4x4"]
GREATEST, LEAST = (1 << 31) - 1, -(1 << 31)


def _observed(machine: FunctionalSimulator, instruction: Instruction) -> set[str]:
    observer = Observer(CONFIG)
    observer.execute(machine, instruction)
    return observer.found


def _machine() -> FunctionalSimulator:
    return FunctionalSimulator(CONFIG, np.zeros(4096, np.uint8))


@pytest.mark.parametrize(
    ("before", "product", "end"),
    [
        (GREATEST, 1, "past 2147483647"), (GREATEST, 0, "at 2147483647"), (LEAST, -1, "past -2147483648"),
        (LEAST + 5, -5, "at -2147483648"), (GREATEST - 4, 3, None),
    ],
)  # fmt: skip
def test_sums_of_matrix(before: int, product: int, end: str | None) -> None:
    machine = _machine()
    machine.acc[0, 0] = before
    machine.act[0, 0, 0], machine.wgt[0, 0] = 1, product
    found = _observed(machine, Matrix(accumulate=1))
    wrapped = (before + product + (1 << 31)) % (1 << 32) - (1 << 31)
    assert machine.acc[0, 0].tolist() == [wrapped] * 4
    assert {item for item in found if item.startswith("sum_MATRIX")} == ({f"sum_MATRIX {end}"} if end else set())


def test_a_column_at_its_greatest_sum() -> None:
    machine = _machine()
    machine.act[0, 0] = machine.wgt[0, :4, 2] = -128
    name = "column of the array at its greatest sum"
    assert name in _observed(machine, Matrix())
    machine.wgt[0, 3, 2] = 127
    assert name not in _observed(machine, Matrix())


def test_parameters_and_scaling() -> None:
    machine = _machine()
    head = encode_descriptor(CONFIG, Operation.REQUANTIZE_FIXED, {"zero_point": -128, "low": 5, "high": -5})
    words = [[0, 1, -1, GREATEST], [LEAST, 1 << 30, GREATEST, 1 << 30], [31, -1, 128, -33]]
    machine.par[0, :4] = np.concatenate([head.view(np.int32), np.array(words, np.int64).astype(np.int32)]).view(
        np.uint32
    )
    machine.acc[0, 0] = [1, 2, 3, GREATEST]
    found = _observed(machine, Vector(operation=Operation.REQUANTIZE_FIXED, a_memory=Memory.ACC, out_memory=Memory.ACT))
    prefix = "REQUANTIZE_FIXED"
    assert {
        f"{prefix}.zero_point=-128", f"{prefix} low above high", f"{prefix}.shift=31", f"{prefix}.shift=-128",
        f"{prefix}.shift=-33", f"{prefix}.bias=2147483647", f"{prefix}.multiplier=-2147483648",
        f"{prefix} shift loses bits", f"{prefix} product saturates", "sum_bias past 2147483647",
    } <= found  # fmt: skip
    assert f"{prefix}.zero_point=127" not in found and "sum_bias past -2147483648" not in found


def test_kinds_of_floats() -> None:
    machine = _machine()
    head = encode_descriptor(CONFIG, Operation.REQUANTIZE, {"low": -128, "high": 127})
    scales = np.array([0x7F800000, 0x80000001, 0x3F000000, 0x7FC00000], np.uint32)
    machine.par[0, :3] = np.concatenate([head, np.zeros((1, 4), np.uint32), scales.reshape(1, 4)])
    machine.acc[0, 0] = [1, 1, 3, 0]
    found = _observed(machine, Vector(operation=Operation.REQUANTIZE, a_memory=Memory.ACC, out_memory=Memory.ACT))
    names = {item.split("=")[1] for item in found if item.startswith("REQUANTIZE.multiplier=")}
    assert names == {"infinity", "-subnormal", "nan"}
    assert "REQUANTIZE half up" in found and "REQUANTIZE past 127" in found and "REQUANTIZE past -128" not in found


def test_engines_meanwhile() -> None:
    """As a plain loop over all pairs finds them."""
    matrix = {"act_stride_x": 1, "acc_stride_x": 1}
    program = (
        Load(memory=Memory.ACT, words=200, word_stride=1, signal=2 | 8),
        Load(memory=Memory.WGT, words=8, word_stride=1),
        Load(memory=Memory.ACT, bank=1, words=300, word_stride=1, signal=4),
        Matrix(wait=1, width=64, **matrix),
        Store(wait=1, words=64, word_stride=1),
        Vector(wait=1, operation=Operation.COPY, a_bank=1, width=64, a_stride_x=1, out_bank=2, out_stride_x=1),
        Matrix(width=20, acc_bank=1, **matrix),
        End(),
    )
    schedule = simulate_timing(CONFIG, program, DramModel(latency=5))
    found = engines_meanwhile(program, schedule)
    for index, one in enumerate(program[:-1]):
        for other in range(4):
            expected = any(
                two.engine == other
                and schedule.start[k] <= schedule.end[index]
                and schedule.end[k] >= schedule.start[index]
                for k, two in enumerate(program)
            )
            assert found[index, other] == expected, (one, other)
    assert found.any(axis=0).all()
