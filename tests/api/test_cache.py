"""The cache folder: what is not whole counts as absent, and where nothing can be kept all works without."""

import logging
import os
import pwd
import random
import re
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path

import npukit.sim.compiled as kernels
import pytest
from npukit.hw import verilog
from npukit.isa.config import PRESETS

from npukit import cache, compiled, files, zoo
from npukit.cache import cache_path, is_whole, keep, locked, read_kept, sealed
from npukit.zoo import synthetic

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = sorted((*ROOT.glob("bench/*.py"), *ROOT.glob("examples/*.py")))

compiling = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="NUMBA_DISABLE_JIT is set")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, about which nothing has been said yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_said", [])
    return tmp_path / "cache" / "npukit"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be, for root neither: a file is in its place."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "_said", [])


def damaged(data: bytes, seed: int) -> list[bytes]:
    """Cut short anywhere, with a bit flipped anywhere, with more behind, or with nothing in it."""
    draw = random.Random(seed)
    cuts = [data[:length] for length in (0, 1, len(data) - 1, len(data) - 73, *draw.choices(range(len(data)), k=8))]
    flips = []
    for place in (0, len(data) - 1, *draw.choices(range(len(data)), k=16)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << draw.randrange(8)
        flips.append(bytes(flipped))
    return [*cuts, *flips, data + b"\n", data + data, bytes(len(data))]


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
def test_only_what_is_whole_is_read(home: Path, seed: int | None) -> None:
    seed = secrets.randbelow(10**6) if seed is None else seed
    print("seed", seed)
    path = home / "kind" / "name"
    for data in (b"", b"x", random.Random(seed).randbytes(3000), b"text\nnpukit sha256 0\n"):
        assert read_kept(path) is None and not is_whole(path)
        assert keep(path, data)
        assert read_kept(path) == data and is_whole(path)
        assert os.listdir(path.parent) == ["name"]
        for content in damaged(path.read_bytes(), seed):
            path.write_bytes(content)
            assert read_kept(path) is None and not is_whole(path), content
        path.unlink()
    assert read_kept(home / "kind") is None and not is_whole(home / "kind")  # a folder
    assert read_kept(None) is None


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path("a", "b") == tmp_path / "npukit" / "a" / "b"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_path() == Path("/somewhere/.cache/npukit")
    monkeypatch.delenv("HOME")
    assert cache_path() == Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache", "npukit")

    def no_such_user(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", no_such_user)
    for value in (None, "", "relative"):
        if value is not None:
            monkeypatch.setenv("HOME", value)
        assert cache_path() is None, "no home"


def test_one_word_where_nothing_can_be_kept(nowhere: None, caplog: pytest.LogCaptureFixture) -> None:
    path = cache_path("kind", "name")
    with caplog.at_level(logging.WARNING):
        assert not keep(path, b"data") and not keep(path, b"data") and not keep(None, b"data")
    assert read_kept(path) is None
    (record,) = caplog.records
    assert "nothing is kept in " in record.getMessage() and "Not a directory" in record.getMessage()
    with locked(path, lambda: pytest.fail("nobody else has it")):
        pass


def test_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    path = home / "kind" / "name"
    assert keep(path, b"before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not keep(path, b"after")
    assert read_kept(path) == b"before" and os.listdir(path.parent) == ["name"]
    assert "No space left on device" in caplog.text


def test_what_a_killed_writer_left_goes(home: Path) -> None:
    path = home / "kind" / "name"
    assert keep(path, b"data")
    old, young = (path.with_name(f".npukit-{name}{files.PARTIAL}") for name in ("old", "young"))
    for partial in (old, young):
        partial.write_bytes(b"half")
    os.utime(old, (0, time.time() - 10_000))
    assert keep(path, b"data")
    assert not old.exists() and young.exists()


def test_writers_at_once(home: Path) -> None:
    """Each reader sees one writer's data, whole; nothing is left beside it."""
    path = home / "kind" / "name"
    versions = [bytes([number]) * 300_000 for number in range(4)]
    stop = threading.Event()

    def write(data: bytes) -> None:
        while not stop.is_set():
            assert keep(path, data, durable=False)

    threads = [threading.Thread(target=write, args=(data,)) for data in versions]
    for thread in threads:
        thread.start()
    seen = 0
    end = time.monotonic() + 1
    while time.monotonic() < end or not seen:
        if path.exists():
            assert read_kept(path) in versions
            seen += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert os.listdir(path.parent) == ["name"]


# ---- what uses it


def _cubes(limit):
    total = 0
    for number in range(limit):
        total += number**3
    return total


@pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="kernels are plain Python under NUMBA_DISABLE_JIT"
)
def test_kernels(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba's own cache stops with an error where a file of it is cut short, and loads code that was altered."""
    monkeypatch.setattr(kernels, "_folder", lambda: home / "kernels")

    def hits() -> int:
        kernel = kernels.njit(_cubes)
        assert kernel(10) == 2025
        return sum(kernel.stats.cache_hits.values())

    assert hits() == 0
    (path,) = (home / "kernels").iterdir()
    assert is_whole(path) and hits() == 1
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:-1], damaged(whole, 7)[-5]):
        path.write_bytes(content)
        assert hits() == 0, "compiled anew"
        assert hits() == 1, "and kept again"


@pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="kernels are plain Python under NUMBA_DISABLE_JIT"
)
def test_kernels_without_a_cache(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (cache_path("kernels"), None):
        monkeypatch.setattr(kernels, "_folder", lambda folder=folder: folder)
        assert kernels.njit(_cubes)(10) == 2025


EDITED = """
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import edited
with open(edited.__file__) as file:
    text = file.read()
if sys.argv[2] == "edit":
    with open(edited.__file__, "w") as file:
        file.write(text.replace("number + 1", "number + 2"))
print(edited.added(1))
"""


@pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="kernels are plain Python under NUMBA_DISABLE_JIT"
)
def test_a_kernel_that_is_edited_before_its_first_call(home: Path, tmp_path: Path) -> None:
    """The process has the old code, which must not be kept as the new file's."""
    (tmp_path / "edited.py").write_text(
        "from npukit.sim.compiled import njit\n@njit\ndef added(number):\n    return number + 1\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    printed = []
    for word in ("edit", "look", "look"):
        done = subprocess.run(
            [sys.executable, "-c", EDITED, tmp_path, word], env=environment, capture_output=True, text=True, check=True
        )
        printed.append(done.stdout)
    assert printed == ["2\n", "3\n", "3\n"]


def test_the_state_of_the_sources_is_that_of_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of kernels and of searches: files that have changed since are not what this process runs."""

    def changed(*arguments: object) -> str:
        raise AssertionError("the sources are looked at again")

    kernels._folder.cache_clear()
    monkeypatch.setattr(Path, "glob", changed)
    monkeypatch.setattr(compiled, "source_digest", changed)
    assert kernels._folder() is not None
    assert compiled.cached_search() is not None


def test_what_sources_make_that_were_edited_is_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of them are loaded late, and may then be newer than what the key says."""
    pytest.importorskip("amaranth", reason="amaranth is not installed: pip install 'npukit[rtl]'")
    monkeypatch.setattr(verilog, "component_verilog", lambda component, name: "module npu; endmodule\n")
    for module in (verilog, synthetic):
        monkeypatch.setattr(module, "source_digest", lambda folders: "another")
    assert verilog.core_verilog(PRESETS["int8-4x4"]) == "module npu; endmodule\n"
    assert not (home / "verilog").exists()
    assert zoo.load(list(zoo.ZOO)[-1], "fp32") and not (home / "zoo").exists()


def test_verilog(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("amaranth", reason="amaranth is not installed: pip install 'npukit[rtl]'")
    made = []

    def component_verilog(component: object, name: str) -> str:
        made.append(name)
        return "module npu; endmodule\n"

    monkeypatch.setattr(verilog, "component_verilog", component_verilog)
    config = PRESETS["int8-4x4"]
    for number in (1, 1):
        assert verilog.core_verilog(config) == "module npu; endmodule\n" and len(made) == number
    (path,) = (home / "verilog").iterdir()
    path.write_bytes(path.read_bytes()[:10])
    assert verilog.core_verilog(config) == "module npu; endmodule\n" and len(made) == 2
    path.write_bytes(sealed(b"module npu(); endmodule\n"))
    assert verilog.core_verilog(config) == "module npu(); endmodule\n" and len(made) == 2


def test_networks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    name = list(zoo.ZOO)[-1]
    data = zoo.load(name, "fp32", progress=lines.append)
    assert zoo.load(name, "fp32", progress=lines.append) == data and len(lines) == 1
    (path,) = (home / "zoo").iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    assert zoo.load(name, "fp32", progress=lines.append) == data and len(lines) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    assert zoo.load(name, "fp32") == data


def test_telemetry_is_off(tmp_path: Path) -> None:
    """ONNX Runtime makes an identity of the device when it is loaded, in the cache folder, unless it is told not to."""
    code = """
import os, subprocess, sys
import npukit.driver.host, onnxruntime
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
subprocess.run([sys.executable, "-c", "import onnxruntime"], check=True)
"""
    for name in ("home", "cache"):
        (tmp_path / name).mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "cache", tmp_path / "home"]


@pytest.mark.parametrize(
    "path", sorted({*ROOT.glob("bench/*.py"), *ROOT.glob("examples/*.py")}), ids=lambda path: path.name
)
def test_scripts_load_the_kit_before_onnx_runtime(path: Path) -> None:
    """So that its telemetry is off for them, too; for the tests `conftest.py` does it."""
    imports = re.findall(r"^(?:import|from) (npukit|onnxruntime)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert "onnxruntime" not in imports or imports[0] == "npukit"
