"""The five instructions, each declared once.

A field's place in the 256 bits follows from the order of declaration, least significant bit first.
Encoder, decoder, range checks, assembly text, `docs/isa.md` and the hardware's layout all read these
declarations (`fields_of`), so that none of them can drift.
"""

import dataclasses
import enum
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, TypeVar

__all__ = [
    "ENGINES",
    "INSTRUCTION_BITS",
    "ISA_VERSION",
    "NORMALIZE_OPERATIONS",
    "OPCODES",
    "REDUCTION_OPERATIONS",
    "SOFTMAX_OPERATIONS",
    "TWO_SOURCE_OPERATIONS",
    "WHOLE_WORD_OPERATIONS",
    "WINDOW_OPERATIONS",
    "End",
    "Engine",
    "FieldSpec",
    "Instruction",
    "InstructionError",
    "Load",
    "Matrix",
    "Memory",
    "Operation",
    "Store",
    "Vector",
    "decode",
    "encode",
    "field_limit",
    "fields_of",
    "with_fields",
]

Kind = TypeVar("Kind", bound="Instruction")
INSTRUCTION_BITS = 256
ISA_VERSION = 2
"""Of formats and meanings: a program of another version is not run. It is part of a configuration's hash."""


class InstructionError(ValueError):
    """An instruction that cannot be encoded or decoded; the message names field, range and value."""


class Engine(enum.IntEnum):
    """Engines in the order that settles ties; a token mask has bit `1 << engine`."""

    LOAD = 0
    MATRIX = 1
    VECTOR = 2
    STORE = 3


ENGINES = tuple(Engine)


class Memory(enum.IntEnum):
    """On-chip memories, as operands name them."""

    ACT = 0
    ACC = 1
    WGT = 2
    PAR = 3


class Operation(enum.IntEnum):
    """What a VECTOR instruction computes; `docs/numerics.md` has the arithmetic."""

    REQUANTIZE = 0
    REQUANTIZE_FIXED = 1
    ADD = 2
    ADD_FIXED = 3
    MULTIPLY = 4
    MULTIPLY_FIXED = 5
    MAX = 6
    SUM = 7
    DEPTHWISE = 8
    DEPTHWISE_FIXED = 9
    TABLE = 10
    CONVERT = 11
    COPY = 12
    FILL = 13
    PART = 14
    TRANSPOSE = 15
    TABLE_SUM = 16
    TABLE_DIVIDE = 17
    MOMENTS = 18
    RECIPROCAL_ROOT = 19
    NORMALIZE = 20
    FUNCTION = 21


WINDOW_OPERATIONS = frozenset({Operation.MAX, Operation.SUM, Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED})
TWO_SOURCE_OPERATIONS = frozenset(
    {
        Operation.ADD, Operation.ADD_FIXED, Operation.MULTIPLY, Operation.MULTIPLY_FIXED, Operation.TABLE_DIVIDE,
        Operation.NORMALIZE,
    }
)  # fmt: skip
SOFTMAX_OPERATIONS = frozenset({Operation.TABLE_SUM, Operation.TABLE_DIVIDE})
"""Those that look up numbers in binary32."""
NORMALIZE_OPERATIONS = frozenset({Operation.MOMENTS, Operation.RECIPROCAL_ROOT, Operation.NORMALIZE})
"""Those that a normalisation over the numbers of a place takes."""
REDUCTION_OPERATIONS = frozenset({Operation.TABLE_SUM, Operation.MOMENTS})
"""Those that have one result in a block, of all its words."""

WHOLE_WORD_OPERATIONS = frozenset(
    {Operation.CONVERT, Operation.COPY, Operation.FILL, Operation.PART, Operation.TRANSPOSE}
)
"""Those that handle a word in a cycle, whatever the lanes."""


