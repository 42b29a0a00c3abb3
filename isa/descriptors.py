"""What VECTOR reads from PAR: a descriptor per instruction, then parameters per block.

A descriptor is a list of 32-bit lanes, packed into as many successive PAR words as they need. Block
parameters are whole PAR words (one value per channel). Nothing here changes timing except how many
words an operation reads, and that follows from the instruction and the configuration alone.
"""

import enum
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.formats import FLOATING, INTEGER, Datapath
from npukit.isa.instructions import NORMALIZE_OPERATIONS, InstructionError, Memory, Operation, Vector
from numpy.typing import NDArray

__all__ = [
    "OPTIONAL_OPERATIONS",
    "TABLE_ENTRIES",
    "Indexing",
    "LaneField",
    "block_parameters",
    "decode_descriptor",
    "descriptor_lanes",
    "descriptor_words",
    "encode_descriptor",
    "operations_of",
    "pack_taps",
    "parameter_words",
    "table_lanes",
    "tap_words",
    "unpack_taps",
]


@dataclass(frozen=True)
class LaneField:
    """A field of a descriptor: `width` bits of lane `lane`, or a whole lane as int32 or fp32."""

    name: str
    lane: int
    lsb: int = 0
    width: int = 32
    signed: bool = True
    is_float: bool = False
    doc: str = ""


def _whole(name: str, lane: int, doc: str, *, is_float: bool = False) -> LaneField:
    return LaneField(name, lane, is_float=is_float, doc=doc)


def _part(name: str, lane: int, lsb: int, width: int, doc: str, *, signed: bool = True) -> LaneField:
    return LaneField(name, lane, lsb, width, signed, doc=doc)


def _clamp_int8(lane: int) -> tuple[LaneField, ...]:
    return (
        _part("zero_point", lane, 0, 8, "zero point of the result"),
        _part("low", lane, 8, 8, "smallest result"),
        _part("high", lane, 16, 8, "largest result"),
    )


def _unsigned_flags(lane: int) -> tuple[LaneField, ...]:
    return (
        _part("a_unsigned", lane, 29, 1, "add 128 to the first source", signed=False),
        _part("b_unsigned", lane, 30, 1, "add 128 to the second source", signed=False),
        _part("out_unsigned", lane, 31, 1, "subtract 128 from the result", signed=False),
    )


def _clamp_wide(lane: int) -> tuple[LaneField, ...]:
    return (
        _part("low", lane, 0, 10, "smallest result, before 128 is subtracted"),
        _part("high", lane, 10, 10, "largest result, before 128 is subtracted"),
        *_unsigned_flags(lane),
    )


def _clamp_float(lane: int) -> tuple[LaneField, ...]:
    return (
        _whole("low", lane, "smallest result", is_float=True),
        _whole("high", lane + 1, "largest result", is_float=True),
    )


def _count_and_mean(lane: int) -> tuple[LaneField, ...]:
    return (
        _part("count", lane, 16, 15, "how many numbers were summed up", signed=False),
        _part("centred", lane, 31, 1, "1: their mean is subtracted", signed=False),
    )


TABLE_ENTRIES = 256
"""Of each table; the other fields of TABLE_DIVIDE's descriptor follow them."""
_ENTRIES = tuple(
    _whole(f"entry_{index}", index, f"number for source {index - 128}", is_float=True) for index in range(TABLE_ENTRIES)
)

