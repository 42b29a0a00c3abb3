"""`npukit explore`: files, going on, refusals, and its page in a browser."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("optuna")

SPACE = "[fields]\narray = [4, 8]\nbus_bytes = [4, 8, 16]\nvector_lanes = [1, 2, 4]\n[limits]\non_chip_kib = 300\n"


@pytest.fixture
def search(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr("npukit.exploration.evaluate.cache_folder", lambda _: tmp_path / "kept")
    (tmp_path / "space.toml").write_text(SPACE)

    def run(*options: object):
        return npukit("explore", "digits", "-o", tmp_path / "out", "--space", tmp_path / "space.toml", "--jobs", 1,
                      "--config", "int8-8x8", *options)  # fmt: skip

    return run


def test_files_and_going_on(npukit, search, tmp_path: Path) -> None:
    first = search("--trials", 4, "--json").json
    assert len(first["points"]) == 4
    again = search("--trials", 4, "--json").json
    assert again == first
    found = search("--trials", 7, "--json").json
    assert found["points"][:4] != [] and len(found["points"]) == 7
    assert [one["trial"] for one in found["points"][:4]] == [one["trial"] for one in first["points"]]
    with open(tmp_path / "out" / "pareto.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["trial"]) for row in rows) == sorted(one["trial"] for one in found["points"])
    front = [one for one in found["points"] if one["front"]]
    assert [row["front"] for row in rows] == ["True"] * len(front) + ["False"] * (7 - len(front))
    names = {path.name for path in (tmp_path / "out" / "configs").iterdir()}
    assert names == {f"{one['trial']:04}.toml" for one in front}
    assert "int8-4x4" in {one["preset"] for one in found["points"]}
    # each point runs again as it says
    point = front[0]
    command, verify = point["commands"]
    result = npukit(*shlex.split(command)[1:], "--json").json
    assert result["cycles"] == point["models"]["digits"]["cycles"] and result["config"] == point["config"]
    assert shlex.split(verify)[:2] == ["npukit", "verify"]
    text = search("--trials", 7)
    assert text.out.splitlines()[0].split() == ["trial", "machine", "preset", "cycles", "area", "energy"]
    assert len(text.out.splitlines()) == 2 + len(front)
    search("--trials", 7, "--objectives", "cycles").refused("another search", "objectives")
    assert json.loads((tmp_path / "out" / "pareto.json").read_text()) == found


def test_files_of_others_stay(search, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "configs"
    folder.mkdir(parents=True)
    for name in ("8x8.toml", "2024-board.toml", "0099.toml"):
        (folder / name).write_text("array = 8\n")
    (folder / "0098.toml").write_text("# trial 98\n")
    assert search("--trials", 2).code == 0
    assert {"8x8.toml", "2024-board.toml", "0099.toml"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "0098.toml").exists()


def test_names_that_are_not_utf8(npukit, digits, tmp_path: Path) -> None:
    """A model's file may be called anything; results are UTF-8."""
    model = tmp_path / os.fsdecode(b"digits-\xff.onnx")
    model.write_bytes(Path(digits).read_bytes())
    config = ("--config", "int8-4x4")
    assert npukit("explore", model, "-o", tmp_path / "out", "--trials", 1, "--jobs", 1, *config).code == 0
    assert npukit("profile", model, "-o", tmp_path / "profile", *config).code == 0
    assert npukit("run", model, *config, "--compare", "--compare-report", tmp_path / "report.html").code == 0
    for name in ("out/pareto.json", "profile/summary.json", "profile/report.html", "report.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert r"digits-\xff.onnx" in text.replace("\\\\", "\\"), name
    found = npukit("run", model, *config, "--timing-only", "--json")
    (tmp_path / "run.json").write_text(found.out)
    assert npukit("diff", tmp_path / "run.json", tmp_path / "profile").code == 0


def test_bad_spaces(npukit, search, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("dram_latency = [0]\n")
    search("--trials", 1).refused("dram_latency")
    (tmp_path / "space.toml").write_text("[fields]\narray = [0]\n")
    found = search("--trials", 1, "--quiet")
    assert found.code == 2 and "the last one: array must be from 4 to 64, not 0" in found.err
    (tmp_path / "space.toml").write_text("base = 'int8-4x4'\n")
    search("--trials", 1).refused("it has a base of its own: leave out --config")
    npukit("explore", "digits", "digits", "-o", tmp_path / "x").refused("has one twice")
    npukit("explore", "digits", "-o", tmp_path / "x", "--scheduler", "foo://x").refused("--scheduler")


@pytest.mark.slow
def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    """A terminal's, which goes to the workers as well, while they evaluate; the command ends them, and says so."""
    pytest.importorskip("distributed")
    command = [sys.executable, "-m", "npukit", "explore", "digits", "-o", tmp_path / "out", "--trials", "1000"]
    with subprocess.Popen(
        [*command, "--jobs", "2", "--config", "int8-8x8"], start_new_session=True, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("0 of 1000 machines"):
                break
        time.sleep(5)
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read().splitlines()
    assert process.returncode == 130 and rest[-1] == "npukit: interrupted"
    assert all(re.fullmatch(r"\d+ of 1000 machines, .* a minute", line) for line in rest[:-1]), rest


def test_floats_are_explored_in_floats(npukit, search, tmp_path: Path) -> None:
    """A model of the zoo has the precision of the machines, as `npukit run` takes it."""
    (tmp_path / "space.toml").write_text("[fields]\nbus_bytes = [8]\n")
    (point,) = search("--trials", 1, "--config", "bf16-8x8", "--json").json["points"]
    ran = npukit("run", "digits", "--config", "bf16-8x8", "--timing-only", "--json").json
    assert point["models"]["digits"]["cycles"] == ran["cycles"]


def test_bad_options(npukit, search, tmp_path: Path) -> None:
    search("--objectives", "cycles,speed").refused("--objectives", "'speed'")
    search("--objectives", "cycles,cycles").refused("twice")
    search("--trials", 0).refused("--trials must be 1 or more")
    search("--jobs", -1).refused("--jobs")
    npukit("explore", tmp_path / "none.onnx", "-o", tmp_path / "x", "--jobs", 1).refused("none.onnx")
    (tmp_path / "file").write_text("")
    npukit("explore", "digits", "-o", tmp_path / "file", "--jobs", 1).refused("file")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("pareto*"))
