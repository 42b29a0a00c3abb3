"""What a device is: memory, registers, a start, and a wait with a deadline; one user at a time, in one process."""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Instruction
from npukit.isa.registers import COUNTERS, ControlBit, ErrorCause, StatusBit, address_of
from numpy.typing import NDArray

__all__ = [
    "Batched",
    "Device",
    "DeviceError",
    "Observable",
    "SharedDevice",
    "Traced",
    "exclusively",
    "read_counters",
    "read_wide",
    "reset_core",
    "write_wide",
]


class DeviceError(RuntimeError):
    """A device that stopped with an error, missed its deadline, or does not fit the program."""


class Device(Protocol):
    """An accelerator and its memory, wherever they are. Addresses and sizes are bytes.

    Threads and sessions may share a device. Each call is atomic. Calls that belong together, from the first write of a
    program's image to the last read of its results, are made within `with device.exclusive():`; the other threads'
    calls wait meanwhile. Memory and registers belong to nobody in between: who takes the device resets it and writes
    the whole image again, as `Executor` does for each run. (A device behind a slow link may leave out the bytes that
    it knows to lie there.) A device stays in the process that made it. `SharedDevice` is all of that.
    """

    @property
    def config(self) -> NpuConfig:
        """The accelerator's configuration."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        ...

    def exclusive(self) -> AbstractContextManager[object]:
        """Have the device alone until the block ends; within it again is allowed.

        Raises:
            DeviceError: in another process than the one that made the device.
        """
        ...

    def reset(self) -> None:
        """End whatever runs, and clear registers and errors; memory keeps what it holds."""
        ...

    def read_memory(self, address: int, size: int) -> NDArray[np.uint8]:
        """A copy of `size` bytes."""
        ...

    def write_memory(self, address: int, data: NDArray[np.uint8]) -> None:
        """Write bytes."""
        ...

    def read_register(self, offset: int) -> int:
        """A 32-bit register."""
        ...

    def write_register(self, offset: int, value: int) -> None:
        """Write a 32-bit register; the write of CONTROL's start bit starts the program."""
        ...

    def wait(self, deadline: float) -> None:
        """Return when the accelerator is no longer busy.

        Raises:
            DeviceError: after `deadline` seconds.
        """
        ...


class SharedDevice:
    """What every device does so that it can be shared: one user at a time, in the process that made it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def _inherited(self) -> bool:
        """Whether this process is a fork of the one that made the device."""
        return os.getpid() != self._process

    def exclusive(self) -> AbstractContextManager[object]:
        """Have the device alone until the block ends; see `Device`."""
        if self._inherited:  # the lock may be held, for ever, by a thread that only the other process has
            raise DeviceError(
                f"the device was made in process {self._process} and does not work in its fork {os.getpid()}: "
                "make the device, or the Session, in the process that uses it"
            )
        return self._lock  # itself: an interrupt finds no moment at which it is taken and nobody gives it back

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: it is one machine, in one process; make another one "
            "from its configuration"
        )


_Self = TypeVar("_Self", bound=SharedDevice)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def exclusively(
    method: Callable[Concatenate[_Self, _Parameters], _Result],
) -> Callable[Concatenate[_Self, _Parameters], _Result]:
    """A device's method that has the device alone while it runs."""

    @functools.wraps(method)
    def alone(self: _Self, *arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        with self.exclusive():
            return method(self, *arguments, **options)

    return alone


@runtime_checkable
class Traced(Protocol):
    """A device that knows when each instruction of its latest run was queued, issued, started and ended."""

    def instruction_cycles(self, instructions: Sequence[Instruction]) -> dict[str, NDArray[np.int64]]:
        """int64[instructions] for each of queue, issue, start and end, in program order."""
        ...


@runtime_checkable
class Observable(Protocol):
    """A device that can show what each VECTOR instruction writes."""

    observer: Callable[[int, Instruction, Callable[[], NDArray]], None] | None
    """Called after each VECTOR instruction with its number, itself, and a way to read its result."""


@runtime_checkable
class Batched(Protocol):
    """A device behind a slow link, which reads registers that follow each other in one request."""

    def read_registers(self, offset: int, count: int) -> list[int]:
        """So many 32-bit registers from `offset` on."""
        ...


def reset_core(device: Device, deadline: float = 60.0) -> None:
    """Reset the accelerator through its register, and wait until the bursts of what it was doing have ended.

    Raises:
        DeviceError: after `deadline` seconds.
    """
    device.write_register(address_of("CONTROL"), 1 << ControlBit.RESET)
    device.wait(deadline)
    end = monotonic() + deadline
    while device.read_register(address_of("STATUS")) >> StatusBit.BUSY & 1:
        if monotonic() > end:
            raise DeviceError(f"the core does not end its bursts, and cannot be reset, within {deadline:g} s")


def read_wide(device: Device, name: str) -> int:
    """A 64-bit quantity from its two registers."""
    low = device.read_register(address_of(f"{name}_LOW"))
    return low | device.read_register(address_of(f"{name}_HIGH")) << 32


def write_wide(device: Device, name: str, value: int) -> None:
    """Write a 64-bit quantity to its two registers."""
    device.write_register(address_of(f"{name}_LOW"), value & 0xFFFFFFFF)
    device.write_register(address_of(f"{name}_HIGH"), value >> 32)


def read_counters(device: Device) -> dict[str, int]:
    """All performance counters by name."""
    if isinstance(device, Batched):
        words = device.read_registers(address_of(f"{COUNTERS[0][0].upper()}_LOW"), 2 * len(COUNTERS))
        return {name: low | high << 32 for (name, _), low, high in zip(COUNTERS, words[::2], words[1::2], strict=True)}
    return {name: read_wide(device, name.upper()) for name, _ in COUNTERS}


def error_text(device: Device) -> str | None:
    """What ERROR says, or None."""
    bits = device.read_register(address_of("ERROR"))
    if not bits:
        return None
    index = device.read_register(address_of("ERROR_INDEX"))
    causes = "; ".join(cause.doc for cause in ErrorCause if bits >> cause & 1)
    return f"instruction {index}: {causes}"
