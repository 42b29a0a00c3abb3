"""Assembly text and back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.isa.assembly import assemble, disassemble, format_instruction, parse_instruction
from npukit.isa.instructions import (
    End,
    InstructionError,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)


@given(data=st.data())
def test_text_and_back(data: st.DataObject, any_instruction: st.SearchStrategy) -> None:
    program = data.draw(st.lists(any_instruction, max_size=4))
    notes = data.draw(st.lists(st.text(max_size=20), min_size=len(program), max_size=len(program)))
    assert assemble(disassemble(program)) == program
    assert assemble(disassemble(program, notes)) == program


@given(note=st.text())
def test_a_note_never_becomes_code(note: str) -> None:
    assert assemble(disassemble([End()], [f"x\n{note}\u2028LOAD"])) == [End()]


def test_what_the_text_looks_like() -> None:
    program = [
        Load(memory=Memory.WGT, words=16, wait=2, signal=2),
        Matrix(act_stride_y=-3, wait=5, drain=1),
        Vector(operation=Operation.ADD, b_memory=Memory.ACC, b_bank=1),
        Vector(operation=Operation.MAX, window_height=3),
        Store(),
        End(),
    ]
    assert disassemble(program, ["weights", "", "", "", "", ""]).splitlines() == [
        "LOAD wait=MATRIX signal=MATRIX memory=WGT words=16  # weights",
        "MATRIX drain=1 wait=LOAD+VECTOR act_stride_y=-3",
        "VECTOR operation=ADD a_memory=ACT out_memory=ACT b_memory=ACC b_bank=1",
        "VECTOR operation=MAX a_memory=ACT out_memory=ACT window_height=3",
        "STORE",
        "END",
    ]
    assert format_instruction(End()) == "END"


def test_what_a_writer_may_vary() -> None:
    text = """
    # a comment
    LOAD   words=0x10 memory=PAR   # another

    VECTOR signal=STORE+LOAD operation=FILL
    """
    assert assemble(text) == [
        Load(memory=Memory.PAR, words=16),
        Vector(operation=Operation.FILL, signal=0b1001),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("JUMP", "an instruction is one of LOAD, MATRIX, VECTOR, STORE, END, not 'JUMP'"),
        ("LOAD speed=3", "LOAD has the fields drain, wait, signal, memory, "),
        ("LOAD words", "LOAD has the fields "),
        ("LOAD words=3 words=4", "LOAD: words is given twice"),
        ("LOAD words=three", "LOAD: words must be a whole number, not 'three'"),
        ("LOAD words=", "LOAD: words must be a whole number, not ''"),
        ("LOAD words=0", "LOAD: words must be from 1 to 65536, not 0"),
        ("LOAD memory=DRAM", "LOAD: memory must be one of ACT, ACC, WGT, PAR, not 'DRAM'"),
        ("LOAD wait=FETCH", "LOAD: wait must be one of LOAD, MATRIX, VECTOR, STORE, not 'FETCH'"),
        ("LOAD wait=", "LOAD: wait must be one of LOAD, MATRIX, VECTOR, STORE, not ''"),
        ("VECTOR operation=SUB", "VECTOR: operation must be one of REQUANTIZE, "),
        ("VECTOR operation=MAX b_bank=1", "VECTOR: b_bank must be 0 for operation MAX, not 1"),
        ("VECTOR operation=ADD window_width=2", "VECTOR: window_width must be 1 for operation ADD, not 2"),
    ],
)
def test_errors_name_line_and_field(line: str, message: str) -> None:
    with pytest.raises(InstructionError, match=f"^{re.escape(message)}"):
        parse_instruction(line)
    with pytest.raises(InstructionError, match=f"^line 3: {re.escape(message)}"):
        assemble(f"END\n# comment\n{line}  # and one more\nEND\n")
