"""Work on a model in another process, because libraries crash on some models, and must not take this process along."""

import faulthandler
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import onnx
from npukit.driver.fork_server import MODEL, work_in_server

__all__ = ["Crash", "in_this_process", "run_apart"]

_ANSWER = "answer.json"

_HERE = ContextVar("npukit work on models in this process", default=False)


@contextmanager
def in_this_process() -> Iterator[None]:
    """Within, `run_apart` works in this process: on models that the kit itself has made, of modules that live here as
    well."""
    before = _HERE.set(True)
    try:
        yield
    finally:
        _HERE.reset(before)


class Crash(RuntimeError):
    """The process was ended by a signal; the message is the signal's name."""


def run_apart(work: Callable[[onnx.ModelProto, Path], Any], model: onnx.ModelProto) -> Any:
    """What a function returns of a model and an empty folder, computed in another process.

    That is a fork of this one, some 10 ms, or, where other threads are at work beside, whose locks a fork would find
    taken for ever, a fork of a process that stays for that; to start it takes a second or two.

    Args:
        work: a function of a module, whose result can be written as JSON. It may change the model.

    Raises:
        Crash: when a signal ends the process.
        OSError: when it ends otherwise without an answer, because a disk is full, say.
    """
    if _HERE.get():
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        with tempfile.TemporaryDirectory(prefix="npukit-look-") as name:
            return json.loads(json.dumps(work(copy, Path(name))))
    parent = os.getpid()
    with tempfile.TemporaryDirectory(prefix="npukit-look-") as name:
        folder = Path(name)
        if hasattr(os, "fork") and threading.active_count() == 1:
            code, said = _fork(work, model, folder, parent), ""
        else:
            (folder / MODEL).write_bytes(model.SerializeToString())
            code, said = work_in_server(folder, _answer, work)
        if code is not None and code > 128:
            raise Crash(signal.Signals(code - 128).name)
        try:
            return json.loads((folder / _ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if code is None:
                raise Crash("a signal that is not known") from None
            words = f": {said.strip().splitlines()[-1]}" if said.strip() else ""
            raise OSError(f"the process that looks at the model ended with exit code {code}{words}") from None


def _answer(work: Callable[[onnx.ModelProto, Path], Any], model: onnx.ModelProto, folder: Path) -> None:
    """What the other process does; its answer is there whole or not at all."""
    half = folder / f"{_ANSWER}.half"
    half.write_text(json.dumps(work(model, folder)), encoding="utf-8")
    half.rename(folder / _ANSWER)


def _fork(
    work: Callable[[onnx.ModelProto, Path], Any], model: onnx.ModelProto, folder: Path, parent: int
) -> int | None:
    """Answer in a fork; its exit code, 128 more than a signal's number, or None where that is not to be known."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # what they take back is the parent's
            faulthandler.disable()  # a crash here is an answer, too, and its words are nobody's
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            _answer(work, model, folder)
            code = 0
        finally:
            if os.getppid() != parent:  # it was killed, and cannot remove its folder
                shutil.rmtree(folder, ignore_errors=True)
            os._exit(code)  # nothing of the parent's is closed or written here
    try:
        return _code_of(child)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _code_of(child)
        raise


def _code_of(child: int) -> int | None:
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # whoever started this process lets the system take its children
        return None
    return code if code >= 0 else 128 - code
