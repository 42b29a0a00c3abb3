"""Programs from files: each command has the validator look first, and holds them to limits that the user can raise."""

import hashlib
import json
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.driver import rtl_device
from npukit.driver.executor import Executor, programs_of
from npukit.driver.loader import LoadedProgram
from npukit.driver.sim_device import SimDevice
from npukit.isa.instructions import End, Engine, Instruction, Load, Matrix, Memory, Store, Vector
from npukit.isa.layout import blocked
from npukit.isa.limits import Limits
from npukit.isa.program import MAGIC, Program, ProgramError, TensorInfo
from npukit.sim.validator import ValidationError

from npukit import Session
from npukit.npufile import write_artifact

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run",), ("run", "--timing-only"), ("run", "--device", "rtl"), ("run", "--dram", "sdram"),
    ("profile", "-o", "folder"), ("explain", "conv"), ("verify", "--replay"),
)  # fmt: skip


def arguments(command: Sequence[str], path: Path, folder: Path) -> list[str]:
    """The command line that has a command read a file."""
    words = [str(folder / "profile") if word == "folder" else word for word in command]
    return [*words, str(path)] if command[0] == "verify" else [words[0], str(path), *words[1:]]


def first_of(program: Program, kind: type[Instruction]) -> int:
    return next(index for index, one in enumerate(program.instructions) if isinstance(one, kind))


def changed(program: Program, kind: type[Instruction], **fields: Any) -> Program:
    """With other fields in its first instruction of a kind."""
    at = first_of(program, kind)
    one = replace(program.instructions[at], **fields)
    return replace(program, instructions=(*program.instructions[:at], one, *program.instructions[at + 1 :]))


def without_tokens(program: Program) -> Program:
    rest = tuple(replace(one, wait=0, signal=0, drain=0) for one in program.instructions)
    return replace(program, instructions=rest)


ILLEGAL: dict[str, tuple[Callable[[Program], Program], str]] = {
    "race": (without_tokens, "with no order between them"),
    "deadlock": (lambda one: changed(one, Load, wait=1 << Engine.STORE), "waits for a token of STORE that no earlier"),
    "unwritten": (lambda one: replace(one, constants=b""), "which nothing has written"),
    "mode": (lambda one: changed(one, Vector, out_memory=Memory.PAR), "not from ACC to PAR"),
    "bank": (lambda one: changed(one, Matrix, acc_bank=9), "is in bank 9 of ACC, which has 4"),
    "DRAM": (lambda one: changed(one, Store, dram=1 << 30), "are outside of the program's"),
    "end": (lambda one: replace(one, instructions=one.instructions[:-1], nodes=()), "a program has exactly one END"),
    "twice": (lambda one: changed(one, Store, planes=2, dram_plane_stride=0), "dram holds a word twice"),
}


@pytest.fixture(scope="module")
def sound(compiled: Path) -> Program:
    """The small network's program."""
    (program,) = programs_of(onnx.load(compiled)).values()
    return program


def with_head(program: Program, **members: Any) -> bytes:
    """A program's file with other members of its head, and a digest that is right."""
    data = program.to_bytes()
    first = len(MAGIC) + 36
    length = int.from_bytes(data[first : first + 8], "little")
    head = json.loads(data[first + 8 : first + 8 + length]) | members
    text = json.dumps(head).encode()
    body = len(text).to_bytes(8, "little") + text + data[first + 8 + length :]
    return data[: len(MAGIC) + 4] + hashlib.sha256(body).digest() + body


def saved(program: Program, compiled: Path, path: Path) -> Path:
    """The program in a file of the kind that the path's name tells, with digests that are right."""
    if path.suffix == ".npu":
        path.write_bytes(program.to_bytes())
        return path
    model = onnx.load(compiled)
    node = next(node for node in model.graph.node if node.op_type == "EPContext")
    next(one for one in node.attribute if one.name == "ep_cache_context").s = program.to_bytes()
    del model.metadata_props[:]
    write_artifact(path, model)
    return path


