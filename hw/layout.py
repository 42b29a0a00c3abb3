"""Instruction words as hardware sees them: a view over 256 bits, derived from `npukit.isa`."""

from amaranth.hdl import Shape
from amaranth.lib import data
from npukit.isa.instructions import INSTRUCTION_BITS, OPCODE_FIELD, Instruction, fields_of

__all__ = ["instruction_layout"]


def instruction_layout(kind: type[Instruction]) -> data.FlexibleLayout:
    """The layout of one instruction; counts hold count - 1, and the variants of VECTOR overlap."""
    fields = {"opcode": data.Field(OPCODE_FIELD.width, 0)}
    for spec in fields_of(kind):
        fields[spec.name] = data.Field(Shape(spec.width, spec.signed), spec.lsb)
    return data.FlexibleLayout(INSTRUCTION_BITS, fields)
