"""What ends a command before its time: one line on stderr, and an exit code.

Nothing is imported here that takes time, or that may itself be what fails.
"""

import os
import sys

TYPE_CHECKING = False  # to type checkers True
if TYPE_CHECKING:
    from npukit.cli.signals import Signals

__all__ = ["report"]

_TRACEBACK = "NPUKIT_TRACEBACK"
_LONGEST = 300
"""Characters that are shown of the message of an error that nobody expects."""


def report(error: BaseException, arguments: list[str], signals: "Signals | None" = None) -> int:
    """Say what happened; the exit code."""
    if signals is not None and signals.received is not None:  # the error may be what a library made of it
        code = signals.report()
        _give_up_streams()  # of a terminal that has gone, for instance
        return code
    if isinstance(error, KeyboardInterrupt):
        return _say("interrupted", 130)
    if isinstance(error, BrokenPipeError) or not isinstance(error, Exception):
        _give_up_streams()
        return 141
    if os.environ.get(_TRACEBACK):
        import traceback

        traceback.print_exception(error)
    kit = sys.modules.get("npukit.errors")
    if isinstance(error, getattr(kit, "USER_ERRORS", ())):
        return _say(error, 2)
    if isinstance(error, getattr(kit, "TOOL_ERRORS", ())):
        return _say(error, 3)
    if isinstance(error, MemoryError):
        return _say("out of memory", 3)
    if isinstance(error, ModuleNotFoundError) and error.name is not None and not error.name.startswith("npukit"):
        return _say(_missing(error.name), 3)
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        if _stdout_fails():
            where = "cannot write to stdout: "
            _give_up_streams()
        return _say(f"{where}{error.strerror or error}", 3)
    import shlex

    text = " ".join(str(error).split())
    text = f"{type(error).__name__}: {text[:_LONGEST]}" if text else type(error).__name__
    again = shlex.join(["npukit", *arguments])
    return _say(f"unexpected {text}; to see where it comes from: {_TRACEBACK}=1 {again}", 3)


def _say(message: object, code: int) -> int:
    try:
        print(f"npukit: {' '.join(str(message).split())}", file=sys.stderr)
    except OSError:  # nobody reads that either
        _give_up_streams()
    return code


def _stdout_fails() -> bool:
    """Whether what is left to print cannot be printed."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _give_up_streams() -> None:
    """Point the streams that cannot be written to nowhere, so that Python's closing them raises nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _missing(module: str) -> str:
    """What brings a module that is not there, as the kit's own metadata have it."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    package = {"sklearn": "scikit-learn"}.get(module.partition(".")[0], module.partition(".")[0]).replace("_", "-")
    try:
        found = [re.fullmatch(r"([\w-]+).*extra == ['\"](\w+)['\"]", line) for line in requires("npukit") or []]
    except PackageNotFoundError:
        found = []
    extras = [match[2] for match in found if match is not None and match[1] == package]
    install = f"pip install 'npukit[{extras[0]}]'" if extras else f"pip install {package}"
    return f"{module} is not installed; to install it: {install}"
