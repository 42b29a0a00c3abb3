"""The simulated device: registers and memory of a machine whose insides are `npukit.sim`."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from npukit.driver.device import DeviceError, SharedDevice, exclusively
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import (
    ENGINES,
    INSTRUCTION_BITS,
    Instruction,
    InstructionError,
    Load,
    Store,
    Vector,
    decode,
)
from npukit.isa.legality import illegal_mode
from npukit.isa.place import ALIGNMENT
from npukit.isa.registers import COUNTERS, REGISTERS, ControlBit, ErrorCause, InterruptBit, StatusBit, address_of
from npukit.isa.timing import TOKEN_LIMIT
from npukit.sim.addressing import dram_operand, operands
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.functional import FunctionalError, FunctionalSimulator
from npukit.sim.timing import Deadlock, Schedule, simulate_timing
from numpy.typing import NDArray

__all__ = ["SimDevice", "token_overflow"]

_BYTES = INSTRUCTION_BITS // 8
_DONE, _ERROR = 1 << StatusBit.DONE, 1 << StatusBit.ERROR


class SimDevice(SharedDevice):
    """A machine of the given configuration in front of a DRAM, by default the reference one.

    A program with one error ends with the hardware's cause and instruction. Of several errors it reports the first
    in program order, those of FETCH (illegal instruction, END) before all others, where the hardware reports the
    first in time. A program that never ends raises `DeviceError` when it is started, where the hardware
    runs into the deadline. What memory and counters hold after an error is not specified.

    Attributes:
        observer: see `Observable`.
        compute: False leaves out the functional half, so that only timing and counters are right.
    """

    def __init__(
        self,
        config: NpuConfig,
        dram: AnyDram | None = None,
        memory_bytes: int = 1 << 32,
        compute: bool = True,
    ) -> None:
        super().__init__()
        self._config = config
        self._dram: AnyDram = dram or DramModel()
        self._dram.check(config)
        self._memory_bytes = memory_bytes
        self._memory = np.zeros(0, np.uint8)
        self._registers: dict[int, int] = {}
        self._decoded: dict[bytes, tuple[Instruction, ...]] = {}
        self._schedules: dict[tuple[bytes, AnyDram], Schedule] = {}
        self._latest: Schedule | None = None
        self.compute = compute
        self.observer: Callable[[int, Instruction, Callable[[], NDArray]], None] | None = None
        self.reset()

    @property
    def config(self) -> NpuConfig:
        """The machine's configuration."""
        return self._config

    @property
    def dram(self) -> AnyDram:
        """What the memory's times are."""
        return self._dram

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory; they take host memory only once they are used."""
        return self._memory_bytes

    @exclusively
    def reset(self) -> None:
        """Clear registers and errors; memory keeps what it holds."""
        self._registers = {register.offset: register.reset for register in REGISTERS}
        self._put("CONFIG_HASH", self._config.hash)

    def _put(self, name: str, value: int) -> None:
        self._registers[address_of(f"{name}_LOW")] = value & 0xFFFFFFFF
        self._registers[address_of(f"{name}_HIGH")] = value >> 32

    def _get(self, name: str) -> int:
        return self._registers[address_of(f"{name}_LOW")] | self._registers[address_of(f"{name}_HIGH")] << 32

    def _span(self, address: int, size: int) -> NDArray[np.uint8]:
        if address < 0 or address + size > self._memory_bytes:
            raise DeviceError(
                f"bytes {address} to {address + size} are outside of the device's {self._memory_bytes} bytes"
            )
        if address + size > self._memory.size:
            grown = np.zeros(max(address + size, 2 * self._memory.size), np.uint8)
            grown[: self._memory.size] = self._memory
            self._memory = grown
        return self._memory[address : address + size]

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
        """A 32-bit register.

        Raises:
            DeviceError: when there is none.
        """
        if offset not in self._registers:
            raise DeviceError(f"there is no register at offset {offset:#x}")
        return self._registers[offset]

    @exclusively
    def write_register(self, offset: int, value: int) -> None:
        """Write a register; read-only ones keep their value, as in the hardware."""
        register = next((one for one in REGISTERS if one.offset == offset), None)
        if register is None or not 0 <= value < 1 << 32:
            raise DeviceError(f"there is no register at offset {offset:#x} for the value {value}")
        if register.name == "CONTROL":
            if value >> ControlBit.RESET & 1:
                self.reset()
            elif value >> ControlBit.START & 1:
                self._run()
        elif register.access in ("rw", "w1c"):
            self._registers[offset] = register.written(self._registers[offset], value)

    def wait(self, deadline: float) -> None:
        """Return at once: a program runs to its end when it is started."""

    def _fail(self, cause: ErrorCause, index: int) -> None:
        self._registers[address_of("ERROR")] |= 1 << cause
        self._registers[address_of("ERROR_INDEX")] = index
        self._registers[address_of("STATUS")] = _DONE | _ERROR
        self._interrupt(InterruptBit.DONE, InterruptBit.ERROR)

    def _interrupt(self, *events: InterruptBit) -> None:
        self._registers[address_of("INTERRUPT_STATUS")] |= sum(1 << event for event in events)

    def _program(self, code: bytes) -> tuple[Instruction, ...] | None:
        if code not in self._decoded:
            instructions = []
            for index in range(len(code) // _BYTES):
                try:
                    instruction = decode(code[index * _BYTES : (index + 1) * _BYTES])
                except InstructionError:
                    instruction = None
                if instruction is None or illegal_mode(self._config, instruction) is not None:
                    self._fail(ErrorCause.ILLEGAL_INSTRUCTION, index)
                    return None
                instructions.append(instruction)
            self._decoded[code] = tuple(instructions)
        return self._decoded[code]

    def _run(self) -> None:
        if self._registers[address_of("ERROR")]:
            return
        self._registers[address_of("STATUS")] = 0
        if self._get("PROGRAM_HASH") != self._config.hash:
            self._fail(ErrorCause.CONFIGURATION, 0)
            return
        length = self._registers[address_of("PROGRAM_LENGTH")]
        base, limit = self._get("BASE"), self._get("LIMIT")
        if self._get("PROGRAM") % ALIGNMENT or base % ALIGNMENT:
            self._fail(ErrorCause.DRAM_ADDRESS, 0)
            return
        there = max(0, self._memory_bytes - self._get("PROGRAM")) // _BYTES
        if length > there:
            self._fail(ErrorCause.READ_RESPONSE, there)
            return
        code = self._span(self._get("PROGRAM"), length * _BYTES).tobytes()
        instructions = self._program(code)
        if instructions is None:
            return
        end = next((index for index, one in enumerate(instructions) if one.engine is None), None)
        if end != length - 1:
            self._fail(ErrorCause.MISSING_END, max(0, length - 1) if end is None else end)
            return
        if self.compute and not self._execute(instructions, base, limit):
            return
        try:
            dram = self._dram.at(self._get("PROGRAM"), base)
            if (code, dram) not in self._schedules:
                self._schedules[code, dram] = simulate_timing(self._config, instructions, dram)
        except Deadlock as error:
            raise DeviceError(f"the program never ends: {error}") from None
        self._latest = self._schedules[code, dram]
        overflow = token_overflow(instructions, self._latest)
        if overflow is not None:
            self._fail(ErrorCause.TOKEN_OVERFLOW, overflow)
            return
        for name, _ in COUNTERS:
            self._put(name.upper(), self._latest.counters[name])
        self._registers[address_of("STATUS")] = _DONE
        self._interrupt(InterruptBit.DONE)

    @property
    @exclusively
    def interrupt(self) -> bool:
        """The level of the interrupt line."""
        registers = self._registers
        return bool(registers[address_of("INTERRUPT_STATUS")] & registers[address_of("INTERRUPT_ENABLE")])

    @exclusively
    def instruction_cycles(self, instructions: Sequence[Instruction]) -> dict[str, NDArray[np.int64]]:
        """The latest run's events in program order; see `Traced`."""
        assert self._latest is not None and len(self._latest.end) == len(instructions)
        return {name: getattr(self._latest, name) for name in ("queue", "issue", "start", "end")}

    def _execute(self, instructions: tuple[Instruction, ...], base: int, limit: int) -> bool:
        there = max(0, min(limit, self._memory_bytes - base))
        machine = FunctionalSimulator(self._config, self._span(base, there) if there else np.zeros(0, np.uint8))
        for index, instruction in enumerate(instructions):
            try:
                machine.execute(instruction)
            except FunctionalError as error:
                self._fail(self._cause(instruction, error, limit), index)
                return False
            if self.observer is not None and isinstance(instruction, Vector):
                out = operands(self._config, instruction)[-1]
                self.observer(index, instruction, lambda out=out: machine.read(out).copy())
        return True

    def _cause(self, instruction: Instruction, error: FunctionalError, limit: int) -> ErrorCause:
        """Which error an operand outside of its memory is: DRAM ends at the limit, or before it at the bus."""
        if not isinstance(instruction, Load | Store) or "DRAM" not in str(error):
            return ErrorCause.ON_CHIP_ADDRESS
        low, high = dram_operand(self._config, instruction).extent
        if low < 0 or (high + 1) * self._config.word_bytes > limit:
            return ErrorCause.DRAM_ADDRESS
        return ErrorCause.READ_RESPONSE if isinstance(instruction, Load) else ErrorCause.WRITE_RESPONSE


def token_overflow(instructions: Sequence[Instruction], schedule: Schedule) -> int | None:
    """The instruction whose end takes a token counter past its limit first, or None."""
    overflows = []
    for source, target in itertools.permutations(ENGINES, 2):
        giving = [i for i, one in enumerate(instructions) if one.engine is source and one.signal >> target & 1]
        if len(giving) <= TOKEN_LIMIT:
            continue
        taking = [i for i, one in enumerate(instructions) if one.engine is target and one.wait >> source & 1]
        ends, taken = np.sort(schedule.end[giving]), np.sort(schedule.issue[taking])
        # a token that is taken in the cycle of the end makes room for the one that it gives
        held = np.arange(1, len(ends) + 1) - np.searchsorted(taken, ends, side="right")
        over = np.nonzero(held > TOKEN_LIMIT)[0]
        if len(over):
            overflows.append((int(ends[over[0]]), giving[int(over[0])]))
    return min(overflows)[1] if overflows else None
