"""A board in Verilator behind a pseudo-terminal, which programs open like a real board's serial line."""

import os
import pty
import select
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from npukit.board_sim.model import BoardModel
from npukit.errors import UsageError

__all__ = ["BoardServer", "linked"]

_CYCLES = 4096
"""Between two looks at the terminal."""
_LOOK = 0.2
"""Seconds between two looks whether to stop, while the board has nothing to do."""

Filter = Callable[[bytes], bytes]
"""What becomes of bytes on the line."""


class BoardServer:
    """Runs a board as long as there is something for it to do; meanwhile its time stands still.

    Attributes:
        path: of the terminal to open.
        make: makes the board; `power_cycle` makes a new one.
        to_board, to_host: what becomes of bytes on the line, for tests.
    """

    def __init__(self, make: Callable[[], BoardModel]) -> None:
        self.make = make
        self.board = make()
        self.to_board: Filter = bytes
        self.to_host: Filter = bytes
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)  # held open, so that the terminal outlives those who open it
        os.set_blocking(self._master, False)
        self._open = [self._master, self._slave]
        self.path = os.ttyname(self._slave)
        self._stop = threading.Event()
        self._restart = threading.Event()
        self._out = b""

    def power_cycle(self) -> None:
        """Switch the board off and on, from any thread: memory and registers are lost."""
        self._restart.set()

    def stop(self) -> None:
        """End `serve`, from any thread or signal handler."""
        self._stop.set()

    def serve(self) -> None:
        """Run until `stop` is called.

        Raises:
            BoardViolation: the board did what its memory's data sheet forbids.
        """
        try:
            while not self._stop.is_set():
                if self._restart.is_set():
                    self._restart.clear()
                    self.board.close()
                    self.board, self._out = self.make(), b""
                if self.board.quiet and not self._out:
                    if not select.select([self._master], [], [], _LOOK)[0]:
                        continue
                self._take()
                self.board.run(_CYCLES)
                self._give()
        finally:
            self.close()

    def close(self) -> None:
        """Take the terminal away, as when a cable is pulled."""
        while self._open:
            os.close(self._open.pop())
        self.board.close()

    def _take(self) -> None:
        """Bytes from the terminal to the board, no more than it is about to hear: a program sees how far it is."""
        if self.board.waiting > _CYCLES // 16:
            return
        try:
            data = os.read(self._master, 4096)
        except BlockingIOError:
            return
        self.board.send(self.to_board(data))

    def _give(self) -> None:
        self._out += self.to_host(self.board.receive())
        if not self._out:
            return
        try:
            self._out = self._out[os.write(self._master, self._out) :]
        except BlockingIOError:  # nobody reads: a real line would lose them
            self._out = b""


@contextmanager
def linked(path: str, link: str | None) -> Iterator[None]:
    """A symbolic link to a terminal, as long as the block runs. One that is there and leads nowhere is replaced.

    Raises:
        UsageError: it cannot be made.
    """
    if link is None:
        yield
        return
    try:
        if os.path.islink(link) and not os.path.exists(link):
            os.unlink(link)
        os.symlink(path, link)
    except OSError as error:
        raise UsageError(f"--link {link}: {error.strerror}") from None
    try:
        yield
    finally:
        try:
            if os.readlink(link) == path:  # and not one that somebody else has put there
                os.unlink(link)
        except OSError:  # it is gone
            pass
