"""A process without threads that forks for each piece of work: what a process with threads cannot do itself.

Python's own (`multiprocessing`'s forkserver) imports the user's main module once more, which a script without
`if __name__ == "__main__"` does not bear.
"""

import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx

__all__ = ["MODEL", "work_in_server"]

MODEL = "model.onnx"
"""Of a piece of work's folder: the model."""
_SAID = "said.txt"
_PATIENCE = 10.0
"""Seconds for a server to end its work; it is quicker than that."""

Answer = Callable[[Callable[[onnx.ModelProto, Path], Any], onnx.ModelProto, Path], None]
"""What is done in a fork: (work, model, folder)."""


def work_in_server(folder: Path, answer: Answer, work: Callable[[onnx.ModelProto, Path], Any]) -> tuple[int, str]:
    """Have `answer(work, model, folder)` computed in a fork of a server, which is started where none is idle.

    Servers stay until this process ends, so that imports are paid for once. When this process is interrupted or
    killed, so is the work, and then the folder is removed.

    Args:
        folder: has the model in the file `MODEL`.
        answer, work: functions of modules.

    Returns:
        The fork's exit code, 128 more than a signal's number, and what it printed.

    Raises:
        OSError: there can be no further process, or the server was ended.
    """
    server = _taken()
    try:
        done = server.ask(
            {
                "folder": str(folder),
                "answer": [answer.__module__, answer.__name__],
                "work": [work.__module__, work.__name__],
                "environment": dict(os.environ),
            }
        )
    except BaseException:
        server.end()
        raise
    with _lock:
        _idle.append(server)
    return done


class _Server:
    """This process's side of a server, which does one piece of work at a time."""

    def __init__(self) -> None:
        # not from the working folder, in which anything may be called onnx.py; Ctrl-C is for this process alone
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def ask(self, request: dict[str, Any]) -> tuple[int, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        remaining = memoryview(json.dumps(request).encode() + b"\n")
        while remaining:
            remaining = remaining[self._process.stdin.write(remaining) :]
        line = self._process.stdout.readline()
        if not line:
            raise OSError("the process that looks at models was ended")
        code, said = json.loads(line)
        return code, said

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """It ends its work when the pipe is closed."""
        self.forget()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Close this process's ends of the pipes."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


_lock = threading.Lock()
_idle: list[_Server] = []


def _taken() -> _Server:
    with _lock:
        while _idle:
            if (server := _idle.pop()).alive():
                return server
            server.forget()
    return _Server()


def _after_fork() -> None:
    """A fork has no share in its parent's servers, and may have forked while another thread held the lock."""
    global _lock
    _lock = threading.Lock()
    while _idle:
        _idle.pop().forget()


os.register_at_fork(after_in_child=_after_fork)


# ---- the server's side


def serve() -> None:
    """Work until the other process ends, and with it the pipe on descriptor 0."""
    replies = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing that a library prints while it is imported is a reply
    received = b""
    while True:
        while b"\n" not in received:
            part = os.read(0, 1 << 16)
            if not part:
                return
            received += part
        line, received = received.split(b"\n", 1)
        reply = json.dumps(_in_fork(json.loads(line))).encode() + b"\n"
        while reply:
            reply = reply[os.write(replies, reply) :]


def _in_fork(request: dict[str, Any]) -> tuple[int, str]:
    """Exit code, and what was printed."""
    folder = Path(request["folder"])
    with suppress(Exception):  # what cannot be imported is for the fork to tell
        for module, _ in (request["answer"], request["work"]):
            importlib.import_module(module)
    ended, ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ended)
        _work(request, folder)
    os.close(ends)
    ready, _, _ = select.select([0, ended], [], [])
    if ended not in ready:  # the other process has ended, or wants no more of it
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)
    os.close(ended)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        said = (folder / _SAID).read_text(encoding="utf-8", errors="replace")
    except OSError:
        said = ""
    return code if code >= 0 else 128 - code, said


def _work(request: dict[str, Any], folder: Path) -> None:
    """In the fork, which ends here."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        said = os.open(folder / _SAID, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.clear()
        os.environ.update(request["environment"], TMPDIR=str(folder))
        tempfile.tempdir = None
        answer, work = (
            getattr(importlib.import_module(module), name) for module, name in (request["answer"], request["work"])
        )
        answer(work, onnx.load(folder / MODEL, load_external_data=False), folder)
        code = 0
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(code)