@dataclass(frozen=True)
class FieldSpec:
    """One field of an instruction format.

    `bias` is added to the stored number (counts store count - 1). `variant` is None, or names the
    alternative reading of shared bits to which the field belongs (VECTOR: `source` or `window`).
    """

    name: str
    width: int
    doc: str
    signed: bool = False
    bias: int = 0
    variant: str | None = None
    kind: type[enum.IntEnum] | None = None
    lsb: int = 0

    @cached_property
    def low(self) -> int:
        """Smallest value that can be encoded."""
        return self.bias - (1 << (self.width - 1) if self.signed else 0)

    @cached_property
    def high(self) -> int:
        """Largest value that can be encoded."""
        return self.bias + (1 << (self.width - 1 if self.signed else self.width)) - 1

    @cached_property
    def values(self) -> frozenset[int] | None:
        """Values that have a meaning, or None for all."""
        return None if self.kind is None else frozenset(int(value) for value in self.kind)


def bits(width: int, doc: str, *, signed: bool = False, kind: type | None = None, variant: str | None = None) -> Any:
    """Declare an instruction field of `width` bits; its default is 0."""
    return dataclasses.field(
        default=0 if kind is None else kind(0),
        metadata={"width": width, "doc": doc, "signed": signed, "kind": kind, "variant": variant},
    )


def count(width: int, doc: str, *, variant: str | None = None) -> Any:
    """Declare a loop count, 1 to 2**width, stored as count - 1; its default is 1."""
    return dataclasses.field(default=1, metadata={"width": width, "doc": doc, "bias": 1, "variant": variant})


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """Fields that every instruction has."""

    mnemonic: ClassVar[str] = ""
    opcode: ClassVar[int] = 0
    engine: ClassVar[Engine | None] = None

    drain: int = bits(1, "wait until this engine's earlier instructions have written everything")
    wait: int = bits(4, "engines to take a token from before issue: bit 0 LOAD, 1 MATRIX, 2 VECTOR, 3 STORE")
    signal: int = bits(4, "engines to give a token to at the end, as in wait")


@dataclass(frozen=True, kw_only=True)
class Load(Instruction):
    """DRAM to ACT, WGT or PAR: planes of rows of words, with a border of a given value."""

    mnemonic: ClassVar[str] = "LOAD"
    opcode: ClassVar[int] = 1
    engine: ClassVar[Engine | None] = Engine.LOAD

    memory: Memory = bits(2, "destination: ACT, WGT or PAR", kind=Memory)
    bank: int = bits(4, "destination bank")
    offset: int = bits(15, "first destination word in the bank, the border's first corner")
    wrap: int = bits(4, "0, or k: destination addresses wrap in an aligned ring of 2**k words")
    dram: int = bits(32, "DRAM address of the first word, in ACT words from the base register")
    planes: int = count(12, "planes")
    rows: int = count(12, "rows of a plane in DRAM")
    words: int = count(16, "destination words of a row, contiguous in DRAM")
    plane_stride: int = bits(16, "destination words from plane to plane", signed=True)
    row_stride: int = bits(16, "destination words from row to row", signed=True)
    word_stride: int = bits(16, "destination words from word to word", signed=True)
    dram_plane_stride: int = bits(24, "ACT words in DRAM from plane to plane", signed=True)
    dram_row_stride: int = bits(24, "ACT words in DRAM from row to row", signed=True)
    pad_top: int = bits(5, "border rows before each plane's first row")
    pad_bottom: int = bits(5, "border rows after each plane's last row")
    pad_left: int = bits(5, "border words before each row")
    pad_right: int = bits(5, "border words after each row")
    pad_value: int = bits(16, "element of the border: int8 in the low byte, or bf16")