@pytest.fixture
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """The RTL is not built for a program that is refused."""

    def build(*_: object, **__: object) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(rtl_device, "build_library", build)


@pytest.mark.parametrize("fault", ILLEGAL)
@pytest.mark.parametrize("name", ["p.npu", "p.npu.onnx"])
def test_an_illegal_program_is_refused(
    fault: str, name: str, sound: Program, compiled: Path, npukit, tmp_path: Path, no_build: None
) -> None:
    make, sentence = ILLEGAL[fault]
    path = saved(make(sound), compiled, tmp_path / name)
    for command in COMMANDS if name == "p.npu" else COMMANDS[:-1]:
        npukit(*arguments(command, path, tmp_path), "--quiet").refused(sentence)
    assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize("fault", ILLEGAL)
def test_an_illegal_program_is_refused_by_the_library(
    fault: str, sound: Program, compiled: Path, tmp_path: Path
) -> None:  # fmt: skip
    make, sentence = ILLEGAL[fault]
    program = make(sound)
    path = saved(program, compiled, tmp_path / "p.npu.onnx")
    model = onnx.load(path)
    for source in (path, path.read_bytes(), model, saved(program, compiled, tmp_path / "p.npu")):
        with pytest.raises(ValidationError, match=sentence):
            Session(source)
    with pytest.raises(ValidationError, match=sentence):
        Executor(model, SimDevice(program.config))
    with pytest.raises(ValidationError, match=sentence):
        LoadedProgram(SimDevice(program.config), program, 0)


