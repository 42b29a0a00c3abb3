"""Running tools, which end when this process ends."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["run_command", "run_yowasp"]

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_PATIENCE = 10.0
"""Seconds for the supervisor to end a tool; it is quicker than that."""


def run_command(
    command: Sequence[str],
    folder: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    limit: float | None = None,
    scratch: Path | None = None,
) -> tuple[int, str]:
    """Run a command, without input; its exit code, 128 more than a signal's number, and all that it printed.

    Of a program that is missing or cannot be started, the exit code is 127, as a shell has it, and the output says why.
    When this process is interrupted or killed, so are the command and all that it has started; what the command has
    left running when it ends, is ended then.

    Args:
        command: path of a program, and its arguments.
        folder: where to run it; default: here.
        environment: its environment; default: this process's own.
        limit: seconds, None for no limit.
        scratch: a folder to remove when this process is interrupted or killed, though not at the limit; the command's
            temporary files are there.

    Raises:
        subprocess.TimeoutExpired: after `limit` seconds.
        OSError: when there can be no further process, or `folder` is none.
    """
    scratch = scratch and scratch.resolve()  # the command runs elsewhere
    variables = dict(os.environ if environment is None else environment)
    if scratch is not None:
        variables["TMPDIR"] = str(scratch)
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SUPERVISOR, "" if scratch is None else str(scratch), *command],
            cwd=folder,
            env=variables,
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C at the terminal goes to this process alone, which then ends the tool
        )
        with process:
            try:
                output, _ = process.communicate(timeout=limit)
            except BaseException as error:
                if isinstance(error, subprocess.TimeoutExpired):  # of others' work in that folder nothing is lost
                    os.write(writing, b".")
                os.close(writing)
                writing = -1
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE)
                raise
            return process.returncode, output
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def run_yowasp(
    command: Sequence[str], folder: Path | None = None, *, limit: float | None = None, scratch: Path | None = None
) -> tuple[int, str]:
    """`run_command` for a tool that may be one of YoWASP, which stops with an error where it cannot keep what it has
    compiled of itself: then it is run again with a folder of its own for that, and takes a minute more.
    """
    code, output = run_command(command, folder, limit=limit, scratch=scratch)
    if code == 0 or not re.search(r"^(OSError|\w+Error: \[Errno)", output, re.MULTILINE):
        return code, output
    with TemporaryDirectory(prefix="npukit-yowasp-") as kept:
        environment = os.environ | {"YOWASP_CACHE_DIR": kept}
        return run_command(command, folder, environment=environment, limit=limit, scratch=scratch)
