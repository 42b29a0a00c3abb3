"""The register file against cocotbext.axi's AXI4-Lite manager, in Verilator."""

from collections.abc import Callable

import pytest
from npukit.hw.verilog import component_verilog
from npukit.isa.config import PRESETS
from npukit.isa.registers import COUNTERS, REGISTERS

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")


def test_members_follow_the_map() -> None:
    from amaranth.hdl import Fragment
    from npukit.hw.registers import RegisterFile

    registers = RegisterFile(0x0123456789ABCDEF)
    Fragment.get(registers, None)  # or Amaranth warns that it is not used
    assert registers.value("IDENTITY").init == 0x4E50554B
    assert registers.value("CONFIG_HASH_LOW").init == 0x89ABCDEF
    assert registers.value("CONFIG_HASH_HIGH").init == 0x01234567
    assert len(registers.wide("BASE")) == 64
    counters = {f"{name.upper()}_{half}" for name, _ in COUNTERS for half in ("LOW", "HIGH")}
    assert {one.name for one in REGISTERS if not hasattr(registers, one.name.lower())} == {"CONTROL", *counters}


def test_against_a_manager(run_cocotb: Callable[..., None]) -> None:
    from npukit.hw.registers import RegisterFile

    text = component_verilog(RegisterFile(PRESETS["int8-4x4"].hash), "registers")
    run_cocotb(text, "registers", "cocotb_registers", 7)
