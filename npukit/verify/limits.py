"""What each declared field of an instruction can be in a legal program, and what lies beyond, with the reason.

Everything follows from the declarations (`npukit.isa.instructions.fields_of`), from which instructions are legal by
themselves (`npukit.isa.legality`) and from the sizes of a configuration. A field that is of none of the classes known
here is an error, so that a new one cannot be forgotten.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words, operations_of, parameter_words
from npukit.isa.instructions import (
    ENGINES,
    OPCODES,
    REDUCTION_OPERATIONS,
    WINDOW_OPERATIONS,
    End,
    FieldSpec,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
    fields_of,
)
from npukit.isa.legality import LOAD_MEMORIES, SECOND_SOURCE_MEMORIES, memory_names, vector_memories
from npukit.sim.addressing import bank_depth

__all__ = ["Context", "Span", "ring_operand", "spans", "turns"]

Context = tuple[tuple[str, int], ...]
"""What other fields, or properties of the instruction, must be: (name, value)."""


@dataclass(frozen=True)
class Span:
    """A field in a context.

    Attributes:
        values: its least, greatest and boundary values in legal programs.
        beyond: (values that can be encoded and are never legal, the reason).
        passes: for the size of a ring: the sizes whose end addresses can pass, and those where they need not.
    """

    kind: type[Instruction]
    field: str
    context: Context
    values: tuple[int, ...]
    beyond: tuple[tuple[str, str], ...] = ()
    passes: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@cache
def spans(config: NpuConfig) -> tuple[Span, ...]:
    """Every declared field in every context."""
    found = []
    for kind in OPCODES.values():
        for spec in fields_of(kind):
            find = _CLASSES.get(_class_of(kind, spec))
            assert find is not None, f"{kind.mnemonic}.{spec.name} is of no class that is known here"
            found += [find(config, kind, spec, context) for context in _contexts(config, kind, spec)]
    return tuple(found)


# ---- contexts: the same field has other ends in another memory, or for another operation


def _memories(config: NpuConfig, side: int, window: bool) -> list[Memory]:
    """Memories that some operation of the configuration has as its first source (0) or its result (1)."""
    chosen = [one for one in operations_of(config) if (one in WINDOW_OPERATIONS) == window]
    return sorted(
        {pair[side] for one in chosen for pair in vector_memories(config, one) if side or one is not Operation.FILL}
    )


def _contexts(config: NpuConfig, kind: type[Instruction], spec: FieldSpec) -> list[Context]:
    name = spec.name
    if kind is Load and name not in ("drain", "wait", "signal", "memory", "pad_value"):
        return [(("memory", memory),) for memory in sorted(LOAD_MEMORIES)]
    if kind is not Vector:
        return [()]
    operations = operations_of(config)
    if name in ("blocks", "height", "width"):
        return [(("operation", one),) for one in operations]
    if spec.variant == "window":
        if not spec.signed:
            return [(("operation", one),) for one in operations if one in WINDOW_OPERATIONS]
        return [(("is_window", 1), ("a_memory", memory)) for memory in _memories(config, 0, True)]
    if name == "wrap":
        sources = sorted({*_memories(config, 0, True), *_memories(config, 0, False)})
        results = sorted({*_memories(config, 1, True), *_memories(config, 1, False)})
        return [
            *((("a_wrap", 1), ("a_memory", memory)) for memory in sources),
            (("b_wrap", 1), ("b_memory", Memory.ACT)),
            *((("out_wrap", 1), ("out_memory", memory)) for memory in results),
        ]
    if name in ("a_bank", "a_offset"):
        memories = sorted({*_memories(config, 0, True), *_memories(config, 0, False)})
        return [(("reads_a", 1), ("a_memory", memory)) for memory in memories]
    if name.startswith("a_stride"):
        plain: list[Context] = [
            (("is_window", 0), ("reads_a", 1), ("a_memory", memory)) for memory in _memories(config, 0, False)
        ]
        if name == "a_stride_x":
            return plain  # a window's columns have strides of their own
        return plain + [(("is_window", 1), ("a_memory", memory)) for memory in _memories(config, 0, True)]
    if spec.variant == "source":
        return [(("has_two_sources", 1),)]
    if name.startswith("out_") and name not in ("out_memory", "out_wrap"):
        memories = sorted({*_memories(config, 1, True), *_memories(config, 1, False)})
        return [(("out_memory", memory),) for memory in memories]
    return [()]


def _operand_memory(kind: type[Instruction], spec: FieldSpec, context: Context) -> Memory:
    """The memory in which a field's operand lies."""
    given = dict(context)
    if kind is Load:
        return Memory(given["memory"])
    if kind is Store:
        return Memory.ACT
    if kind is Matrix:
        return Memory[spec.name.split("_")[0].upper()]
    if spec.name == "parameters":
        return Memory.PAR
    for name in ("a_memory", "b_memory", "out_memory"):
        if name in given:
            return Memory(given[name])
    return Memory.ACT  # the second source


