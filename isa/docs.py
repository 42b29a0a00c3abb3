"""Writes `docs/isa.md` from the declarations: `python -m npukit.isa.docs`, with `--check` to compare.

Nothing is stated here a second time: ranges, places and meanings are read from the dataclasses, the
rules of a configuration from the errors that break them, and the assembly example is assembled.
"""

import argparse
import ast
import dataclasses
import enum
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from npukit.isa.assembly import assemble, disassemble
from npukit.isa.config import PRESETS, ConfigError, NpuConfig
from npukit.isa.descriptors import OPTIONAL_OPERATIONS, LaneField, block_parameters, descriptor_lanes
from npukit.isa.formats import DATAPATHS
from npukit.isa.instructions import (
    INSTRUCTION_BITS,
    OPCODE_FIELD,
    OPCODES,
    REDUCTION_OPERATIONS,
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
    fields_of,
)
from npukit.isa.layout import Layout, LayoutDim
from npukit.isa.legality import LOAD_MEMORIES, SECOND_SOURCE_MEMORIES, memory_names, ways_of
from npukit.isa.program import MAGIC, VERSION, Capture, NodeInfo, Program, TensorInfo
from npukit.isa.registers import COUNTERS, REGISTERS, ErrorCause

__all__ = ["DOCUMENT", "generate", "main"]

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "isa.md"
"""The generated file, in a checkout."""

_EXAMPLE = (
    Load(memory=Memory.WGT, dram=0, words=16),
    Load(memory=Memory.PAR, dram=16, words=3, signal=1 << Engine.VECTOR),
    Load(
        memory=Memory.ACT, dram=64, rows=8, words=8, row_stride=8, word_stride=1, dram_row_stride=8,
        signal=1 << Engine.MATRIX,
    ),
    Matrix(
        wait=1 << Engine.LOAD, signal=1 << Engine.VECTOR,
        height=8, width=8, act_stride_y=8, act_stride_x=1, acc_stride_y=8, acc_stride_x=1,
    ),
    Vector(
        operation=Operation.REQUANTIZE, wait=1 << Engine.LOAD | 1 << Engine.MATRIX, signal=1 << Engine.STORE,
        height=8, width=8, a_memory=Memory.ACC, a_stride_y=8, a_stride_x=1,
        out_bank=1, out_stride_y=8, out_stride_x=1,
    ),
    Store(wait=1 << Engine.VECTOR, bank=1, dram=128, words=64, word_stride=1),
    End(),
)  # fmt: skip
_NOTES = (
    "one tile of weights",
    "descriptor, bias and multiplier",
    "an 8x8 image",
    "1x1 convolution of it",
    "to int8, into bank 1",
    "",
    "",
)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    def line(cells: Sequence[object]) -> str:
        return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |"

    yield line(heads)
    yield "|" + "---|" * len(heads)
    yield from map(line, rows)
    yield ""


