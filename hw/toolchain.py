"""Tools outside of Python and the cache folder: where they are, and what to say when they are missing."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["ToolError", "cache_folder", "find_tool", "source_digest", "tail", "write_atomically"]


class ToolError(RuntimeError):
    """A tool that is missing or failed; the message says which and how to get it, or what it printed."""


def cache_folder(*parts: str) -> Path:
    """A folder for what can be made again, below `$XDG_CACHE_HOME/npukit` or `~/.cache/npukit`; it exists."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root, "npukit", *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file so that another process sees either nothing or all of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
