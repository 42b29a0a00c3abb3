"""The benchmarks measure a sound program, and write where they should."""

import importlib.util
import sys
from pathlib import Path

import pytest
from npukit.compiler.pipeline import compile_model
from npukit.isa.instructions import End
from npukit.sim.timing import simulate_timing
from npukit.sim.validator import validate

from npukit import NpuConfig, zoo

_path = Path(__file__).parents[2] / "bench" / "run.py"
_spec = importlib.util.spec_from_file_location("npukit_bench", _path)
assert _spec is not None and _spec.loader is not None
bench = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = bench  # dataclasses look their module up
sys.path.insert(0, str(_path.parent))  # as when it runs as a script
_spec.loader.exec_module(bench)


def test_repeated_program_is_sound_and_as_long_as_its_copies() -> None:
    config = NpuConfig()
    program = compile_model(zoo.load("digits"), config).programs[0]
    instructions = bench.repeated(program, 4)
    assert len(instructions) == 4 * (len(program.instructions) - 1) + 1
    assert [isinstance(one, End) for one in instructions].index(True) == len(instructions) - 1
    dram = [(0, program.dram_bytes)]
    assert validate(config, instructions, program.dram_bytes, dram) == []
    plain = (*(4 * program.instructions[:-1]), End())
    assert validate(config, plain, program.dram_bytes, dram) != []  # copies race without their tokens
    once = simulate_timing(config, program.instructions).cycles
    # only the fetch of the first instructions is not repeated
    assert 4 * (once - 120) < simulate_timing(config, instructions).cycles <= 4 * once


def test_measures_and_replaces_only_its_own_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "benchmarks.md"
    sizes = bench.Sizes(repetitions=1, processes=0, images=2, rtl=(), networks=())
    monkeypatch.setattr(bench, "_QUICK", sizes)
    assert bench.main(["--quick", "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "Mcycles/s" in printed and "ONNX Runtime / simulator" in printed
    assert printed.strip() in path.read_text(encoding="utf-8")
    path.write_text("before\n" + path.read_text(encoding="utf-8") + "after\n", encoding="utf-8")
    bench.write_section(path, "bench/run.py", "", "new\n")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "\nnew\n" in text and "Mcycles/s" not in text
    path.write_text("nothing\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="to write between"):
        bench.write_section(path, "bench/run.py", "", "new\n")
