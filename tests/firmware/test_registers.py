"""The register map in its three forms, read by tools that know nothing of the kit, against the declaration."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from npukit.isa.config import PRESETS
from npukit.isa.registers import REGISTERS

from npukit.cli import main
from npukit.firmware.register_header import register_header
from npukit.firmware.register_map import MAP_BYTES, register_list, reset_of
from npukit.firmware.register_rdl import register_rdl
from npukit.firmware.register_svd import register_svd

CONFIG = PRESETS["int8-4x4"]
CONFIGS = pytest.mark.parametrize("config", (None, CONFIG), ids=("any", "int8-4x4"))


@CONFIGS
def test_systemrdl(tmp_path: Path, config) -> None:
    rdl = pytest.importorskip("systemrdl", reason="systemrdl-compiler is not installed: pip install npukit[test]")
    path = tmp_path / "npu.rdl"
    path.write_text(register_rdl(config))
    compiler = rdl.RDLCompiler()
    compiler.compile_file(str(path))
    found = list(compiler.elaborate().top.registers())
    assert [(one.inst_name, one.absolute_address) for one in found] == [(one.name, one.offset) for one in REGISTERS]
    for node, register in zip(found, REGISTERS, strict=True):
        reset = reset_of(register, config)
        assert node.get_property("regwidth") == 32
        assert node.get_property("desc") == register.doc
        fields = {field.inst_name: field for field in node.fields()}
        if register.bits is None:
            assert list(fields) == ["VALUE"]
            assert (fields["VALUE"].low, fields["VALUE"].width) == (0, 32)
            assert fields["VALUE"].get_property("reset") == reset
        else:
            assert {name: (one.low, one.width) for name, one in fields.items()} == {
                bit.name: (int(bit), 1) for bit in register.bits
            }
            for bit in register.bits:
                assert reset is not None
                assert fields[bit.name].get_property("reset") == reset >> bit & 1
                assert fields[bit.name].get_property("desc") == bit.doc
        for field in fields.values():
            assert field.is_sw_readable == (register.access != "wo")
            assert field.is_sw_writable == (register.access != "ro")
            clears = field.get_property("onwrite")
            assert (clears is not None and clears.name == "woclr") == (register.access == "w1c")


@CONFIGS
def test_svd(tmp_path: Path, config) -> None:
    svd = pytest.importorskip("cmsis_svd", reason="cmsis-svd is not installed: pip install npukit[test]")
    text = register_svd(0x5000_0000, 7, config)
    path = tmp_path / "npu.svd"
    path.write_text(text)
    (peripheral,) = svd.SVDParser.for_xml_file(str(path)).get_device().peripherals
    assert peripheral.base_address == 0x5000_0000
    assert [(one.name, one.value) for one in peripheral.interrupts] == [("NPU", 7)]
    found = peripheral.registers
    assert [(one.name, one.address_offset) for one in found] == [(one.name, one.offset) for one in REGISTERS]
    access = {"ro": "read-only", "rw": "read-write", "wo": "write-only", "w1c": "read-write"}
    for one, register in zip(found, REGISTERS, strict=True):
        reset = reset_of(register, config)
        assert (one.description, one.size) == (register.doc, 32)
        assert one.access.value == access[register.access]
        written = None if one.modified_write_values is None else one.modified_write_values.value
        assert written == ("oneToClear" if register.access == "w1c" else None)
        assert one.reset_mask == (0 if reset is None else 0xFFFFFFFF)
        assert one.reset_value == (reset or 0)
        fields = [(field.name, field.bit_offset, field.bit_width, field.description) for field in one.fields]
        assert fields == [(bit.name, int(bit), 1, bit.doc) for bit in register.bits or ()]


@pytest.mark.parametrize("interrupt", (None, 3))
def test_svd_keeps_to_the_schema(interrupt: int | None) -> None:
    svd = pytest.importorskip("cmsis_svd", reason="cmsis-svd is not installed: pip install npukit[test]")
    etree = pytest.importorskip("lxml.etree", reason="lxml is not installed: pip install npukit[test]")
    document = etree.fromstring(register_svd(0, interrupt).encode())
    schemas = sorted((Path(svd.__file__).parent / "schemas").glob("CMSIS-SVD_1_3_*.xsd"))
    assert len(schemas) >= 9
    for path in schemas:
        schema = etree.XMLSchema(etree.parse(str(path)))
        assert schema.validate(document), (path.name, schema.error_log)
    document.find(".//register/addressOffset").text = "nowhere"
    assert not schema.validate(document)  # it is one that can say no


@CONFIGS
def test_header_as_a_compiler_reads_it(tmp_path: Path, config) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed: make deps")
    (tmp_path / "npu_registers.h").write_text(register_header(config))
    names = re.findall(r"^#define (NPU_\w+) ", register_header(config), re.MULTILINE)
    assert len(names) == len(set(names))
    rows = "\n".join(f'printf("%s %u\\n", "{name}", {name});' for name in names)
    program = tmp_path / "print.c"
    program.write_text(f'#include <stdio.h>\n#include "npu_registers.h"\nint main(void) {{\n{rows}\nreturn 0;\n}}\n')
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, str(program), "-o", str(tmp_path / "print")], check=True, cwd=tmp_path)
    lines = subprocess.run([str(tmp_path / "print")], check=True, capture_output=True, text=True).stdout.splitlines()
    values = {name: int(value) for name, value in (line.split() for line in lines)}
    expected = {"NPU_REGISTERS_BYTES": MAP_BYTES}
    for register in REGISTERS:
        expected[f"NPU_{register.name}_OFFSET"] = register.offset
        reset = reset_of(register, config)
        if reset:
            expected[f"NPU_{register.name}_RESET"] = reset
        for bit in register.bits or ():
            expected[f"NPU_{register.name}_{bit.name}_BIT"] = int(bit)
            expected[f"NPU_{register.name}_{bit.name}_MASK"] = 1 << bit
    assert values == expected


def test_hash_is_the_configuration_s() -> None:
    halves = {one["name"]: one["reset"] for one in register_list(CONFIG) if one["name"].startswith("CONFIG_HASH")}
    assert halves["CONFIG_HASH_HIGH"] << 32 | halves["CONFIG_HASH_LOW"] == CONFIG.hash
    assert all(one["reset"] is None for one in register_list() if one["name"].startswith("CONFIG_HASH"))


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["registers", *map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def test_command(command, tmp_path: Path) -> None:
    assert command() == (0, register_header(), "")
    assert command("--format", "rdl", "--config", "int8-4x4") == (0, register_rdl(CONFIG), "")
    assert command("--format", "svd", "--base", "0x10000000")[1] == register_svd(0x10000000)
    code, out, err = command("--format", "svd", "-o", tmp_path / "npu.svd")
    assert (code, out) == (0, "")
    assert "wrote" in err
    assert (tmp_path / "npu.svd").read_text() == register_svd(0x40000000)
    value = json.loads(command("--json")[1])
    assert value["registers"] == register_list()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--base", "0x1000"), "go with --format svd"),
        (("--format", "svd", "--base", "here"), "not 'here'"),
        (("--format", "svd", "--base", "0x1004"), "multiple of 4096"),
        (("--format", "svd", "--interrupt", "-1"), "not -1"),
        (("--json", "--format", "c"), "leave out --format"),
        (("-o", "/nowhere/npu.h"), "does not exist"),
        (("--config", "none-such"), "none-such"),
    ],
)
def test_bad_arguments(command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1
