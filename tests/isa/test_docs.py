"""docs/isa.md is what the declarations say."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.descriptors import descriptor_lanes
from npukit.isa.docs import DOCUMENT, generate, main
from npukit.isa.instructions import OPCODES, InstructionError, Operation, fields_of
from npukit.isa.registers import COUNTERS, REGISTERS, ErrorCause


def test_the_committed_document_is_current() -> None:
    assert main(["--check"]) == 0, "run: python -m npukit.isa.docs"
    assert DOCUMENT.read_text(encoding="utf-8") == generate()


def test_everything_that_is_declared_is_documented() -> None:
    text = generate()
    names = [field.name for field in fields(NpuConfig)] + list(PRESETS)
    names += [spec.name for kind in OPCODES.values() for spec in fields_of(kind)]
    names += [one.name for one in REGISTERS] + [name for name, _ in COUNTERS] + [one.name for one in ErrorCause]
    names += [operation.name for operation in Operation]
    for name in names:
        assert f"`{name}`" in text, name
    for kind in OPCODES.values():
        assert f"\n### {kind.mnemonic}\n" in text
        for spec in fields_of(kind):
            assert spec.doc in text, spec
    for dtype in ("int8", "bf16"):
        for operation in Operation:
            try:
                lanes = descriptor_lanes(NpuConfig(dtype=dtype), operation)
            except InstructionError:
                continue
            for field in lanes[:20]:
                if not re.search(r"_\d+$", field.name):  # entries of a table stand in one row
                    assert f"| `{field.name}` | {field.doc} |" in text, field


def test_check_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "isa.md"
    assert main(["--check", "--file", str(path)]) == 1
    assert capsys.readouterr().err == f"{path} is missing: run python -m npukit.isa.docs\n"
    assert main(["--file", str(path)]) == 0
    assert main(["--check", "--file", str(path)]) == 0
    assert capsys.readouterr().err == ""
    path.write_text(path.read_text(encoding="utf-8").replace("VECTOR", "SCALAR", 1), encoding="utf-8")
    assert main(["--check", "--file", str(path)]) == 1
    assert capsys.readouterr().err == f"{path} is not current: run python -m npukit.isa.docs\n"
