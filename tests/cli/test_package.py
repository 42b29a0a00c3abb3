"""`npukit verilog --package`: what it refuses, and what it writes; `tests/hw/test_package.py` runs the result."""

import json
import os
from pathlib import Path

import pytest

TINY = ("--config", "int8-4x4", "--set", "vector_lanes=1", "--set", "fma_lanes=1", "--set", "vector_taps=1")


def test_bad_input(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npukit("verilog").refused("--output", "--package")
    npukit("verilog", "-o", tmp_path / "a.v", "--package", tmp_path / "a").refused("--package", "-o")
    file = tmp_path / "file"
    file.write_text("")
    npukit("verilog", "--package", file).refused("is not a folder")
    npukit("verilog", "--package", file / "below").refused("file is not a folder")
    npukit("verilog", "--package", tmp_path).refused("is not empty (it holds file)", "a new or an empty folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != empty)
        npukit("verilog", "--package", empty).refused("no permission to write into the folder")
    npukit("verilog", "--package", empty, "--config", "int8-5x5").refused("int8-5x5")
    assert not list(empty.iterdir())


def test_failure_leaves_nothing(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
    monkeypatch.setenv("YOSYS", "no-such-yosys")
    result = npukit("verilog", "--package", tmp_path / "package", *TINY)
    assert result.code == 3 and "no-such-yosys" in result.err
    assert not (tmp_path / "package").exists()


def test_trace_ports(npukit, tmp_path: Path) -> None:
    """On request alone, and the JSON names the files."""
    pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
    plain, traced, package = tmp_path / "plain.v", tmp_path / "traced.v", tmp_path / "package"
    assert npukit("verilog", "-o", plain, *TINY).code == 0
    assert npukit("verilog", "-o", traced, "--trace", *TINY).code == 0
    assert "trace_" not in plain.read_text().split(");", 1)[0]
    assert "trace_running" in traced.read_text().split(");", 1)[0]
    answer = npukit("verilog", "--package", package, "--trace", "--json", *TINY).json
    assert {Path(path) for path in answer["files"]} == {path for path in package.rglob("*") if path.is_file()}
    assert answer["name"].startswith("int8-4x4-") and len(answer["name"]) == len("int8-4x4-") + 16
    assert "trace_running" in (package / "rtl" / "npu.v").read_text().split(");", 1)[0]
    assert "`trace_running`" in (package / "README.md").read_text()
    names = [port["name"] for port in json.loads((package / "npu.json").read_text())["ports"]]
    assert {"clk", "rst", "irq", "trace_done", "m_axi_araddr", "s_axil_rdata"} <= set(names)
