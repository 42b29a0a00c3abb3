"""A board in Verilator that is served while a block runs, and a line that damages what goes over it."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from npukit.fpga.board import Board
from npukit.fpga.boards import BOARDS
from npukit.isa.config import PRESETS, NpuConfig

from npukit.board_sim.model import BoardModel, load_library
from npukit.board_sim.server import BoardServer

__all__ = ["FAST", "FaultyLine", "Made", "make", "served"]

FAST = 15_000_000
"""Bits a second with four cycles for a bit, which takes the least cycles."""


@dataclass(frozen=True)
class Made:
    """A board and its library."""

    board: Board
    config: NpuConfig
    library: ctypes.CDLL

    def switched_on(self) -> BoardModel:
        """A board that was just switched on."""
        return BoardModel(self.board, self.config, self.library)


def make(preset: str, baud: int | None = FAST, board: str = "ulx3s") -> Made:
    """A board with a preset, built if it is not in the cache."""
    config = PRESETS[preset]
    chosen = replace(BOARDS[board].clocked_for(config), baud=baud)
    return Made(chosen, config, load_library(chosen, config))


@contextmanager
def served(made: Made) -> Iterator[BoardServer]:
    """A board behind a terminal until the block ends; what goes wrong with it is raised then."""
    server = BoardServer(made.switched_on)
    wrong: list[BaseException] = []

    def serve() -> None:
        try:
            server.serve()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
    if wrong:
        raise wrong[0]


class FaultyLine:
    """Bytes of which a share is lost, changed in one bit, or doubled.

    Attributes:
        share: of the bytes.
        faults: how many there were.
    """

    def __init__(self, random: Random, share: float) -> None:
        self._random, self.share, self.faults = random, share, 0

    def __call__(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._random.random() >= self.share:
                out.append(byte)
                continue
            self.faults += 1
            match self._random.randrange(3):
                case 0:
                    pass
                case 1:
                    out.append(byte ^ 1 << self._random.randrange(8))
                case _:
                    out += bytes([byte, byte])
        return bytes(out)
