"""An SDRAM at twice the accelerator's clock, as the simulator has it, against its controller in Verilator."""

import secrets
from dataclasses import replace

import pytest
from npukit.isa.config import PRESETS
from npukit.isa.sdram import SdramChip
from npukit.sim.dram import SdramDram
from npukit.sim.timing import simulate_timing

from npukit.verify.generator import random_program
from npukit.verify.runner import verify
from npukit.verify.sdram import SdramRtlDevice

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

CONFIG = replace(
    PRESETS["int8-4x4"], act_depth=256, act_banks=2, wgt_depth=256, acc_depth=64, acc_banks=2, par_depth=64,
    bus_bytes=4, max_burst=24, vector_lanes=1, fma_lanes=1, fma_fixed=0, queue_depth=4,
)  # fmt: skip
DRAM = SdramDram(megahertz=50.0, rate=2, io_cycles=1, phase=300, chip=SdramChip(column_bits=8))


@pytest.mark.parametrize("seed", [4, None], ids=["fixed", "fresh"])
def test_random_programs(seed: int | None) -> None:
    """A beat is two words, of which the chip's data pins give one in each half of a cycle."""
    drawn = secrets.randbelow(10**6) if seed is None else seed
    print("seed", drawn)
    with SdramRtlDevice(CONFIG, DRAM, optimise=False, progress=lambda _: None) as device:
        found = verify(device, drawn, 30, dram=DRAM)
    assert (found.programs, found.bit_mismatches, found.cycle_mismatches) == (30, 0, 0), found.first_divergence


@pytest.mark.parametrize("bus_bytes", [16])
def test_beats_of_more_words(bus_bytes: int) -> None:
    config, dram = replace(CONFIG, bus_bytes=bus_bytes, max_burst=4), replace(DRAM, megahertz=60.0, phase=400)
    with SdramRtlDevice(config, dram, optimise=False, progress=lambda _: None) as device:
        found = verify(device, 7, 12, dram=dram)
    assert (found.programs, found.bit_mismatches, found.cycle_mismatches) == (12, 0, 0), found.first_divergence


def test_that_it_matters() -> None:
    """More than half of the time that a memory at the accelerator's clock takes, and less than all of it."""
    programs = [random_program(CONFIG, f"matters/{index}").instructions for index in range(12)]
    fast, slow = (
        [simulate_timing(CONFIG, one, replace(DRAM, rate=rate)).cycles for one in programs] for rate in (2, 1)
    )
    assert all(one < other < 2 * one for one, other in zip(fast, slow, strict=True))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="the SDRAM's rate must be 1 or 2, not 3"):
        SdramDram(rate=3)
    with pytest.raises(ValueError, match="clocks up to 133 MHz, not 140"):
        SdramDram(megahertz=70.0, rate=2)
    with pytest.raises(ValueError, match="an odd number of cycles, not 1000: give another clock"):
        SdramRtlDevice(CONFIG, SdramDram(megahertz=64.0, rate=2, phase=400))
