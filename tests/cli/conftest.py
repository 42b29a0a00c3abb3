"""The command line in this process, and files to run it on."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from npukit.cli import main

settings.register_profile("npukit", deadline=None)  # the machine may be busy
settings.load_profile("npukit")


@dataclass(frozen=True)
class Result:
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout; nothing else may be there, and no number that JSON does not know."""

        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is not JSON")

        value = json.loads(self.out, parse_constant=refuse)
        assert isinstance(value, dict)
        return value

    def refused(self, *parts: str, code: int = 2) -> str:
        """The one line that says what is wrong; the configuration in use may stand before it."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == ""
        lines = self.err.splitlines()
        if lines and lines[0].startswith("config: "):
            lines = lines[1:]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("npukit"), lines[0]
        for part in parts:
            assert part in lines[0], lines[0]
        return lines[0]


@pytest.fixture
def npukit(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs a command. Captures at the level of file descriptors: libraries in C++ must be silent too."""

    def run(*arguments: object) -> Result:
        sys.stdout.flush()
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse
            code = stop.code
        captured = capfd.readouterr()
        assert isinstance(code, int)
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for files that several tests read."""
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="session")
def digits(folder: Path) -> Path:
    """The digits network."""
    path = folder / "digits.onnx"
    assert main(["zoo", "digits", "-o", str(path), "--quiet"]) == 0
    return path


@pytest.fixture(scope="session")
def compiled(folder: Path, small: Path) -> Path:
    """The small network, compiled."""
    path = folder / "compiled.onnx"
    assert main(["compile", str(small), "-o", str(path), "--config", "int8-8x8", "--quiet", "--json"]) == 0
    return path


@pytest.fixture(scope="session")
def program(folder: Path, compiled: Path) -> Path:
    """The small network's program by itself."""
    text, path = folder / "program.asm", folder / "program.npu"
    assert main(["disasm", str(compiled), "-o", str(text), "--quiet"]) == 0
    assert main(["asm", str(text), "--like", str(compiled), "-o", str(path), "--quiet"]) == 0
    return path


@pytest.fixture(scope="session")
def small(folder: Path, graphs: ModuleType) -> Path:
    """Two convolutions on a 2x3x6x6 image, integers in and out."""
    graph = graphs.Graph(seed=1)
    x = graph.input((2, 3, 6, 6), integer=True, name="image")
    y = graph.conv(graph.conv(x, 9, relu=True), 5)
    graph.output(y, integer=True)
    path = folder / "small.onnx"
    path.write_bytes(graph.model().SerializeToString())
    return path
