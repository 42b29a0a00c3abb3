"""The program container: round trip, and every way in which a file can be damaged."""

import ast
import hashlib
import inspect
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.isa import layout, program, schema
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import End, Load, Matrix, Memory, Operation, Store, Vector
from npukit.isa.layout import blocked
from npukit.isa.program import MAGIC, VERSION, Capture, CapturedTensor, NodeInfo, Program, ProgramError, TensorInfo
from npukit.isa.schema import SchemaError

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
    captures=(Capture(2, "inner", 38, 25, 10, 1), Capture(3, "result", 0, 25, 5, 1)),
    captured={
        "inner": CapturedTensor("inner", (1, 9, 25), (1, 9, 5, 5), "int8"),
        "result": CapturedTensor("result", (1, 9, 25), (9, 25), "uint8"),
        "flat": CapturedTensor("inner", (1, 9, 25), (1, 225), "int8"),
    },
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


def test_files_from_before_there_were_rectangles() -> None:
    """Their configuration has no `array_rows`, and the hash is the same."""
    head = head_of(DATA)
    del head["config"]["array_rows"]
    assert Program.from_bytes(with_head(head)).config == Program.from_bytes(DATA).config


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
    ],
    ids=str,
)
def test_contents_that_contradict_each_other(change: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match="the program's contents break the format"):
        Program.from_bytes(with_head({**head_of(DATA), **change}))


