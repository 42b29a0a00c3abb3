"""A short version of `make mutate`; its proofs that a fault changes nothing."""

import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
sys.path.insert(0, str(Path(__file__).parent))

from mutant_models import run_on_rtl
from mutate import CHOICE, mutated, same
from npukit.isa.config import PRESETS

BLOCK = """
module \\npu.machine.block
  wire input 1 \\clk
  wire input 2 \\a
  wire input 3 \\b
  wire \\either
  wire \\both
  wire output 4 \\y
  cell $or \\or
    parameter \\A_SIGNED 0
    parameter \\B_SIGNED 0
    parameter \\A_WIDTH 1
    parameter \\B_WIDTH 1
    parameter \\Y_WIDTH 1
    connect \\A \\a
    connect \\B \\b
    connect \\Y \\either
  end
  cell $and \\and
    parameter \\A_SIGNED 0
    parameter \\B_SIGNED 0
    parameter \\A_WIDTH 1
    parameter \\B_WIDTH 1
    parameter \\Y_WIDTH 1
    connect \\A \\a
    connect \\B \\either
    connect \\Y \\both
  end
  cell $dff \\register
    parameter \\WIDTH 1
    parameter \\CLK_POLARITY 1
    connect \\CLK \\clk
    connect \\D \\both
    connect \\Q \\y
  end
end
"""
"""y is a & (a | b), a cycle later: what b is does not matter."""


@pytest.mark.parametrize(
    ("cell", "port", "mode", "expected"),
    [
        ("or", "B", "const0", True),
        ("or", "B", "inv", True),
        ("and", "B", "const1", True),
        ("or", "A", "const0", False),
        ("and", "A", "const1", False),
        ("register", "D", "inv", False),
    ],
)
def test_proofs_that_a_fault_changes_nothing(tmp_path: Path, cell: str, port: str, mode: str, expected: bool) -> None:
    (tmp_path / "core.il").write_text(BLOCK, encoding="utf-8")
    fault = f"mutate -ctrl mutant 16 1 -mode {mode} -module npu.machine.block -cell {cell} -port {port} -portbit 0"
    assert same(tmp_path, fault) == expected


def test_random_programs_find_most_of_a_sample_in_a_few_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, count = "int8-4x4", 12
    verilog, _ = mutated(PRESETS[config], count, 5, tmp_path)
    monkeypatch.chdir(tmp_path)
    fresh = random.randrange(1 << 32)
    print(f"programs of seed 1, and of seed {fresh}")
    for seed in (1, fresh):
        found = []
        for number in range(count + 1):
            CHOICE.write_text(f"{number:x}\n", encoding="ascii")
            if run_on_rtl(config, seed, 16, verilog)["by"] is not None:
                found.append(number)
        assert 0 not in found, "there is no fault of that number"
        assert len(found) >= count // 2, f"of {count}, {found} were found"