# ---- loops


_LOOPS = {
    "plane": "planes", "row": "rows", "word": "words", "block": "blocks", "y": "height", "x": "width",
    "channel": "channels", "kernel_y": "kernel_height", "kernel_x": "kernel_width",
}  # fmt: skip
"""End of a stride's name -> the count of its loop."""


def turns(kind: type[Instruction], stride: str) -> Callable[[Instruction], int]:
    """How often the loop of a stride is gone through: with one turn, the stride has no effect."""
    if kind is Vector and stride == "window_stride_y":
        return lambda one: one.window_height  # type: ignore[attr-defined]
    if kind is Vector and stride == "window_stride_x":
        return lambda one: (one.width - 1) * one.window_step + one.window_width  # type: ignore[attr-defined]
    count = _LOOPS[
        stride.split("stride_")[-1] if "stride_" in stride else stride.removesuffix("_stride").split("_")[-1]
    ]
    if kind is Load and stride in ("row_stride", "word_stride"):
        first, last = ("pad_top", "pad_bottom") if stride == "row_stride" else ("pad_left", "pad_right")
        return lambda one: getattr(one, first) + getattr(one, count) + getattr(one, last)
    return lambda one: getattr(one, count)


def ring_operand(kind: type[Instruction], field: str, context: Context) -> str:
    """Name of the operand whose addresses a field of a ring's size keeps."""
    if kind is Vector:
        return next(name.removesuffix("_wrap") for name, _ in context if name.endswith("_wrap"))
    return {Load: "destination", Store: "source"}.get(kind) or field.removesuffix("_wrap")


# ---- classes of fields


def _class_of(kind: type[Instruction], spec: FieldSpec) -> str:
    name = spec.name
    if kind is End:
        return "end"
    if name in ("wait", "signal"):
        return "tokens"
    if spec.kind is not None:
        return "choice"
    if spec.width == 1:
        return "flag"
    if name.endswith("bank"):
        return "bank"
    if name.endswith("wrap"):
        return "ring"
    if spec.bias:
        return "count"
    if spec.signed:
        return "DRAM stride" if name.startswith("dram_") else "stride"
    if name.startswith("pad_"):
        return "border"
    if name.endswith("offset"):
        return "offset"
    return name


def _at_most(legal: int, spec: FieldSpec, reason: str) -> tuple[tuple[str, str], ...]:
    return ((f">{legal}", reason),) if legal < spec.high else ()