_INTEGER: dict[Operation, tuple[LaneField, ...]] = {
    Operation.REQUANTIZE: _clamp_int8(0),
    Operation.REQUANTIZE_FIXED: _clamp_int8(0),
    Operation.DEPTHWISE: _clamp_int8(0),
    Operation.DEPTHWISE_FIXED: _clamp_int8(0),
    Operation.ADD: (
        _whole("ra", 0, "scale of the first source / scale of the result", is_float=True),
        _whole("rb", 1, "scale of the second source / scale of the result", is_float=True),
        _whole("offset", 2, "F, the constant of the sum", is_float=True),
        *_clamp_wide(3),
    ),
    Operation.ADD_FIXED: (
        _whole("a_multiplier", 0, "31-bit multiplier of the first source"),
        _whole("b_multiplier", 1, "31-bit multiplier of the second source"),
        _whole("out_multiplier", 2, "31-bit multiplier of the result"),
        _part("a_shift", 3, 0, 8, "left shift of the first source, negative to the right"),
        _part("b_shift", 3, 8, 8, "left shift of the second source, negative to the right"),
        _part("out_shift", 3, 16, 8, "left shift of the result, negative to the right"),
        _part("left_shift", 3, 24, 5, "left shift of both sources before scaling", signed=False),
        _part("a_offset", 4, 0, 10, "added to the first source"),
        _part("b_offset", 4, 10, 10, "added to the second source"),
        _part("out_offset", 4, 20, 10, "added to the result"),
        *_clamp_wide(5),
    ),
    Operation.MULTIPLY: (
        _whole("multiplier", 0, "scales of the sources / scale of the result", is_float=True),
        _part("a_zero_point", 1, 0, 10, "zero point of the first source"),
        _part("b_zero_point", 1, 10, 10, "zero point of the second source"),
        _part("out_zero_point", 1, 20, 10, "zero point of the result"),
        *_clamp_wide(2),
    ),
    Operation.MULTIPLY_FIXED: (
        _whole("multiplier", 0, "31-bit multiplier of the product"),
        _part("a_zero_point", 1, 0, 10, "zero point of the first source"),
        _part("b_zero_point", 1, 10, 10, "zero point of the second source"),
        _part("out_zero_point", 1, 20, 10, "zero point of the result"),
        *_clamp_wide(2),
        _part("shift", 3, 0, 8, "left shift of the product, negative to the right"),
    ),
    Operation.SUM: (
        *_clamp_int8(0),
        _whole("bias", 1, "added to the sum (int32, wrapping)"),
        _whole("multiplier", 2, "scale of the result", is_float=True),
    ),
    Operation.MAX: (),
    Operation.TABLE: tuple(
        LaneField(f"entry_{index}", index // 4, 8 * (index % 4), 8, doc=f"result for source {index - 128}")
        for index in range(TABLE_ENTRIES)
    ),
    Operation.CONVERT: (),
    Operation.COPY: (),
    Operation.FILL: (_whole("value", 0, "int32 for ACC; the low byte for ACT and WGT"),),
    Operation.PART: (_part("part", 0, 0, 2, "which eight bits of each accumulator, from the lowest", signed=False),),
    Operation.TRANSPOSE: (),
    Operation.TABLE_SUM: _ENTRIES,
    Operation.TABLE_DIVIDE: (
        *_ENTRIES,
        *_clamp_int8(TABLE_ENTRIES),
        _part("factor", TABLE_ENTRIES + 1, 0, 10, "factor of the entries", signed=False),
    ),
    Operation.MOMENTS: (
        _part("zero_point", 0, 0, 8, "zero point of the source"),
        _part("missing", 0, 8, 6, "lanes of a block's last word, from the highest, that do not count", signed=False),
    ),
    Operation.RECIPROCAL_ROOT: (
        *_count_and_mean(0),
        _part("epsilon_low", 1, 0, 32, "what is added, low 32 bits", signed=False),
        _part("epsilon_high", 2, 0, 30, "what is added, high 30 bits", signed=False),
    ),
    Operation.NORMALIZE: (_part("zero_point", 0, 0, 8, "zero point of the second source"), *_count_and_mean(0)),
}


class Indexing(enum.IntEnum):
    """How FUNCTION chooses the segment of a number, and what else its exponent decides."""

    VALUE = 0
    """By the number: segments of the same width follow each other."""
    RECIPROCAL = 1
    """By its significand; the result is scaled by the reciprocal of the number's power of two."""
    RECIPROCAL_ROOT = 2
    """By the lowest bit of its exponent and its significand; scaled by the reciprocal root of that power."""


_SEGMENTS = tuple(
    _whole(name, 2 * index + part, doc, is_float=True)
    for index in range(TABLE_ENTRIES)
    for part, (name, doc) in enumerate(
        ((f"slope_{index}", f"factor in segment {index}"), (f"intercept_{index}", f"addend in segment {index}"))
    )
)

_FLOATING: dict[Operation, tuple[LaneField, ...]] = {
    Operation.REQUANTIZE: _clamp_float(0),
    Operation.DEPTHWISE: _clamp_float(0),
    Operation.ADD: _clamp_float(0),
    Operation.MULTIPLY: _clamp_float(0),
    Operation.SUM: (*_clamp_float(0), _whole("multiplier", 2, "factor of the sum", is_float=True)),
    Operation.MAX: (),
    Operation.CONVERT: (),
    Operation.COPY: (),
    Operation.FILL: (_whole("value", 0, "fp32, rounded to bf16 for ACT and WGT", is_float=True),),
    Operation.PART: (_part("part", 0, 0, 1, "which sixteen bits of each accumulator, from the lowest", signed=False),),
    Operation.TRANSPOSE: (),
    Operation.FUNCTION: (
        *_SEGMENTS,
        _part("step", 2 * TABLE_ENTRIES, 0, 5, "log2 of a segment's width"),
        _part("offset", 2 * TABLE_ENTRIES, 8, 10, "number of the segment that begins at 0"),
        _part("indexing", 2 * TABLE_ENTRIES, 24, 2, "0: by the value; 1: reciprocal; 2: reciprocal root", signed=False),
    ),
}

_FIELDS = {INTEGER: _INTEGER, FLOATING: _FLOATING}

_BLOCK: dict[Datapath, dict[Operation, tuple[str, ...]]] = {
    INTEGER: {
        Operation.REQUANTIZE: ("bias", "multiplier"),
        Operation.REQUANTIZE_FIXED: ("bias", "multiplier", "shift"),
        Operation.DEPTHWISE: ("bias", "multiplier"),
        Operation.DEPTHWISE_FIXED: ("bias", "multiplier", "shift"),
    },
    FLOATING: {Operation.REQUANTIZE: ("bias",), Operation.DEPTHWISE: ("bias",)},
}


OPTIONAL_OPERATIONS: Mapping[Operation, str] = {
    Operation.ADD_FIXED: "fma_fixed",
    Operation.MULTIPLY_FIXED: "fma_fixed",
    Operation.TRANSPOSE: "transpose",
    Operation.TABLE_SUM: "softmax_cycles",
    Operation.TABLE_DIVIDE: "softmax_cycles",
    Operation.FUNCTION: "softmax_cycles",
    **dict.fromkeys(sorted(NORMALIZE_OPERATIONS), "normalize_cycles"),
}
"""Operations that a configuration may leave out, and the field that does."""


def operations_of(config: NpuConfig) -> list[Operation]:
    """The operations that the configuration has."""
    return [one for one in Operation if one in _table(config)]


def _table(config: NpuConfig) -> Mapping[Operation, tuple[LaneField, ...]]:
    table = _FIELDS[config.datapath]
    left_out = {one for one, field in OPTIONAL_OPERATIONS.items() if not getattr(config, field)}
    return {one: fields for one, fields in table.items() if one not in left_out}


def descriptor_lanes(config: NpuConfig, operation: Operation) -> tuple[LaneField, ...]:
    """The descriptor's fields of an operation.

    Raises:
        InstructionError: when the data type, or the configuration, has no such operation.
    """
    table = _table(config)
    if operation in _FIELDS[config.datapath] and operation not in table:
        raise InstructionError(f"operation {operation.name} is not there with {OPTIONAL_OPERATIONS[operation]} = 0")
    if operation not in table:
        raise InstructionError(f"operation {operation.name} is not defined for dtype {config.dtype}")
    lanes = _TABLE_LANES.get(operation, 0)
    gap = table_lanes(config, operation) - lanes
    if not gap:
        return table[operation]
    return tuple(replace(one, lane=one.lane + gap) if one.lane >= lanes else one for one in table[operation])


def block_parameters(config: NpuConfig, operation: Operation) -> tuple[str, ...]:
    """Names of the PAR words that each block of an operation reads before its taps."""
    return _BLOCK[config.datapath].get(operation, ())


_TABLE_LANES = {
    Operation.TABLE: TABLE_ENTRIES // 4,
    Operation.TABLE_SUM: TABLE_ENTRIES,
    Operation.TABLE_DIVIDE: TABLE_ENTRIES,
    Operation.FUNCTION: 2 * TABLE_ENTRIES,
}


def table_lanes(config: NpuConfig, operation: Operation) -> int:
    """Lanes of the whole words of an operation's descriptor that hold a table, which the other fields follow; 0: it has
    no table."""
    return -(-_TABLE_LANES.get(operation, 0) // config.array) * config.array


def tap_words(config: NpuConfig, instruction: Vector) -> int:
    """PAR words of one block's depthwise taps, in (ky, kx) order: 4 int8 or 2 bf16 to a lane."""
    if instruction.operation not in (Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
        return 0
    per_lane = 4 // config.element_bytes
    return -(-instruction.window_height * instruction.window_width // per_lane)


def descriptor_words(config: NpuConfig, instruction: Vector) -> int:
    """PAR words of an instruction's descriptor; a SUM into ACC has none."""
    if instruction.operation is Operation.SUM and instruction.out_memory is Memory.ACC:
        return 0
    lanes = descriptor_lanes(config, instruction.operation)
    return -(-(1 + max((field.lane for field in lanes), default=-1)) // config.array)


def parameter_words(config: NpuConfig, instruction: Vector) -> int:
    """PAR words of one block's parameters."""
    return len(block_parameters(config, instruction.operation)) + tap_words(config, instruction)


def encode_descriptor(config: NpuConfig, operation: Operation, values: Mapping[str, float | int]) -> NDArray[np.uint32]:
    """A descriptor's PAR words, uint32[words, array]. Fields not given are 0.

    Raises:
        InstructionError: unknown field, or a value that is no whole number or outside of its range.
    """
    fields = descriptor_lanes(config, operation)
    lanes = np.zeros(1 + max((field.lane for field in fields), default=-1), np.uint32)
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        raise InstructionError(f"{operation.name}: the descriptor has no field {sorted(unknown)[0]!r}")
    for field in fields:
        value = values.get(field.name, 0)
        if field.is_float:
            lanes[field.lane] = np.float32(value).view(np.uint32)
            continue
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise InstructionError(f"{operation.name}: {field.name} must be a whole number, not {value!r}") from None
        low = -(1 << (field.width - 1)) if field.signed else 0
        high = low + (1 << field.width) - 1
        if not low <= number <= high:
            raise InstructionError(f"{operation.name}: {field.name} must be from {low} to {high}, not {number}")
        lanes[field.lane] |= np.uint32((number & ((1 << field.width) - 1)) << field.lsb)
    words = -(-len(lanes) // config.array)
    return np.pad(lanes, (0, words * config.array - len(lanes))).reshape(words, config.array)


def decode_descriptor(
    config: NpuConfig, operation: Operation, words: NDArray[np.uint32]
) -> dict[str, np.float32 | int]:
    """The fields that uint32[words, array] hold; the inverse of `encode_descriptor`."""
    lanes = words.reshape(-1)
    values: dict[str, np.float32 | int] = {}
    for field in descriptor_lanes(config, operation):
        if field.is_float:
            values[field.name] = lanes[field.lane : field.lane + 1].view(np.float32)[0]
            continue
        number = int(lanes[field.lane]) >> field.lsb & ((1 << field.width) - 1)
        if field.signed and number >> (field.width - 1):
            number -= 1 << field.width
        values[field.name] = number
    return values


def pack_taps(config: NpuConfig, taps: NDArray) -> NDArray[np.uint32]:
    """Depthwise taps [positions, array] (int8, or bf16 as uint16) as PAR words uint32[words, array]."""
    per_lane = 4 // config.element_bytes
    storage = config.datapath.weight.storage
    raw = np.ascontiguousarray(taps).view(storage)
    words = -(-raw.shape[0] // per_lane)
    padded = np.zeros((words * per_lane, config.array), storage)
    padded[: raw.shape[0]] = raw
    grouped = padded.reshape(words, per_lane, config.array).transpose(0, 2, 1)
    return np.ascontiguousarray(grouped).view(np.uint32).reshape(words, config.array)


def unpack_taps(config: NpuConfig, words: NDArray[np.uint32], positions: int) -> NDArray:
    """The inverse of `pack_taps`: int8 (or bf16 as uint16) [positions, array]."""
    per_lane = 4 // config.element_bytes
    storage = config.datapath.weight.storage
    flat = np.ascontiguousarray(words).view(storage).reshape(len(words), config.array, per_lane)
    return flat.transpose(0, 2, 1).reshape(-1, config.array)[:positions]
