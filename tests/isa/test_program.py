"""The program container: round trip, and every way in which a file can be damaged."""

import ast
import hashlib
import inspect
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.isa import layout, program
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import End, Load, Matrix, Memory, Operation, Store, Vector
from npukit.isa.layout import blocked
from npukit.isa.program import MAGIC, VERSION, Capture, NodeInfo, Program, ProgramError, TensorInfo

SHORTEST = len(MAGIC) + 4 + 32 + 8
PROGRAM = Program(
    config=PRESETS["int8-8x8"],
    instructions=(
        Load(memory=Memory.WGT, words=8, signal=2),
        Matrix(wait=1, signal=4, act_stride_x=-1),
        Vector(operation=Operation.SUM, window_height=2, wait=2, signal=8),
        Vector(operation=Operation.ADD, b_offset=3),
        Store(wait=4),
        End(),
    ),
    constants=bytes(range(100)),
    dram_bytes=8192,
    tensors=(
        TensorInfo(
            name="image é",
            role="input",
            dtype="uint8",
            shape=(3, 5, 5),
            address=4096,
            layout=blocked((1, 3, 5, 5), 8, -7),
            flip=True,
        ),
        TensorInfo(
            name="result",
            role="output",
            dtype="int8",
            shape=(1, 9, 5, 5),
            address=6144,
            layout=blocked((1, 9, 5, 5), 8),
        ),
    ),
    nodes=(NodeInfo("conv", "Conv", ((1, 3, 5, 5), (9, 3, 1, 1)), (1, 9, 5, 5), 675, ((0, 2), (3, 4))),),
    captures=(Capture(2, "inner", 0, 1, 2, 3, step_y=2), Capture(3, "result", 0, 0, 0, 0)),
    captured={
        "inner": ((1, 9, 5, 5), (1, 9, 5, 5), "int8"),
        "result": ((1, 9, 5, 5), (9, 25), "uint8"),
    },
    aliases={"flat": ("inner", (1, 225))},
    name="test",
)
DATA = PROGRAM.to_bytes()


def with_body(body: bytes) -> bytes:
    """A file whose digest matches its body, whatever that is."""
    return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body


def with_head(head: Any, rest: bytes | None = None) -> bytes:
    text = json.dumps(head).encode()
    rest = PROGRAM.code + PROGRAM.constants if rest is None else rest
    return with_body(len(text).to_bytes(8, "little") + text + rest)


def head_of(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[SHORTEST - 8 : SHORTEST], "little")
    return json.loads(data[SHORTEST : SHORTEST + length])


def test_round_trip() -> None:
    again = Program.from_bytes(DATA)
    assert again == PROGRAM
    assert again.to_bytes() == DATA
    assert again.tensor("result").shape == (1, 9, 5, 5)
    assert again.code == PROGRAM.code and len(again.code) == 6 * 32


@given(data=st.data())
def test_round_trip_of_any_instructions(data: st.DataObject, any_instruction: st.SearchStrategy) -> None:
    instructions = tuple(data.draw(st.lists(any_instruction, max_size=5)))
    constants = data.draw(st.binary(max_size=40))
    name = data.draw(st.text())
    one = Program(NpuConfig(), instructions, constants, dram_bytes=len(constants), name=name)
    assert Program.from_bytes(one.to_bytes()) == one


def test_every_truncation_is_an_error() -> None:
    for length in range(len(DATA)):
        with pytest.raises(ProgramError) as caught:
            Program.from_bytes(DATA[:length])
        if length == 0:
            expected = "not an npukit program"
        elif length < SHORTEST:
            expected = f"the program is cut short: {length} bytes, its head alone has {SHORTEST}"
        else:
            expected = "the program's digest does not match: the file is damaged or cut short"
        assert str(caught.value).startswith(expected), length


@given(position=st.integers(0, len(DATA) - 1), change=st.integers(1, 255))
def test_every_changed_byte_is_an_error(position: int, change: int) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= change
    with pytest.raises(ProgramError):
        Program.from_bytes(bytes(damaged))


@given(extra=st.binary(min_size=1, max_size=40))
def test_bytes_after_the_end_are_an_error(extra: bytes) -> None:
    with pytest.raises(ProgramError, match="digest does not match"):
        Program.from_bytes(DATA + extra)


@pytest.mark.parametrize("version", [0, 1, 1 << 31])
def test_another_version_is_named(version: int) -> None:
    data = MAGIC + version.to_bytes(4, "little") + DATA[len(MAGIC) + 4 :]
    with pytest.raises(ProgramError, match=f"format version {version}; this npukit reads {VERSION}"):
        Program.from_bytes(data)


@pytest.mark.parametrize("data", [b"", b"\x08\x0a\x12", b"NPUKIT\n\n" + bytes(100), b"PK\x03\x04" * 30])
def test_another_kind_of_file(data: bytes) -> None:
    with pytest.raises(ProgramError, match="not an npukit program: the file does not begin with its magic"):
        Program.from_bytes(data)


@given(body=st.binary(min_size=8, max_size=300))
def test_random_contents_under_a_matching_digest(body: bytes) -> None:
    with pytest.raises(ProgramError, match="the program's contents break the format"):
        Program.from_bytes(with_body(body))


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in head_of(DATA).items() if name != key}


@pytest.mark.parametrize("key", head_of(DATA))
def test_a_missing_key(key: str) -> None:
    with pytest.raises(ProgramError, match="the program's contents break the format"):
        Program.from_bytes(with_head(_without(key)))


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": 5},
        {"instructions": 7},
        {"instructions": "6"},
        {"constants": 99},
        {"config": {"array": 5}},
        {"config": {"lanes": 5}},
        {"config": None},
        {"config_hash": "0" * 16},
        {"tensors": [{}]},
        {"tensors": 3},
        {"nodes": [[]]},
        {"captures": [[1]]},
        {"captured": {"inner": 3}},
        {"aliases": {"flat": 3}},
    ],
    ids=str,
)
def test_contents_that_contradict_each_other(change: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match="the program's contents break the format"):
        Program.from_bytes(with_head({**head_of(DATA), **change}))


def test_contents_that_are_no_program() -> None:
    for head in ([], 3, None, "text", {}):
        with pytest.raises(ProgramError, match="the program's contents break the format"):
            Program.from_bytes(with_head(head))
    deep = b"[" * 200_000
    with pytest.raises(ProgramError, match="the program's contents break the format"):
        Program.from_bytes(with_body(len(deep).to_bytes(8, "little") + deep))
    code = bytearray(PROGRAM.code)
    code[0] = 0  # no such opcode
    with pytest.raises(ProgramError, match="opcode must be one of"):
        Program.from_bytes(with_head(head_of(DATA), bytes(code) + PROGRAM.constants))


def test_loading_executes_nothing() -> None:
    text = "__import__('os').abort()"
    evil = replace(
        PROGRAM,
        name=text,
        tensors=(replace(PROGRAM.tensors[0], name=text),),
        nodes=(replace(PROGRAM.nodes[0], name=text, op=text),),
        captured={**PROGRAM.captured, text: ((1, 1, 1, 1), (1, 1), "int8")},
    )
    assert Program.from_bytes(evil.to_bytes()) == evil
    banned = {"eval", "exec", "compile", "__import__", "pickle", "marshal", "globals", "importlib"}
    for module in (program, layout):
        tree = ast.walk(ast.parse(inspect.getsource(module)))
        names = {getattr(node, "id", None) or getattr(node, "attr", None) for node in tree}
        assert not names & banned
