"""The SDRAM chip in C++ against its model in Python: data, and what either says of a violation."""

import ctypes
import random

import numpy as np
import pytest
from npukit.fpga.sdram_chip import SdramModel, SdramPins, SdramViolation
from npukit.isa.sdram import SdramChip

from npukit.board_sim.model import SdramTimesOfChip
from tests.board_sim.served import Made

CHIP = SdramChip(row_bits=4, column_bits=4, refresh_period=16 * 4000.0, power_up=100.0)
MEGAHERTZ = 60.0
NOP, ACTIVATE, READ, WRITE = (1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 0, 0)
PRECHARGE, REFRESH, MODE = (0, 1, 0), (0, 0, 1), (0, 0, 0)


def pins(
    command: tuple[int, int, int], bank: int = 0, address: int = 0, dq: int | None = None, dqm: int = 0
) -> SdramPins:
    return SdramPins(1, 0, *command, bank, address, dqm, dq)


def start() -> list[SdramPins]:
    """Until the mode is set."""
    times = CHIP.times(MEGAHERTZ)
    wait = [pins(NOP)] * (times.refresh_cycle + 2)
    steps = [pins(NOP)] * (times.power_up + 1) + [pins(PRECHARGE, address=1 << 10), *wait]
    for _ in range(CHIP.initial_refreshes):
        steps += [pins(REFRESH), *wait]
    return [*steps, pins(MODE, address=times.cas_latency << 4 | 2), *wait]


def traffic(draw: random.Random) -> list[SdramPins]:
    """Reads and writes of open rows with the times that they need, and at the end perhaps too early a command."""
    steps, times = start(), CHIP.times(MEGAHERTZ)
    gap = [pins(NOP)] * (times.row_cycle + times.precharge)
    for _ in range(draw.randrange(1, 6)):
        bank, row = draw.randrange(4), draw.randrange(16)
        steps += [pins(ACTIVATE, bank, row), *[pins(NOP)] * times.activate_to_column]
        for _ in range(draw.randrange(1, 5)):
            column = draw.randrange(16)
            if draw.random() < 0.5:
                first, *rest = (draw.getrandbits(16) for _ in range(4))
                steps += [pins(WRITE, bank, column, first, draw.randrange(4))]
                steps += [pins(NOP, dq=word, dqm=draw.randrange(4)) for word in rest]
            else:
                steps += [pins(READ, bank, column), *[pins(NOP)] * 8]
        steps += [*gap, pins(PRECHARGE, bank, draw.choice([0, 1 << 10])), *gap]
        if draw.random() < 0.5:
            steps += [pins(PRECHARGE, address=1 << 10), *gap, pins(REFRESH), *gap]
    for _ in range(draw.randrange(4)):  # something that is likely to be forbidden
        at = draw.randrange(len(start()), len(steps))
        command = draw.choice([ACTIVATE, READ, WRITE, PRECHARGE, REFRESH, MODE, NOP, (1, 1, 0)])
        dq = draw.choice([None, draw.getrandbits(16)])
        steps[at] = pins(command, draw.randrange(4), draw.choice([0, 5, 1 << 10, draw.getrandbits(11)]), dq)
    if draw.random() < 0.3:
        steps += [pins(NOP)] * draw.randrange(8000)
    return steps


def in_python(steps: list[SdramPins], memory: np.ndarray) -> tuple[list[int], str]:
    model, words = SdramModel(CHIP, MEGAHERTZ), []
    model.memory[:] = memory
    try:
        for one in steps:
            word = model.step(one)
            words.append(-1 if word is None else word)
    except SdramViolation as error:
        return words, str(error)
    memory[:] = model.memory
    return words, ""


def in_cpp(library: ctypes.CDLL, steps: list[SdramPins], memory: np.ndarray) -> tuple[list[int], str]:
    times = SdramTimesOfChip.of(CHIP, MEGAHERTZ)
    chip, words = library.chip_create(ctypes.byref(times), memory.ctypes.data), []
    try:
        for one in steps:
            values = (one.cke, one.cs_n, one.ras_n, one.cas_n, one.we_n, one.bank, one.address, one.dqm)
            word = library.chip_step(chip, (ctypes.c_int32 * 9)(*values, -1 if one.dq is None else one.dq))
            if violation := library.chip_violation(chip).decode():
                return words, violation
            words.append(word)
        return words, ""
    finally:
        library.chip_destroy(chip)


@pytest.mark.parametrize("seed", [540386, None], ids=["fixed", "fresh"])
def test_random_traffic(made: Made, seed: int | None) -> None:
    drawn = seed or random.SystemRandom().randrange(10**6)
    print("seed", drawn)
    draw, violations = random.Random(drawn), 0
    for _ in range(150):
        steps = traffic(draw)
        first = np.array([draw.getrandbits(16) for _ in range(CHIP.bytes // 2)], np.uint16)
        second = first.copy()
        expected, found = in_python(steps, first), in_cpp(made.library, steps, second)
        assert found == expected
        if not expected[1]:
            np.testing.assert_array_equal(first, second)
        violations += bool(expected[1])
    assert 30 < violations < 145
