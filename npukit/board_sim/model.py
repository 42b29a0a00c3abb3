"""The board's design in Verilator: bytes on the serial line in, bytes out, cycle by cycle."""

import ctypes
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from npukit.driver.rtl_build import Model, ToolError, build_model
from npukit.fpga.boards import Board
from npukit.fpga.simulation import TOP, top_verilog
from npukit.isa.config import NpuConfig
from npukit.isa.host_link import divisor_of
from npukit.isa.sdram import REFRESHES_LATE, SdramChip, SdramTimes

__all__ = ["BoardModel", "BoardViolation", "SdramTimesOfChip", "load_library"]

_FOLDER = Path(__file__).parent
_SOURCES = ("board.cpp", "sdram_chip.h")


class BoardViolation(ToolError):
    """The board did what the data sheet of its memory forbids."""


_TIMES = (
    *("cas_latency", "activate_to_column", "precharge", "row_active", "row_active_most", "row_cycle"),
    *("refresh_cycle", "bank_to_bank", "write_recovery", "mode", "power_up", "refresh_interval"),
    *("row_bits", "column_bits", "bank_bits", "initial_refreshes", "refreshes_late"),
)
"""In the order of `SdramTimes` of sdram_chip.h."""


class SdramTimesOfChip(ctypes.Structure):
    """`SdramTimes` of sdram_chip.h."""

    _fields_ = [(name, ctypes.c_int64) for name in _TIMES]

    @classmethod
    def of(cls, chip: SdramChip, megahertz: float) -> "SdramTimesOfChip":
        """Those of a chip at a clock."""
        times = chip.times(megahertz)
        found = {one.name: getattr(times, one.name) for one in fields(SdramTimes)}
        bits = {name: getattr(chip, name) for name in ("row_bits", "column_bits", "bank_bits", "initial_refreshes")}
        values = found | bits | {"refreshes_late": REFRESHES_LATE}
        return cls(**{name: values[name] for name in _TIMES})


def _to_stderr(text: str) -> None:
    print(f"npukit: {text}", file=sys.stderr, flush=True)


def load_library(board: Board, config: NpuConfig, progress: Callable[[str], None] = _to_stderr) -> ctypes.CDLL:
    """The board's design with that configuration, built if it is not in the cache, which takes minutes.

    Raises:
        ToolError: a tool is missing, or fails.
        BoardError: the board and the configuration do not go together.
    """
    what = f"{board.name} with the {config.dtype} {config.size} core"
    progress(f"elaborating {what}")
    path = build_model(
        Model(
            what=what,
            verilog=top_verilog(board, config),
            top=TOP,
            prefix="Vboard",
            harness={name: (_FOLDER / name).read_text(encoding="utf-8") for name in _SOURCES},
            flags=("--pins-inout-enables", "-Wno-WIDTHTRUNC", "-Wno-ASCRANGE", "-Wno-PINMISSING", "-Wno-UNSIGNED"),
        ),
        progress,
    )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:  # on a file system that runs no programs, for instance
        raise ToolError(f"the model of {what} cannot be loaded: {error}") from None
    handle, integer, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    signatures: dict[str, tuple[type | None, list]] = {
        "board_create": (handle, [ctypes.POINTER(SdramTimesOfChip), handle, integer, integer]),
        "board_destroy": (None, [handle]),
        "board_send": (None, [handle, ctypes.c_char_p, long]),
        "board_receive": (long, [handle, ctypes.c_char_p, long]),
        "board_run": (long, [handle, long]),
        "board_quiet": (integer, [handle]),
        "board_waiting": (long, [handle]),
        "board_cycles": (long, [handle]),
        "board_violation": (ctypes.c_char_p, [handle]),
        "chip_create": (handle, [ctypes.POINTER(SdramTimesOfChip), handle]),
        "chip_destroy": (None, [handle]),
        "chip_step": (integer, [handle, ctypes.POINTER(ctypes.c_int32)]),
        "chip_violation": (ctypes.c_char_p, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class BoardModel:
    """A board that was just switched on. `close` frees it; so does a `with` block, or the end of the object.

    Args:
        divisor: cycles of a bit on the host's end of the line; the board's own by default.

    Attributes:
        memory: the SDRAM's words, uint16.
    """

    _handle: int | None = None

    def __init__(self, board: Board, config: NpuConfig, library: ctypes.CDLL, divisor: int | None = None) -> None:
        self._library = library
        self.memory = np.zeros(board.sdram.bytes // 2, np.uint16)
        times = SdramTimesOfChip.of(board.sdram, board.megahertz * board.memory_rate)
        line = divisor or divisor_of(board.megahertz, board.rate)
        late = int(board.memory_rate > 1)
        self._handle = library.board_create(ctypes.byref(times), self.memory.ctypes.data, line, late)
        self._room = ctypes.create_string_buffer(1 << 16)

    def close(self) -> None:
        """Free it."""
        if self._handle is not None:
            self._library.board_destroy(self._handle)
            self._handle = None

    def __enter__(self) -> "BoardModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Put bytes on the line to the board, behind those that wait."""
        self._library.board_send(self._handle, data, len(data))

    def receive(self) -> bytes:
        """Bytes that came from the board since the last time."""
        count = self._library.board_receive(self._handle, self._room, len(self._room))
        return self._room.raw[:count]

    def run(self, cycles: int) -> int:
        """Step so many cycles, or fewer, as soon as the board has nothing to do; how many it were.

        Raises:
            BoardViolation: the memory chip was used wrongly.
        """
        done = self._library.board_run(self._handle, cycles)
        if violation := self._library.board_violation(self._handle).decode():
            raise BoardViolation(f"the SDRAM chip: {violation}")
        return done

    @property
    def quiet(self) -> bool:
        """Whether it has nothing to do: no program runs, and nothing is on the line."""
        return bool(self._library.board_quiet(self._handle))

    @property
    def waiting(self) -> int:
        """Bytes that are still to be put on the line to the board."""
        return self._library.board_waiting(self._handle)

    @property
    def cycles(self) -> int:
        """Of the system's clock, since it was switched on."""
        return self._library.board_cycles(self._handle)
