"""The boards: what is on them, and which configurations are meant for them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points

from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.sdram import SdramChip

__all__ = ["BOARDS", "Board", "BoardError", "Device", "board_of", "boards"]


class BoardError(ValueError):
    """A board or a configuration that do not go together; the message says what would."""


@dataclass(frozen=True)
class Device:
    """Size, package and speed grade, as nextpnr names them, and what it has (a flip-flop for each LUT).

    multiplier_columns, memory_columns: X of a row's multipliers and block RAMs, as nextpnr counts; multiplier_rows: Y
    of two rows; memory_rows: Y of four, one above, one between and two below those.
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
    """A board. oscillator: MHz. megahertz: of the system's clock, and bf16_megahertz with arrays of bf16, whose adders
    are slower; baud: of the serial line; io_cycles: of registers in the pins' cells to the SDRAM, there and back.
    seeds: of the placement, by preset, with which it is seen to route and to reach that clock. top: `module:function`
    that makes its design, as `npukit.fpga.ulx3s:constrained` does; it is loaded for synthesis alone."""

    name: str
    about: str
    device: Device
    oscillator: float
    megahertz: float
    bf16_megahertz: float
    baud: int
    io_cycles: int = 2
    sdram: SdramChip = field(default_factory=SdramChip)
    seeds: Mapping[str, int] = field(default_factory=dict)
    top: str = "npukit.fpga.ulx3s:constrained"

    def clocked_for(self, config: NpuConfig) -> "Board":
        """The board with the clock that a configuration reaches."""
        return replace(self, megahertz=self.bf16_megahertz) if config.activation.floating else self

    @property
    def presets(self) -> list[str]:
        """The configurations that name it."""
        return [name for name in PRESETS if name.startswith(f"{self.name}-")]


# nine tiles have four multipliers, or four block RAMs; the clock's tiles divide the row
_NINES = (*range(4, 59, 9), *range(69, 115, 9))
_LFE5U_85F = Device(
    multiplier_columns=tuple(nine + tile for nine in _NINES for tile in (0, 1, 4, 5)),
    multiplier_rows=(34, 58),
    memory_columns=tuple(nine + tile for nine in _NINES for tile in (0, 2, 4, 6)),
    memory_rows=(22, 46, 70, 82),
)

BOARDS: dict[str, Board] = {
    board.name: board
    for board in (
        Board(
            "ulx3s",
            "Radiona ULX3S 85F: Lattice LFE5U-85F-6BG381C, 32 MiB SDRAM of 16 bits, FTDI serial line",
            _LFE5U_85F,
            oscillator=25.0,
            megahertz=60.0,
            bf16_megahertz=40.0,
            baud=1_000_000,
            seeds={"ulx3s-int8-8x8": 3, "ulx3s-int8-4x4": 1, "ulx3s-bf16-4x4": 1},
        ),
    )
}


GROUP = "npukit.boards"
"""Of entry points: each loads a `Board` of another package, and has its name."""


def boards() -> dict[str, Board]:
    """All boards by their names: the kit's own, and those of other packages that can be loaded."""
    found = dict(BOARDS)
    for entry in entry_points(group=GROUP):
        with suppress(BoardError):  # who asks for it by its name is told why
            found.setdefault(entry.name, _board(entry))
    return found


def _board(entry: EntryPoint) -> Board:
    """What another package has.

    Raises:
        BoardError: it cannot be loaded, or is no board of that name.
    """
    try:
        board = entry.load()
    except Exception as error:  # whatever another package's module raises
        raise BoardError(f"the board {entry.name} of {entry.value} cannot be loaded: {error}") from error
    if not isinstance(board, Board) or board.name != entry.name:
        raise BoardError(f"{entry.value} is no board that is called {entry.name}")
    return board


def board_of(name: str, config: NpuConfig, board_name: str | None = None) -> Board:
    """A board, or that of a configuration by the preset's name, checked against the configuration, with its clock.

    Raises:
        BoardError: no board, or one that the configuration does not go with.
    """
    if board_name is not None and board_name not in boards():
        for entry in entry_points(group=GROUP, name=board_name):
            _board(entry)  # which says what is wrong with it
        raise BoardError(f"no board is called {board_name!r}; there are {', '.join(boards())}")
    board = next((one for one in boards().values() if board_name == one.name or name.startswith(f"{one.name}-")), None)
    if board is None:
        presets = [preset for one in boards().values() for preset in one.presets]
        raise BoardError(
            f"{name} names no board; the configurations of boards are {', '.join(presets)}; with others, say --board"
        )
    if config.bus_bytes not in (4, 8, 16):
        raise BoardError(f"the memory controller of {board.name} has a bus of 4, 8 or 16 bytes, not {config.bus_bytes}")
    return board.clocked_for(config)
