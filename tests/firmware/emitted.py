"""Emitted C on this machine: compiled as a shared library, with a device of the kit as its bus, behind a cache.

The library's memory is the processor's view of it. The device has a memory of its own, at other addresses, and bytes go
from one to the other only where the C cleans or invalidates the cache, in whole lines: without a hook in its place, the
device computes on garbage, or the processor reads it.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.driver.device import Device
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import NpuConfig
from npukit.isa.registers import REGISTERS
from numpy.typing import NDArray

from npukit.firmware.kit import Kit, write_kit

__all__ = ["FLAGS", "OK", "RESULTS", "Host", "compiler", "emit"]

FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow", "-Wstrict-prototypes")
OK = "NPU_OK"
RESULTS = (
    OK, "NPU_BAD_IDENTITY", "NPU_BAD_VERSION", "NPU_BAD_CONFIGURATION", "NPU_BAD_ADDRESS", "NPU_STILL_BUSY",
    "NPU_NOT_STARTED", "NPU_TIMED_OUT", "NPU_STOPPED",
)  # fmt: skip
_REGISTERS = {one.offset: one.name for one in REGISTERS}
LINE = 64
PAGE = 4096
PORT = """
#include <stdint.h>
struct npu;
extern uint32_t (*port_read)(uint32_t offset);
extern void (*port_write)(uint32_t offset, uint32_t value);
extern uint64_t (*port_address)(const void *pointer);
extern void (*port_clean)(const void *memory, uint32_t bytes);
extern void (*port_invalidate)(const void *memory, uint32_t bytes);
extern void (*port_poll)(void);
extern int (*port_wait)(void *npu);
extern void (*port_barrier)(void);
#define NPU_READ(npu, offset) ((void)(npu), port_read(offset))
#define NPU_WRITE(npu, offset, value) ((void)(npu), port_write(offset, value))
#define NPU_BUS_ADDRESS(npu, pointer) ((void)(npu), port_address(pointer))
#define NPU_CACHE_CLEAN(memory, bytes) port_clean(memory, bytes)
#define NPU_CACHE_INVALIDATE(memory, bytes) port_invalidate(memory, bytes)
#define NPU_POLL(npu) ((void)(npu), port_poll())
#define NPU_BARRIER() port_barrier()
#ifdef PORT_INTERRUPT
#define NPU_WAIT_FOR_INTERRUPT(npu) port_wait(npu)
#endif
"""
DEFINITIONS = """
#include "port.h"
uint32_t (*port_read)(uint32_t);
void (*port_write)(uint32_t, uint32_t);
uint64_t (*port_address)(const void *);
void (*port_clean)(const void *, uint32_t);
void (*port_invalidate)(const void *, uint32_t);
void (*port_poll)(void);
int (*port_wait)(void *);
void (*port_barrier)(void);
"""


def compiler() -> str:
    """The C compiler; the test is skipped without one."""
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("gcc is not installed: make deps")
    return found


def emit(
    folder: Path, model: str | bytes | onnx.ModelProto, config: NpuConfig, name: str = "net", optimize: int = 1
) -> Kit:
    """Compile a model and write its C sources."""
    result = compile_model(model, config, optimize=optimize)
    assert result.artifact is not None
    return write_kit(folder, name, result.artifact, {one.name: one for one in result.programs}, "a test's")


class _Npu(ctypes.Structure):
    _fields_ = [
        ("registers", ctypes.c_void_p),
        ("interrupt_enable", ctypes.c_uint32),
        ("interrupted", ctypes.c_uint32),
        ("causes", ctypes.c_uint32),
        ("error_index", ctypes.c_uint32),
    ]


class Host:
    """A model's C sources as a library of this process, and a device behind it.

    Attributes:
        npu: the library's struct npu.
        reads: registers read so far. interrupts: how often the hook has waited for one.
        origin: address of the device's memory on the bus; the model's lies `PAGE` bytes behind.
        accesses: what was done to registers, as `write CONTROL`, and `barrier`, in order.
    """

    def __init__(
        self, folder: Path, kit: Kit, device: Device, *, interrupt: bool = False, defines: Sequence[str] = (),
        origin: int = 0, seed: int = 1,
    ) -> None:  # fmt: skip
        self.kit, self.device, self.origin = kit, device, origin
        self.reads = self.interrupts = self.polls = 0
        self.accesses: list[str] = []
        self.changed: dict[int, int] = {}
        """What registers are read as instead of what they hold, by offset."""
        source = kit.files[0].parent
        (folder / "port.h").write_text(PORT)
        (folder / "port.c").write_text(DEFINITIONS)
        library = folder / f"host_{len(list(folder.glob('host_*')))}.so"
        defined = [*(["PORT_INTERRUPT"] if interrupt else []), *defines]
        subprocess.run(
            [compiler(), *FLAGS, "-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", f"-I{folder}", f"-I{source}",
             '-DNPU_PORT_HEADER="port.h"', *(f"-D{one}" for one in defined), str(source / "npu.c"),
             str(source / f"{kit.model.name}.c"), str(folder / "port.c"), "-o", str(library)],
            check=True,
        )  # fmt: skip
        self._library = ctypes.CDLL(str(library))
        self._random = np.random.default_rng(seed)
        size = kit.model.place.end
        self._buffer = self._random.integers(0, 256, size + 2 * PAGE).astype(np.uint8)
        start = -self._buffer.ctypes.data % PAGE
        self.memory = self._buffer[start : start + size]
        """The processor's view of the model's memory."""
        self.start = self.memory.ctypes.data
        garbage = self._random.integers(0, 256, size + 2 * PAGE).astype(np.uint8)
        device.write_memory(0, garbage)
        self.npu, self._model = _Npu(), (ctypes.c_uint64 * 8)()
        self._hooks = []
        self._set("port_read", ctypes.c_uint32, [ctypes.c_uint32], self._read)
        self._set("port_write", None, [ctypes.c_uint32, ctypes.c_uint32], self._write)
        self.map(self.address)
        self._set("port_clean", None, [ctypes.c_void_p, ctypes.c_uint32], self._clean)
        self._set("port_invalidate", None, [ctypes.c_void_p, ctypes.c_uint32], self._invalidate)
        self._set("port_poll", None, [], self._poll)
        self._set("port_barrier", None, [], lambda: self.accesses.append("barrier"))
        self._set("port_wait", ctypes.c_int, [ctypes.c_void_p], self._wait)

    def _set(self, name: str, result: type | None, arguments: list, function: Callable) -> None:
        hook = ctypes.CFUNCTYPE(result, *arguments)(function)
        self._hooks.append(hook)  # ctypes does not keep it
        ctypes.c_void_p.in_dll(self._library, name).value = ctypes.cast(hook, ctypes.c_void_p).value

    def map(self, address: Callable[[int], int]) -> None:
        """Let the bus have what the processor has at a pointer at another address."""
        self._map = address
        self._set("port_address", ctypes.c_uint64, [ctypes.c_void_p], address)

    # ---- hooks

    def _read(self, offset: int) -> int:
        self.reads += 1
        self.accesses.append(f"read {_REGISTERS[offset]}")
        return self.changed.get(offset, self.device.read_register(offset))

    def _write(self, offset: int, value: int) -> None:
        self.accesses.append(f"write {_REGISTERS[offset]}")
        self.device.write_register(offset, value)

    def address(self, pointer: int) -> int:
        """Where the bus has what the processor has there."""
        return self.origin + PAGE + pointer - self.start

    def _lines(self, pointer: int, size: int) -> tuple[int, int]:
        first = (pointer - self.start) // LINE * LINE
        return first, min(-(-(pointer - self.start + size) // LINE) * LINE, self.memory.size)

    def _clean(self, pointer: int, size: int) -> None:
        if not self.start <= pointer < self.start + self.memory.size:  # instructions in place
            data = np.frombuffer(ctypes.string_at(pointer, size), np.uint8)
            self.device.write_memory(self._map(pointer) - self.origin, data)
            return
        first, end = self._lines(pointer, size)
        self.device.write_memory(PAGE + first, self.memory[first:end])

    def _invalidate(self, pointer: int, size: int) -> None:
        first, end = self._lines(pointer, size)
        self.memory[first:end] = self.device.read_memory(PAGE + first, end - first)

    def _poll(self) -> None:
        self.polls += 1
        if isinstance(self.device, RtlDevice):
            self.device.step(200)

    def _wait(self, npu: int) -> int:
        self.interrupts += 1
        if isinstance(self.device, RtlDevice):
            while self.device.running and not self.device.interrupt:
                self.device.step(100)
        if not self.interrupt:
            return 1  # it would never come
        self._library.npu_handle_interrupt(ctypes.c_void_p(npu))
        return 0

    @property
    def interrupt(self) -> bool:
        """The level of the device's line."""
        return self.device.interrupt  # type: ignore[attr-defined]

    # ---- calls

    def call(self, function: str, *arguments: object) -> str:
        """A function that returns an `enum npu_result`; its name."""
        return RESULTS[getattr(self._library, function)(*arguments)]

    def init(self, attach: bool = False) -> str:
        """Find the device, and bind the model to it; the first result that is not NPU_OK."""
        result = self.call("npu_init", ctypes.byref(self.npu), None)
        return self.bind(attach=attach) if result == OK else result

    def bind(self, pointer: int | None = None, attach: bool = False) -> str:
        """`NAME_init` or `NAME_attach`."""
        name = f"{self.kit.model.name}_{'attach' if attach else 'init'}"
        memory = ctypes.c_void_p(self.start if pointer is None else pointer)
        return self.call(name, self._model, ctypes.byref(self.npu), memory)

    def reset(self) -> str:
        """`npu_reset`."""
        return self.call("npu_reset", ctypes.byref(self.npu))

    def _arrays(self, kind: str, arrays: Mapping[str, NDArray]) -> ctypes.Array:
        """The struct of pointers, in the order of the model's inputs or outputs."""
        ports = self.kit.model.boundary.inputs if kind == "input" else self.kit.model.boundary.outputs
        names = list({port.name: None for port in ports})
        return (ctypes.c_void_p * len(names))(*(arrays[name].ctypes.data for name in names))

    def begin(self, inputs: Mapping[str, NDArray]) -> str:
        """`NAME_start`."""
        kept = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
        return self.call(f"{self.kit.model.name}_start", self._model, self._arrays("input", kept))

    def start_in_place(self) -> str:
        """`npu_start`, of inputs that are in memory."""
        return self.call("npu_start", self._model)

    def end(self) -> tuple[str, dict[str, NDArray]]:
        """`NAME_finish`, and the outputs, which are 77 where nothing has been written."""
        outputs = self._outputs()
        result = self.call(f"{self.kit.model.name}_finish", self._model, self._arrays("output", outputs))
        return result, outputs

    def run(self, inputs: Mapping[str, NDArray]) -> tuple[str, dict[str, NDArray]]:
        """`NAME_run`, and the outputs."""
        kept = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
        outputs = self._outputs()
        arrays = self._arrays("input", kept), self._arrays("output", outputs)
        return self.call(f"{self.kit.model.name}_run", self._model, *arrays), outputs

    def _outputs(self) -> dict[str, NDArray]:
        return {port.name: np.full(port.shape, 77).astype(port.dtype) for port in self.kit.model.boundary.outputs}

    def counter(self, offset: int) -> int:
        """`npu_counter`."""
        function = self._library.npu_counter
        function.restype = ctypes.c_uint64
        return function(ctypes.byref(self.npu), ctypes.c_uint32(offset))
