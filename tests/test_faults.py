"""A few faults of each cheap kind, and faults that `faults.py` must find; `make faults` puts hundreds in."""

import importlib.util
import os
import secrets
import signal
import sys
from pathlib import Path
from random import Random

import pytest

_spec = importlib.util.spec_from_file_location("npukit_faults", Path(__file__).with_name("faults.py"))
assert _spec is not None and _spec.loader is not None
faults = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = faults  # dataclasses look their module up
_spec.loader.exec_module(faults)


@pytest.mark.parametrize("kind", ["output", "cache"])
def test_writers_that_are_killed(kind: str) -> None:
    seed = secrets.randbelow(10**6)
    print("seed", seed)
    lines: list[str] = []
    words = ["--count", "3", "--kinds", kind, "--seed", str(seed), "--seconds", "1"]
    assert faults.main(words, lines.append) == 0, lines
    assert lines[-1] == "3 faults, 0 after which something was wrong"


class Careless(faults.Kind):
    """Something that does what the kit must not do, in the place of the kit."""

    script = ""

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", f"{self.script}; sleep 30 & wait"]

    def left(self) -> list[str]:
        return ["half an output"]

    def next_run(self) -> list[str]:
        return ["another output"]


class Endless(faults.Written):
    """A writer that has begun, and in which a signal is not what the kit makes of it."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", "import time; print('written', flush=True); time.sleep(30)"]

    def left(self) -> list[str]:
        return []

    def next_run(self) -> list[str]:
        return []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_writer_that_has_begun_is_past_its_start(number: signal.Signals, tmp_path: Path) -> None:
    fault = faults.put_in(Endless(tmp_path / "kind", Random(1), seconds=0.2), "endless", number, True)
    assert fault.outcome != "in Python's own start"
    assert any(problem.startswith("exit code ") for problem in fault.problems), fault


@pytest.mark.parametrize(
    ("script", "number", "found"),
    [
        ("sleep 30 & true", signal.SIGKILL, "sleep still runs"),
        ('touch "$TMPDIR"/npukit-rtl-1', signal.SIGKILL, "npukit-rtl-1 is left"),
        ("touch .npukit-1.partial; trap 'exit 143' TERM", signal.SIGTERM, "1 unfinished files are left"),
        ("trap 'exit 1' TERM", signal.SIGTERM, "exit code 1: "),
        ("trap 'echo a >&2; exit 143' TERM", signal.SIGTERM, "more than a line: a\n"),
        ("true", signal.SIGKILL, "half an output"),
        ("true", signal.SIGKILL, "another output"),
    ],
)
def test_what_is_wrong_is_found(
    script: str, number: signal.Signals, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "PATIENCE", 0.2)
    monkeypatch.setattr(Careless, "script", script)
    kind = Careless(tmp_path / "kind", Random(1), seconds=0.2)
    kind.random.uniform = lambda low, high: 0.3  # type: ignore[method-assign]
    problems = faults.put_in(kind, "careless", number, True).problems
    assert found in problems, problems
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if kind.token.encode() in (place / "environ").read_bytes():
                os.kill(int(place.name), signal.SIGKILL)
        except OSError:
            pass
