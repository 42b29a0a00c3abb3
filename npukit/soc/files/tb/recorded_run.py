"""The program that comes with the package: what is written before it, and what is read after it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "program"
DESCRIPTION: dict[str, Any] = json.loads((FOLDER / "run.json").read_text(encoding="utf-8"))
MEMORY_BYTES: int = DESCRIPTION["memory_bytes"]
"""Bytes of memory that the programs need."""


def offset(register: str) -> int:
    """Byte address of a register."""
    return DESCRIPTION["registers"][register]["offset"]


def bit(register: str, name: str) -> int:
    """A bit of a register, as a mask."""
    return 1 << DESCRIPTION["registers"][register]["bits"][name]


@dataclass(frozen=True)
class RecordedRun:
    """One program.

    Attributes:
        memory: (address, bytes) to write first, counted from the origin.
        writes: (register, value), in order; the last one starts the program.
        outputs: (address, bytes) that memory holds afterwards, from the origin.
        reads: (register, value) afterwards: ERROR, and all counters.
    """

    memory: list[tuple[int, bytes]]
    writes: list[tuple[str, int]]
    outputs: list[tuple[int, bytes]]
    reads: list[tuple[str, int]]


def recorded_runs(origin: int = 0) -> list[RecordedRun]:
    """All programs, in order, for a memory that begins at that address, a multiple of 4096."""
    return [
        RecordedRun(
            [(one["address"], _bytes(one)) for one in run["memory"]],
            _moved([(one["register"], one["value"]) for one in run["writes"]], origin),
            [(one["address"], _bytes(one)) for one in run["outputs"]],
            [(one["register"], one["value"]) for one in run["reads"]],
        )
        for run in DESCRIPTION["runs"]
    ]


def _bytes(one: dict[str, Any]) -> bytes:
    return (FOLDER / one["file"]).read_bytes()


def _moved(writes: list[tuple[str, int]], origin: int) -> list[tuple[str, int]]:
    """With the registers that hold addresses of the bus, PROGRAM and BASE, moved by the origin."""
    values = dict(writes)
    for name in ("PROGRAM", "BASE"):
        address = (values[f"{name}_LOW"] | values[f"{name}_HIGH"] << 32) + origin
        values[f"{name}_LOW"], values[f"{name}_HIGH"] = address & 0xFFFFFFFF, address >> 32
    return [(name, values[name]) for name, _ in writes]
