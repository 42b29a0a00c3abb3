"""The register map, declared once: hardware, simulated device, driver and `docs/isa.md` read it.

All registers are 32 bits wide; a 64-bit quantity takes two, the low half first.
"""

import enum
from dataclasses import dataclass
from typing import Self

from npukit.isa.instructions import ENGINES, ISA_VERSION

__all__ = [
    "COUNTERS", "REGISTERS", "ControlBit", "ErrorCause", "InterruptBit", "Register", "RegisterBit", "StatusBit",
    "address_of",
]  # fmt: skip


class RegisterBit(enum.IntEnum):
    """A bit of a register: its place, and what it means."""

    doc: str

    def __new__(cls, place: int, doc: str) -> Self:
        """A member from its place and meaning."""
        one = int.__new__(cls, place)
        one._value_, one.doc = place, doc
        return one


class ControlBit(RegisterBit):
    """Bits of CONTROL."""

    START = 0, "start"
    RESET = 1, "reset: end the bursts on the bus, then clear errors and all registers"


class StatusBit(RegisterBit):
    """Bits of STATUS."""

    BUSY = 0, "busy: a program runs, or a reset waits for bursts"
    DONE = 1, "done"
    ERROR = 2, "error"


class InterruptBit(RegisterBit):
    """Bits of INTERRUPT_ENABLE and INTERRUPT_STATUS."""

    DONE = 0, "a program has ended, with or without an error, or was refused"
    ERROR = 1, "an error was raised"


class ErrorCause(RegisterBit):
    """Bits of ERROR. They stick until the core is reset; the first error stops the core."""

    ILLEGAL_INSTRUCTION = 0, "an opcode, field or reserved bit without meaning, or an illegal mode"
    TOKEN_OVERFLOW = 1, "a token counter went past 255"
    ON_CHIP_ADDRESS = 2, "an on-chip operand left its bank"
    DRAM_ADDRESS = 3, "a DRAM address at or past the limit register"
    READ_RESPONSE = 4, "the bus answered a read with an error"
    WRITE_RESPONSE = 5, "the bus answered a write with an error"
    CONFIGURATION = 6, "the program's configuration hash is not this core's"
    MISSING_END = 7, "the program's last instruction is not END"


@dataclass(frozen=True)
class Register:
    """One register: byte offset, access, value after reset, meaning.

    access: `ro`, `rw`, `wo`, or `w1c`: what is written clears the bits that are 1 in it.
    bits: its bits by name, if it has such; the others are 0. while_busy: it can be written while the core is busy.
    """

    name: str
    offset: int
    access: str
    reset: int
    doc: str
    bits: type[RegisterBit] | None = None
    while_busy: bool = False

    @property
    def width(self) -> int:
        """Bits that it holds, from the lowest on."""
        return 32 if self.bits is None else 1 + max(self.bits)

    def written(self, before: int, value: int) -> int:
        """What it holds after a write to a register of access `rw` or `w1c`, 32 bits."""
        value &= (1 << self.width) - 1
        return before & ~value if self.access == "w1c" else value


COUNTERS: tuple[tuple[str, str], ...] = (
    ("cycles", "cycles from start to done"),
    *(
        (f"{engine.name.lower()}_{cause}", f"{engine.name}: {text}")
        for engine in ENGINES
        for cause, text in (
            ("busy", "cycles with an instruction between start and end"),
            ("token", "cycles in which the next instruction waited for a token, or to drain"),
            ("port", "cycles in which the next instruction waited for a port"),
            ("dram", "LOAD: cycles without a beat that it needs; STORE: busy cycles without a beat; else 0"),
        )
    ),
    ("fetch_stall", "cycles in which FETCH could not hand on an instruction because its queue was full"),
    ("read_beats", "beats read from DRAM, instructions included"),
    ("write_beats", "beats written to DRAM"),
)
"""Performance counters, 64 bits each, in the order of their registers."""


def _bits(of: type[RegisterBit]) -> str:
    return "; ".join(f"bit {bit.value}: {bit.doc}" for bit in of)


def _declare() -> tuple[Register, ...]:
    interrupts = _bits(InterruptBit)
    registers: list[Register] = []

    def add(name: str, access: str, reset: int, doc: str, bits: type[RegisterBit] | None = None, *,
            while_busy: bool = False) -> None:  # fmt: skip
        registers.append(Register(name, 4 * len(registers), access, reset, doc, bits, while_busy))

    add("IDENTITY", "ro", 0x4E50554B, "ASCII `NPUK`")
    add("VERSION", "ro", ISA_VERSION, "version of instruction set and register map")
    add("CONFIG_HASH_LOW", "ro", 0, "hash of the core's configuration")
    add("CONFIG_HASH_HIGH", "ro", 0, "high half")
    add("CONTROL", "wo", 0, _bits(ControlBit), ControlBit)
    add("STATUS", "ro", 0, _bits(StatusBit), StatusBit)
    add("ERROR", "ro", 0, "sticky causes, see the table of errors", ErrorCause)
    add("ERROR_INDEX", "ro", 0, "number of the instruction that raised the first error")
    add("PROGRAM_HASH_LOW", "rw", 0, "configuration hash for which the program was compiled")
    add("PROGRAM_HASH_HIGH", "rw", 0, "high half")
    add("PROGRAM_LOW", "rw", 0, "byte address of the program, a multiple of 4096")
    add("PROGRAM_HIGH", "rw", 0, "high half")
    add("PROGRAM_LENGTH", "rw", 0, "instructions in the program, END included")
    add("BASE_LOW", "rw", 0, "byte address that DRAM operands are relative to, a multiple of 4096")
    add("BASE_HIGH", "rw", 0, "high half")
    add("LIMIT_LOW", "rw", 0, "bytes from base that operands may touch")
    add("LIMIT_HIGH", "rw", 0, "high half")
    add("INTERRUPT_ENABLE", "rw", 0, f"what raises the interrupt: {interrupts}", InterruptBit, while_busy=True)
    happened = f"what has happened since it was cleared: {interrupts}"
    add("INTERRUPT_STATUS", "w1c", 0, happened, InterruptBit, while_busy=True)
    offset = 0x80
    for name, doc in COUNTERS:
        registers.append(Register(f"{name.upper()}_LOW", offset, "ro", 0, doc))
        registers.append(Register(f"{name.upper()}_HIGH", offset + 4, "ro", 0, "high half"))
        offset += 8
    return tuple(registers)


REGISTERS: tuple[Register, ...] = _declare()
_BY_NAME = {register.name: register for register in REGISTERS}


def address_of(name: str) -> int:
    """Byte offset of the register of that name."""
    return _BY_NAME[name].offset
