"""The command line: one file a command, and exit codes that mean the same everywhere.

0: done. 1: a difference was found, or nothing to compare. 2: bad input.
3: a tool or a device failed, or the kit itself. 129: the terminal has gone. 130: interrupted.
141: nobody reads the output any more. 143: terminated.

The commands are loaded in `main`, and nothing else here takes time to load: from the start of `main` on, whatever
happens ends in one line and one of these codes.
"""

import os
import sys

TYPE_CHECKING = False  # to type checkers True
if TYPE_CHECKING:
    from npukit.cli.signals import Signals

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code.

    Args:
        arguments: of the command line; by default those of this process, which then also ends as the exit code says
            when it gets a signal.
    """
    if arguments is not None:
        return _run(arguments, None)
    from npukit.cli.signals import Signals

    signals = Signals()
    signals.install()
    _open_standard_streams()
    code = _run(sys.argv[1:], signals)
    signals.done()
    return code


def _open_standard_streams() -> None:
    """Put something in the place of standard streams that were closed: the next file that is opened would be them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        if name == "stdout":  # a pipe that nobody reads
            reader, handle = os.pipe()
            os.close(reader)
        else:
            handle = os.open(os.devnull, os.O_RDWR)
        if handle != number:
            os.dup2(handle, number)
            os.close(handle)
        setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def _run(arguments: list[str], signals: "Signals | None") -> int:
    try:
        from npukit.cli.commands import run_command

        if signals is not None:
            signals.running()
        try:
            code = run_command(arguments)
        except SystemExit as stop:  # argparse
            code = stop.code if isinstance(stop.code, int) else 0
        sys.stdout.flush()  # here, so that a reader that has gone is noticed
        return code
    except BaseException as error:  # whatever it is
        from npukit.cli.failures import report

        return report(error, arguments, signals)