def test_what_was_compiled_here_is_not_validated_again(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr("npukit.driver.loader.validate_program", lambda *_: looked.append(1) or [])
    monkeypatch.setattr("npukit.compiled.validate_program", lambda *_: looked.append(1) or [])
    session = Session(small, "int8-8x8")
    assert not looked
    Session(session.artifact)
    assert looked == [1]


# ---- limits


def test_memory_is_limited(sound: Program, compiled: Path, npukit, tmp_path: Path, no_build: None) -> None:
    for dram_bytes, mebibytes in ((1 << 30, 4096), (1 << 62, 16 << 40)):
        program = replace(sound, dram_bytes=dram_bytes)
        for name in ("p.npu", "p.npu.onnx"):
            path = saved(program, compiled, tmp_path / name)
            for command in COMMANDS if name == "p.npu" else COMMANDS[:-1]:
                line = npukit(*arguments(command, path, tmp_path), "--quiet").refused(
                    f"{dram_bytes} bytes of DRAM and tensors, above the limit of 1024 MiB: raise it with --max-memory"
                )
                assert mebibytes / 2 <= int(line.split(" takes ")[1].split(" MiB")[0]) <= mebibytes
    large = saved(replace(sound, dram_bytes=400 << 20), compiled, tmp_path / "p.npu")
    npukit("run", large, "--quiet").refused("above the limit of 1024 MiB")
    assert npukit("run", large, "--quiet", "--max-memory", 2000).code == 0
    with pytest.raises(
        ValidationError, match="above the limit of 0.0078125 MiB: raise it with --max-memory, or Limits"
    ):
        Session(compiled, limits=Limits(memory=1 << 13))


def test_instructions_take_memory_as_well(sound: Program) -> None:
    many = replace(sound, instructions=sound.instructions[:-1] * 1000, nodes=(), captures=(), captured={})
    assert many.host_bytes > 2500 * len(many.instructions)
    with pytest.raises(ProgramError, match="instructions must be a whole number from 0 to 1048576, not 1048577"):
        Program.from_bytes(with_head(sound, instructions=(1 << 20) + 1))
    with pytest.raises(ProgramError, match="1048577 instructions; at most 1048576 are supported: split the model"):
        replace(sound, instructions=(End(),) * ((1 << 20) + 1)).to_bytes()


def test_a_program_that_makes_nothing(sound: Program, compiled: Path, npukit, tmp_path: Path) -> None:
    path = saved(
        replace(sound, instructions=(End(),), nodes=(), captures=(), captured={}),
        compiled,
        tmp_path / "p.npu",
    )
    npukit("run", path, "--quiet").refused("DRAM word", "of it is never written")


def test_constants_that_end_in_the_middle_of_a_word(sound: Program) -> None:
    """What earlier programs left behind them is not read."""
    config = sound.config
    device = SimDevice(config)
    size = config.word_bytes
    device.write_memory(0, np.full(1 << 16, 99, np.uint8))
    output = TensorInfo("y", "output", "int8", (1, size), 2 * size, blocked((1, size, 1, 1), size))
    store = Store(wait=1 << Engine.LOAD, dram=2)
    program = Program(
        config, (Load(memory=Memory.ACT, signal=1 << Engine.STORE), store, End()), b"\7", 4096, (output,), name="tail"
    )  # fmt: skip
    values, _ = LoadedProgram(device, program, 0).run({})
    assert values["y"].reshape(-1).tolist() == [7, *[0] * (size - 1)]


def test_tensors_take_memory_as_well(sound: Program) -> None:
    """Of a layout of many loops over few bytes there is an index for each pass."""
    plain = replace(sound, tensors=(), captured={}, captures=())
    assert plain.host_bytes < sound.host_bytes
    elements = sum(tensor.layout.elements for tensor in sound.tensors)
    assert sound.host_bytes - plain.host_bytes > 48 * elements


def test_cycles_are_limited(sound: Program, compiled: Path, npukit, tmp_path: Path, no_build: None) -> None:
    program = changed(sound, Matrix, act_stride_channel=0, channels=1024, wgt_wrap=3, kernel_height=64, kernel_width=64)
    for name in ("p.npu", "p.npu.onnx"):
        path = saved(program, compiled, tmp_path / name)
        for command in COMMANDS if name == "p.npu" else COMMANDS[:-1]:
            npukit(*arguments(command, path, tmp_path), "--quiet", "--max-cycles", 1000).refused(
                "the program keeps MATRIX at work for", "above the limit of 1000: raise it with --max-cycles"
            )
    with pytest.raises(ValidationError, match="above the limit of 10: raise it with --max-cycles, or Limits"):
        Session(compiled, limits=Limits(cycles=10))
    assert npukit("run", compiled, "--quiet", "--max-cycles", 10).code == 2
    assert npukit("run", compiled, "--quiet", "--max-cycles", 10_000).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-memory", "0"), "--max-memory must be from 1 to 1099511627775, not 0"),
        (("--max-memory", str(10**20)), "--max-memory must be from 1 to 1099511627775, not 1"),
        (("--max-cycles", "-1"), "--max-cycles must be from 1 to 1152921504606846975, not -1"),
        (("--max-cycles", str(10**20)), "--max-cycles must be from 1 to 1152921504606846975, not 1"),
        (("--max-cycles", "many"), "argument --max-cycles: invalid int value: 'many'"),
    ],
)
def test_limits_have_limits(compiled: Path, npukit, words: tuple[str, str], message: str) -> None:
    npukit("run", compiled, *words).refused(message)


def test_programs_of_several_configurations(sound: Program, compiled: Path, npukit, tmp_path: Path) -> None:
    """A model cannot hold them: they run on one device."""
    model = onnx.load(compiled)
    node = next(node for node in model.graph.node if node.op_type == "EPContext")
    other = model.graph.node.add()
    other.CopyFrom(node)
    other.name = "second"
    program = replace(sound, config=replace(sound.config, act_banks=5), captures=(), captured={}, nodes=())
    next(one for one in other.attribute if one.name == "ep_cache_context").s = program.to_bytes()
    del model.metadata_props[:]
    write_artifact(tmp_path / "m.onnx", model)
    npukit("run", tmp_path / "m.onnx").refused(
        "the programs are for several configurations (npukit_0, second: act_banks: 8, 5)"
    )


