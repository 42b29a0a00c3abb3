"""The SDRAM as the simulator has it against its controller in Verilator, cycle for cycle."""

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS
from npukit.isa.sdram import SdramChip
from npukit.sim.dram import DramModel, SdramDram
from npukit.sim.timing import simulate_timing

from npukit.verify.generator import random_program
from npukit.verify.runner import verify
from npukit.verify.sdram import SdramRtlDevice

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

CONFIG = replace(
    PRESETS["int8-4x4"], act_depth=256, act_banks=2, wgt_depth=256, acc_depth=64, acc_banks=2, par_depth=64,
    bus_bytes=8, max_burst=24, vector_lanes=1, fma_lanes=1, fma_fixed=0, queue_depth=4,
)  # fmt: skip
DRAM = SdramDram(megahertz=100.0, io_cycles=1, phase=300, chip=SdramChip(column_bits=8))


@pytest.fixture(scope="module")
def device() -> Iterator[SdramRtlDevice]:
    made = SdramRtlDevice(CONFIG, DRAM, optimise=False, progress=lambda _: None)
    with made:
        yield made


@pytest.mark.parametrize("seed", [4, None], ids=["fixed", "fresh"])
def test_random_programs(device: SdramRtlDevice, seed: int | None) -> None:
    drawn = secrets.randbelow(10**6) if seed is None else seed
    print("seed", drawn)
    found = verify(device, drawn, 40, dram=DRAM)
    assert (found.programs, found.bit_mismatches, found.cycle_mismatches) == (40, 0, 0), found.first_divergence


def test_that_it_matters() -> None:
    """Each of these costs or saves cycles in some program; so the comparison above is one of them all."""
    programs = [random_program(CONFIG, f"matters/{index}").instructions for index in range(12)]

    def cycles(dram: SdramDram) -> list[int]:
        return [simulate_timing(CONFIG, one, dram).cycles for one in programs]

    usual = cycles(DRAM)
    for change in (
        {"phase": 700},
        {"io_cycles": 2},
        {"chip": replace(DRAM.chip, activate_to_column=41.0)},
        {"chip": replace(DRAM.chip, precharge=41.0, row_cycle=90.0)},
        {"chip": replace(DRAM.chip, refresh_cycle=99.0)},
        {"chip": replace(DRAM.chip, write_recovery=41.0)},
        {"chip": replace(DRAM.chip, column_bits=7)},
        {"base": 512},
        {"program": 512},
    ):
        assert cycles(replace(DRAM, **change)) != usual, change


def test_what_is_refused(device: SdramRtlDevice) -> None:
    with pytest.raises(ValueError, match="the SDRAM's phase must be from 0 to 780, not 781"):
        SdramDram(megahertz=100.0, phase=781)
    with pytest.raises(ValueError, match="clocks up to 133 MHz, not 150"):
        SdramDram(megahertz=150.0)
    for value in (-1, 1.5, 9):
        with pytest.raises(ValueError, match=f"the SDRAM's io_cycles must be from 0 to 8, not {value}"):
            SdramDram(io_cycles=value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0.5 MHz are too few for the SDRAM's refreshes: 3 cycles for each"):
        SdramDram(megahertz=0.5)
    with pytest.raises(ValueError, match="up to 16 banks, not 32"):
        SdramDram(chip=SdramChip(bank_bits=5))
    assert (SdramDram().phase, SdramDram(megahertz=8.0).phase) == (64, 31)
    with pytest.raises(ValueError, match="bus of 4, 8 or 16 bytes, not 32"):
        simulate_timing(replace(CONFIG, bus_bytes=32), random_program(CONFIG, "x").instructions, DRAM)
    with pytest.raises(ValueError, match="has no other memory"):
        device.set_dram(DramModel())
    with pytest.raises(ValueError, match="has the reference DRAM alone"):
        RtlDevice.set_dram(device, DRAM)
    with pytest.raises(ValueError, match="in hardware the refresh phase must be at least 36, not 3"):
        SdramRtlDevice(CONFIG, replace(DRAM, phase=3))
