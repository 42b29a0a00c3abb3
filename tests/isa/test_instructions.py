"""Encoder and decoder of the five instructions."""

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.isa.instructions import (
    ENGINES,
    INSTRUCTION_BITS,
    OPCODE_FIELD,
    OPCODES,
    TWO_SOURCE_OPERATIONS,
    WINDOW_OPERATIONS,
    End,
    Engine,
    FieldSpec,
    Instruction,
    InstructionError,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
    decode,
    encode,
    fields_of,
)

BYTES = INSTRUCTION_BITS // 8
ALL_FIELDS = [(kind, spec) for kind in OPCODES.values() for spec in fields_of(kind)]
NAMES = [f"{kind.mnemonic}-{spec.name}" for kind, spec in ALL_FIELDS]


def base_of(kind: type[Instruction], spec: FieldSpec) -> Instruction:
    """An instruction of that kind in which the field can be set."""
    if spec.variant == "window":
        return Vector(operation=Operation.SUM)
    return kind()


def word_of(instruction: Instruction) -> int:
    return int.from_bytes(encode(instruction), "little")


@given(data=st.data())
def test_encode_and_decode_are_inverse(data: st.DataObject, any_instruction: st.SearchStrategy) -> None:
    instruction = data.draw(any_instruction)
    raw = encode(instruction)
    assert len(raw) == BYTES
    again = decode(raw)
    assert again == instruction
    assert type(again) is type(instruction)
    assert encode(again) == raw


@given(raw=st.binary(min_size=BYTES, max_size=BYTES), opcode=st.sampled_from([*OPCODES]))
def test_whatever_decodes_encodes_to_the_same_bits(raw: bytes, opcode: int) -> None:
    word = int.from_bytes(raw, "little") & ~7 | opcode
    used = max(spec.lsb + spec.width for spec in fields_of(OPCODES[opcode]))
    data = (word & ((1 << used) - 1)).to_bytes(BYTES, "little")
    try:
        instruction = decode(data)
    except InstructionError:
        return
    assert encode(instruction) == data


@pytest.mark.parametrize(("kind", "spec"), ALL_FIELDS, ids=NAMES)
def test_each_field_has_its_own_bits(kind: type[Instruction], spec: FieldSpec) -> None:
    base = base_of(kind, spec)
    values = list(spec.kind) if spec.kind is not None else [spec.low, spec.bias, spec.high]
    for value in values:
        changed: Any = {spec.name: value}
        instruction = replace(base, **changed)
        stored = word_of(instruction) >> spec.lsb & ((1 << spec.width) - 1)
        assert stored == (value - spec.bias) % (1 << spec.width)
        outside = ~(((1 << spec.width) - 1) << spec.lsb)
        assert word_of(instruction) & outside == word_of(base) & outside
        assert decode(encode(instruction)) == instruction


@pytest.mark.parametrize("kind", OPCODES.values(), ids=lambda kind: kind.mnemonic)
def test_layout_has_no_overlaps_and_fits(kind: type[Instruction]) -> None:
    specs = fields_of(kind)
    assert [spec.name for spec in specs] == [field.name for field in fields(kind)]
    for variant in {None} | {spec.variant for spec in specs}:
        used = (1 << OPCODE_FIELD.width) - 1
        for spec in specs:
            if spec.variant in (None, variant):
                mask = ((1 << spec.width) - 1) << spec.lsb
                assert used & mask == 0, spec
                used |= mask
        assert used.bit_length() <= INSTRUCTION_BITS


@pytest.mark.parametrize(("kind", "spec"), ALL_FIELDS, ids=NAMES)
def test_values_out_of_range_are_refused_not_truncated(kind: type[Instruction], spec: FieldSpec) -> None:
    for value in (spec.low - 1, spec.high + 1, spec.low - (1 << spec.width), spec.high + (1 << spec.width)):
        changed: Any = {spec.name: value}
        instruction = replace(base_of(kind, spec), **changed)
        rule = f"{kind.mnemonic}: {spec.name} must be from {spec.low} to {spec.high}, not {value}"
        with pytest.raises(InstructionError, match=f"^{re.escape(rule)}$"):
            encode(instruction)


