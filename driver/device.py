"""What a device is: memory, registers, a start, and a wait with a deadline."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol, runtime_checkable

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Instruction
from npukit.isa.registers import COUNTERS, ERRORS, ControlBit, ErrorCause, StatusBit, address_of
from numpy.typing import NDArray

__all__ = [
    "ALIGNMENT",
    "Device",
    "DeviceError",
    "Observable",
    "Traced",
    "read_counters",
    "read_wide",
    "reset_core",
    "write_wide",
]

ALIGNMENT = 4096
"""Programs and bases lie at multiples of this, so that relocation changes no cycle."""


class DeviceError(RuntimeError):
    """A device that stopped with an error, missed its deadline, or does not fit the program."""


class Device(Protocol):
    """An accelerator and its memory, wherever they are. Addresses and sizes are bytes."""

    @property
    def config(self) -> NpuConfig:
        """The accelerator's configuration."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
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
    return {name: read_wide(device, name.upper()) for name, _ in COUNTERS}


def error_text(device: Device) -> str | None:
    """What ERROR says, or None."""
    bits = device.read_register(address_of("ERROR"))
    if not bits:
        return None
    index = device.read_register(address_of("ERROR_INDEX"))
    causes = "; ".join(ERRORS[cause] for cause in ErrorCause if bits >> cause & 1)
    return f"instruction {index}: {causes}"
