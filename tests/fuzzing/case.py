"""What a kind of input is, what a case can come to, and a command run inside of this process."""

import os
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

__all__ = ["GOOD", "Answer", "Kind", "Outcome", "Result", "WrongResult", "answer_of", "run_command"]


class Outcome(StrEnum):
    """What a case came to."""

    ACCEPTED = "accepted"
    """Accepted, and right as far as the kind can tell."""
    REFUSED = "refused"
    """One line on stderr, exit code 2 or 3."""
    UNCLEAR = "unclear error"
    """Another exit code, or not one line."""
    TRACEBACK = "traceback"
    WRONG = "wrong result"
    MEMORY = "memory"
    HANG = "hang"
    CRASH = "crash"


GOOD = (Outcome.ACCEPTED, Outcome.REFUSED)


class WrongResult(AssertionError):
    """What was accepted gave a wrong result."""


@dataclass(frozen=True)
class Result:
    """Of one case; `message` says more."""

    outcome: Outcome
    message: str = ""


class Kind(Protocol):
    """A kind of input. One object serves all cases of a worker, so that files and models are made once."""

    seconds: float
    """A case that takes longer hangs."""
    megabytes: int | None
    """Memory that a case may take beyond what the process has when its cases begin; None: any."""
    suffix: str
    """Of a saved input's file name."""

    def input(self, random: Random) -> bytes:
        """An input; the same for the same state of `random`, whatever came before."""
        ...

    def run(self, data: bytes) -> Result:
        """Run one. What it raises is a traceback, `MemoryError` memory, and `WrongResult` a wrong result."""
        ...


@dataclass(frozen=True)
class Answer:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


class _Captured:
    """stdout and stderr, also at the level of file descriptors: libraries in C++ print as well."""

    def __init__(self) -> None:
        self.files = [
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace", newline="")  # noqa: SIM115
            for _ in range(2)
        ]

    def __enter__(self) -> "_Captured":
        self.streams = sys.stdout, sys.stderr
        self.saved = [os.dup(1), os.dup(2)]
        for number, (file, stream) in enumerate(zip(self.files, self.streams, strict=True), 1):
            stream.flush()
            file.seek(0)
            file.truncate()
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = self.files
        return self

    def __exit__(self, *exception: object) -> None:
        sys.stdout, sys.stderr = self.streams
        for number, (file, saved) in enumerate(zip(self.files, self.saved, strict=True), 1):
            file.flush()
            os.dup2(saved, number)
            os.close(saved)

    def texts(self) -> list[str]:
        """What was printed."""
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read())
        return texts


_captured: _Captured | None = None


def run_command(*arguments: object) -> Answer:
    """One command of npukit, in this process. What it raises goes on to the caller, but for errors that are meant to be
    read: the command line's last resort, which would make one line of anything, is left out."""
    from npukit.cli import commands, failures  # not with this module, which processes that start often need

    global _captured
    _captured = _captured or _Captured()
    with _captured:
        words = [str(argument) for argument in arguments]
        try:
            code = commands.run_command(words)
        except SystemExit as stop:  # argparse
            code = stop.code if isinstance(stop.code, int) else 1
        except (*commands.USER_ERRORS, *commands.TOOL_ERRORS) as error:
            code = failures.report(error, words)
    out, err = _captured.texts()
    return Answer(code, out, err)


def answer_of(answer: Answer) -> Result:
    """How the answer of a command with `--quiet` is to be validated."""
    lines = answer.err.splitlines()
    if answer.code == 0 and not lines:
        return Result(Outcome.ACCEPTED)
    text = f"exit code {answer.code}, stderr {answer.err[:500]!r}"
    if "Traceback" in answer.err:
        return Result(Outcome.TRACEBACK, text)
    if answer.code in (2, 3) and len(lines) == 1 and lines[0].startswith("npukit") and not answer.out:
        return Result(Outcome.REFUSED, lines[0])
    return Result(Outcome.UNCLEAR, f"{text}, stdout {answer.out[:200]!r}")