@dataclass(frozen=True, kw_only=True)
class Matrix(Instruction):
    """ACT times WGT into ACC: output blocks, reduction steps (one weight tile each), rows of words.

    Loops from the outside: block, channel, kernel_y, kernel_x, y, x. Every reduction step takes the
    next tile of `array` WGT words.
    """

    mnemonic: ClassVar[str] = "MATRIX"
    opcode: ClassVar[int] = 2
    engine: ClassVar[Engine | None] = Engine.MATRIX

    accumulate: int = bits(1, "1: add to what ACC holds; 0: the first reduction step starts from zero")
    act_bank: int = bits(4, "bank of the activations")
    act_offset: int = bits(15, "first activation word")
    act_wrap: int = bits(4, "0, or k: activation addresses wrap in an aligned ring of 2**k words")
    wgt_offset: int = bits(15, "first weight word")
    wgt_wrap: int = bits(4, "0, or k: weight addresses wrap in an aligned ring of 2**k words")
    acc_bank: int = bits(4, "bank of the accumulators")
    acc_offset: int = bits(15, "first accumulator word")
    channels: int = count(10, "reduction loop: channel blocks")
    kernel_height: int = count(6, "reduction loop: kernel rows")
    kernel_width: int = count(6, "reduction loop: kernel columns")
    height: int = count(10, "output rows")
    width: int = count(10, "output columns")
    blocks: int = count(8, "output blocks")
    act_stride_channel: int = bits(16, "activation words from channel block to channel block", signed=True)
    act_stride_kernel_y: int = bits(16, "activation words from kernel row to kernel row", signed=True)
    act_stride_kernel_x: int = bits(16, "activation words from kernel column to kernel column", signed=True)
    act_stride_y: int = bits(16, "activation words from output row to output row", signed=True)
    act_stride_x: int = bits(11, "activation words from output column to output column", signed=True)
    acc_stride_block: int = bits(16, "accumulator words from output block to output block", signed=True)
    acc_stride_y: int = bits(16, "accumulator words from output row to output row", signed=True)
    acc_stride_x: int = bits(11, "accumulator words from output column to output column", signed=True)


@dataclass(frozen=True, kw_only=True)
class Vector(Instruction):
    """Element-wise and window operations on ACT and ACC: loops block, y, x from the outside.

    Window operations read, for output (block, y, x) and window position (ky, kx), the word at
    `a + block * a_stride_block + y * a_stride_y + ky * window_stride_y + (x * window_step + kx) * window_stride_x`;
    their a_stride_x is 0.
    """

    mnemonic: ClassVar[str] = "VECTOR"
    opcode: ClassVar[int] = 3
    engine: ClassVar[Engine | None] = Engine.VECTOR

    operation: Operation = bits(5, "what to compute", kind=Operation)
    parameters: int = bits(12, "PAR word of the descriptor; each block's parameters follow it")
    blocks: int = count(8, "blocks")
    height: int = count(10, "rows")
    width: int = count(10, "columns")
    a_memory: Memory = bits(2, "first source: ACT or ACC", kind=Memory)
    a_bank: int = bits(4, "bank of the first source")
    a_offset: int = bits(15, "first word of the first source")
    a_stride_block: int = bits(16, "words from block to block", signed=True)
    a_stride_y: int = bits(16, "words from row to row", signed=True)
    a_stride_x: int = bits(11, "words from column to column", signed=True)
    out_memory: Memory = bits(2, "result: ACT, ACC or WGT", kind=Memory)
    out_bank: int = bits(4, "bank of the result")
    out_offset: int = bits(15, "first word of the result")
    out_stride_block: int = bits(16, "words from block to block", signed=True)
    out_stride_y: int = bits(16, "words from row to row", signed=True)
    out_stride_x: int = bits(11, "words from column to column", signed=True)
    wrap: int = bits(4, "size of the rings that the next three bits choose: 2**k words, aligned")
    a_wrap: int = bits(1, "the first source wraps")
    b_wrap: int = bits(1, "the second source wraps")
    out_wrap: int = bits(1, "the result wraps")
    b_memory: Memory = bits(2, "second source: ACT or ACC", kind=Memory, variant="source")
    b_bank: int = bits(4, "bank of the second source", variant="source")
    b_offset: int = bits(15, "first word of the second source", variant="source")
    b_stride_block: int = bits(16, "words from block to block", signed=True, variant="source")
    b_stride_y: int = bits(16, "words from row to row", signed=True, variant="source")
    b_stride_x: int = bits(11, "words from column to column", signed=True, variant="source")
    window_height: int = count(4, "window rows", variant="window")
    window_width: int = count(4, "window columns", variant="window")
    window_step: int = count(4, "window columns from output to output", variant="window")
    window_stride_y: int = bits(16, "words from window row to window row", signed=True, variant="window")
    window_stride_x: int = bits(11, "words from window column to window column", signed=True, variant="window")

    @property
    def is_window(self) -> bool:
        """Whether the shared bits hold the window rather than a second source."""
        return self.operation in WINDOW_OPERATIONS

    @property
    def has_two_sources(self) -> bool:
        """Whether the operation reads a second source."""
        return self.operation in TWO_SOURCE_OPERATIONS


