"""Where programs lie in a memory."""

from dataclasses import dataclass

from npukit.isa.program import Program

__all__ = ["ALIGNMENT", "Place"]

ALIGNMENT = 4096
"""Programs and bases lie at multiples of this, so that relocation changes no cycle."""


@dataclass(frozen=True)
class Place:
    """Where a program lies in a device's memory: bytes.

    Attributes:
        base: of its constants and tensors.
        limit: of what it may touch, from the base on.
        code_address: of its instructions.
        end: the first behind all of it at which another one may lie.
    """

    base: int
    limit: int
    code_address: int
    end: int

    @classmethod
    def of(cls, program: Program, address: int) -> "Place":
        """From an address on.

        Raises:
            ValueError: when the address is not a multiple of 4096.
        """
        if address % ALIGNMENT:
            raise ValueError(f"address must be a multiple of {ALIGNMENT}, not {address}")
        limit = -(-program.dram_bytes // ALIGNMENT) * ALIGNMENT
        code_address = address + limit
        # FETCH reads whole beats, so leave one behind the last instruction
        end = -(-(code_address + len(program.code) + 64) // ALIGNMENT) * ALIGNMENT
        return cls(address, limit, code_address, end)
