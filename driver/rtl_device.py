"""The hardware itself as a device: the Verilated core, in front of the reference DRAM."""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from npukit.driver.device import DeviceError, SharedDevice, exclusively
from npukit.driver.rtl_build import ToolError, build_library, check_tools
from npukit.driver.surroundings import CHANNELS, Surroundings
from npukit.hw.verilog import core_verilog
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Engine, Instruction
from npukit.isa.place import ALIGNMENT
from npukit.sim.dram import AnyDram, DramModel
from numpy.typing import NDArray

from npukit.files import is_stream, partial_name, put_in_place

__all__ = ["EVENTS", "EngineTrace", "RtlDevice", "ToolError"]

EVENTS = ("queue", "issue", "start", "end")
"""Events of an instruction, in the order in which the harness counts them."""
_CHUNK = 20_000
"""Cycles between two looks at the clock."""


@dataclass(frozen=True)
class EngineTrace:
    """Cycles, int64 and counted from cycle 0, in which an engine's instructions did what the name says.

    Instructions are in the engine's order, which is program order; so entry i of each is the same one.
    """

    queue: NDArray[np.int64]
    issue: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def _to_stderr(text: str) -> None:
    print(f"npukit: {text}", file=sys.stderr, flush=True)


def _bind(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:  # on a file system that runs no programs, for instance
        raise ToolError(f"the core's model cannot be loaded: {error}") from None
    handle, integer, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    signatures: dict[str, tuple[type | None, list]] = {
        "npu_create": (handle, []),
        "npu_destroy": (None, [handle]),
        "npu_reset": (None, [handle]),
        "npu_set_dram": (None, [handle, ctypes.c_uint64, integer, integer, handle, ctypes.c_uint64]),
        "npu_set_origin": (None, [handle, ctypes.c_uint64]),
        "npu_surround": (None, [handle, ctypes.c_uint64, integer, integer, ctypes.c_uint64, integer]),
        "npu_write_register": (integer, [handle, ctypes.c_uint32, ctypes.c_uint32]),
        "npu_read_register": (integer, [handle, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32)]),
        "npu_run": (long, [handle, long]),
        "npu_running": (integer, [handle]),
        "npu_interrupt": (integer, [handle]),
        "npu_cycles": (long, [handle]),
        "npu_last_activity": (long, [handle]),
        "npu_trace": (long, [handle, integer, integer, ctypes.POINTER(ctypes.POINTER(long))]),
        "npu_violation": (ctypes.c_char_p, [handle]),
        "npu_clear_violation": (None, [handle]),
        "npu_open_vcd": (integer, [handle, ctypes.c_char_p, long, long]),
        "npu_flush_vcd": (None, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class RtlDevice(SharedDevice):
    """The core of the given configuration, simulated by Verilator, in front of the reference DRAM.

    The model is built when the device is made, once for each configuration and state of the hardware,
    which takes from seconds to minutes. `close` frees it; so does a `with` block, or the end of the object.

    Attributes:
        memory: all bytes of memory, which the model reads and writes itself.
        max_cycles: if not None, a run of more cycles than that is an error.
    """

    _handle: int | None = None  # here, for `close` after an `__init__` that failed
    _waveform: tuple[Path, Path] | None = None
    """Where the waveform is written, and where it belongs, until it is there."""
    _ran = False

    def __init__(
        self,
        config: NpuConfig,
        dram: DramModel | None = None,
        memory_bytes: int = 1 << 30,
        vcd: str | os.PathLike[str] | None = None,
        vcd_cycles: tuple[int, int] | None = None,
        *,
        verilog: str | None = None,
        optimise: bool = True,
        sanitize: bool = False,
        surroundings: Surroundings | None = None,
        max_cycles: int | None = None,
        progress: Callable[[str], None] = _to_stderr,
    ) -> None:
        """Build, load and reset the core.

        Args:
            config: its configuration.
            dram: latency and bursts in flight.
            memory_bytes: a multiple of 4096; they take host memory only once they are used.
            vcd: file for waveforms, 10 time units to a cycle. A file that is there is replaced when a run has ended, or
                when the device is closed after a part of one; without a run it stays. A pipe or a device is written to.
            vcd_cycles: first and last cycle of each run to write; then time 0 is cycle 0 of the first
                run, and each further one follows the last. Default: everything from the reset on.
            verilog: module `npu` to use in place of the core.
            optimise: compile the model for speed; without, it is built in less time and runs slower.
            sanitize: check addresses and undefined behaviour in C++; the process must have preloaded the libraries.
            surroundings: a bus that does at random what the reference DRAM does not.
            max_cycles: see the class.
            progress: gets a line of text when something takes long; default: stderr.

        Raises:
            ToolError: when a tool that is needed is missing or fails.
            ValueError: when `memory_bytes` or `vcd_cycles` is not what it must be.
        """
        if memory_bytes <= 0 or memory_bytes % ALIGNMENT:
            raise ValueError(f"memory_bytes must be a multiple of {ALIGNMENT}, not {memory_bytes}")
        if vcd_cycles is not None and not 0 <= vcd_cycles[0] <= vcd_cycles[1]:
            raise ValueError(f"vcd_cycles must be a first and a last cycle, not {vcd_cycles}")
        super().__init__()
        self._config = config
        self.max_cycles = max_cycles
        check_tools()
        text = core_verilog(config) if verilog is None else verilog
        settings = {"trace": vcd is not None, "optimise": optimise, "sanitize": sanitize}
        self._library = _bind(build_library(config, text, **settings, progress=progress))
        self.memory: NDArray[np.uint8] = np.zeros(memory_bytes, np.uint8)
        self._handle = self._library.npu_create()
        self._surroundings = surroundings
        self.set_dram(dram or DramModel())
        self.surround(surroundings)
        if vcd is not None:
            self._open_waveform(Path(vcd), *(vcd_cycles or (0, -1)))
        self.reset()

    def __enter__(self) -> "RtlDevice":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _open_waveform(self, path: Path, first: int, last: int) -> None:
        """Begin a waveform beside its file: until there is something to see, what is there is worth more."""
        place = None
        try:
            if not is_stream(path):
                place = Path(os.path.realpath(path))
                if place.is_dir() or (place.exists() and not os.access(place, os.W_OK)):
                    raise DeviceError(f"cannot write waveforms to {path}: it is a folder, or may not be changed")
        except OSError as error:
            raise DeviceError(f"cannot write waveforms to {path}: {error.strerror or error}") from None
        written = path if place is None else partial_name(place)
        if place is not None:
            self._waveform = written, place  # before it is there, so that an interrupt cannot leave it
        if not self._library.npu_open_vcd(self._model, os.fsencode(written), first, last):
            raise DeviceError(f"cannot write waveforms to {path}")

    def _place_waveform(self) -> None:
        """Put the waveform where it belongs, if a program has run."""
        if self._ran and self._waveform is not None:
            (written, place), self._waveform = self._waveform, None
            put_in_place(written, place)

    def close(self) -> None:
        """Free the model and finish the waveform file, once no other thread uses it; the device is of no use then.

        Raises:
            OutputError: when the waveform cannot be put where it belongs.
        """
        if self._handle is None or self._inherited:  # a fork would write to the waveform file, which it shares
            return
        with self.exclusive():
            handle, self._handle = self._handle, None
            if handle is not None:
                self._library.npu_destroy(handle)
                self._place_waveform()
                if self._waveform is not None:
                    with suppress(OSError):
                        self._waveform[0].unlink()

    @property
    def _model(self) -> int:
        if self._handle is None:
            raise DeviceError("the device is closed")
        return self._handle

    @property
    def config(self) -> NpuConfig:
        """The core's configuration."""
        return self._config

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        return self.memory.size

    @property
    def dram(self) -> AnyDram:
        """The memory behind the core."""
        return self._dram

    @exclusively
    def set_dram(self, dram: AnyDram) -> None:
        """Another latency and other limits from now on; not while the core runs.

        Raises:
            ValueError: an SDRAM, whose controller is hardware of its own.
        """
        if not isinstance(dram, DramModel):
            raise ValueError("this device has the reference DRAM alone")
        self._dram = dram
        around = self._surroundings
        limits = (
            (dram.read_bursts, dram.write_bursts) if around is None or around.bursts is None else [around.bursts] * 2
        )
        self._library.npu_set_dram(
            self._model, dram.latency, *limits, self.memory.ctypes.data, self.memory.size
        )  # fmt: skip

    @exclusively
    def set_origin(self, origin: int) -> None:
        """Put the memory's first byte at that address of the bus; not while the core runs. It begins at 0.

        The registers PROGRAM and BASE hold addresses of the bus; `read_memory` and `write_memory` count from the
        origin.

        Raises:
            ValueError: no multiple of 4096, or memory past the last address.
        """
        if origin % ALIGNMENT or not 0 <= origin <= (1 << 64) - self.memory.size:
            raise ValueError(
                f"the origin must be a multiple of {ALIGNMENT} with room for {self.memory.size} bytes, not {origin}"
            )
        self._library.npu_set_origin(self._model, origin)

    @exclusively
    def surround(self, surroundings: Surroundings | None) -> None:
        """Another bus around the core from now on, or, for None, none that does anything at random."""
        self._surroundings = surroundings
        around = surroundings or Surroundings(seed=0)
        self._library.npu_surround(
            self._model, around.seed & (1 << 64) - 1, around.stall_percent,
            sum(1 << CHANNELS.index(name) for name in {*around.stalled}), around.spread, around.errors_per_mille,
        )  # fmt: skip
        self.set_dram(self._dram)

    @exclusively
    def reset(self) -> None:
        """Pull the reset pin; memory keeps what it holds."""
        self._library.npu_reset(self._model)
        self._library.npu_clear_violation(self._model)

    def _span(self, address: int, size: int) -> NDArray[np.uint8]:
        if address < 0 or size < 0 or address + size > self.memory.size:
            raise DeviceError(
                f"bytes {address} to {address + size} are outside of the device's {self.memory.size} bytes"
            )
        return self.memory[address : address + size]

    @exclusively
    def read_memory(self, address: int, size: int) -> NDArray[np.uint8]:
        """A copy of `size` bytes."""
        return self._span(address, size).copy()

    @exclusively
    def write_memory(self, address: int, data: NDArray[np.uint8]) -> None:
        """Write bytes."""
        self._span(address, data.size)[:] = data

    @exclusively
    def read_register(self, offset: int) -> int:
        """A 32-bit register, read through the core's register bus.

        Raises:
            DeviceError: when there is none.
        """
        value = ctypes.c_uint32()
        self._check_offset(offset)
        self._check_response(self._library.npu_read_register(self._model, offset, ctypes.byref(value)), offset)
        return value.value

    @exclusively
    def write_register(self, offset: int, value: int) -> None:
        """Write a 32-bit register through the core's register bus.

        Raises:
            DeviceError: when there is none, or the value has more than 32 bits.
        """
        self._check_offset(offset)
        if not 0 <= value < 1 << 32:
            raise DeviceError(f"a register holds 32 bits, not {value}")
        self._check_response(self._library.npu_write_register(self._model, offset, value), offset)

    @staticmethod
    def _check_offset(offset: int) -> None:
        if not 0 <= offset < 4096 or offset % 4:
            raise DeviceError(f"there is no register at offset {offset:#x}")

    def _check_response(self, response: int, offset: int) -> None:
        if response < 0:
            raise DeviceError(f"the core's register bus does not answer at offset {offset:#x}")
        self._check_protocol()
        if response != 0:
            raise DeviceError(
                f"there is no register at offset {offset:#x}, or the core is busy and takes none but a reset"
            )

    def _check_protocol(self) -> None:
        if self.violation is not None:
            raise DeviceError(f"the core broke a rule of its buses: {self.violation}")

    @exclusively
    def wait(self, deadline: float) -> None:
        """Step the core until it is done.

        Raises:
            DeviceError: after `deadline` seconds or `max_cycles` cycles, or when the core breaks a
                rule of its buses.
        """
        end = time.monotonic() + deadline
        try:
            while self.running:
                left = _CHUNK if self.max_cycles is None else min(_CHUNK, self.max_cycles - self.cycles)
                if left <= 0:
                    raise DeviceError(f"the core is still busy after {self.cycles} cycles; {self._last()}")
                self._ran = True
                self._library.npu_run(self._model, left)
                self._check_protocol()
                if time.monotonic() > end and self.running:
                    raise DeviceError(
                        f"the core is still busy after {deadline:g} s, in cycle {self.cycles}; {self._last()}"
                    )
        finally:
            self._library.npu_flush_vcd(self._model)
            self._place_waveform()
        self._check_protocol()

    @exclusively
    def step(self, cycles: int) -> None:
        """Step the core for at most so many cycles, as long as a program runs.

        Raises:
            DeviceError: when the core breaks a rule of its buses.
        """
        self._ran = True
        self._library.npu_run(self._model, cycles)
        self._check_protocol()

    def _last(self) -> str:
        return f"the last event or bus transfer was in cycle {self._library.npu_last_activity(self._model)}"

    @property
    @exclusively
    def running(self) -> bool:
        """Whether a program runs."""
        return bool(self._library.npu_running(self._model))

    @property
    @exclusively
    def interrupt(self) -> bool:
        """The level of the interrupt line."""
        return bool(self._library.npu_interrupt(self._model))

    @property
    @exclusively
    def cycles(self) -> int:
        """Cycles of the latest run so far; once it is done, what the counter `cycles` has to say."""
        return self._library.npu_cycles(self._model)

    @property
    @exclusively
    def violation(self) -> str | None:
        """The first thing that the core did against the rules of its buses since the reset, or None."""
        return self._library.npu_violation(self._model).decode() or None

    @exclusively
    def traces(self) -> dict[Engine, EngineTrace]:
        """What each engine's instructions did when, in the latest run."""
        return {
            engine: EngineTrace(*(self._trace(engine, event) for event in range(len(EVENTS)))) for engine in ENGINES
        }

    def _trace(self, engine: Engine, event: int) -> NDArray[np.int64]:
        cycles = ctypes.POINTER(ctypes.c_int64)()
        count = self._library.npu_trace(self._model, int(engine), event, ctypes.byref(cycles))
        if count == 0:
            return np.zeros(0, np.int64)
        return np.ctypeslib.as_array(cycles, (count,)).copy()

    @exclusively
    def instruction_cycles(self, instructions: Sequence[Instruction]) -> dict[str, NDArray[np.int64]]:
        """The latest run's events in program order, under the names of `npukit.sim.timing.Schedule`.

        int64[instructions] for each of queue, issue, start and end; -1 where an event did not happen.
        END's are the last cycle.
        """
        traces = self.traces()
        result = {event: np.full(len(instructions), -1, np.int64) for event in EVENTS}
        for engine in (*ENGINES, None):
            places = [index for index, one in enumerate(instructions) if one.engine == engine]
            for event in EVENTS:
                if engine is None:
                    result[event][places] = self.cycles - 1
                else:
                    seen = getattr(traces[engine], event)[: len(places)]
                    result[event][places[: len(seen)]] = seen
        return result
