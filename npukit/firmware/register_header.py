"""The register map as a C header: offsets, values after reset, bits and masks."""

from collections.abc import Iterator

from npukit.firmware.mark import MARK
from npukit.firmware.register_map import MAP_BYTES, reset_of
from npukit.isa.config import NpuConfig
from npukit.isa.registers import REGISTERS, Register

__all__ = ["register_header"]

_ACCESS = {
    "ro": "read only",
    "rw": "read and write",
    "wo": "write only",
    "w1c": "read; writing 1 to a bit clears it",
}


def _register(register: Register, config: NpuConfig | None) -> Iterator[str]:
    yield f"/* {register.doc} ({_ACCESS[register.access]}) */"
    yield f"#define NPU_{register.name}_OFFSET {register.offset:#05x}u"
    reset = reset_of(register, config)
    if reset:
        yield f"#define NPU_{register.name}_RESET {reset:#010x}u"
    for bit in register.bits or ():
        yield f"#define NPU_{register.name}_{bit.name}_BIT {int(bit)}u /* {bit.doc} */"
        yield f"#define NPU_{register.name}_{bit.name}_MASK {1 << bit:#x}u"


def register_header(config: NpuConfig | None = None) -> str:
    """The header. With a configuration, it has the value of CONFIG_HASH too."""
    lines = [
        f"/* {MARK}: the registers of the accelerator.",
        " *",
        " * All registers are 32 bits wide. Of a 64-bit quantity the low half lies first.",
        " */",
        "#ifndef NPU_REGISTERS_H",
        "#define NPU_REGISTERS_H",
        "",
        "/* bytes of the bus's address space that they have */",
        f"#define NPU_REGISTERS_BYTES {MAP_BYTES:#x}u",
    ]
    for register in REGISTERS:
        lines += ["", *_register(register, config)]
    lines += ["", "#endif", ""]
    return "\n".join(lines)
