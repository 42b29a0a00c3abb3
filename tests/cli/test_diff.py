"""`npukit diff`: what two profiles differ in adds up, and files of something else are refused."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from npukit.errors import UsageError
from npukit.profiling.difference import difference
from npukit.profiling.saved import read_profile


@pytest.fixture
def profiles(npukit, digits, tmp_path: Path) -> tuple[Path, Path]:
    for name, options in (("a", ("--set", "bus_bytes=4")), ("b", ())):
        assert npukit("profile", digits, "-o", tmp_path / name, "--config", "int8-8x8", *options).code == 0
    return tmp_path / "a", tmp_path / "b"


def test_sums(npukit, profiles: tuple[Path, Path]) -> None:
    before, after = (json.loads((path / "summary.json").read_text()) for path in profiles)
    found = npukit("diff", *profiles, "--json").json
    assert found["cycles"] == after["cycles"] - before["cycles"] < 0
    assert found["cycles"] == sum(layer["cycles"] for layer in found["layers"])
    moved = [sum(one["dram"][way] for way in ("read_bytes", "write_bytes")) for one in (before, after)]
    assert found["dram_bytes"] == moved[1] - moved[0] == sum(layer["dram_bytes"] for layer in found["layers"])
    by_name = {layer["node"]: layer for layer in found["layers"]}
    assert len(by_name) == len(after["layers"])
    for old, new in zip(before["layers"], after["layers"], strict=True):
        assert by_name[new["node"]]["cycles"] == new["cycles"] - old["cycles"]
    assert found["changes"] == ["config bus_bytes: 4 -> 8"]
    sizes = [abs(layer["cycles"]) for layer in found["layers"]]
    assert sizes == sorted(sizes, reverse=True)


def test_text(npukit, profiles: tuple[Path, Path]) -> None:
    """The layer that gains most is the first, and the other way around it is the one that loses most."""
    found = npukit("diff", *profiles, "--json").json["layers"][0]
    there, back = npukit("diff", *profiles).out, npukit("diff", *reversed(profiles)).out
    for text, sign in ((there, 1), (back, -1)):
        first = text.split("-----\n")[1].splitlines()[0]
        assert first.split()[0] == found["node"]
        assert f"{sign * found['cycles']:,}".replace(",", " ") in first
    assert "config bus_bytes: 4 -> 8" in there and "config bus_bytes: 8 -> 4" in back
    same = npukit("diff", profiles[0], profiles[0]).out
    assert "no layer of" in same and "+" not in same


def test_runs(npukit, digits, tmp_path: Path) -> None:
    """What `npukit run --json` printed is a profile as well."""
    for name, level in (("a.json", 0), ("b.json", 1)):
        result = npukit("run", digits, "--config", "int8-8x8", "--timing-only", "--optimize", level, "--json")
        (tmp_path / name).write_text(result.out)
    found = npukit("diff", tmp_path / "a.json", tmp_path / "b.json", "--json").json
    assert found["cycles"] < 0 and found["changes"] == ["--optimize: 0 -> 1"]
    value = json.loads((tmp_path / "a.json").read_text())
    del value["optimize"]  # as older releases wrote it, and as it is of a compiled model
    (tmp_path / "a.json").write_text(json.dumps(value))
    found = npukit("diff", tmp_path / "a.json", tmp_path / "b.json", "--json").json
    assert found["changes"] == ["--optimize: unknown -> 1"]


def test_layers_of_one_side(profiles: tuple[Path, Path], tmp_path: Path, npukit) -> None:
    value = json.loads((profiles[1] / "summary.json").read_text())
    gone = value["layers"].pop(2)
    value["layers"].append({**value["layers"][0], "cycles": 7})  # a second one of the same node
    value["layers"].append({**gone, "node": "new"})
    (tmp_path / "other.json").write_text(json.dumps(value))
    found = difference(read_profile(profiles[1]), read_profile(tmp_path / "other.json"))
    alone = {(one.layer.node, one.bound): one.cycles for one in found.layers if one.before is None or one.after is None}
    assert alone == {
        (gone["node"], "only in A"): -gone["cycles"],
        ("new", "only in B"): gone["cycles"],
        (value["layers"][0]["node"], "only in B"): 7,
    }
    assert f"{gone['node']}" in npukit("diff", profiles[1], tmp_path / "other.json").out


def test_clocks_and_names(profiles: tuple[Path, Path], tmp_path: Path, npukit) -> None:
    """Milliseconds that differ because of the clock say so; what a terminal would obey does not reach it."""
    value = json.loads((profiles[1] / "summary.json").read_text())
    value["clock"]["megahertz"] *= 2
    value["model"], value["layers"][0]["node"] = "\x1b[2J", "\x1b[31mred\n"
    value["layers"][0]["cycles"] += 5
    (tmp_path / "other.json").write_text(json.dumps(value))
    out = npukit("diff", profiles[1], tmp_path / "other.json").out
    assert re.search(r"clock megahertz: (\S+) -> (\S+)", out) and "\x1b" not in out
    assert "0 slower" in out and "1 only in A, 1 only in B" in out


def test_bad_files(npukit, profiles: tuple[Path, Path], tmp_path: Path) -> None:
    good, (path, empty) = profiles[1], (tmp_path / "bad.json", tmp_path / "empty")
    empty.mkdir()
    npukit("diff", good, tmp_path / "none").refused("cannot read", "none")
    npukit("diff", empty, good).refused("cannot read", "empty", "npukit profile wrote")
    for text, part in (
        ("", "bad.json"), ("[]", "an object"), ("{}", "config"), ("\xff\x00", "bad.json"), ("[" * 100_000, "bad.json"),
        ('{"config": {}, "cycles": "1"}', "cycles must be a whole number"),
        ('{"config": {}, "cycles": 1, "macs": 1, "layers": [{"node": 3}]}', "layers[0].node must be text"),
        ('{"config": {}, "cycles": 1, "macs": 1, "layers": [], "clock": {"milliseconds": NaN}}', "milliseconds"),
    ):  # fmt: skip
        path.write_text(text, encoding="latin-1")
        npukit("diff", good, path).refused("no profile", part)
    npukit("diff", good, good, "-o", good / "summary.json").refused("-o")


def test_damaged_files(profiles: tuple[Path, Path], tmp_path: Path) -> None:
    """Whatever is changed in a file, it is read or refused in one sentence."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    data = (profiles[1] / "summary.json").read_bytes()
    draw = random.Random(seed)
    for number in range(200):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.choice(b'0"{}[],:-.eE \xff')
        (tmp_path / "changed.json").write_bytes(changed[: draw.choice([len(changed), draw.randrange(len(changed))])])
        try:
            difference(read_profile(profiles[1]), read_profile(tmp_path / "changed.json")).to_json()
        except UsageError:
            pass
        except Exception as error:  # what broke it is in the message
            raise AssertionError(f"seed {seed}, case {number}: {type(error).__name__}: {error}") from error


def test_no_write_over_what_is_read(npukit: Callable, profiles: tuple[Path, Path], tmp_path: Path) -> None:
    data = (profiles[0] / "summary.json").read_bytes()
    npukit("diff", profiles[0], profiles[1], "-o", profiles[0]).refused()
    assert (profiles[0] / "summary.json").read_bytes() == data
