"""Where a program and its data lie on the bus, and what the registers say of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from random import Random

from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Instruction, Load, Store
from npukit.isa.place import ALIGNMENT
from npukit.isa.timing import INSTRUCTION_BYTES
from npukit.sim.addressing import dram_operand

__all__ = ["Placement", "placement_items", "placement_points", "random_placement"]

_MEMORY = 1 << 30
"""Bytes of memory that are used, at most; only pages that are written cost any."""
_WORD_BITS = 32
"""Of an instruction's DRAM address."""
_TOP = 1 << 64


@dataclass(frozen=True)
class Placement:
    """Places of a program and of the DRAM image that it works in; nothing that it computes depends on them.

    Attributes:
        origin: bus address of the memory's first byte.
        data, program: bytes from there to the image and to the instructions.
        shift: ACT words that are added to the DRAM addresses of instructions, and taken off the base register again.
        limit: value of LIMIT; None for the end of the image.

    Raises:
        ValueError: a value out of its range.
    """

    origin: int = 0
    data: int = 0
    program: int | None = None
    shift: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        places = {"origin": _TOP, "data": _MEMORY, "program": _MEMORY}
        for name, end in (*places.items(), ("shift", 1 << _WORD_BITS), ("limit", _TOP)):
            value = getattr(self, name)
            if value is None and name in ("program", "limit"):
                continue
            if type(value) is not int or not 0 <= value < end or (name in places and value % ALIGNMENT):
                raise ValueError(f"a placement's {name} cannot be {value!r}")

    def code(self, image_bytes: int) -> int:
        """Bytes from the memory's first to the instructions: by default they follow the image."""
        return self.data + -(-image_bytes // ALIGNMENT) * ALIGNMENT if self.program is None else self.program

    def moved(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """The instructions with their DRAM addresses shifted."""
        if not self.shift:
            return list(instructions)
        return [
            replace(one, dram=one.dram + self.shift) if isinstance(one, Load | Store) else one for one in instructions
        ]

    def base(self, config: NpuConfig) -> int:
        """Value of BASE."""
        return self.origin + self.data - self.shift * config.word_bytes

    def limit_of(self, config: NpuConfig, image_bytes: int) -> int:
        """Value of LIMIT."""
        return image_bytes + self.shift * config.word_bytes if self.limit is None else self.limit


def _touched(config: NpuConfig, instructions: Sequence[Instruction]) -> int:
    """Bytes from the image's start to the end of the last word that a program reads or writes."""
    ends = [dram_operand(config, one).extent[1] + 1 for one in instructions if isinstance(one, Load | Store)]
    return max(ends, default=0) * config.word_bytes


def random_placement(
    config: NpuConfig, random: Random, instructions: Sequence[Instruction], image_bytes: int, *,
    far: bool | None = None,
) -> Placement:  # fmt: skip
    """Any place, near and far from address 0, with the limit as it should be or exact.

    Args:
        far: whether the instructions' DRAM addresses are as great as they can be; None: either.
    """
    code = -(-len(instructions) * INSTRUCTION_BYTES // ALIGNMENT) * ALIGNMENT
    image = -(-image_bytes // ALIGNMENT) * ALIGNMENT
    # few places, each with pages of its own, but all address bits among them
    while True:
        data, program = (
            random.choice([0, random.randrange(16), (1 << random.randrange(18)) + random.randrange(4)]) * ALIGNMENT
            for _ in range(2)
        )
        apart = data + image <= program or program + code <= data
        if apart and data + image <= _MEMORY and program + code <= _MEMORY:
            break
    shift = 0
    if far or (far is None and random.random() < 0.3):
        # the image's last word is the last that an instruction can name, or nearly: BASE is aligned
        shift = (1 << _WORD_BITS) - image_bytes // config.word_bytes
        shift -= shift % (ALIGNMENT // gcd(ALIGNMENT, config.word_bytes))
    origins = [1 << 48, random.randrange(1 << 40, _TOP - _MEMORY) // ALIGNMENT * ALIGNMENT, _TOP - _MEMORY]
    if not shift:
        origins += [0, 0, 0]
    touched = _touched(config, instructions) + shift * config.word_bytes
    return Placement(
        origin=random.choice(origins), data=data, program=program, shift=shift,
        limit=random.choice([None, touched, touched, _TOP - 1]),
    )  # fmt: skip


def placement_items() -> list[str]:
    """Names of the points of `placement_points`."""
    registers = [f"{name}={value}" for name in ("BASE", "PROGRAM") for value in ("0", "low", "high")]
    return [*registers, "LIMIT exact", "LIMIT at the image's end", "LIMIT=2**64-1"]


def placement_points(
    config: NpuConfig, placement: Placement, instructions: Sequence[Instruction], image_bytes: int
) -> set[str]:
    """Which kinds of values the registers had."""
    found = set()
    program = placement.origin + placement.code(image_bytes)
    for name, value in (("BASE", placement.base(config)), ("PROGRAM", program)):
        found.add(f"{name}={'0' if value == 0 else 'low' if value < 1 << 32 else 'high'}")
    limit = placement.limit_of(config, image_bytes)
    if limit == _TOP - 1:
        found.add("LIMIT=2**64-1")
    if limit == _touched(config, instructions) + placement.shift * config.word_bytes:
        found.add("LIMIT exact")
    if placement.limit is None:
        found.add("LIMIT at the image's end")
    return found
