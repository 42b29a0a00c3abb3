"""An array whose multipliers have two elements each, at twice the clock, against the simulator."""

import secrets
from dataclasses import replace

import pytest
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS

from npukit.verify.runner import verify

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")


@pytest.mark.parametrize("seed", [5, None], ids=["fixed", "fresh"])
def test_random_programs(seed: int | None) -> None:
    """On a rectangle."""
    from npukit.fpga.cell_models import TOP_CELLS
    from npukit.fpga.ecp5_cells import Ecp5Cells
    from npukit.hw.core import Core
    from npukit.hw.verilog import MODULE, component_rtlil, rtlil_verilog

    config = replace(
        PRESETS["int8-4x4"], array=8, array_rows=4, act_depth=256, act_banks=2, wgt_depth=256, acc_depth=128,
        acc_banks=2, par_depth=128, vector_lanes=1, fma_lanes=1, fma_fixed=0, softmax_cycles=0, normalize_cycles=0,
        transpose=0,
    )  # fmt: skip
    cells = Ecp5Cells(double_rate=True)
    text = rtlil_verilog(component_rtlil(Core(config), MODULE, cells), MODULE)
    assert cells.pairs == 4 * 4
    drawn = secrets.randbelow(10**6) if seed is None else seed
    print("seed", drawn)
    with RtlDevice(config, verilog=text + TOP_CELLS, optimise=False, progress=lambda _: None) as device:
        found = verify(device, drawn, 25)
    assert (found.programs, found.bit_mismatches, found.cycle_mismatches) == (25, 0, 0), found.first_divergence
