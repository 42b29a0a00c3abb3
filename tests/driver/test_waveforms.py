"""Where waveforms are written: what was there is replaced by a run, and by nothing else.

The core's model is replaced here by one that writes a word for each thing that it does.
"""

import os
import stat
import threading
from pathlib import Path

import pytest
from npukit.driver import rtl_device
from npukit.driver.device import DeviceError
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS

from npukit.files import PARTIAL, OutputError


class Model:
    """In the place of the library."""

    def __init__(self) -> None:
        self.file = None
        self.left = 0
        self.interrupted = False

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: 0

    def npu_create(self) -> int:
        return 1

    def npu_violation(self, model: int) -> bytes:
        return b""

    def npu_open_vcd(self, model: int, path: bytes, first: int, last: int) -> int:
        try:
            self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115
        except OSError:
            return 0
        self.file.write("begun ")
        return 1

    def npu_running(self, model: int) -> int:
        return self.left

    def npu_run(self, model: int, cycles: int) -> None:
        self.left -= 1
        assert self.file is not None
        self.file.write("run ")
        if self.interrupted:
            raise KeyboardInterrupt

    def npu_flush_vcd(self, model: int) -> None:
        if self.file is not None:
            self.file.flush()

    def npu_destroy(self, model: int) -> None:
        if self.file is not None:
            self.file.write("end")
            self.file.close()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = Model()
    monkeypatch.setattr(rtl_device, "check_tools", lambda: None)
    monkeypatch.setattr(rtl_device, "build_library", lambda *arguments, **options: Path())
    monkeypatch.setattr(rtl_device, "_bind", lambda path: made)
    return made


def device(path: Path) -> RtlDevice:
    return RtlDevice(PRESETS["int8-4x4"], memory_bytes=4096, vcd=path, verilog="")


def test_without_a_run_what_was_there_stays(model: Model, tmp_path: Path) -> None:
    """An input that cannot be read, for instance, or an interrupt before the run."""
    path = tmp_path / "a.vcd"
    path.write_text("before")
    with device(path) as one:
        assert path.read_text() == "before"
        one.wait(10)  # nothing runs
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt), device(path):
        raise KeyboardInterrupt
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_a_run_replaces_it(model: Model, tmp_path: Path) -> None:
    path, link = tmp_path / "a.vcd", tmp_path / "link"
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to(path)
    with device(link) as one:
        model.left = 2
        one.step(1)
        assert path.read_text() == "before"
        one.wait(10)
        assert path.read_text() == "begun run run "
        model.left = 1
        one.wait(10)
    assert path.read_text() == "begun run run run end" and link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_a_run_that_is_interrupted_can_be_looked_at(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "a.vcd"
    path.write_text("before")
    model.left, model.interrupted = 5, True
    with pytest.raises(KeyboardInterrupt), device(path) as one:
        one.wait(10)
    assert path.read_text() == "begun run end"
    model.__init__()
    path.write_text("before")
    with device(path) as one:
        model.left = 2
        one.step(1)
    assert path.read_text() == "begun run end", "a part of a run"


def test_a_pipe_is_written_to(model: Model, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(pipe.read_text()))
    thread.start()
    with device(pipe):
        pass
    thread.join(30)
    assert read == ["begun end"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_cannot_be_written(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, path = tmp_path / "folder", tmp_path / "a.vcd"
    folder.mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for place in (folder, tmp_path / "none" / "a.vcd", tmp_path / "circle", tmp_path / ("n" * 300)):
        with pytest.raises(DeviceError, match="cannot write waveforms to"):
            device(place)
    one = device(path)
    path.mkdir()
    model.left = 1
    with pytest.raises(OutputError) as caught:
        one.wait(10)
    (partial,) = (found for found in tmp_path.iterdir() if found.name.endswith(PARTIAL))
    assert str(caught.value).startswith(f"cannot write {path}: ") and str(caught.value).endswith(str(partial))
    one.close()
    assert partial.read_text() == "begun run end"
