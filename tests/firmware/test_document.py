"""The C of docs/firmware.md compiles, and the tables of the pages name what there is."""

import re
import subprocess
from pathlib import Path

import pytest
from npukit.isa.config import PRESETS
from npukit.isa.place import ALIGNMENT
from npukit.isa.timing import INSTRUCTION_BYTES

from npukit import zoo
from npukit.firmware.kit import Kit
from tests.firmware.emitted import FLAGS, compiler, emit

PAGE = (Path(__file__).parents[2] / "docs" / "firmware.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """The digits network under its own name."""
    return emit(tmp_path_factory.mktemp("document"), zoo.load("digits"), PRESETS["int8-8x8"], "digits")


def test_its_c_compiles_as_one_program(tmp_path: Path, kit: Kit) -> None:
    program, in_place, port, handler = re.findall(r"^```c\n(.*?)^```$", PAGE, re.S | re.M)
    (tmp_path / "my_port.h").write_text(port)
    (tmp_path / "program.c").write_text(program)
    (tmp_path / "in_place.c").write_text(in_place)
    (tmp_path / "handler.c").write_text(handler)
    folder = kit.files[0].parent
    own = [tmp_path / f"{name}.c" for name in ("program", "in_place", "handler")]
    sources = [*own, folder / "npu.c", folder / "digits.c"]
    command = [compiler(), *FLAGS, f"-I{folder}", f"-I{tmp_path}", '-DNPU_PORT_HEADER="my_port.h"']
    for source in sources:
        subprocess.run([*command, "-c", str(source), "-o", str(tmp_path / f"{source.stem}.o")], check=True)
    # one program, in which nothing but the system's own functions is missing
    linked = [str(tmp_path / f"{source.stem}.o") for source in sources]
    subprocess.run(["ld", "-r", *linked, "-o", str(tmp_path / "all.o")], check=True)
    undefined = subprocess.run(["nm", "-u", str(tmp_path / "all.o")], check=True, capture_output=True, text=True).stdout
    system = {"cache_clean", "cache_invalidate", "disable_interrupts", "enable_interrupts", "sleep_until_interrupt"}
    assert {line.split()[-1] for line in undefined.splitlines()} - {"_GLOBAL_OFFSET_TABLE_"} == system


def test_its_layout_is_the_header_s(kit: Kit) -> None:
    (layout,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.S | re.M)
    assert layout in next(path for path in kit.files if path.name == "digits.h").read_text()


def test_files_and_functions_are_there(kit: Kit) -> None:
    table = re.findall(r"^\| (`[^|]*) \|", PAGE, re.M)
    named = {name for row in table for name in re.findall(r"`([\w.]+)`", row)}
    header = "".join(path.read_text() for path in kit.files if path.suffix == ".h")
    files = {path.name for path in kit.files}
    assert {name for name in named if "." in name} == files
    for name in named - files:
        assert re.search(rf"\b{name}\b", header), name


def test_constants_of_the_runtime(kit: Kit) -> None:
    """What is written there by hand is what the kit has."""
    header = next(path for path in kit.files if path.name == "npu.h").read_text()
    found = dict(re.findall(r"^#define (NPU_\w+) (\d+)u$", header, re.M))
    assert found == {"NPU_ALIGNMENT": str(ALIGNMENT), "NPU_INSTRUCTION_BYTES": str(INSTRUCTION_BYTES)}


@pytest.mark.parametrize("text", ("page", "guide"))
def test_every_macro_of_the_port_is_named(kit: Kit, text: str) -> None:
    guide = next(path for path in kit.files if path.name == "README.md").read_text()
    port = next(path for path in kit.files if path.name == "npu_port.h").read_text()
    macros = set(re.findall(r"^(?:#| \* #)define (NPU_\w+)", port, re.M)) - {"NPU_PORT_H"}
    assert len(macros) == 11
    for macro in macros:
        assert macro in (PAGE if text == "page" else guide), macro
