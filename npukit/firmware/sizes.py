"""What emitted C takes in a processor's memories, as a compiler has it, or by its arrays alone."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from npukit.hw.process import run_command
from npukit.hw.toolchain import ToolError, find_tool

__all__ = ["Section", "Sizes", "measure"]

_FLAGS = ("-std=c99", "-Os", "-c")
_SECONDS = 300.0


@dataclass(frozen=True)
class Section:
    """Bytes of one object: code and constants, variables with a value, and without."""

    text: int
    data: int
    bss: int


@dataclass(frozen=True)
class Sizes:
    """Bytes of objects by the names of their sources; `compiler` says what measured them.

    Without a compiler there are no objects, and `reason` says why.
    """

    objects: dict[str, Section]
    compiler: str | None
    reason: str | None = None


def measure(texts: Mapping[str, str], sources: Sequence[str]) -> Sizes:
    """Compile sources for size with the compiler that `CC` names, or `cc`, and read the objects' sizes.

    `texts`: of all files by their names, of which `sources` are compiled. `CC` may be another machine's compiler, with
    flags. What fails is no error: the sources are there all the same, and the result says why they are not measured.
    """
    try:
        command = shlex.split(os.environ.get("CC") or "cc")
        compiler = find_tool(command[0], "sudo apt-get install -y gcc")
        with TemporaryDirectory(prefix="npukit-size-") as name:
            work = Path(name)

            def run(*arguments: str | Path) -> str:
                # here, and not there: the command may name programs and files relative to this folder
                code, output = run_command([str(one) for one in arguments], limit=_SECONDS, scratch=work)
                if code != 0:
                    raise ToolError(f"{Path(arguments[0]).name} failed: {' '.join(output.split())[:200]}")
                return output

            version = run(compiler, *command[1:], "--version").splitlines()[0]
            size = run(compiler, *command[1:], "-print-prog-name=size").strip()
            size = size if os.path.isabs(size) else find_tool(size, "sudo apt-get install -y binutils")
            for path, text in texts.items():
                (work / path).write_text(text, encoding="utf-8")
            objects = {}
            for source in sources:
                run(compiler, *command[1:], *_FLAGS, work / source, "-o", work / f"{source}.o")
                objects[source] = _section(run(size, work / f"{source}.o"))
        return Sizes(objects, f"{shlex.join([Path(compiler).name, *command[1:], *_FLAGS[:2]])}: {version}")
    except (ToolError, OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        return Sizes({}, None, " ".join(str(error).split()))


def _section(output: str) -> Section:
    """From what `size` prints in Berkeley's format.

    Raises:
        ValueError: another format.
    """
    match = re.search(r"^\s*(\d+)\s+(\d+)\s+(\d+)\s", output, re.MULTILINE)
    if match is None:
        raise ValueError(f"size printed {' '.join(output.split())[:80]!r}")
    return Section(int(match[1]), int(match[2]), int(match[3]))
