"""What the documentation shows is what happens: commands, code, numbers, links.

`python tests/test_docs.py` writes README.md, docs/tour.md and docs/attention.md anew with the numbers that the kit
gives now.
"""

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from npukit.compiler.pipeline import compile_model
from npukit.isa.assembly import disassemble
from npukit.isa.config import load_config

from npukit import NpuConfig, zoo
from npukit.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TOUR = ROOT / "docs" / "tour.md"
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("attention", "onnx", "tflite", "pytorch", "reports"))
FOLDERS = ("isa", "sim", "compiler", "driver", "hw", "fpga", "npukit", "tests")
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")}
    | {ROOT / folder / "README.md" for folder in FOLDERS}
)
_COMMANDS = {"zoo", "quantize", "check", "compile", "run", "profile", "explain", "disasm", "asm", "configs"}
_VARIES = (
    (r"\d+\.\d+ s\b", "# s"),
    (r"ONNX Runtime [\d.]+,", "ONNX Runtime #,"),
    (r"\((avx[^)]*|no AVX2)\)", "(#)"),
)
"""What differs from run to run and from host to host: seconds, the oracle's version, what the CPU can do."""


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def _same(line: str) -> str:
    """A line without what varies."""
    for pattern, mark in _VARIES:
        line = re.sub(pattern, mark, line)
    return line.rstrip()


def _shape(line: str) -> str:
    """A line without its numbers."""
    return re.sub(r"\s*(\d[\d ]*\d|\d)(\.\d+)?", "#", _same(line))


def _now(shown: str, printed: Sequence[str]) -> str:
    """The line that is printed where the document shows `shown`."""
    if _same(shown) in map(_same, printed):
        return shown
    found = [line for line in printed if _shape(line) == _shape(shown)]
    assert found, f"nothing prints a line like\n{shown}\nbut\n" + "\n".join(printed)
    return found[0]


def _console(block: str) -> Iterator[str]:
    """A console block's lines with what its commands print now; `...` stands for lines left out."""
    printed: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            words = shlex.split(line[2:])
            assert words[0] == "npukit", line
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
                code = main(words[1:])
            printed = stream.getvalue().splitlines()
            assert code == 0, f"{line}: exit code {code}\n{stream.getvalue()}"
            yield line
        else:
            yield line if line == "..." else _now(line, printed)


class _Runner(doctest.DocTestRunner):
    """Collects examples that print something else than they show."""

    def __init__(self) -> None:
        super().__init__(optionflags=doctest.NORMALIZE_WHITESPACE)
        self.differ: list[tuple[doctest.Example, str]] = []

    def report_failure(self, out, test, example, got) -> None:
        self.differ.append((example, got))

    def report_unexpected_exception(self, out, test, example, exc_info) -> None:
        raise exc_info[1]


def _page(page: Path) -> str:
    """A page whose examples show what they print now. PyTorch's run in a process of their own: `torch.compile` leaves
    callbacks behind that fail once the examples' names are gone."""
    if page.stem != "pytorch":
        return _examples(page.read_text(encoding="utf-8"))
    command = [sys.executable, "-W", "ignore", __file__, str(page)]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout


def _examples(text: str) -> str:
    """A document whose `>>>` examples show what they print now."""
    code = "".join(blocks(text, "python"))
    runner = _Runner()
    runner.run(doctest.DocTestParser().get_doctest(code, {}, "document", None, 0))
    for example, got in runner.differ:
        last = example.source.splitlines()[-1]
        assert text.count(f"{last}\n{example.want}") == 1, example.source
        text = text.replace(f"{last}\n{example.want}", f"{last}\n{got}")
    return text


@cache
def _instructions() -> tuple[str, ...]:
    """The disassembly of digits for the default configuration."""
    program = compile_model(zoo.load("digits"), NpuConfig()).programs[0]
    return tuple(disassemble(program.instructions).splitlines())


def _instruction(shown: re.Match[str]) -> str:
    """A line of assembly that digits has, its end cut off where ` ...` says so, comment kept."""
    code, _, comment = shown[0].partition("  #")
    if code.endswith(" ..."):
        fields = len(code.split()) - 1
        cut = [" ".join(line.split()[:fields]) + " ..." for line in _instructions()]
        return _now(code, cut)
    return _now(code, _instructions()) + (f"  #{comment}" if comment else "")