# ---- assembly

LONG = "LOAD planes=4096 rows=4096 words=65536"
READS_BLANK = "LOAD words=4 word_stride=1 dram=100 signal=STORE\nSTORE dram=8 words=4 word_stride=1 wait=LOAD\nEND\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (LONG, "destination holds a word twice"),
        (f"{LONG} wrap=4 word_stride=1", "destination holds a word twice"),
        (f"{LONG} word_stride=1", "across the end of a ACT bank"),
        (f"{LONG} dram_plane_stride=1000000", "are outside of the program's"),
        ("LOAD signal=STORE\nSTORE wait=LOAD planes=4096 rows=4096 words=65536", "dram holds a word twice"),
    ],
)  # fmt: skip
def test_long_loops_are_validated_without_being_walked(line: str, sentence: str, npukit, tmp_path: Path) -> None:
    (tmp_path / "p.asm").write_text(f"{line}\nEND\n")
    command = ("asm", tmp_path / "p.asm", "-o", tmp_path / "p.npu")
    npukit(*command).refused("above the limit of 1000000000" if "twice" in sentence else sentence)
    tracemalloc.start()
    npukit(*command, "--max-cycles", 1 << 50).refused(sentence)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20
    assert not (tmp_path / "p.npu").exists()


def test_what_asm_takes_runs(npukit, tmp_path: Path) -> None:
    """Whatever lies in the DRAM that a program reads without writing it, and for as long as it takes."""
    text, path = tmp_path / "p.asm", tmp_path / "p.npu"
    text.write_text(READS_BLANK)
    assert npukit("asm", text, "-o", path, "--quiet").code == 0
    assert npukit("run", path, "--quiet").code == 0
    program = Program.from_bytes(path.read_bytes())
    assert program.constants == bytes(104 * 16) and program.dram_bytes == 1 << 20
    loops = "channels=1024 kernel_height=64 kernel_width=8 width=8 acc_stride_x=1 wgt_wrap=5"
    text.write_text(
        "LOAD memory=WGT words=32 word_stride=1\nLOAD words=1 signal=MATRIX\n"
        f"MATRIX wait=LOAD {loops}\nEND\n"
    )  # fmt: skip
    assert npukit("asm", text, "-o", path, "--quiet").code == 0
    assert npukit("run", path, "--quiet").code == 0


def test_limits_of_assembly(npukit, tmp_path: Path) -> None:
    text, path = tmp_path / "p.asm", tmp_path / "p.npu"
    text.write_text(READS_BLANK)
    for size in (10**19, 10**30):
        npukit("asm", text, "-o", path, "--dram-bytes", size).refused("above the limit of 1024 MiB: raise it with")
    assert npukit("asm", text, "-o", path, "--dram-bytes", 600 << 20, "--max-memory", 2000, "--quiet").code == 0
    npukit("asm", text, "-o", path, "--max-cycles", 3).refused("above the limit of 3: raise it with --max-cycles")


def test_assembly_is_held_to_what_is_in_dram(npukit, compiled: Path, sound: Program, tmp_path: Path) -> None:
    """Constants and inputs are there when a compiled program starts, and nothing else, however it is edited."""
    text, path = tmp_path / "p.asm", tmp_path / "p.npu"
    roomy = saved(replace(sound, dram_bytes=sound.dram_bytes + 4096), compiled, tmp_path / "roomy.npu")
    free = -(-sound.dram_bytes // sound.config.word_bytes)
    text.write_text(f"LOAD dram={free} words=1\n" + npukit("disasm", compiled).out)
    npukit("asm", text, "--like", roomy, "-o", path, "--quiet").refused(f"reads word {free} of DRAM, which nothing")
