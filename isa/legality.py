"""Which instructions are legal by themselves: modes that a configuration has, whatever else a program holds.

The validator refuses a program with any other. Addresses are not looked at here: whether an operand stays in its
bank or in DRAM follows from its loops.
"""

from collections.abc import Mapping

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_lanes
from npukit.isa.instructions import (
    REDUCTION_OPERATIONS,
    End,
    Instruction,
    InstructionError,
    Load,
    Memory,
    Operation,
    Vector,
)

__all__ = ["LOAD_MEMORIES", "SECOND_SOURCE_MEMORIES", "illegal_mode", "memory_names", "vector_memories", "ways_of"]

LOAD_MEMORIES = frozenset({Memory.ACT, Memory.WGT, Memory.PAR})
"""Where LOAD may write."""

_ACT_TO_ACT = frozenset({(Memory.ACT, Memory.ACT)})
_ACC_TO_ACT = frozenset({(Memory.ACC, Memory.ACT)})
_ACT_TO_ACC = frozenset({(Memory.ACT, Memory.ACC)})
_ACC_TO_ACC = frozenset({(Memory.ACC, Memory.ACC)})
_WITHIN = frozenset({(Memory.ACT, Memory.ACT), (Memory.ACC, Memory.ACC)})
_ACT_TO_WGT = frozenset({(Memory.ACT, Memory.WGT)})
_ACROSS = frozenset({(Memory.ACT, Memory.ACC), (Memory.ACC, Memory.ACT)})
_ANYHOW = _WITHIN | _ACROSS

_Pairs = frozenset[tuple[Memory, Memory]]
_MEMORIES: Mapping[Operation, _Pairs] = {
    Operation.REQUANTIZE: _ACC_TO_ACT,
    Operation.REQUANTIZE_FIXED: _ACC_TO_ACT,
    Operation.ADD: _ACT_TO_ACT,
    Operation.ADD_FIXED: _ACT_TO_ACT,
    Operation.MULTIPLY: _ACT_TO_ACT,
    Operation.MULTIPLY_FIXED: _ACT_TO_ACT,
    Operation.MAX: _ACT_TO_ACT,
    Operation.SUM: _ANYHOW,
    Operation.DEPTHWISE: _ACT_TO_ACT,
    Operation.DEPTHWISE_FIXED: _ACT_TO_ACT,
    Operation.TABLE: _ACT_TO_ACT,
    Operation.CONVERT: _ACROSS,
    Operation.COPY: _WITHIN | _ACT_TO_WGT,
    Operation.FILL: _ANYHOW | _ACT_TO_WGT,
    Operation.PART: _ACC_TO_ACT,
    Operation.TRANSPOSE: _ACT_TO_ACT | _ACT_TO_WGT,
    Operation.TABLE_SUM: _ACT_TO_ACC,
    Operation.TABLE_DIVIDE: _ACC_TO_ACT,
    Operation.MOMENTS: _ACT_TO_ACC,
    Operation.RECIPROCAL_ROOT: _ACC_TO_ACC,
    Operation.NORMALIZE: _ACC_TO_ACC,
    Operation.FUNCTION: _ANYHOW,
}
_FLOATING_MEMORIES: Mapping[Operation, _Pairs] = {Operation.ADD: _ANYHOW, Operation.MULTIPLY: _ANYHOW}
"""Where numbers of ACC and ACT differ only in how many bits they have."""

SECOND_SOURCE_MEMORIES = frozenset({Memory.ACT})
"""Where the second source of an operation that has one may be; for all others the field has no effect."""


def memory_names(memories: frozenset[Memory]) -> str:
    """Memories as text: `ACT, WGT or PAR`."""
    *others, last = (memory.name for memory in sorted(memories))
    return f"{', '.join(others)} or {last}" if others else last


def vector_memories(config: NpuConfig, operation: Operation) -> frozenset[tuple[Memory, Memory]]:
    """The memories (of the first source, of the result) that an operation may have together. FILL reads no source, and
    yet its source field names one of these."""
    return (_FLOATING_MEMORIES if config.activation.floating else _MEMORIES).get(operation, _MEMORIES[operation])


def ways_of(config: NpuConfig, operation: Operation) -> str:
    """An operation's pairs of memories as text: `from ACC to ACT`."""
    pairs = sorted(vector_memories(config, operation))
    return " or ".join(f"from {one.name} to {other.name}" for one, other in pairs)


def _illegal_load(config: NpuConfig, load: Load) -> str | None:
    if load.memory not in LOAD_MEMORIES:
        return f"LOAD writes {memory_names(LOAD_MEMORIES)}, not {load.memory.name}"
    if load.memory is not Memory.PAR:
        return None
    if load.pad_top or load.pad_bottom or load.pad_left or load.pad_right:
        return "a LOAD to PAR has no border"
    units = config.wide_word_units
    places = (load.dram, load.dram_plane_stride, load.dram_row_stride)
    if any(place % units for place in places):
        return (
            f"a LOAD to PAR has its DRAM address and strides at multiples of a PAR word, {units} ACT words, "
            f"not {', '.join(map(str, places))}"
        )
    return None


def _illegal_vector(config: NpuConfig, vector: Vector) -> str | None:
    name = vector.operation.name
    try:
        descriptor_lanes(config, vector.operation)
    except InstructionError as error:
        return str(error)
    if (vector.a_memory, vector.out_memory) not in vector_memories(config, vector.operation):
        taken = f"from {vector.a_memory.name} to {vector.out_memory.name}"
        return f"{name} goes {ways_of(config, vector.operation)}, not {taken}"
    if vector.operation is Operation.TRANSPOSE and vector.width != config.array:
        return f"TRANSPOSE goes tile by tile: its width is {config.array}, the array's, not {vector.width}"
    if vector.operation in REDUCTION_OPERATIONS and (vector.out_stride_y or vector.out_stride_x):
        return (
            f"{name} has one result in a block: its out_stride_y and out_stride_x are 0, "
            f"not {vector.out_stride_y} and {vector.out_stride_x}"
        )
    if vector.has_two_sources and vector.b_memory not in SECOND_SOURCE_MEMORIES:
        return (
            f"{name} reads its second source in {memory_names(SECOND_SOURCE_MEMORIES)}, not in {vector.b_memory.name}"
        )
    if vector.is_window:
        if vector.a_stride_x != 0:
            return f"a window operation has a_stride_x 0, not {vector.a_stride_x}"
        if max(vector.window_height, vector.window_width) > config.max_window:
            return f"window {vector.window_height}x{vector.window_width} exceeds max_window {config.max_window}"
    return None


def illegal_mode(config: NpuConfig, instruction: Instruction) -> str | None:
    """Why an instruction that can be encoded is illegal on a configuration, or None."""
    engine = instruction.engine
    if isinstance(instruction, End):
        if instruction.wait or instruction.signal or instruction.drain:
            return "END takes and gives no tokens, and does not drain"
    elif engine is not None and (instruction.wait | instruction.signal) >> engine & 1:
        return "an engine has no tokens with itself"
    if isinstance(instruction, Load):
        return _illegal_load(config, instruction)
    if isinstance(instruction, Vector):
        return _illegal_vector(config, instruction)
    return None
