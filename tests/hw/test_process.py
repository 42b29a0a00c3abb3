"""Tools end with this process, however it ends, and take with them what they have started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from npukit.hw.process import run_command, run_yowasp

SHELL = "/bin/sh"
TREE = """
sleep 300 &
echo $! >> "$PIDS"
(sleep 300 & echo $! >> "$PIDS"; wait) &
echo $! >> "$PIDS"
echo $$ >> "$PIDS"
"""
"""A shell script that starts four processes in all, and says which."""
ALL = """
while [ "$(wc -l < "$PIDS")" -lt 4 ]; do sleep 0.02; done
"""
"""Waits until it has said so."""
KILLED = """
import os, sys
from pathlib import Path
from npukit.hw.process import run_command
run_command(["/bin/sh", "-c", sys.argv[1] + "wait"], Path(sys.argv[2]), scratch=Path(sys.argv[2]))
"""


def running(number: int) -> bool:
    """Whether a process is there, and is not one that has ended and is only still listed."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started(pids: Path) -> list[int]:
    """The processes of `TREE`, once they are there."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = [int(line) for line in pids.read_text().split()] if pids.exists() else []
        if len(found) == 4:
            return found
        time.sleep(0.02)
    raise AssertionError("the tool has not started")


def ended(numbers: list[int]) -> bool:
    """Whether all are gone within some seconds."""
    end = time.monotonic() + 15
    while any(map(running, numbers)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(running, numbers))


def test_output_and_exit_code(tmp_path: Path) -> None:
    script = "pwd; echo to stderr >&2; echo $TMPDIR $WORD; cat; exit 3"
    found = run_command([SHELL, "-c", script], tmp_path, environment={"WORD": "word"}, scratch=tmp_path)
    assert found == (3, f"{tmp_path}\nto stderr\n{tmp_path} word\n")
    assert run_command([SHELL, "-c", "kill -KILL $$"]) == (137, "")
    assert run_command([SHELL, "-c", "trap"]) == (0, ""), "signals are as a shell has them"
    assert run_command(["/nowhere/tool"]) == (127, "/nowhere/tool: No such file or directory\n")
    assert run_command([SHELL, "-c", "printf 'a\\377b'"]) == (0, "a\ufffdb")
    size = 1 << 20
    assert run_command([SHELL, "-c", f"head -c {size} /dev/zero"]) == (0, "\0" * size)
    assert tmp_path.exists()


def test_what_a_tool_leaves_running_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output would be waited for otherwise, as they could still write to it."""
    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    begin = time.monotonic()
    assert run_command([SHELL, "-c", TREE + ALL + "echo done; exit 5"], limit=60) == (5, "done\n")
    assert time.monotonic() - begin < 30 and ended(started(pids))
    with pytest.raises(FileNotFoundError):
        run_command([SHELL, "-c", "true"], tmp_path / "none")


def test_out_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids, scratch = tmp_path / "pids", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("PIDS", str(pids))
    (scratch / "of another command").touch()
    with pytest.raises(subprocess.TimeoutExpired):
        run_command([SHELL, "-c", TREE + "wait"], limit=1.0, scratch=scratch)
    assert ended(started(pids)) and list(scratch.iterdir())


def test_a_scratch_folder_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is meant from here, not from where the command runs."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    code, said = run_command([SHELL, "-c", 'echo "$TMPDIR"'], Path("scratch"), scratch=Path("scratch"))
    assert code == 0 and said.strip() == str(scratch.resolve())


def test_what_will_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    with pytest.raises(subprocess.TimeoutExpired):
        run_command([SHELL, "-c", "trap '' TERM; " + TREE + "wait; wait; wait"], limit=1.0)
    assert ended(started(pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_process_that_is_killed(number: int, tmp_path: Path) -> None:
    """With SIGKILL it can do nothing itself; with SIGTERM, in Python, neither."""
    pids, scratch = tmp_path / "pids", tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "half").write_text("done")
    environment = os.environ | {"PIDS": str(pids)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, TREE, scratch], env=environment, stderr=subprocess.DEVNULL
    ) as one:
        children = started(pids)
        assert all(map(running, children))
        one.send_signal(number)
    assert ended(children)
    end = time.monotonic() + 10
    while scratch.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not scratch.exists()


def test_a_yowasp_that_cannot_keep_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with Python's own words then; and works with a folder of its own."""
    monkeypatch.delenv("YOWASP_CACHE_DIR", raising=False)
    script = (
        'echo run >> "$0"; test -d "$YOWASP_CACHE_DIR" || { echo "OSError: [Errno 28] No space"; exit 1; }; echo done'
    )
    runs = tmp_path / "runs"
    assert run_yowasp([SHELL, "-c", script, str(runs)]) == (0, "done\n")
    assert runs.read_text().count("run") == 2
    assert run_yowasp([SHELL, "-c", "echo ERROR: no such file; exit 1"]) == (1, "ERROR: no such file\n")