@pytest.mark.parametrize(("kind", "spec"), ALL_FIELDS, ids=NAMES)
def test_only_whole_numbers_are_encoded(kind: type[Instruction], spec: FieldSpec) -> None:
    changed: Any = {spec.name: 1.5}
    with pytest.raises(InstructionError, match=f"{spec.name} must be a whole number, not 1.5"):
        encode(replace(base_of(kind, spec), **changed))
    numpy_value: Any = {spec.name: np.int64(spec.bias)}
    assert encode(replace(base_of(kind, spec), **numpy_value)) == encode(base_of(kind, spec))


def test_ranges_that_the_machine_relies_on() -> None:
    ranges = {(kind.mnemonic, spec.name): (spec.low, spec.high) for kind, spec in ALL_FIELDS}
    assert ranges["LOAD", "offset"] == (0, 32767)
    assert ranges["LOAD", "words"] == (1, 65536)
    assert ranges["LOAD", "row_stride"] == (-32768, 32767)
    assert ranges["LOAD", "dram_row_stride"] == (-(1 << 23), (1 << 23) - 1)
    assert ranges["LOAD", "dram"] == (0, (1 << 32) - 1)
    assert ranges["MATRIX", "channels"] == (1, 1024)
    assert ranges["VECTOR", "window_height"] == (1, 16)
    assert ranges["VECTOR", "a_stride_x"] == (-1024, 1023)


def test_defaults_do_nothing_more_than_one_word() -> None:
    assert Load().words == Load().rows == Load().planes == 1
    assert Vector().operation is Operation.REQUANTIZE and Vector().a_memory is Memory.ACT
    assert Matrix().blocks == Matrix().channels == Matrix().height == 1
    assert Store().wait == Store().signal == Store().drain == 0


def test_each_instruction_has_its_engine() -> None:
    assert [kind.engine for kind in (Load, Matrix, Vector, Store)] == list(ENGINES)
    assert End.engine is None
    assert Engine.LOAD < Engine.MATRIX < Engine.VECTOR < Engine.STORE


@pytest.mark.parametrize("opcode", [0, 6, 7])
def test_unknown_opcode(opcode: int) -> None:
    with pytest.raises(InstructionError, match=f"opcode must be one of 1, 2, 3, 4, 5, not {opcode}$"):
        decode(opcode.to_bytes(BYTES, "little"))


@pytest.mark.parametrize("operation", [22, 31])
def test_unknown_operation(operation: int) -> None:
    message = f"VECTOR: operation has no meaning for the value {operation}"
    spec = next(spec for spec in fields_of(Vector) if spec.name == "operation")
    with pytest.raises(InstructionError, match=message):
        decode((word_of(Vector()) | operation << spec.lsb).to_bytes(BYTES, "little"))
    with pytest.raises(InstructionError, match=message):
        encode(Vector(operation=operation))  # type: ignore[arg-type]


@pytest.mark.parametrize("instruction", [*(kind() for kind in OPCODES.values()), Vector(operation=Operation.MAX)])
def test_reserved_bits_are_refused(instruction: Instruction) -> None:
    variant = "window" if getattr(instruction, "is_window", False) else "source"
    used = (1 << OPCODE_FIELD.width) - 1
    for spec in fields_of(type(instruction)):
        if spec.variant in (None, variant):
            used |= ((1 << spec.width) - 1) << spec.lsb
    for bit in range(INSTRUCTION_BITS):
        if not used >> bit & 1:
            with pytest.raises(InstructionError, match=f"{instruction.mnemonic}: reserved bits must be 0"):
                decode((word_of(instruction) | 1 << bit).to_bytes(BYTES, "little"))


@pytest.mark.parametrize("operation", Operation)
def test_fields_of_the_other_variant_are_refused(operation: Operation) -> None:
    instruction = Vector(operation=operation)
    assert instruction.is_window == (operation in WINDOW_OPERATIONS)
    assert instruction.has_two_sources == (operation in TWO_SOURCE_OPERATIONS)
    other = "source" if instruction.is_window else "window"
    for spec in fields_of(Vector):
        if spec.variant == other:
            changed: Any = {spec.name: spec.bias + 1}
            message = f"VECTOR: {spec.name} must be {spec.bias} for operation {operation.name}, not {spec.bias + 1}"
            with pytest.raises(InstructionError, match=f"^{re.escape(message)}$"):
                encode(replace(instruction, **changed))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_wrong_length(length: int) -> None:
    with pytest.raises(InstructionError, match=f"an instruction has 32 bytes, not {length}"):
        decode(bytes(length))
