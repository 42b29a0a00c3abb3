"""The cache folder: what can be made again. Imports nothing of the kit but `files`, so that every folder may use it.

Each file ends with a digest of what is before it, without which it counts as absent: a process that is killed, a full
disk or a failing one never leaves something that is taken for whole. Where nothing can be kept, all works without, and
the log says so once.
"""

import fcntl
import hashlib
import logging
import os
import pwd
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from npukit.files import PARTIAL, replace_file

__all__ = ["cache_folder", "cache_path", "is_whole", "keep", "locked", "not_kept", "read_kept", "sealed"]

_MARK = b"\nnpukit sha256 "
_SEAL = len(_MARK) + 64 + 1
_CHUNK = 1 << 20
_ABANDONED = 3600
"""Seconds after which a file that is not finished is nobody's any more."""
_log = logging.getLogger("npukit")
_said: list[str] = []


def _home() -> str:
    home = os.environ.get("HOME", "")
    if not home:
        with suppress(KeyError):  # a user without an entry
            home = pwd.getpwuid(os.getuid()).pw_dir
    return home


def cache_path(*parts: str) -> Path | None:
    """A path below `$XDG_CACHE_HOME/npukit` or `~/.cache/npukit`; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        home = _home()
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    return Path(base, "npukit", *parts).absolute()


def cache_folder(*parts: str) -> Path:
    """The same as a folder that exists.

    Raises:
        OSError: when it cannot be made.
    """
    folder = cache_path(*parts)
    if folder is None:
        raise FileNotFoundError("there is no home folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def not_kept(error: OSError) -> None:
    """Say, the first time, that nothing is kept."""
    if not _said:
        _said.append(str(error))
        place = cache_path()
        where = "" if place is None else f" in {place}"
        _log.warning("npukit: nothing is kept%s, and all is made anew: %s", where, error.strerror or error)


def sealed(data: bytes) -> bytes:
    """What a file of the cache holds: data, and their digest."""
    return data + _MARK + hashlib.sha256(data).hexdigest().encode() + b"\n"


def _unsealed(content: bytes) -> bytes | None:
    data = content[:-_SEAL]
    return data if content == sealed(data) else None


def is_whole(path: Path) -> bool:
    """Whether a file is there and holds what was written."""
    try:
        with open(path, "rb") as file:
            left = os.fstat(file.fileno()).st_size - _SEAL
            digest = hashlib.sha256()
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
            return left == 0 and file.read() == _MARK + digest.hexdigest().encode() + b"\n"
    except OSError:
        return False


def read_kept(path: Path | None) -> bytes | None:
    """What was kept there; None if there is nothing, or something else."""
    try:
        return None if path is None else _unsealed(path.read_bytes())
    except OSError:
        return None


def keep(path: Path | None, data: bytes, *, durable: bool = True) -> bool:
    """Keep data there, in one step, and by default not before the disk has them; whether that went well."""
    try:
        if path is None:
            raise FileNotFoundError("there is no home folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        for partial in path.parent.glob(f"*{PARTIAL}"):
            with suppress(OSError):
                if time.time() - partial.stat().st_mtime > _ABANDONED:
                    partial.unlink()
        replace_file(path, sealed(data), durable=durable)
        return True
    except OSError as error:
        not_kept(error)
        return False


@contextmanager
def locked(path: Path | None, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a file lock; the system releases it when the process ends, however it ends. `waiting` is called when another
    process has it. Where there can be no lock there is none: then two processes may make the same thing."""
    try:
        if path is None:
            raise FileNotFoundError
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a", encoding="utf-8")
    except OSError:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