@dataclass(frozen=True, kw_only=True)
class Store(Instruction):
    """ACT to DRAM: planes of rows of words."""

    mnemonic: ClassVar[str] = "STORE"
    opcode: ClassVar[int] = 4
    engine: ClassVar[Engine | None] = Engine.STORE

    bank: int = bits(4, "source bank of ACT")
    offset: int = bits(15, "first source word")
    wrap: int = bits(4, "0, or k: source addresses wrap in an aligned ring of 2**k words")
    dram: int = bits(32, "DRAM address of the first word, in ACT words from the base register")
    planes: int = count(12, "planes")
    rows: int = count(12, "rows of a plane")
    words: int = count(16, "words of a row, contiguous in DRAM")
    plane_stride: int = bits(16, "source words from plane to plane", signed=True)
    row_stride: int = bits(16, "source words from row to row", signed=True)
    word_stride: int = bits(16, "source words from word to word", signed=True)
    dram_plane_stride: int = bits(24, "ACT words in DRAM from plane to plane", signed=True)
    dram_row_stride: int = bits(24, "ACT words in DRAM from row to row", signed=True)


@dataclass(frozen=True, kw_only=True)
class End(Instruction):
    """Last instruction of a program: FETCH waits until every engine is idle, then raises done."""

    mnemonic: ClassVar[str] = "END"
    opcode: ClassVar[int] = 5


OPCODES: dict[int, type[Instruction]] = {kind.opcode: kind for kind in (Load, Matrix, Vector, Store, End)}
OPCODE_FIELD = FieldSpec("opcode", 3, "which instruction", lsb=0)


@cache
def fields_of(kind: type[Instruction]) -> tuple[FieldSpec, ...]:
    """The fields of an instruction with their places; variants share the bits that follow the rest."""
    specs = []
    lsb = OPCODE_FIELD.width
    variant_lsb: dict[str, int] = {}
    for field in dataclasses.fields(kind):
        variant = field.metadata.get("variant")
        at = lsb if variant is None else variant_lsb.setdefault(variant, lsb)
        spec = FieldSpec(name=field.name, lsb=at, **field.metadata)
        if variant is None:
            lsb += spec.width
        else:
            variant_lsb[variant] = at + spec.width
        specs.append(spec)
    assert max([lsb, *variant_lsb.values()]) <= INSTRUCTION_BITS, kind
    return tuple(specs)


@cache
def field_limit(kind: type[Instruction], name: str) -> int:
    """The largest value that a field of an instruction holds."""
    (limit,) = (spec.high for spec in fields_of(kind) if spec.name == name)
    return limit


def _variant(kind: type[Instruction], operation: int) -> str | None:
    if kind is not Vector:
        return None
    return "window" if operation in WINDOW_OPERATIONS else "source"


@cache
def _plain_fields(kind: type[Instruction], variant: str | None) -> tuple[tuple, ...]:
    """(name, low, high, values, what it must be or None, bias, mask, first bit) of each field."""
    return tuple(
        (
            spec.name, spec.low, spec.high, spec.values, None if spec.variant in (None, variant) else spec.bias,
            spec.bias, (1 << spec.width) - 1, spec.lsb,
        )
        for spec in fields_of(kind)
    )  # fmt: skip


def _quickly(kind: type[Instruction], variant: str | None, given: dict[str, Any]) -> int | None:
    """The word of an instruction in which nothing is wrong; None if something is, which `encode` then says."""
    word = kind.opcode
    for name, low, high, values, must, bias, mask, lsb in _plain_fields(kind, variant):
        value = given[name]
        if not isinstance(value, int) or not low <= value <= high:
            return None
        if must is not None:
            if value != must:
                return None
            continue
        if values is not None and value not in values:
            return None
        word |= ((value - bias) & mask) << lsb
    return word


