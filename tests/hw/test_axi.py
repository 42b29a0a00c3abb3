"""The core's AXI4 manager against cocotbext.axi's memory, which nobody here wrote, in Verilator."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from npukit.hw.verilog import core_verilog
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Store, encode
from npukit.sim.functional import FunctionalSimulator

from npukit.verify.generator import random_program

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

CONFIG = replace(
    PRESETS["int8-4x4"],
    act_banks=2, act_depth=256, acc_banks=2, acc_depth=64, wgt_depth=64, par_depth=128,
    vector_lanes=1, fma_lanes=1, vector_taps=1, max_window=3, max_burst=8,
)  # fmt: skip
"""As small as the core gets, so that it builds in a minute."""


def test_against_a_memory(tmp_path: Path, run_cocotb: Callable[..., None]) -> None:
    seed = Random().getrandbits(32)
    print(f"seed {seed}")
    count = 0
    for index in range(100):
        made = random_program(CONFIG, f"{seed}/{index}", 14)
        if not any(isinstance(one, Store) for one in made.instructions):
            continue
        expected = made.memory.copy()
        machine = FunctionalSimulator(CONFIG, expected)
        for instruction in made.instructions:
            machine.execute(instruction)
        code = np.frombuffer(b"".join(encode(one) for one in made.instructions), np.uint8)
        np.savez(
            tmp_path / f"{index:03}.npz",
            seed=seed + index, code=code, memory=made.memory, expected=expected, hash=np.uint64(CONFIG.hash),
        )  # fmt: skip
        count += 1
        if count == 8:
            break
    assert count == 8
    run_cocotb(core_verilog(CONFIG), "npu", "cocotb_core", 2, {"NPUKIT_CASES": str(tmp_path)})
