"""What a program that comes from a file may ask of the host before somebody allows it more."""

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits that a program from a file is held to before anything is allocated or run; the user can raise them.

    They are generous: of the presets, `int8-4x4` takes longest for ResNet-50, about 350 million cycles, with 200 MiB.

    Raises:
        ValueError: when one is not a whole number from 1 on, or of more than 60 bits.
    """

    memory: int = 1 << 30
    """Bytes of host memory for its DRAM and its tensors; on the command line `--max-memory`, in MiB."""
    cycles: int = 1_000_000_000
    """Cycles for which one engine is at work, at the least; on the command line `--max-cycles`."""

    def __post_init__(self) -> None:
        for name in ("memory", "cycles"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value < 1 << 60:
                raise ValueError(f"the limit of {name} must be a whole number from 1 to 2**60 - 1, not {value!r}")


DEFAULT_LIMITS = Limits()
"""Where nobody says otherwise."""