def _end(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    beyond = ((f">{spec.low}", "END takes and gives no tokens, and does not drain"),)
    return Span(kind, spec.name, context, (spec.low,), beyond)


def _tokens(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    others = [1 << engine for engine in ENGINES if engine is not kind.engine]
    own = (f" with bit {kind.engine}", "an engine has no tokens with itself")
    return Span(kind, spec.name, context, (0, *others, sum(others)), (own,))


def _choice(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    assert spec.kind is not None
    legal: AbstractSet[int]
    if spec.name == "operation":
        legal, reason = set(operations_of(config)), "the configuration has no such operation"
    elif spec.name == "memory":
        legal, reason = set(LOAD_MEMORIES), f"LOAD writes {memory_names(LOAD_MEMORIES)}"
    elif spec.name == "b_memory":
        legal, reason = set(SECOND_SOURCE_MEMORIES), f"second sources are in {memory_names(SECOND_SOURCE_MEMORIES)}"
    else:
        side = 0 if spec.name == "a_memory" else 1
        legal = {*_memories(config, side, False), *_memories(config, side, True)}
        reason = f"no operation {'writes' if side else 'reads'} it"
    numbers = sorted(legal)
    beyond = tuple((f"={one.name}", reason) for one in spec.kind if one not in legal)
    top = max(int(one) for one in spec.kind)
    return Span(kind, spec.name, context, tuple(numbers), beyond + _at_most(top, spec, "the value has no meaning"))


def _flag(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    return Span(kind, spec.name, context, (0, 1))


def _bank(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    memory = _operand_memory(kind, spec, context)
    banks, _ = bank_depth(config, memory)
    reason = f"{memory.name} has {banks} bank{'s' * (banks > 1)}"
    return Span(kind, spec.name, context, tuple(range(banks)), _at_most(banks - 1, spec, reason))


def _largest_ring(depth: int) -> int:
    return depth.bit_length() - 1


def _ring(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    memory = _operand_memory(kind, spec, context)
    depth = bank_depth(config, memory)[1]
    largest = _largest_ring(depth)
    beyond = ()
    if largest < spec.high:
        beyond = (
            (f">{largest}, passed", f"a ring has to lie in its bank, and one of {memory.name} has {depth} words"),
        )
    least = 1
    if memory is Memory.WGT and kind is Matrix:
        least = (config.array - 1).bit_length()
        beyond += ((f"<{least}, not passed", f"a weight tile has {config.array} words, one after the other"),)
    passed = tuple(range(1, min(largest, spec.high) + 1))
    return Span(kind, spec.name, context, (0,), beyond, (passed, tuple(range(least, spec.high + 1))))


def _count(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    name, given = spec.name, dict(context)
    most, reason = spec.high, ""
    if kind is Load:
        memory = Memory(given["memory"])
        most = bank_depth(config, memory)[1]
        reason = f"each word is written once, and a bank of {memory.name} has {most}"
    elif kind is Matrix and name in ("blocks", "height", "width"):
        most = config.acc_depth
        reason = f"each accumulator is written once, and a bank of ACC has {most}"
    elif kind is Vector and name in ("window_height", "window_width"):
        most, reason = config.max_window, f"max_window is {config.max_window}"
    elif kind is Vector and name in ("blocks", "height", "width"):
        operation = Operation(given["operation"])
        results = {pair[1] for pair in vector_memories(config, operation)}
        most = max(bank_depth(config, memory)[1] for memory in results)
        reason = f"each word is written once, and a bank has {most}"
        if operation in REDUCTION_OPERATIONS and name != "blocks":
            most, reason = spec.high, ""
        if operation is Operation.TRANSPOSE:
            if name == "width":
                other = (f" other than {config.array}", "TRANSPOSE goes tile by tile")
                return Span(kind, name, context, (config.array,), (other,))
            most //= config.array
            reason += f", {config.array} for each tile"
        probe = Vector(operation=operation)
        each = parameter_words(config, probe)
        if name == "blocks" and each:
            # a descriptor of at least a word stands before the blocks'
            fit = (config.par_depth - _head_words(config, operation)) // each
            if fit < most:
                most, reason = fit, f"a block has {each} words of parameters, and PAR {config.par_depth}"
    most = min(most, spec.high)
    return Span(kind, name, context, _distinct(1, 2, most), _at_most(most, spec, reason))


def _head_words(config: NpuConfig, operation: Operation) -> int:
    return descriptor_words(config, Vector(operation=operation))


def _stride(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    memory = _operand_memory(kind, spec, context)
    depth = bank_depth(config, memory)[1]
    low, high = spec.low, spec.high
    written = kind is Load or spec.name.startswith(("out_", "acc_"))
    beyond: tuple[tuple[str, str], ...] = ()
    if spec.name.startswith("acc_"):
        low, high = max(low, 1 - depth), min(high, depth - 1)
        reason = f"accumulators have no rings, and a bank of ACC has {depth} words"
        beyond += ((f"<{low}", reason),) if low > spec.low else ()
        beyond += _at_most(high, spec, reason)
    elif written:
        # beyond the bank a ring brings the address back, but not to the same word
        sizes = [1 << k for k in range(1, _largest_ring(depth) + 1)]
        while low < -(depth - 1) and all(low % size == 0 for size in sizes):
            low += 1
        if low > spec.low:
            beyond += ((f"<{low}", f"a multiple of every ring in {depth} words: a word would be written twice"),)
    if written:
        beyond += (("=0", "a word would be written twice"),)
    longest = min(depth - 1, high)  # without a ring
    values = _distinct(low, -longest, -1, *([] if written else [0]), 1, longest, high)
    return Span(kind, spec.name, context, values, beyond)


def _dram_stride(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    unit, beyond = _dram_unit(config, context)
    low, high = spec.low // unit * unit, spec.high // unit * unit
    if kind is Store:
        beyond += (("=0", "a word would be written twice"),)
    values = _distinct(low, -unit, *([] if kind is Store else [0]), unit, high)
    return Span(kind, spec.name, context, values, beyond)


def _dram(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    unit, beyond = _dram_unit(config, context)
    return Span(kind, spec.name, context, (0, spec.high // unit * unit), beyond)


def _dram_unit(config: NpuConfig, context: Context) -> tuple[int, tuple[tuple[str, str], ...]]:
    """DRAM addresses and strides are multiples of this."""
    if dict(context).get("memory") != Memory.PAR:
        return 1, ()
    unit = config.wide_word_units
    return unit, ((" of no multiple", f"a PAR word is {unit} ACT words in DRAM"),)


def _offset(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    memory = _operand_memory(kind, spec, context)
    depth = bank_depth(config, memory)[1]
    last, reason = depth - 1, f"a bank of {memory.name} has {depth} words"
    if kind is Matrix and memory is Memory.WGT:
        # behind the last place of a whole tile only a ring keeps the tile in the memory
        rings = [depth >> k << k for k in range(1, _largest_ring(depth) + 1)]
        last = max(depth - config.array, *(end - 1 for end in rings))
        reason = f"a tile has {config.array} words, in WGT's {depth} or in an aligned ring of them"
    return Span(kind, spec.name, context, _distinct(0, last), _at_most(last, spec, reason))


def _parameters(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    least = min(words for one in operations_of(config) if (words := _head_words(config, one)))
    last = min(config.par_depth - least, spec.high)
    reason = f"the shortest descriptor has {least} word{'s' * (least > 1)}, and PAR {config.par_depth}"
    return Span(kind, spec.name, context, (0, last), _at_most(last, spec, reason))


def _border(config: NpuConfig, kind: type[Instruction], spec: FieldSpec, context: Context) -> Span:
    if spec.name == "pad_value":
        return Span(kind, spec.name, context, (spec.low, spec.high))
    if dict(context).get("memory") == Memory.PAR:
        return Span(kind, spec.name, context, (0,), ((">0", "a LOAD to PAR has no border"),))
    memory = _operand_memory(kind, spec, context)
    depth = bank_depth(config, memory)[1]
    most = min(spec.high, depth - 1)
    reason = f"each word is written once, and a bank of {memory.name} has {depth}"
    return Span(kind, spec.name, context, (0, 1, most), _at_most(most, spec, reason))


def _distinct(*values: int) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


_CLASSES: dict[str, Callable[[NpuConfig, type[Instruction], FieldSpec, Context], Span]] = {
    "end": _end,
    "tokens": _tokens,
    "choice": _choice,
    "flag": _flag,
    "bank": _bank,
    "ring": _ring,
    "count": _count,
    "stride": _stride,
    "DRAM stride": _dram_stride,
    "dram": _dram,
    "offset": _offset,
    "parameters": _parameters,
    "border": _border,
}
