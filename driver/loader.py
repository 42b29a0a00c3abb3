"""One program on one device: constants and code written once, inputs and outputs at each run."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from npukit.driver.device import Device, DeviceError, Traced, error_text, read_counters, write_wide
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.isa.place import Place
from npukit.isa.program import Program, TensorInfo
from npukit.isa.registers import ControlBit, address_of
from npukit.sim.bfloat16 import narrow, widen
from npukit.sim.validator import refuse, validate_program
from numpy.typing import NDArray

__all__ = ["LoadedProgram", "RunRecord", "from_machine"]


@dataclass(frozen=True)
class RunRecord:
    """One run: the counters, the host's seconds by what they went to, and each instruction's end, if known."""

    counters: dict[str, int]
    seconds_device: float
    seconds_host: float
    events: dict[str, NDArray[np.int64]] | None = None


class LoadedProgram:
    """A program in a device's memory from `address` (a multiple of 4096) to `end`.

    The validator examines it first, and holds it to `limits`; None is for what the compiler has made in this process,
    which has been validated.

    It is written there when the object is made, and `run` runs what lies there. Where somebody else may have written
    to that memory since, who runs it has the device alone and calls `load` first, as `Executor` does.

    Raises:
        DeviceError: when the program is for another configuration, or does not fit.
        ValidationError: when it breaks the machine's rules, or takes more cycles than the limit.
        ValueError: when the address is not a multiple of 4096.
    """

    def __init__(self, device: Device, program: Program, address: int, limits: Limits | None = DEFAULT_LIMITS) -> None:
        if program.config.hash != device.config.hash:
            fields = "; ".join(program.config.difference(device.config))
            raise DeviceError(
                f"the program is compiled for another configuration (program, device: {fields}); compile it again"
            )
        place = Place.of(program, address)
        if limits is not None:
            refuse(validate_program(program, limits))
        self.device = device
        self.program = program
        self.base, self.limit, self.code_address, self.end = place.base, place.limit, place.code_address, place.end
        if place.end > device.memory_bytes:
            raise DeviceError(
                f"the program needs {place.end - address} bytes of device memory from {address}; "
                f"the device has {device.memory_bytes}"
            )
        self.load()

    def load(self) -> None:
        """Write the program's constants and code to memory."""
        with self.device.exclusive():
            constants = self.program.constants.ljust(self.program.constant_bytes, b"\0")
            self.device.write_memory(self.base, np.frombuffer(constants, np.uint8))
            self.device.write_memory(self.code_address, np.frombuffer(self.program.code, np.uint8))

    def run(self, inputs: Mapping[str, NDArray], deadline: float = 3600.0) -> tuple[dict[str, NDArray], RunRecord]:
        """Run once on {name: array} and return {name: array} of the program's outputs.

        Raises:
            DeviceError: an error that the device reports, or the deadline in seconds.
        """
        with self.device.exclusive():
            start = perf_counter()
            for tensor in self.program.tensors:
                if tensor.role == "input":
                    self.device.write_memory(self.base + tensor.address, _to_device(tensor, inputs[tensor.name]))
            write_wide(self.device, "PROGRAM_HASH", self.program.config.hash)
            write_wide(self.device, "PROGRAM", self.code_address)
            self.device.write_register(address_of("PROGRAM_LENGTH"), len(self.program.instructions))
            write_wide(self.device, "BASE", self.base)
            write_wide(self.device, "LIMIT", self.limit)
            launched = perf_counter()
            self.device.write_register(address_of("CONTROL"), 1 << ControlBit.START)
            self.device.wait(deadline)
            finished = perf_counter()
            problem = error_text(self.device)
            if problem is not None:
                raise DeviceError(f"{self.program.name} stopped at {problem}")
            outputs = {tensor.name: self._output(tensor) for tensor in self.program.tensors if tensor.role == "output"}
            counters = read_counters(self.device)
            events = None
            if isinstance(self.device, Traced):
                events = self.device.instruction_cycles(self.program.instructions)
            host = launched - start + perf_counter() - finished
            return outputs, RunRecord(counters, finished - launched, host, events)

    def _output(self, tensor: TensorInfo) -> NDArray:
        element = self.program.config.activation.storage
        raw = self.device.read_memory(self.base + tensor.address, tensor.layout.elements * np.dtype(element).itemsize)
        return from_machine(tensor.layout.from_dram(raw.view(element)), tensor.dtype, tensor.shape)


def from_machine(values: NDArray, dtype: str, shape: tuple[int, ...]) -> NDArray:
    """The framework's tensor: uint8 has its top bit flipped on the machine, fp32 is bfloat16 there, and int32 is four
    bytes along the last axis."""
    if dtype == "float32":
        values = widen(values)
    elif dtype == "uint8":
        values = values.view(np.uint8) ^ 0x80
    elif dtype == "int32":
        values = np.ascontiguousarray(values).view("<i4")
    return values.reshape(shape)


def _to_device(tensor: TensorInfo, values: NDArray) -> NDArray[np.uint8]:
    if tensor.dtype == "float32":
        element = narrow(values)
    else:
        raw = np.ascontiguousarray(values).view(np.uint8)
        element = (raw ^ np.uint8(0x80) if tensor.flip else raw).view(np.int8)
    return tensor.layout.to_dram(element.reshape(tensor.layout.shape)).view(np.uint8)
