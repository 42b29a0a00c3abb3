"""The process that runs cases: what it is told comes through a pipe, and what it counts lies in shared memory."""

import ctypes
import os
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from . import module_of
from .case import GOOD, Kind, Outcome, Result, WrongResult

__all__ = ["OUTCOMES", "PRINTED", "Shared", "work"]

OUTCOMES = tuple(Outcome)
PRINTED = "printed.txt"
"""What a worker prints, in its folder."""
_SPARE_MEGABYTES = 2048
"""Address space that is taken, but not used."""


class Shared(ctypes.Structure):
    """What a worker tells without sending anything, so that it is there after a crash."""

    _fields_ = (
        ("index", ctypes.c_int64),
        ("begun", ctypes.c_double),
        ("counts", ctypes.c_int64 * len(OUTCOMES)),
    )


def _random(kind: str, seed: int, index: int) -> Random:
    return Random(f"{seed}/{kind}/{index}")


def _validated(run: Callable[[], Result]) -> Result:
    try:
        return run()
    except WrongResult as error:
        return Result(Outcome.WRONG, str(error))
    except MemoryError as error:
        return Result(Outcome.MEMORY, f"{error} at {_innermost(error)}")
    except Exception as error:
        return Result(
            Outcome.TRACEBACK,
            "".join(traceback.format_exception(error)) + f"{type(error).__name__} at {_innermost(error)}",
        )


def _innermost(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"


class _Memory:
    """Holds cases to an amount of memory: what they ask for beyond it, and much more yet, is not given."""

    def __init__(self, megabytes: int | None) -> None:
        self.megabytes = megabytes
        if megabytes is not None:
            size = (self._status("VmSize") + megabytes + _SPARE_MEGABYTES) << 20
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        self.before = self._status("VmRSS")

    @staticmethod
    def _status(name: str) -> int:
        """Of this process, in MiB."""
        text = Path("/proc/self/status").read_text(encoding="ascii")
        return int(text.split(f"{name}:", 1)[1].split(None, 1)[0]) >> 10

    def check(self, result: Result) -> Result:
        """`result`, or that the case took too much, which an error that was caught may hide."""
        taken = self._status("VmHWM") - self.before
        if self.megabytes is None or taken <= self.megabytes:
            return result
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the most is to begin anew
        return Result(Outcome.MEMORY, f"{taken} MiB; {result.outcome}: {result.message}")


def work(name: str, seed: int, folder: str, pipe: Connection, shared: Any) -> None:
    """A worker: does what it is told until it is told nothing more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the watcher ends it
    with open(Path(folder, PRINTED), "wb") as printed:
        for number in (1, 2):
            os.dup2(printed.fileno(), number)
    kind: Kind = module_of(name).make(Path(folder))
    notes = getattr(kind, "notes", Counter())
    memory = _Memory(kind.megabytes)
    pipe.send(("ready", kind.seconds, kind.suffix))
    while True:
        try:
            order, *operands = pipe.recv()
        except EOFError:
            return
        if order == "input":
            try:
                pipe.send(("input", kind.input(_random(name, seed, operands[0]))))
            except Exception:
                pipe.send(("input", None))  # the case has said so
        elif order == "replay":
            shared.begun = time.monotonic()
            pipe.send(("result", 0, memory.check(_validated(lambda data=operands[0]: kind.run(data)))))
        else:
            ctypes.memset(ctypes.addressof(shared.counts), 0, ctypes.sizeof(shared.counts))
            notes.clear()
            for index in range(*operands):
                shared.index, shared.begun = index, time.monotonic()
                random = _random(name, seed, index)
                # an error in making the input is one of the case
                result = memory.check(_validated(lambda random=random: kind.run(kind.input(random))))
                shared.counts[OUTCOMES.index(result.outcome)] += 1
                if result.outcome not in GOOD:
                    pipe.send(("result", index, result))
            pipe.send(("done", dict(notes)))
