"""The register map as a CMSIS-SVD description, which debuggers and generators of access layers read."""

from xml.etree import ElementTree

from npukit.firmware.register_map import MAP_BYTES, reset_of
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ISA_VERSION
from npukit.isa.registers import REGISTERS, Register

__all__ = ["register_svd"]

_SCHEMA = "1.3"  # a decimal number, by the schema of every 1.3.x
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_ACCESS = {"ro": "read-only", "rw": "read-write", "wo": "write-only", "w1c": "read-write"}


def _add(parent: ElementTree.Element, name: str, text: object) -> None:
    ElementTree.SubElement(parent, name).text = str(text)


def _register(parent: ElementTree.Element, register: Register, config: NpuConfig | None) -> None:
    # the schema fixes the order of the elements
    node = ElementTree.SubElement(parent, "register")
    reset = reset_of(register, config)
    _add(node, "name", register.name)
    _add(node, "description", register.doc)
    _add(node, "addressOffset", f"{register.offset:#x}")
    _add(node, "size", 32)
    _add(node, "access", _ACCESS[register.access])
    _add(node, "resetValue", f"{reset or 0:#x}")
    _add(node, "resetMask", "0x0" if reset is None else "0xFFFFFFFF")
    if register.access == "w1c":
        _add(node, "modifiedWriteValues", "oneToClear")
    if register.bits is None:
        return
    fields = ElementTree.SubElement(node, "fields")
    for bit in register.bits:
        field = ElementTree.SubElement(fields, "field")
        _add(field, "name", bit.name)
        _add(field, "description", bit.doc)
        _add(field, "bitOffset", int(bit))
        _add(field, "bitWidth", 1)


def register_svd(base: int, interrupt: int | None = None, config: NpuConfig | None = None) -> str:
    """The description of a device with one peripheral, NPU.

    Args:
        base: byte address of the registers on the processor's bus.
        interrupt: the number of the accelerator's interrupt, if it is connected.
        config: gives CONFIG_HASH its value after reset, which is unknown without.
    """
    ElementTree.register_namespace("xs", _INSTANCE)
    device = ElementTree.Element(
        "device",
        {"schemaVersion": _SCHEMA, f"{{{_INSTANCE}}}noNamespaceSchemaLocation": "CMSIS-SVD.xsd"},
    )
    for name, text in (
        ("vendor", "npukit"),
        ("name", "NPUKIT"),
        ("version", f"{ISA_VERSION}.0"),
        ("description", "the accelerator's registers"),
        ("addressUnitBits", 8),
        ("width", 32),
        ("size", 32),
        ("resetValue", "0x0"),
        ("resetMask", "0xFFFFFFFF"),
    ):
        _add(device, name, text)
    peripheral = ElementTree.SubElement(ElementTree.SubElement(device, "peripherals"), "peripheral")
    _add(peripheral, "name", "NPU")
    _add(peripheral, "description", "control, status, interrupt and performance counters of the accelerator")
    _add(peripheral, "baseAddress", f"{base:#x}")
    block = ElementTree.SubElement(peripheral, "addressBlock")
    _add(block, "offset", "0x0")
    _add(block, "size", f"{MAP_BYTES:#x}")
    _add(block, "usage", "registers")
    if interrupt is not None:
        line = ElementTree.SubElement(peripheral, "interrupt")
        _add(line, "name", "NPU")
        _add(line, "description", "a level: an event that is enabled has happened")
        _add(line, "value", interrupt)
    registers = ElementTree.SubElement(peripheral, "registers")
    for register in REGISTERS:
        _register(registers, register, config)
    ElementTree.indent(device, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(device, encoding="unicode") + "\n"
