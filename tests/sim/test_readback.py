"""What `npukit verify` reads back from on-chip memories is what they hold."""

from dataclasses import replace

import numpy as np
import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Load, Memory
from npukit.sim.bfloat16 import narrow, widen
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.validator import validate

from npukit.verify.generator import random_program
from npukit.verify.readback import WrittenWords, read_back

CONFIGS = {
    "4x4": PRESETS["int8-4x4"],
    "bf16-4x4": PRESETS["bf16-4x4"],
    "bf16, odd depths": replace(
        PRESETS["bf16-4x4"], array=8, act_depth=77, act_banks=3, wgt_depth=1003, acc_depth=19, acc_banks=5,
        par_depth=99, vector_lanes=8, fma_lanes=8,
    ),
    "16x16": PRESETS["int8-16x16"],
    "4x12": replace(
        PRESETS["int8-4x4"], array=12, array_rows=4, act_depth=77, par_depth=99, vector_lanes=3, fma_lanes=6,
        bus_bytes=4,
    ),
    "bf16, 6x6": replace(
        PRESETS["bf16-4x4"], array=6, vector_lanes=3, fma_lanes=2, softmax_cycles=6, normalize_cycles=0, bus_bytes=4,
    ),
    "least depths": replace(
        PRESETS["int8-4x4"], array=64, act_depth=64, act_banks=1, wgt_depth=128, acc_depth=16, acc_banks=1,
        par_depth=32, vector_lanes=64, fma_lanes=64,
    ),
    "odd depths": replace(
        PRESETS["int8-4x4"], act_depth=77, act_banks=3, wgt_depth=1003, acc_depth=19, acc_banks=5, par_depth=99,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_read_back(name: str) -> None:
    config = CONFIGS[name]
    written_words = 0
    for seed in range(6):
        made = random_program(config, f"read back/{seed}")
        machine = FunctionalSimulator(config, made.memory.copy())
        written = WrittenWords(config)
        for instruction in made.instructions:
            machine.execute(instruction)
            written.mark(instruction)
        expected = _expected(config, machine)
        reading = read_back(config, written, machine.acc)
        findings = validate(config, reading.instructions, reading.image.size, [(0, reading.image.size)])
        assert {finding.rule for finding in findings} <= {"unwritten"}, findings[:3]
        machine.dram = reading.image.copy()
        for instruction in reading.instructions:
            machine.execute(instruction)
        actual = machine.dram.view(machine.act.dtype).reshape(-1, config.array)[: len(reading.mask)]
        assert expected.shape == actual.shape
        unlike = expected != actual
        if config.dtype == "bf16":
            # a weight of its column that is no number hides the others
            first = len(reading.mask) - machine.wgt.size // config.array
            unlike[first:] &= actual[first:] != 0x7FC0
        wrong = np.nonzero(reading.mask & unlike.any(axis=1))[0]
        assert not len(wrong), (seed, reading.place(int(wrong[0])))
        written_words += int(reading.mask.sum())
    assert written_words > 100


def test_what_earlier_programs_left_does_not_show() -> None:
    """A few words of WGT among others that hold infinities and NaN, which no program of this run wrote."""
    config = PRESETS["bf16-4x4"]
    for low, words in ((0, 1), (5, 2), (9, 7), (config.wgt_depth - 3, 2), (3000, 3)):
        machine = FunctionalSimulator(config, np.full(1 << 12, 0x3F, np.uint8))
        written = WrittenWords(config)
        for offset in (low, (low + 17) % (config.wgt_depth - 8)):
            load = Load(memory=Memory.WGT, offset=offset, words=words, word_stride=1)
            machine.execute(load)
            written.mark(load)
        expected = machine.wgt.copy()
        machine.wgt[~written.masks[Memory.WGT]] = 0x7F80
        machine.wgt[:, ::2][~written.masks[Memory.WGT][:, ::2]] = 0x7FC1
        reading = read_back(config, written, machine.acc)
        findings = validate(config, reading.instructions, reading.image.size, [(0, reading.image.size)])
        assert {finding.rule for finding in findings} <= {"unwritten"}, findings[:3]
        machine.dram = reading.image.copy()
        for instruction in reading.instructions:
            machine.execute(instruction)
        actual = machine.dram.view(np.uint16).reshape(-1, config.array)[: len(reading.mask)][-config.wgt_depth :]
        mask = reading.mask[-config.wgt_depth :]
        assert mask.sum() == 2 * words
        assert np.array_equal(actual[mask], expected[0][mask])


def _expected(config: NpuConfig, machine: FunctionalSimulator) -> np.ndarray:
    """All memories in the order of a read-back's image, as words of elements."""
    if config.dtype == "bf16":
        acc = machine.acc.reshape(-1, config.array)
        with np.errstate(invalid="ignore"):
            nothing = np.where(np.isfinite(acc), np.float32(0), acc - acc)
        parts = [machine.act.reshape(-1, config.array), narrow(acc), narrow(nothing)]
        tiles = widen(machine.wgt.reshape(-1, config.array))
        return np.concatenate([*parts, narrow(tiles)])
    acc = machine.acc.reshape(-1, config.array).astype(np.int64)
    parts = [machine.act.reshape(-1, config.array)]
    for byte in range(4):
        shifted = (acc << 8 * byte).astype(np.uint32).view(np.int32).astype(np.int64)
        parts.append(np.minimum((shifted + (1 << 23)) >> 24, 127).astype(np.int8))
    parts.append(machine.wgt.reshape(-1, config.array))
    parts.append(np.ascontiguousarray(machine.par).view(np.int8).reshape(-1, config.array))
    return np.concatenate(parts)
