"""Signals that end a command: what is half done is taken back, and one line says so.

Nothing is imported here that takes time: what a signal finds before `Signals.install` ends in Python's own words.
"""

import os
import signal
import sys

__all__ = ["Signals", "Stopped"]

_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal has gone"}


class Stopped(BaseException):
    """Another signal than that of Ctrl-C, which is a `KeyboardInterrupt`."""


class Signals:
    """What SIGINT, SIGTERM and SIGHUP do to this process.

    While modules are loaded they end it at once: there is nothing to take back, and an exception could get lost, as
    Python runs code there whose exceptions it prints and drops. While a command runs they are exceptions, so that
    files, folders and tools that it has begun are taken back; a second one ends the process at once. When all is done
    they end it at once, without a word.

    Attributes:
        received: the signal that ended the command, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._running = False
        self._done = False

    def install(self) -> None:
        """From now on; a signal that whoever started the process has told it to ignore stays so."""
        for number in _NAMES:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, self._handle)
        sys.unraisablehook = self._unraisable

    def running(self) -> None:
        """All modules are loaded, and the command begins."""
        self._running = True

    def done(self) -> None:
        """The command has done its work, and its output is written."""
        self._running, self._done = False, True

    def report(self) -> int:
        """Say which signal it was; the exit code."""
        assert self.received is not None
        if not self._done:
            try:
                # not print: the signal may have come while something was printed
                os.write(2, f"npukit: {_NAMES[signal.Signals(self.received)]}\n".encode())
            except OSError:  # nobody reads that any more; the exit code still says it
                pass
        return 128 + self.received

    def _handle(self, number: int, frame: object) -> None:
        if not self._running or self.received is not None:
            self.received = number
            os._exit(self.report())
        self.received = number
        raise KeyboardInterrupt if number == signal.SIGINT else Stopped

    def _unraisable(self, error: "sys.UnraisableHookArgs") -> None:
        """The exception of a signal that came where Python drops exceptions: send it again, a moment later."""
        if self.received is None or not isinstance(error.exc_value, KeyboardInterrupt | Stopped):
            sys.__unraisablehook__(error)
            return
        from threading import Timer

        number, self.received = self.received, None
        Timer(0.01, os.kill, (os.getpid(), number)).start()
