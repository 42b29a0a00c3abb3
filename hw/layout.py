"""Instruction words as hardware sees them, derived from `npukit.isa`."""

from amaranth.hdl import Const, Mux, Shape, Value
from amaranth.lib import data
from npukit.isa.instructions import (
    OPCODE_FIELD,
    OPCODES,
    WINDOW_OPERATIONS,
    Instruction,
    Vector,
    fields_of,
)

__all__ = ["instruction_layout", "instruction_view", "without_meaning"]


def instruction_layout(kind: type[Instruction]) -> data.FlexibleLayout:
    """The layout of an instruction, up to its last field; counts hold count - 1, and the variants of VECTOR overlap."""
    fields = {"opcode": data.Field(OPCODE_FIELD.width, 0)}
    for spec in fields_of(kind):
        fields[spec.name] = data.Field(Shape(spec.width, spec.signed), spec.lsb)
    return data.FlexibleLayout(max(field.offset + field.width for field in fields.values()), fields)


def instruction_view(kind: type[Instruction], word: Value) -> data.View:
    """A word of `INSTRUCTION_BITS` as an instruction of a kind."""
    layout = instruction_layout(kind)
    return layout(word[: layout.size])


def without_meaning(word: Value) -> Value:
    """Whether `npukit.isa.instructions.decode` refuses a word: opcode, field, or a bit outside of all fields."""
    opcode = word[: OPCODE_FIELD.width]
    refused: Value = Const(1, 1)
    for kind in OPCODES.values():
        refused = Mux(opcode == kind.opcode, _without_meaning(kind, word), refused)
    return refused


def _without_meaning(kind: type[Instruction], word: Value) -> Value:
    specs = fields_of(kind)
    ends = {
        variant: max(spec.lsb + spec.width for spec in specs if spec.variant in (None, variant))
        for variant in {spec.variant for spec in specs}
    }
    used = ends.pop(None)
    refused = Const(0, 1)
    if not ends:
        refused = word[used:].any()
    else:
        assert kind is Vector
        operation = instruction_view(Vector, word).operation
        is_window: Value = Const(0, 1)
        for one in WINDOW_OPERATIONS:
            is_window = is_window | (operation == one)
        refused = Mux(is_window, word[ends["window"] :].any(), word[ends["source"] :].any())
    for spec in specs:
        # a variant's memories all have a meaning
        if spec.kind is not None and len(spec.kind) < 1 << spec.width:
            refused = refused | (word[spec.lsb : spec.lsb + spec.width] > max(spec.kind))
    return refused
