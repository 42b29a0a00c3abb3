"""Files that are replaced, and folders whose files come together."""

import logging
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from npukit.files import OutputError, staged, write_file


@pytest.mark.parametrize(
    ("mode", "owner", "group", "kept"),
    [
        (0o640, True, True, 0o640), (0o604, True, True, 0o604), (0o4750, True, True, 0o4750),
        (0o660, False, True, 0o660), (0o4750, False, True, 0o750),
        (0o660, False, False, 0o600), (0o2664, False, False, 0o604), (0o600, False, False, 0o600),
    ],
)  # fmt: skip
def test_nobody_may_do_more_with_a_file_that_is_replaced(
    mode: int, owner: bool, group: bool, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether this process may give a file to its owner and group, or not."""
    path = tmp_path / "f"
    path.write_text("before")
    path.chmod(mode)
    before = path.stat()
    asked = []

    def chown(handle: int, user: int, other: int) -> None:
        asked.append((user, other))
        if (user != -1 and not owner) or not group:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", chown)
    write_file(path, b"after")
    assert path.read_bytes() == b"after" and stat.S_IMODE(path.stat().st_mode) == kept
    assert asked[0] == (before.st_uid, before.st_gid)
    assert asked[1:] == ([] if owner else [(-1, before.st_gid)])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_file_of_another_owner() -> None:
    """Of root and a group, replaced by a user who is in that group alone, in a folder that all may write."""
    with TemporaryDirectory() as name:  # not pytest's, where other users may not go
        os.chmod(name, 0o777)
        check_another_owner(Path(name, "f"))


def check_another_owner(path: Path) -> None:
    """The test itself, at that path."""
    path.write_text("before")
    os.chown(path, 0, 65534)
    path.chmod(0o660)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(1000)
            write_file(path, b"secret")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 65534, 0o660)


def test_after_an_error_only_logs_and_reports_come(tmp_path: Path) -> None:
    """What a tool was writing may be half, and must not replace what is whole."""
    (tmp_path / "top.json").write_text("whole")
    (tmp_path / "top.log").write_text("of before")
    with pytest.raises(RuntimeError, match="tool died"), staged(tmp_path) as work:
        for name in ("top.json", "top.bit", "top.log", "top.report", "top.stat"):
            (work / name).write_text("new")
        raise RuntimeError("tool died")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"top.json": "whole", "top.log": "new", "top.report": "new", "top.stat": "new"}


def test_files_that_cannot_be_put_in_their_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others are, and the error says where these are."""
    for name in ("a", "c.log"):
        (tmp_path / name / "taken").mkdir(parents=True)
    with pytest.raises(OutputError) as caught, staged(tmp_path) as work:
        for name in ("a", "b", "c.log", "d"):
            (work / name).write_text(name)
    assert (tmp_path / "b").read_text() == "b" and (tmp_path / "d").read_text() == "d"
    assert f"cannot write {tmp_path / 'a'}: " in str(caught.value) and str(work) in str(caught.value)
    assert {path.name: path.read_text() for path in work.iterdir()} == {"a": "a", "c.log": "c.log"}
    with caplog.at_level(logging.WARNING), pytest.raises(RuntimeError, match="tool died"), staged(tmp_path) as work:
        (work / "c.log").write_text("why")
        raise RuntimeError("tool died")
    assert f"cannot write {tmp_path / 'c.log'}: " in caplog.text and str(work) in caplog.text
    assert (work / "c.log").read_text() == "why"


def test_nothing_stays_of_what_is_interrupted(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt), staged(folder) as work:
        (work / "top.log").write_text("half")
        raise KeyboardInterrupt
    assert not folder.exists()
