"""`npukit compile --emit c` as a user has it."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from npukit import zoo
from tests.cli.conftest import Result

FILES = ["README.md", "digits.c", "digits.h", "example.c", "npu.c", "npu.h", "npu_port.h", "npu_registers.h"]
CONFIG = ("--config", "int8-4x4")
Command = Callable[..., Result]


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """The digits network as a file."""
    path = tmp_path / "digits.onnx"
    path.write_bytes(zoo.load("digits"))
    return path


def test_sources(npukit: Command, digits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "kit"
    result = npukit("compile", digits, "--emit", "c", "-o", folder, *CONFIG)
    assert result.code == 0
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert f"wrote {folder}: 1 subgraph(s)" in result.err
    assert "memory for the accelerator: 65536 bytes" in result.out
    assert "memory for the accelerator: 65536 bytes" in (folder / "README.md").read_text()


def test_sizes(npukit: Command, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a compiler are what it makes of the files; without one, the arrays' are stated, and why."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: make deps")
    monkeypatch.setenv("CC", "gcc -DNDEBUG")
    folder = tmp_path / "kit"
    value = npukit("compile", digits, "--emit", "c", "-o", folder, *CONFIG, "--json").json["firmware"]
    assert value["name"] == "digits"
    assert value["files"] == [str(folder / name) for name in FILES]
    assert value["measured_with"].startswith("gcc -DNDEBUG -std=c99 -Os: gcc")
    for source in ("npu.c", "digits.c"):
        target = tmp_path / f"{source}.o"
        subprocess.run(["gcc", "-std=c99", "-Os", "-c", str(folder / source), "-o", str(target)], check=True)
        printed = subprocess.run(["size", str(target)], check=True, capture_output=True, text=True).stdout
        text, data, bss = map(int, printed.splitlines()[1].split()[:3])
        assert value["objects"][source] == {"text": text, "data": data, "bss": bss}
        assert (data, bss) == (0, 0)
    arrays = value["constants_bytes"] + value["code_bytes"]
    assert arrays < value["objects"]["digits.c"]["text"] < arrays + 3000

    (tmp_path / "mycc").symlink_to(shutil.which("gcc") or "")
    (tmp_path / "extra.h").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "./mycc -include extra.h")
    value = npukit("compile", digits, "--emit", "c", "-o", folder, *CONFIG, "--json").json["firmware"]
    assert value["measured_with"].startswith("mycc -include extra.h -std=c99 -Os"), value["not_measured"]

    monkeypatch.setenv("CC", "no-such-compiler")
    value = npukit("compile", digits, "--emit", "c", "-o", folder, *CONFIG, "--json").json["firmware"]
    assert (value["objects"], value["measured_with"]) == ({}, None)
    assert "no-such-compiler" in value["not_measured"]
    assert value["constants_bytes"] + value["code_bytes"] == arrays
    text = npukit("compile", digits, "--emit", "c", "-o", folder, *CONFIG).out
    assert "text and data are not measured" in text and "no-such-compiler" in text


def test_again_and_with_another_name(npukit: Command, digits: Path, tmp_path: Path) -> None:
    """Files of the user's own stay, and nothing else is left."""
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "mine.c").write_text("int mine;\n")
    for _ in range(2):
        assert npukit("compile", digits, "--emit", "c", "-o", folder, "--name", "My net!", *CONFIG).code == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"mine.c", "my_net.c", "my_net.h", *FILES} - {"digits.c", "digits.h"}


def test_a_refused_model_changes_nothing(npukit: Command, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "npu.c").write_text("/* Made by npukit: as it was */\n")
    model = tmp_path / "floats.onnx"
    model.write_bytes(zoo.load("digits", "fp32"))
    result = npukit("compile", model, "--emit", "c", "-o", folder, "--quiet", *CONFIG)
    result.refused("nothing of the model runs on the accelerator", "Conv", "npukit check")
    assert [path.name for path in folder.iterdir()] == ["npu.c"]
    assert (folder / "npu.c").read_text() == "/* Made by npukit: as it was */\n"


@pytest.mark.parametrize("name", FILES)
def test_files_of_others_stay(npukit: Command, digits: Path, tmp_path: Path, name: str) -> None:
    """Of the same name as one of the kit's; before the work, and whatever it is."""
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / name).write_bytes(b"\xff mine\n/* Made by npukit */\n")
    command = ("compile", digits, "--emit", "c", "-o", folder, "--quiet", *CONFIG)
    npukit(*command).refused(f"{folder / name} is there, and not from npukit", "name another folder with -o")
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_bytes().startswith(b"\xff mine")
    (folder / name).unlink()
    (folder / name).mkdir()
    npukit(*command).refused(f"cannot write {folder / name}: it is a folder")
    assert [path.name for path in folder.iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--emit", "c", "--stop-after", "lower"), "leave out --stop-after"),
        (("-o", "{tmp}/x.onnx", "--name", "x"), "--name goes with --emit c"),
        (("--emit", "c", "-o", "{tmp}/digits.onnx"), "not a folder"),
        (("--emit", "c", "-o", "{tmp}/digits.onnx/kit"), "not a folder"),
        (("--emit", "c"), "needs -o"),
        (("--emit", "c", "-o", "{tmp}/kit", "--name", ""), "not empty"),
        (("--emit", "c", "-o", "{tmp}/kit", "--name", "x" * 300), "has 300 characters"),
    ],
)
def test_bad_arguments(npukit: Command, digits: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    npukit("compile", digits, *given, *CONFIG).refused(message)
    assert not (tmp_path / "kit").exists()