def current_readme() -> str:
    """README.md with what its commands and its code print now."""
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in blocks(text, "console"):
            text = text.replace(block, "\n".join(_console(block)) + "\n")
    names: dict[str, object] = {}
    for code, shown in zip(blocks(text, "python"), blocks(text, "text"), strict=True):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(code, names)
        text = text.replace(shown, stream.getvalue())
    return _with_instructions(text)


def current_tour() -> str:
    """docs/tour.md with what its examples print now."""
    return _with_instructions(_examples(TOUR.read_text(encoding="utf-8")))


def _with_instructions(text: str) -> str:
    return re.sub(r"^(?:LOAD|MATRIX|VECTOR|STORE) \w+=.*$", _instruction, text, flags=re.M)


_RENEW = "run: python tests/test_docs.py"


def test_readme_shows_what_happens() -> None:
    text = README.read_text(encoding="utf-8")
    shown = re.findall(r"^\$ npukit (\w+)", "".join(blocks(text, "console")), re.M)
    assert set(shown) == _COMMANDS
    assert text == current_readme(), _RENEW


def test_tour_shows_what_happens() -> None:
    text = TOUR.read_text(encoding="utf-8")
    assert len(re.findall("^>>> ", text, re.M)) > 20
    assert text == current_tour(), _RENEW


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_show_what_happens(page: Path) -> None:
    if page.stem == "pytorch":
        pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
        pytest.importorskip("torchao", reason="torchao is not installed: make torch")
    text = page.read_text(encoding="utf-8")
    assert re.findall("^>>> ", text, re.M)
    assert text == _page(page), _RENEW


def test_readme_runs_pytorch() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
    (code,) = blocks(README.read_text(encoding="utf-8"), "py")
    said = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "on the accelerator: 4 of 4 nodes" in said


def test_a_wrong_number_is_found() -> None:
    text = TOUR.read_text(encoding="utf-8")
    number = len(_instructions())
    assert text.count(f"\n({number}, ") == 1
    wrong = text.replace(f"\n({number}, ", f"\n({number + 1}, ")
    assert _examples(wrong) == _examples(text)
    assert list(_console("$ npukit configs int8-8x8\narray = 9\n"))[1] == "array = 8"
    with pytest.raises(AssertionError, match="nothing prints a line like"):
        list(_console("$ npukit configs int8-8x8\narrays = 8\n"))


def test_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    for text in blocks(README.read_text(encoding="utf-8"), "toml"):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        assert load_config(str(path)) != NpuConfig()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?:|#", target):
            assert (path.parent / target.partition("#")[0]).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_named_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(encoding="utf-8"), re.M))
    assert named <= targets, named - targets


def _imported(folder: Path) -> set[str]:
    """Modules of the kit, by their names after `npukit.`, that the files of a folder import."""
    names: list[str] = []
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
    return {name.removeprefix("npukit.") for name in names if name.startswith("npukit.")}


def _allowed(folder: str) -> set[str] | None:
    """What a folder's README lets it import; None for everything."""
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    _, found, statement = text.partition("\nMay import: ")
    assert found, f"{folder}/README.md has no line that begins with May import:"
    if statement.startswith("everything"):
        return None
    return {folder, *re.findall(r"`([\w.]+)`", statement.partition("Never")[0])}


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_import_what_their_readme_allows(folder: str) -> None:
    allowed = _allowed(folder)
    for name in _imported(ROOT / folder):
        whole = f"{name}."
        assert allowed is None or any(whole.startswith(f"{one}.") for one in allowed), f"npukit.{name}"


if __name__ == "__main__":
    if sys.argv[1:]:
        print(_examples(Path(sys.argv[1]).read_text(encoding="utf-8")), end="")
        sys.exit(os.EX_OK)
    README.write_text(current_readme(), encoding="utf-8")
    TOUR.write_text(current_tour(), encoding="utf-8")
    for page in PAGES:
        page.write_text(_page(page), encoding="utf-8")
    sys.exit(os.EX_OK)
