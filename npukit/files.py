"""Writing files: whole or not at all. Imports nothing of the kit, so that every folder may use it."""

import logging
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "PARTIAL", "OutputError", "final", "is_staged", "is_stream", "partial_name", "put_in_place", "replace_file",
    "staged", "write_file",
]  # fmt: skip

PARTIAL = ".partial"
"""How the names of files and folders end that are not yet what they will be."""


_ON_ERROR = (".log", ".report", ".stat")
"""Names of logs and reports end like this."""
_log = logging.getLogger("npukit")


class OutputError(OSError):
    """An output that could not be written; the message says which, and why."""


def is_stream(path: str | Path) -> bool:
    """Whether what is there takes bytes as they come: a pipe, a terminal, a device, or a descriptor of this process.

    Raises:
        OSError: when it cannot be looked at, because a folder may not be searched, for instance.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISDIR(mode) and (not stat.S_ISREG(mode) or _is_descriptor(path))


def _is_descriptor(path: Path) -> bool:
    """Whether a path leads to an open file through /proc, as /dev/stdout and /dev/fd/1 do."""
    for _ in range(40):  # as many links as Linux follows
        if os.path.realpath(path.parent).startswith("/proc/"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return False


def write_file(path: str | Path, data: bytes) -> None:
    """Write an output: a file whole or not at all, also behind a link, which stays; a pipe or a device through itself.

    Raises:
        OutputError: when it cannot be written; a file that was there is then as it was.
        BrokenPipeError: when it is a pipe that nobody reads any more.
    """
    try:
        if is_stream(path):
            _write_through(path, data)
        else:
            replace_file(Path(os.path.realpath(path)), data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


def _write_through(path: str | Path, data: bytes) -> None:
    place = os.stat(path)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, or one that is no file
            if os.path.samestat(place, os.fstat(stream.fileno())):
                stream.flush()
                handle = os.dup(stream.fileno())  # the same place in the file, so that neither overwrites the other
                break
    else:
        handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | (os.O_TRUNC if stat.S_ISREG(place.st_mode) else 0))
    with open(handle, "wb") as file:
        file.write(data)


def replace_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put a file in the place of what is at `path`, in one step: others see the old file, or the whole new one.

    Owner, group and permissions of a file that was there are kept, as far as this process may: without its group it has
    no permissions for one. `durable`: not before the disk has it.

    Raises:
        OSError: when it cannot be written; nothing is left of it then.
    """
    partial = partial_name(path)
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            with suppress(OSError):  # nothing is there, or it cannot be looked at
                _keep_access(file.fileno(), path.stat())
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def partial_name(path: Path) -> Path:
    """A name beside a path for what is not yet what it will be there."""
    # of its own for every writer; not made of the path's, which may be as long as names can be
    return path.with_name(f".npukit-{secrets.token_hex(8)}{PARTIAL}")


def put_in_place(partial: Path, path: Path) -> None:
    """Put a file that others have written as `partial_name` in the place of what is at `path`, as `replace_file` does.

    Who has it open may go on writing.

    Raises:
        OutputError: when it cannot be put there; it stays where it is, which the message says.
    """
    try:
        handle = os.open(partial, os.O_RDONLY)
        try:
            with suppress(OSError):  # nothing is there, or it cannot be looked at
                _keep_access(handle, path.stat())
        finally:
            os.close(handle)
        os.replace(partial, path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; it is in {partial}") from None


def _keep_access(handle: int, before: os.stat_result) -> None:
    """Let nobody do more with an open file than with the one that was there."""
    mode = stat.S_IMODE(before.st_mode)
    try:
        os.chown(handle, before.st_uid, before.st_gid)
    except OSError:
        mode &= ~stat.S_ISUID  # it would be for another user
        try:
            os.chown(handle, -1, before.st_gid)
        except OSError:
            mode &= ~(stat.S_IRWXG | stat.S_ISGID)
    os.chmod(handle, mode)


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder to work in, whose files go to `folder`, which is made if need be, when all is done.

    After an error only logs and reports go there: other files may be half of what a tool was writing, and what is in
    their place is whole. When the work is interrupted, nothing of it stays.

    Raises:
        OutputError: when files cannot be put in their place; they stay in the folder that it names.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    work = partial_name(folder / "work")
    failed: list[str] = []
    try:
        work.mkdir()
        try:
            yield work
        except Exception:  # an interrupt is none
            failed = _move(work, folder, _ON_ERROR)
            for problem in failed:
                _log.warning("npukit: %s; it is in %s", problem, work)
            raise
        failed = _move(work, folder, None)
        if failed:
            raise OutputError(f"{'; '.join(failed)}; what could not be written is in {work}")
    finally:
        if not failed:
            shutil.rmtree(work, ignore_errors=True)
        if made:
            with suppress(OSError):  # it holds something
                folder.rmdir()


def _move(work: Path, folder: Path, suffixes: Sequence[str] | None) -> list[str]:
    """Put files with these suffixes, or all, in their place; what could not be put there, and why."""
    failed = []
    for path in sorted(work.iterdir()):
        if suffixes is None or path.suffix in suffixes:
            try:
                os.replace(path, folder / path.name)
            except OSError as error:
                failed.append(f"cannot write {folder / path.name}: {error.strerror or error}")
    return failed


def is_staged(folder: Path) -> bool:
    """Whether a folder is one of `staged`."""
    return folder.name.endswith(PARTIAL)


def final(path: Path) -> Path:
    """Where a file in such a folder goes; the path itself in another one."""
    return path.parent.parent / path.name if is_staged(path.parent) else path
