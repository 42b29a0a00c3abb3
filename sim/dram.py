"""The memory behind the accelerator: the environment of a run, not part of a configuration."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from npukit.isa.config import NpuConfig
from npukit.isa.sdram import ROW_SPACING, SdramChip, SdramTimes
from npukit.isa.timing import READ_OUTSTANDING, WRITE_OUTSTANDING

__all__ = ["BANK_BITS", "AnyDram", "DramModel", "SdramDram", "dram_json"]

_BUSES = (4, 8, 16)
_BEAT = 32
"""Cycles of a beat, and then some."""
_OTHER_ROW = 0.5
"""How often a run begins in another row than its bank has open."""
_AROUND = 4
"""Cycles for which a burst is on its way beside its latency and its beats."""
BANK_BITS = 4
"""Bits of an SDRAM's bank, at most."""


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

    def bytes_per_cycle(self, config: NpuConfig) -> float:
        """Of a data channel, at most."""
        return float(config.bus_bytes)

    def traffic(self, read: int, written: int) -> int:
        """Bytes of the busier data channel."""
        return max(read, written)

    @property
    def shared(self) -> bool:
        """Whether reads and writes take turns."""
        return False

    def run_cycles(self, config: NpuConfig, size: int, write: bool) -> float:
        """Estimate of the cycles for bytes that follow each other, one run of many, which share the latency."""
        beats = -(-size // config.bus_bytes)
        bursts = -(-beats // config.max_burst)
        in_flight = self.write_bursts if write else self.read_bursts
        return max(beats, (bursts * (self.latency + _AROUND) + beats) / in_flight)

    def answer_cycles(self, config: NpuConfig) -> float:
        """Estimate of the cycles from an address to its first beat."""
        return self.latency

    def response_cycles(self, config: NpuConfig) -> float:
        """Estimate of the cycles from the last beat of a write to its response."""
        return self.latency

    def at(self, program: int, base: int) -> "DramModel":
        """The same for a program and its data at those byte addresses: nothing here depends on them."""
        return self


@dataclass(frozen=True, kw_only=True)
class SdramDram:
    """A single data rate SDRAM behind the kit's controller, as boards have it: open rows, refreshes, burst by burst.

    A program begins with all rows closed and no refresh due. On a board it may begin at any time: a refresh then comes
    earlier or later, and with it a few cycles.

    Raises:
        ValueError: a clock that the chip does not take, or a value out of its range.
    """

    chip: SdramChip = field(default_factory=SdramChip)
    megahertz: float = 40.0
    """Of the accelerator."""
    rate: int = 1
    """Cycles of the controller and of the chip in one of the accelerator: 1, or 2."""
    io_cycles: int | None = None
    """The controller's cycles to the chip and back: by default two registers in the pins, and at twice the rate one
    more, because a word is on its way for longer than a cycle."""
    phase: int | None = None
    """The controller's cycles of the refresh interval that are over when the program starts; by default 64, or half of
    a shorter one."""
    program: int = 0
    base: int = 0
    """Byte addresses of the program and of its data."""

    def __post_init__(self) -> None:
        if self.rate not in (1, 2):
            raise ValueError(f"the SDRAM's rate must be 1 or 2, not {self.rate!r}")
        if self.io_cycles is None:
            object.__setattr__(self, "io_cycles", 1 + self.rate)
        times = self.times
        interval = times.refresh_interval
        # as much as a refresh and a new row take, several times over; else nothing but refreshes would happen
        if interval < 4 * (times.precharge + times.refresh_cycle + times.row_cycle) + _BEAT:
            raise ValueError(f"{self.megahertz} MHz are too few for the SDRAM's refreshes: {interval} cycles for each")
        if self.phase is None:
            object.__setattr__(self, "phase", min(64, interval // 2))
        for name, low, high in (
            ("phase", 0, interval - 1), ("io_cycles", 0, 8), ("program", 0, None), ("base", 0, None),
        ):  # fmt: skip
            value = getattr(self, name)
            if type(value) is not int or value < low or (high is not None and value > high):
                limits = f"from {low} to {high}" if high is not None else f"{low} or above"
                raise ValueError(f"the SDRAM's {name} must be {limits}, not {value!r}")
        if self.chip.bank_bits > BANK_BITS:
            raise ValueError(f"an SDRAM has up to {1 << BANK_BITS} banks, not {1 << self.chip.bank_bits}")

    @property
    def times(self) -> SdramTimes:
        """The chip's, in its own cycles."""
        return self.chip.times(self.megahertz * self.rate)

    def check(self, config: NpuConfig) -> None:
        """
        Raises:
            ValueError: a bus that the controller does not have.
        """
        if config.bus_bytes not in _BUSES:
            raise ValueError(f"the SDRAM controller has a bus of 4, 8 or 16 bytes, not {config.bus_bytes}")

    def bytes_per_cycle(self, config: NpuConfig) -> float:
        """Of the chip's data pins, at most."""
        return 2.0 * self.rate

    def traffic(self, read: int, written: int) -> int:
        """Bytes over the chip's data pins."""
        return read + written

    @property
    def _slices(self) -> int:
        """Cycles in register slices, there and back: they are there at twice the rate."""
        return 2 * (self.rate - 1)

    @property
    def shared(self) -> bool:
        """Whether reads and writes take turns."""
        return True

    def run_cycles(self, config: NpuConfig, size: int, write: bool) -> float:
        """Estimate of the cycles for bytes that follow each other, one run of many, with its share of refreshes."""
        times, words = self.times, config.bus_bytes // 2
        beats = -(-size // config.bus_bytes)
        bursts = -(-beats // config.max_burst)
        row = max(times.precharge, ROW_SPACING) + max(times.activate_to_column, ROW_SPACING)
        cycles = beats * words + bursts + row * (beats * words / (1 << self.chip.column_bits) + _OTHER_ROW)
        # a beat crosses to the accelerator's clock in each of its cycles at most
        return max(beats, cycles * (1 + (times.refresh_cycle + row) / times.refresh_interval) / self.rate)

    def answer_cycles(self, config: NpuConfig) -> float:
        """Estimate of the cycles from an address to its first beat."""
        times = self.times
        assert self.io_cycles is not None
        row = max(times.activate_to_column, ROW_SPACING)
        cycles = row + times.cas_latency + self.io_cycles + config.bus_bytes // 2 + 3
        return cycles / self.rate + self._slices

    def response_cycles(self, config: NpuConfig) -> float:
        """Estimate of the cycles from the last beat of a write to its response."""
        return self._slices

    def at(self, program: int, base: int) -> "SdramDram":
        """The same for a program and its data at those byte addresses, which wrap at the chip's size."""
        return replace(self, program=program % self.chip.bytes, base=base % self.chip.bytes)


AnyDram = DramModel | SdramDram


def dram_json(dram: AnyDram) -> dict[str, Any]:
    """Kind and parameters."""
    return {"kind": "sdram" if isinstance(dram, SdramDram) else "reference", **asdict(dram)}