_ENCODED = "_encoded"
"""Where an instruction keeps its bytes."""


def encode(instruction: Instruction) -> bytes:
    """The 32 bytes of an instruction, little-endian. An instruction never changes, so it keeps them.

    Raises:
        InstructionError: when a field is no whole number or out of its range, or a variant that the
            operation does not have holds anything but its default.
    """
    given = vars(instruction)
    if _ENCODED in given:
        return given[_ENCODED]
    kind = type(instruction)
    variant = _variant(kind, given.get("operation", 0))
    word = _quickly(kind, variant, given)
    if word is None:
        word = _carefully(instruction, kind, variant)
    given[_ENCODED] = found = word.to_bytes(INSTRUCTION_BITS // 8, "little")
    return found


def with_fields(instruction: Kind, fields: Mapping[str, Any]) -> Kind:
    """A copy with other values in some fields, made faster than by `dataclasses.replace`; `encode` checks it."""
    made = object.__new__(type(instruction))
    values = vars(made)
    values.update(vars(instruction))
    values.pop(_ENCODED, None)
    count = len(values)
    values.update(fields)
    assert len(values) == count, f"{instruction.mnemonic} has not all of the fields {', '.join(fields)}"
    return made


def _carefully(instruction: Instruction, kind: type[Instruction], variant: str | None) -> int:
    """The word of an instruction, field by field, with a reason for what is wrong."""
    word = kind.opcode
    for spec in fields_of(kind):
        given = getattr(instruction, spec.name)
        try:
            value = operator.index(given)
        except TypeError:
            raise InstructionError(f"{kind.mnemonic}: {spec.name} must be a whole number, not {given!r}") from None
        if not spec.low <= value <= spec.high:
            raise InstructionError(f"{kind.mnemonic}: {spec.name} must be from {spec.low} to {spec.high}, not {value}")
        if spec.values is not None and value not in spec.values:
            raise InstructionError(f"{kind.mnemonic}: {spec.name} has no meaning for the value {value}")
        if spec.variant not in (None, variant):
            if value != spec.bias:
                operation = Operation(getattr(instruction, "operation", 0)).name
                raise InstructionError(
                    f"{kind.mnemonic}: {spec.name} must be {spec.bias} for operation {operation}, not {value}"
                )
            continue
        word |= ((value - spec.bias) & ((1 << spec.width) - 1)) << spec.lsb
    return word


def decode(data: bytes) -> Instruction:
    """The instruction that 32 bytes hold.

    Raises:
        InstructionError: wrong length, unknown opcode, operation or memory, or bits set outside of
            the format, so that decode and encode are inverse.
    """
    if len(data) != INSTRUCTION_BITS // 8:
        raise InstructionError(f"an instruction has {INSTRUCTION_BITS // 8} bytes, not {len(data)}")
    word = int.from_bytes(data, "little")
    opcode = word & ((1 << OPCODE_FIELD.width) - 1)
    if opcode not in OPCODES:
        raise InstructionError(f"opcode must be one of {', '.join(map(str, OPCODES))}, not {opcode}")
    kind = OPCODES[opcode]
    values: dict[str, int] = {}
    variant = None
    for spec in fields_of(kind):
        if spec.variant is not None:
            variant = variant or _variant(kind, values["operation"])
            if spec.variant != variant:
                continue
        raw = word >> spec.lsb & ((1 << spec.width) - 1)
        if spec.signed and raw >> (spec.width - 1):
            raw -= 1 << spec.width
        value = raw + spec.bias
        if spec.kind is not None:
            if value not in list(spec.kind):
                raise InstructionError(f"{kind.mnemonic}: {spec.name} has no meaning for the value {value}")
            value = spec.kind(value)
        values[spec.name] = value
    instruction = kind(**values)
    if encode(instruction) != data:
        raise InstructionError(f"{kind.mnemonic}: reserved bits must be 0")
    return instruction
