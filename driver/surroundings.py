"""What stands around a simulated core, when it is to be less friendly than the reference DRAM."""

from dataclasses import dataclass

__all__ = ["CHANNELS", "Surroundings"]

_MOST_BURSTS = 4096
CHANNELS = ("ar", "r", "aw", "w", "b", "registers")
"""What can be stalled: the five channels of the memory bus, and all of the register bus."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Anything that AXI allows a bus to do, at random. Cycles are no longer those of the simulator; results are.

    Raises:
        ValueError: when a value is out of its range.
    """

    seed: int
    """Of all that is random; 64 bits of it count."""
    stall_percent: int = 0
    """Chance, each cycle, that the other side of a handshake is withheld. With it, signals that are not valid carry
    rubbish."""
    stalled: tuple[str, ...] = CHANNELS
    """The channels on which that happens, of `CHANNELS`."""
    spread: int = 0
    """Up to so many cycles come on top of the DRAM's latency, drawn for each burst."""
    bursts: int | None = None
    """Bursts in flight each way, in place of the DRAM's; it may be more than the core has use for."""
    errors_per_mille: int = 0
    """Of 1000 bursts, how many are answered with SLVERR or DECERR, reads in one of their beats."""

    def __post_init__(self) -> None:
        ranges = {
            "stall_percent": (0, 99),
            "spread": (0, 100_000),
            "bursts": (1, _MOST_BURSTS),
            "errors_per_mille": (0, 1000),
        }
        for name in self.stalled:
            if name not in CHANNELS:
                raise ValueError(f"what can be stalled are {', '.join(CHANNELS)}, not {name!r}")
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not (name == "bursts" and value is None) and not (type(value) is int and low <= value <= high):
                raise ValueError(f"{name} must be from {low} to {high}, not {value}")
