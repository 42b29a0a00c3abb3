"""Tools outside of Python: where they are, and what to say when they are missing."""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ToolError", "find_tool", "needs", "pip_install", "source_digest", "tail"]


class ToolError(RuntimeError):
    """A tool that is missing or failed; the message says which and how to get it, or what it printed."""


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Around imports of what comes with an extra of the kit.

    Raises:
        ToolError: when it is not installed; `what` needs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("npukit"):
            raise
        raise ToolError(
            f"{what} needs {error.name}, which is not installed; to install it: {pip_install(extra)}"
        ) from None


def pip_install(extra: str) -> str:
    """The command that installs an extra of the kit."""
    return f"pip install 'npukit[{extra}]'"


def find_tool(name: str, install: str) -> str:
    """Path of a program: beside the running Python, where pip puts it, or on PATH.

    Raises:
        ToolError: when it is in neither place; `install` is the command that brings it.
    """
    # not resolved: in a virtual environment, python is a link out of the folder that holds its tools
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None:
        raise ToolError(f"{name} is neither beside {sys.executable} nor on PATH; to install it: {install}")
    return path


def source_digest(folders: Iterable[Path]) -> str:
    """SHA-256 over the names and contents of all Python files in these folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{folder.name}/{path.relative_to(folder)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def tail(output: str, lines: int = 15) -> str:
    """The last lines of what a tool printed."""
    return "\n".join(output.strip().splitlines()[-lines:])