def _attribute_docs(cls: type) -> dict[str, str]:
    """The strings that stand below a class's annotated attributes."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for one, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[one.target.id] = inspect.cleandoc(str(following.value.value))
    return found


def _paragraphs(cls: type) -> Iterator[str]:
    for paragraph in (inspect.getdoc(cls) or "").split("\n\n"):
        if not paragraph.startswith("Raises:"):
            yield " ".join(paragraph.split())
            yield ""


def _rule(**broken: int | str) -> str:
    """What the error says that a configuration with these values breaks."""
    try:
        NpuConfig(**broken)  # type: ignore[arg-type]
    except ConfigError as error:
        return re.sub(r"^\w+ (must be )?|, not [^,]*$", "", str(error))
    raise AssertionError(f"a configuration accepts {broken}")


def _configuration() -> Iterator[str]:
    docs = _attribute_docs(NpuConfig)
    yield "## Configuration"
    yield ""
    yield from _paragraphs(NpuConfig)
    yield "A rule that depends on another field is given for that field's default."
    yield ""
    rows = []
    for field in dataclasses.fields(NpuConfig):
        rule = _rule(**{field.name: "" if field.name == "dtype" else -1})
        rows.append((f"`{field.name}`", f"`{field.default}`", rule, docs[field.name]))
    yield from _table(("Field", "Default", "Rule", "Meaning"), rows)
    product = _rule(max_burst=1, bus_bytes=4).removeprefix("* bus_bytes must be ")
    yield f"And `max_burst * bus_bytes` is {product}."
    yield ""
    yield "### Presets"
    yield ""
    names = [field.name for field in dataclasses.fields(NpuConfig)]
    yield from _table(
        ("", *(f"`{name}`" for name in PRESETS)),
        [
            *((f"`{name}`", *(getattr(config, name) for config in PRESETS.values())) for name in names),
            ("on chip, KiB", *(f"{config.on_chip_bytes / 1024:g}" for config in PRESETS.values())),
            ("hash", *(f"`{config.hash:016x}`" for config in PRESETS.values())),
        ],
    )
    yield 'A TOML file holds fields by name, and `base = "PRESET"` for the rest (default `int8-16x16`).'
    yield ""


def _range(spec: FieldSpec) -> str:
    if spec.kind is not None:
        return f"{spec.kind.__name__}"
    if spec.width == 1:
        return "0, 1"
    return f"{spec.low} to {spec.high}"


def _stored(spec: FieldSpec) -> str:
    if spec.bias:
        return f"value - {spec.bias}"
    return "two's complement" if spec.signed else "unsigned"


def _field_table(specs: Iterable[FieldSpec]) -> Iterator[str]:
    yield from _table(
        ("Bits", "Field", "Range", "Stored", "Meaning"),
        (
            (
                f"{spec.lsb}" if spec.width == 1 else f"{spec.lsb + spec.width - 1}:{spec.lsb}",
                f"`{spec.name}`",
                _range(spec),
                _stored(spec),
                spec.doc,
            )
            for spec in specs
        ),
    )


def _enumeration(kind: type[enum.IntEnum]) -> Iterator[str]:
    yield f"**{kind.__name__}.** " + ", ".join(f"{member.value} `{member.name}`" for member in kind) + "."
    yield ""


def _instruction(kind: type[Instruction]) -> Iterator[str]:
    specs = fields_of(kind)
    used = max(spec.lsb + spec.width for spec in specs)
    yield f"### {kind.mnemonic}"
    yield ""
    yield from _paragraphs(kind)
    engine = "FETCH" if kind.engine is None else kind.engine.name
    yield f"Engine {engine}; {used} bits used."
    yield ""
    opcode = dataclasses.replace(OPCODE_FIELD, doc=f"{kind.opcode}")
    yield from _field_table([opcode, *(spec for spec in specs if spec.variant is None)])
    variants = {spec.variant: None for spec in specs if spec.variant is not None}
    titles = {
        "source": "For operations without a window",
        "window": "For window operations",
    }
    for variant in variants:
        yield f"{titles[variant]} (variant `{variant}`), the last bits hold:"
        yield ""
        yield from _field_table(spec for spec in specs if spec.variant == variant)


def _instructions() -> Iterator[str]:
    yield "## Instructions"
    yield ""
    yield (
        f"{INSTRUCTION_BITS} bits, little-endian. The opcode is bits {OPCODE_FIELD.width - 1}:0; "
        "bits that no field names are 0. Counts are stored as count - 1."
    )
    yield ""
    for kind in (Engine, Memory, Operation):
        yield from _enumeration(kind)
    for kind in OPCODES.values():
        yield from _instruction(kind)


def _legality() -> Iterator[str]:
    yield "### Legal modes"
    yield ""
    yield (
        "An instruction is illegal by itself, whatever else a program holds, if it has an opcode, operation, memory or "
        "bit without meaning, or one of these:"
    )
    yield ""
    yield "- an operation that the configuration does not have, or memories that it may not use (below, with each);"
    yield f"- a second source outside of {memory_names(SECOND_SOURCE_MEMORIES)};"
    yield "- a TRANSPOSE whose width is not `array`;"
    reductions = " or ".join(one.name for one in sorted(REDUCTION_OPERATIONS))
    yield f"- a {reductions} whose `out_stride_y` or `out_stride_x` is not 0: it has one result in a block;"
    yield "- a window operation whose `a_stride_x` is not 0, or whose window exceeds `max_window`;"
    loads = memory_names(LOAD_MEMORIES)
    yield f"- a LOAD to another memory than {loads}; one to PAR with a border, or with a DRAM address or stride that"
    yield "  is no multiple of a PAR word;"
    yield "- a token from or for its own engine; an END with tokens or `drain`."
    yield ""
    yield "Fields that an operation does not use have no effect, but for FILL's `a_memory`."
    yield ""


def _place(field: LaneField) -> str:
    if field.is_float:
        return "fp32"
    if field.width == 32:
        return "int32"
    place = f"{field.lsb}" if field.width == 1 else f"{field.lsb + field.width - 1}:{field.lsb}"
    return f"{place} {'signed' if field.signed else 'unsigned'}"


def _lane_rows(fields: Sequence[LaneField]) -> Iterator[tuple[object, ...]]:
    numbered = [field for field in fields if re.search(r"_\d+$", field.name)]
    for field in fields:
        if field not in numbered:
            yield f"{field.lane}", _place(field), f"`{field.name}`", field.doc
    if numbered:
        first, last = numbered[0], numbered[-1]
        yield (
            f"{first.lane} to {last.lane}",
            _place(first)
            if first.is_float
            else f"{first.width} each, lowest first, {'signed' if first.signed else 'unsigned'}",
            f"`{first.name}` to `{last.name}`",
            f"{first.doc} to {last.doc}",
        )


def _operation(operation: Operation) -> Iterator[str]:
    yield f"### {operation.name}"
    yield ""
    sources = "two sources" if operation in TWO_SOURCE_OPERATIONS else "one source"
    if operation is Operation.FILL:
        sources = "no source"
    window = ", a window" if operation in WINDOW_OPERATIONS else ""
    yield f"Code {operation.value}; {sources}{window}."
    yield ""
    for dtype in DATAPATHS:
        config = NpuConfig(dtype=dtype)
        try:
            fields = descriptor_lanes(config, operation)
        except InstructionError:
            yield f"{dtype}: not defined."
            yield ""
            continue
        blocks = [f"`{name}`" for name in block_parameters(config, operation)]
        if operation in (Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
            blocks.append(f"taps, {4 // config.element_bytes} to a lane, in (ky, kx) order")
        parameters = f"per block {', then '.join(blocks)}" if blocks else "no block parameters"
        option = OPTIONAL_OPERATIONS.get(operation)
        only = f"with `{option}` not 0; " if option else ""
        descriptor = "descriptor:" if fields else "no descriptor."
        yield f"{dtype}: {ways_of(config, operation)}; {only}{parameters}; {descriptor}"
        yield ""
        if fields:
            yield from _table(("Lane", "Bits", "Field", "Meaning"), _lane_rows(fields))


def _operations() -> Iterator[str]:
    yield "## VECTOR's operations"
    yield ""
    yield (
        "From PAR word `parameters` on, an instruction reads its descriptor, then each block's parameters. "
        "A descriptor's lanes of 32 bits fill as many successive PAR words as they need, `array` lanes to a "
        "word; a block parameter is a whole word, one value per channel. A SUM into ACC has no descriptor. "
        "[numerics.md](numerics.md) has the arithmetic."
    )
    yield ""
    for operation in Operation:
        yield from _operation(operation)


def _registers() -> Iterator[str]:
    yield "## Registers"
    yield ""
    yield "32 bits each, at byte offsets; of a 64-bit quantity the low half comes first."
    yield ""
    yield from _table(
        ("Offset", "Register", "Access", "Reset", "Meaning"),
        ((f"`0x{one.offset:03x}`", f"`{one.name}`", one.access, f"`0x{one.reset:x}`", one.doc) for one in REGISTERS),
    )
    yield "### Errors"
    yield ""
    yield "Bits of `ERROR`. They stick until the core is reset; the first error stops the core."
    yield ""
    yield from _table(("Bit", "Cause", "Meaning"), ((f"{one.value}", f"`{one.name}`", one.doc) for one in ErrorCause))
    yield "### Counters"
    yield ""
    yield from _table(("Counter", "Counts"), ((f"`{name}`", doc) for name, doc in COUNTERS))


def _container() -> Iterator[str]:
    data = Program(config=NpuConfig(), instructions=(End(),)).to_bytes()
    at = len(MAGIC) + 4 + 32
    length = int.from_bytes(data[at : at + 8], "little")
    head = json.loads(data[at + 8 : at + 8 + length])
    yield "## Program container"
    yield ""
    yield "Numbers are little-endian. A reader refuses another version and a digest that does not match."
    yield ""
    yield from _table(
        ("Offset", "Bytes", "Content"),
        [
            ("0", len(MAGIC), f"magic, `{MAGIC!r}`"),
            (len(MAGIC), 4, f"format version, {VERSION}"),
            (len(MAGIC) + 4, 32, "SHA-256 of everything that follows"),
            (at, 8, "length L of the head"),
            (at + 8, "L", "head, JSON"),
            (f"{at + 8} + L", f"{INSTRUCTION_BITS // 8} each", "instructions"),
            ("after them", "`constants`", "DRAM image from offset 0"),
        ],
    )
    yield "The head's keys: " + ", ".join(f"`{key}`" for key in head) + "."
    yield ""
    for kind in (TensorInfo, Layout, LayoutDim, NodeInfo, Capture):
        names = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
        yield f"**{kind.__name__}** ({names})."
        yield ""
        yield from _paragraphs(kind)


def _assembly() -> Iterator[str]:
    text = disassemble(_EXAMPLE, _NOTES)
    assert tuple(assemble(text)) == _EXAMPLE
    yield "## Assembly"
    yield ""
    yield (
        "One instruction a line: a mnemonic, then `field=value`; fields at their default may be left out. "
        "Numbers may be written as in Python (`0x10`). `wait` and `signal` take engine names joined by `+`; "
        "memories and operations are named. `#` begins a comment."
    )
    yield ""
    yield "```"
    yield text.rstrip("\n")
    yield "```"


def generate() -> str:
    """The text of `docs/isa.md`."""
    lines = [
        "# Instruction set, registers and program files",
        "",
        "Generated from `isa/` by `python -m npukit.isa.docs`; edit the declarations there.",
        "",
    ]
    for section in (_configuration, _instructions, _legality, _operations, _registers, _container, _assembly):
        lines += section()
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the document, or with `--check` compare it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m npukit.isa.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if the file is not current")
    parser.add_argument("--file", type=Path, default=DOCUMENT, help="default: docs/isa.md of the checkout")
    options = parser.parse_args(arguments)
    text = generate()
    if not options.check:
        options.file.write_text(text, encoding="utf-8")
        return 0
    current = options.file.read_text(encoding="utf-8") if options.file.is_file() else None
    if current != text:
        state = "is missing" if current is None else "is not current"
        print(f"{options.file} {state}: run python -m npukit.isa.docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
