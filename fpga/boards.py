"""The boards: the kit's own, and those of other packages."""

from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points

from npukit.fpga.board import Board, BoardError, Device
from npukit.fpga.icepi_zero import ICEPI_ZERO
from npukit.fpga.ulx3s import ULX3S
from npukit.isa.config import PRESETS, NpuConfig

__all__ = ["BOARDS", "Board", "BoardError", "Device", "board_named", "board_of", "board_with", "boards"]

BOARDS: dict[str, Board] = {board.name: board for board in (ULX3S, ICEPI_ZERO)}


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


def board_named(name: str) -> Board:
    """A board.

    Raises:
        BoardError: there is none of that name, or the package that has it cannot be loaded.
    """
    if name not in boards():
        for entry in entry_points(group=GROUP, name=name):
            _board(entry)  # which says what is wrong with it
        raise BoardError(f"no board is called {name!r}; there are {', '.join(boards())}")
    return boards()[name]


def board_with(config: NpuConfig) -> Board | None:
    """The board of which a configuration is a preset, if there is one."""
    name = next((name for name, one in PRESETS.items() if one == config), None)
    return next((one for one in boards().values() if name in one.presets), None)


def board_of(name: str, config: NpuConfig, board_name: str | None = None) -> Board:
    """A board, or that of a configuration by the preset's name, checked against the configuration, with its clock.

    Raises:
        BoardError: no board, or one that the configuration does not go with.
    """
    if board_name is not None:
        board_named(board_name)
    board = next((one for one in boards().values() if board_name == one.name or name.startswith(f"{one.name}-")), None)
    if board is None:
        presets = dict.fromkeys(preset for one in boards().values() for preset in one.presets)
        raise BoardError(
            f"{name} names no board; the configurations of boards are {', '.join(presets)}; with others, say --board"
        )
    if config.bus_bytes not in (4, 8, 16):
        raise BoardError(f"the memory controller of {board.name} has a bus of 4, 8 or 16 bytes, not {config.bus_bytes}")
    return board.clocked_for(config)