def _changed(path: str, value: Any) -> bytes:
    """A file whose head has another value at a place, as in `tensors.0.layout.pad`; `...` takes it away."""
    head = head_of(DATA)
    *inner, last = (int(key) if key.isdigit() else key for key in path.split("."))
    place: Any = head
    for key in inner:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return with_head(head)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        # kinds
        ("name", 0, "name must be text, not 0"),
        ("name", "\ud800", "name must be text without halves of surrogate pairs, not"),
        ("dram_bytes", True, "dram_bytes must be a whole number from 0 to 9223372036854775807, not True"),
        ("dram_bytes", 1 << 63, "dram_bytes must be a whole number from 0 to 9223372036854775807, not 922"),
        ("dram_bytes", 8192.0, "a number must be whole, not '8192.0'"),
        ("dram_bytes", float("inf"), "a number must be whole, not 'Infinity'"),
        ("dram_bytes", 99, "constants must be a whole number from 0 to 99, not 100"),
        ("instructions", -1, "instructions must be a whole number from 0 to"),
        ("more", 0, "the head has the members name, config, "),
        ("tensors.0", [], "tensors[0] must be an object, not []"),
        ("tensors.0.more", 0, "tensors[0] has the members name, role, dtype, shape, address, layout, flip, not 'more'"),
        ("tensors.0.address", ..., "tensors[0] has no member address"),
        # tensors
        ("tensors.0.name", "result", "tensors[1].name is another tensor's as well: 'result'"),
        ("tensors.0.role", "constant", "tensors[0].role must be one of input, output, internal, not 'constant'"),
        ("tensors.0.dtype", "float32", "tensors[0].dtype must be one of int8, uint8, not 'float32'"),
        ("tensors.0.dtype", "int32", "tensors[0].dtype must be one of int8, uint8, not 'int32'"),
        ("tensors.1.dtype", "int32", "tensors[1].layout has the shape (1, 9, 5, 5), and 4 elements make one number"),
        ("tensors.0.flip", False, "tensors[0].flip must be true for uint8, and for nothing else"),
        ("tensors.0.shape", [3, 5, 6], "tensors[0] has the shape (3, 5, 6), and its layout (1, 3, 5, 5)"),
        ("tensors.0.shape", [3, 5, 0], "tensors[0].shape must be a whole number from 1 to"),
        ("tensors.0.shape", [1 << 40, 1 << 40], "tensors[0].shape must be a shape of at most 9223372036854775807 elem"),
        ("tensors.0.shape", [75] + 99 * [1], "tensors[0] has the shape"),
        ("tensors.0.address", -1, "tensors[0].address must be a whole number from 0 to"),
        ("tensors.0.address", 8000, "tensors[0] ends at byte 8200 of 8192 bytes of DRAM"),
        ("tensors.0.layout.pad", 200, "tensors[0].layout.pad must be a whole number from -128 to 127, not 200"),
        ("tensors.0.layout.origin", [0], "tensors[0].layout.origin must be a list of 4 values, not [0]"),
        ("tensors.0.layout.length", 1 << 40, "tensors[0] ends at byte 1099511631872 of 8192"),
        ("tensors.0.layout.dims.2.size", 1 << 40, "tensors[0] ends at byte"),
        ("tensors.0.layout.dims.2.size", 0, "tensors[0].layout.dims[2].size must be a whole number from 1 to"),
        ("tensors.0.layout.dims.2.axis", 4, "tensors[0].layout.dims[2].axis must be a whole number from 0 to 3, not 4"),
        ("tensors.0.layout.dims.2.stride", -1, "tensors[0].layout.dims[2].stride must be a whole number from 0 to"),
        ("tensors.0.layout.dims.2.stride", 0, "has loops over 200 places of an image of 40 elements"),
        # nodes
        ("nodes.0.name", ["x"], "nodes[0].name must be text, not ['x']"),
        ("nodes.0.macs", -1, "nodes[0].macs must be a whole number from 0 to"),
        ("nodes.0.inputs", [], "nodes[0].inputs must have a shape or more, not none"),
        ("nodes.0.inputs", [[0]], "nodes[0].inputs must be a whole number from 1 to"),
        ("nodes.0.runs", [], "nodes[0].runs must be one or more runs of instructions, in order"),
        ("nodes.0.runs", [[3, 4], [0, 2]], "nodes[0].runs must be one or more runs of instructions, in order"),
        ("nodes.0.runs", [[0, 2], [1, 4]], "nodes[0] and nodes[0] both have instruction 1"),
        ("nodes.0.runs", [[0, 6]], "nodes[0].runs must be a whole number from 1 to 5, not 6"),
        ("nodes.0.runs", [[0]], "nodes[0].runs must be a list of 2 values, not [0]"),
        # captures and what they are of
        ("captures.0.0", 1, "captures[0].instruction must be a VECTOR without another capture: 1"),
        ("captures.0.0", 3, "captures[1].instruction must be a VECTOR without another capture: 3"),
        ("captures.0.0", 6, "captures[0].instruction must be a whole number from 0 to 5, not 6"),
        ("captures.0.1", "outer", "captures[0].tensor must be one of inner, result, not 'outer'"),
        ("captures.0.1", "flat", "captures[0].tensor must be one of inner, result, not 'flat'"),
        ("captures.0.2", 50, "captures[0] ends at word 50 of the 50 of 'inner'"),
        ("captures.0.2", -1, "captures[0].first must be a whole number from 0 to"),
        ("captures.0.5", True, "captures[0].stride_x must be a whole number from 0 to"),
        ("captured.inner.1", [1, 9, 5, 5], "captured['inner'].order must be a list of 3 values"),
        ("captured.inner.2", [1, 9, 5, 4], "captured['inner'] has the order [1, 9, 25] and the shape [1, 9, 5, 4]"),
        ("captured.inner.3", "int4", "captured['inner'].dtype must be one of int8, uint8, int32, not 'int4'"),
        ("captured.flat.0", "outer", "captured['flat'].source must be one of inner, result, flat, not 'outer'"),
        ("captured.flat.1", [1, 225, 1], "captured['flat'] is no other shape of 'inner'"),
        ("captured.inner.0", "flat", "captured['inner'] is no other shape of 'flat'"),
    ],
)  # fmt: skip
def test_a_head_that_breaks_its_schema(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(ProgramError) as caught:
        Program.from_bytes(_changed(path, value))
    assert str(caught.value).startswith("the program's contents break the format: ")
    assert sentence in str(caught.value) and len(str(caught.value)) < 400


def test_heads_that_are_no_plain_json() -> None:
    text = json.dumps(head_of(DATA)).encode()
    rest = PROGRAM.code + PROGRAM.constants
    for head, sentence in (
        (text.replace(b'"dram_bytes"', b'"name": "x", "dram_bytes"', 1), "the name 'name' stands twice"),
        (text.replace(b"8192", b"9" * 5000, 1), "Exceeds the limit"),
        (text.replace(b"8192", b"NaN", 1), "a number must be whole, not 'NaN'"),
        (text.replace(b"8192", b"1e999", 1), "a number must be whole, not '1e999'"),
        (b"\xff" + text, "it is not text (UTF-8)"),
        (b"[" * 200_000, "values are nested too deeply"),
        (text[:-1], "Expecting ',' delimiter"),
    ):
        with pytest.raises(ProgramError, match="the program's contents break the format: ") as caught:
            Program.from_bytes(with_body(len(head).to_bytes(8, "little") + head + rest))
        assert sentence in str(caught.value)


def test_the_length_of_a_head() -> None:
    with pytest.raises(ProgramError, match="its head has 18446744073709551615 of"):
        Program.from_bytes(with_body(b"\xff" * 8 + DATA[SHORTEST:]))
    long = b" " * (1 << 25)
    with pytest.raises(
        ProgramError, match="the program's head has 335544.. bytes; at most 33554432 are supported: split"
    ):
        Program.from_bytes(with_body((len(long) + 2).to_bytes(8, "little") + long + b"{}"))
    with pytest.raises(ProgramError, match="at most 33554432 are supported: split the model"):
        replace(PROGRAM, name="x" * (1 << 25)).to_bytes()


def test_nothing_is_allocated_for_what_is_announced() -> None:
    tracemalloc.start()
    large = Program.from_bytes(with_head({**head_of(DATA), "dram_bytes": 1 << 60}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert large.host_bytes > 1 << 60 and peak < 1 << 20


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
        captured={**PROGRAM.captured, text: CapturedTensor(text, (1, 1, 1), (1, 1), "int8")},
    )
    assert Program.from_bytes(evil.to_bytes()) == evil
    banned = {"eval", "exec", "compile", "__import__", "pickle", "marshal", "globals", "importlib"}
    for module in (program, layout):
        tree = ast.walk(ast.parse(inspect.getsource(module)))
        names = {getattr(node, "id", None) or getattr(node, "attr", None) for node in tree}
        assert not names & banned


def test_a_head_of_many_names_of_which_one_stands_twice() -> None:
    """Found in one pass: looking each name up among all others would take hours."""
    members = ",".join(f'"{number}":0' for number in [*range(300_000), 299_999])
    with pytest.raises(SchemaError, match="the name '299999' stands twice"):
        schema.parse(f"{{{members}}}".encode())
