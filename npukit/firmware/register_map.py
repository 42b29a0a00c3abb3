"""What every form of the register map states: names, and values after reset."""

from typing import Any

from npukit.isa.config import NpuConfig
from npukit.isa.registers import REGISTERS, Register

__all__ = ["MAP_BYTES", "register_list", "reset_of"]

MAP_BYTES = 4096
"""Bytes of the bus's address space that the registers have."""


def reset_of(register: Register, config: NpuConfig | None) -> int | None:
    """What a register holds after a reset; None for what depends on the configuration, if that is None."""
    halves = {"CONFIG_HASH_LOW": 0, "CONFIG_HASH_HIGH": 32}
    if register.name not in halves:
        return register.reset
    return None if config is None else config.hash >> halves[register.name] & 0xFFFFFFFF


def register_list(config: NpuConfig | None = None) -> list[dict[str, Any]]:
    """The registers in the order of their offsets, as JSON has them."""
    return [
        {
            "name": one.name,
            "offset": one.offset,
            "access": one.access,
            "reset": reset_of(one, config),
            "description": one.doc,
            "written_while_busy": one.while_busy,
            "bits": [{"name": bit.name, "bit": int(bit), "description": bit.doc} for bit in one.bits or ()],
        }
        for one in REGISTERS
    ]
