"""What a board is: a chip, a memory, a clock, and a design behind its pins."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.host_link import baud_of
from npukit.isa.sdram import SdramChip

__all__ = ["Board", "BoardError", "Device"]


_MANY_MACS = 128


class BoardError(ValueError):
    """A board or a configuration that do not go together; the message says what would."""


@dataclass(frozen=True)
class Device:
    """Size, package and speed grade, as nextpnr names them, and what it has (a flip-flop for each LUT).

    multiplier_columns, memory_columns: X of a row's multipliers and block RAMs, as nextpnr counts; multiplier_rows: Y
    of two rows or more; memory_rows: Y of four, of the last two of those one above, one between and two below them.
    """

    size: str = "85k"
    package: str = "CABGA381"
    speed: int = 6
    luts: int = 83640
    multipliers: int = 156
    block_rams: int = 208
    multiplier_columns: tuple[int, ...] = ()
    multiplier_rows: tuple[int, ...] = ()
    memory_columns: tuple[int, ...] = ()
    memory_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Board:
    """A board.

    Attributes:
        name: as on the command line; the names of its presets begin with it. about: for people.
        device: its chip.
        platform: `module:class` of Amaranth's platform, which has the pins.
        oscillator: MHz; oscillator_pin: the platform's resource.
        megahertz: of the system's clock; bf16_megahertz: with arrays of bf16, whose adders are slower; large_megahertz:
            with arrays of more than 128 elements.
        memory_rate: cycles of the SDRAM in one of that clock: 1, or 2; large_memory_rate: with such arrays.
        leds: how many there are; `npukit.fpga.system` has what they show.
        baud: of the serial line; None: the fastest that the clock gives.
        sdram: the memory chip.
        seeds: of the placement, by preset, with which it is seen to route and to reach that clock.
        loader: the board's name for openFPGALoader.
        top: `module:function` that makes its design, as `npukit.fpga.ecp5_board:constrained` does; it is loaded for
            synthesis and simulation alone.
    """

    name: str
    about: str
    device: Device
    platform: str
    oscillator: float
    oscillator_pin: str
    megahertz: float
    bf16_megahertz: float
    large_megahertz: float
    leds: int
    loader: str
    baud: int | None = None
    memory_rate: int = 1
    large_memory_rate: int = 1
    sdram: SdramChip = field(default_factory=SdramChip)
    seeds: Mapping[str, int] = field(default_factory=dict)
    top: str = "npukit.fpga.ecp5_board:constrained"

    def clocked_for(self, config: NpuConfig) -> "Board":
        """The board with the clocks that a configuration reaches."""
        if config.activation.floating:
            return replace(self, megahertz=self.bf16_megahertz)
        if config.array_macs > _MANY_MACS:
            return replace(self, megahertz=self.large_megahertz, memory_rate=self.large_memory_rate)
        return self

    @property
    def io_cycles(self) -> int:
        """Of the memory's clock, to the SDRAM and back: two registers in the pins' cells, and one more on the way where
        that clock is so fast that a word comes too late for the next edge."""
        return 1 + self.memory_rate

    @property
    def rate(self) -> int:
        """Bits a second on the serial line."""
        return baud_of(self.megahertz) if self.baud is None else self.baud

    @property
    def presets(self) -> list[str]:
        """The configurations that name it."""
        return [name for name in PRESETS if name.startswith(f"{self.name}-")]
