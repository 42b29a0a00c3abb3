"""The reference DRAM's parameters: the environment of a run, not part of a configuration."""

from dataclasses import dataclass

from npukit.isa.timing import READ_OUTSTANDING, WRITE_OUTSTANDING

__all__ = ["DramModel"]


@dataclass(frozen=True, kw_only=True)
class DramModel:
    """Fixed latency, separate read and write channels, a bounded number of bursts in flight.

    Raises:
        ValueError: when a value is out of its range.
    """

    latency: int = 100
    """Cycles from a read's address to its first beat, and from a write's last beat to its response."""
    read_bursts: int = 16
    """Read bursts in flight, those of FETCH included."""
    write_bursts: int = 16
    """Write bursts in flight, from address to response."""

    def __post_init__(self) -> None:
        for name, high in (
            ("latency", 100_000),
            ("read_bursts", READ_OUTSTANDING),
            ("write_bursts", WRITE_OUTSTANDING),
        ):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= high:
                raise ValueError(f"DRAM {name} must be from 1 to {high}, not {value}")
