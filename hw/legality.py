"""Instruction words that a core refuses: `npukit.isa.instructions.decode` and `npukit.isa.legality` as circuits."""

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.utils import exact_log2
from npukit.hw.layout import instruction_view, without_meaning
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import operations_of
from npukit.isa.instructions import (
    OPCODE_FIELD,
    REDUCTION_OPERATIONS,
    TWO_SOURCE_OPERATIONS,
    WINDOW_OPERATIONS,
    End,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)
from npukit.isa.legality import LOAD_MEMORIES, SECOND_SOURCE_MEMORIES, vector_memories

__all__ = ["refused"]


def refused(config: NpuConfig, word: Value) -> Value:
    """Whether a word means nothing, or names a mode that is illegal on the configuration; combinational."""
    opcode = word[: OPCODE_FIELD.width]
    illegal: Value = Const(0, 1)
    for kind in (Load, Matrix, Vector, Store, End):
        illegal = illegal | ((opcode == kind.opcode) & _illegal(config, kind, word))
    return without_meaning(word) | illegal


def _illegal(config: NpuConfig, kind: type[Instruction], word: Value) -> Value:
    one = instruction_view(kind, word)
    if kind.engine is None:
        return Cat(one.wait, one.signal, one.drain).any()
    with_itself = (one.wait | one.signal)[kind.engine]
    if kind is Load:
        return with_itself | _illegal_load(config, one)
    if kind is Vector:
        return with_itself | _illegal_vector(config, one)
    return with_itself


def _illegal_load(config: NpuConfig, load) -> Value:
    part = exact_log2(config.wide_word_units)
    to_par = (
        Cat(load.pad_top, load.pad_bottom, load.pad_left, load.pad_right).any()
        | Cat(load[name][:part] for name in ("dram", "dram_plane_stride", "dram_row_stride")).any()
    )
    return ~_among(load.memory, LOAD_MEMORIES) | ((load.memory == Memory.PAR) & to_par)


def _illegal_vector(config: NpuConfig, vector) -> Value:
    operation = vector.operation
    legal: Value = Const(0, 1)
    for one in operations_of(config):
        pairs = Cat(
            (vector.a_memory == source) & (vector.out_memory == result)
            for source, result in vector_memories(config, one)
        ).any()
        legal = legal | ((operation == one) & pairs)
    largest = config.max_window - 1  # counts hold count - 1
    window = (vector.a_stride_x != 0) | (vector.window_height > largest) | (vector.window_width > largest)
    second = ~_among(vector.b_memory, SECOND_SOURCE_MEMORIES)
    return (
        ~legal
        | (_among(operation, REDUCTION_OPERATIONS) & Cat(vector.out_stride_y, vector.out_stride_x).any())
        | ((operation == Operation.TRANSPOSE) & (vector.width != config.array - 1))
        | Mux(_among(operation, WINDOW_OPERATIONS), window, _among(operation, TWO_SOURCE_OPERATIONS) & second)
    )


def _among(value: Value, members: frozenset[Memory] | frozenset[Operation]) -> Value:
    return Cat(value == one for one in sorted(members)).any()
