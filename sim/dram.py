"""The memory behind the accelerator: the environment of a run, not part of a configuration."""

from dataclasses import dataclass, field, replace

from npukit.isa.config import NpuConfig
from npukit.isa.sdram import SdramChip
from npukit.isa.timing import READ_OUTSTANDING, WRITE_OUTSTANDING

__all__ = ["AnyDram", "DramModel", "SdramDram"]

_BUSES = (4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class DramModel:
    """The reference DRAM: fixed latency, separate read and write channels, a bounded number of bursts in flight.

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

    def check(self, config: NpuConfig) -> None:
        """It goes with every configuration."""

    def at(self, program: int, base: int) -> "DramModel":
        """The same for a program and its data at those byte addresses: nothing here depends on them."""
        return self


@dataclass(frozen=True, kw_only=True)
class SdramDram:
    """A single data rate SDRAM behind the kit's controller, as boards have it: open rows, refreshes, burst by burst.

    A program begins with all rows closed and no refresh due. On a board it may begin at any time: a refresh then comes
    earlier or later, and with it a few cycles.

    Raises:
        ValueError: a clock that the chip does not take, or a phase out of its range.
    """

    chip: SdramChip = field(default_factory=SdramChip)
    megahertz: float = 40.0
    """Of the controller, which is the accelerator's."""
    io_cycles: int = 2
    """Registers between the controller and the chip, there and back."""
    phase: int = 64
    """Cycles of the refresh interval that are over when the program starts."""
    program: int = 0
    base: int = 0
    """Byte addresses of the program and of its data."""

    def __post_init__(self) -> None:
        interval = self.chip.times(self.megahertz).refresh_interval
        if not 0 <= self.phase < interval:
            raise ValueError(f"the refresh phase must be from 0 to {interval - 1}, not {self.phase}")

    def check(self, config: NpuConfig) -> None:
        """
        Raises:
            ValueError: a bus that the controller does not have.
        """
        if config.bus_bytes not in _BUSES:
            raise ValueError(f"the SDRAM controller has a bus of 4, 8 or 16 bytes, not {config.bus_bytes}")

    def at(self, program: int, base: int) -> "SdramDram":
        """The same for a program and its data at those byte addresses."""
        return replace(self, program=program, base=base)


AnyDram = DramModel | SdramDram
