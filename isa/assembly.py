"""Assembly text: one instruction a line, `MNEMONIC field=value ...`, fields at their default left out.

Engines in `wait` and `signal` are written as names joined by `+`; memories and operations by name;
`#` begins a comment. `assemble(disassemble(program)) == program`.
"""

import enum
from collections.abc import Iterable, Sequence

from npukit.isa.instructions import (
    ENGINES,
    OPCODES,
    Engine,
    Instruction,
    InstructionError,
    encode,
    fields_of,
)

__all__ = ["assemble", "disassemble", "format_instruction", "parse_instruction"]

_MASKS = ("wait", "signal")
_KINDS = {kind.mnemonic: kind for kind in OPCODES.values()}


def format_instruction(instruction: Instruction) -> str:
    """The line of assembly text of one instruction."""
    parts = [instruction.mnemonic]
    for spec in fields_of(type(instruction)):
        value = getattr(instruction, spec.name)
        if value == spec.bias and spec.kind is None:
            continue
        if spec.name in _MASKS:
            text = "+".join(engine.name for engine in ENGINES if value >> engine & 1)
        elif spec.kind is not None:
            if spec.variant is not None and value == 0:
                continue
            text = spec.kind(value).name
        else:
            text = str(int(value))
        parts.append(f"{spec.name}={text}")
    return " ".join(parts)


def _parse_value(mnemonic: str, name: str, text: str, kind: type[enum.IntEnum] | None) -> int:
    names = Engine if name in _MASKS else kind
    try:
        if name in _MASKS:
            return sum(1 << Engine[part] for part in set(text.split("+")))
        if kind is not None:
            return kind[text]
        return int(text, 0)
    except (KeyError, ValueError):
        choices = f"one of {', '.join(member.name for member in names)}" if names else "a whole number"
        raise InstructionError(f"{mnemonic}: {name} must be {choices}, not {text!r}") from None


def parse_instruction(line: str) -> Instruction:
    """The instruction that a line of assembly text states.

    Raises:
        InstructionError: unknown mnemonic or field, a field given twice, or a value out of range.
    """
    mnemonic, *assignments = line.split()
    if mnemonic not in _KINDS:
        raise InstructionError(f"an instruction is one of {', '.join(_KINDS)}, not {mnemonic!r}")
    kind = _KINDS[mnemonic]
    specs = {spec.name: spec for spec in fields_of(kind)}
    values: dict[str, int] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator or name not in specs:
            raise InstructionError(f"{mnemonic} has the fields {', '.join(specs)}, not {assignment!r}")
        if name in values:
            raise InstructionError(f"{mnemonic}: {name} is given twice")
        values[name] = _parse_value(mnemonic, name, text, specs[name].kind)
    instruction = kind(**values)
    encode(instruction)
    return instruction


def disassemble(instructions: Iterable[Instruction], notes: Sequence[str] | None = None) -> str:
    """Assembly text of a program; `notes[i]` becomes the comment of instruction i, on one line."""
    lines = []
    for index, instruction in enumerate(instructions):
        note = " ".join(notes[index].split()) if notes is not None else ""
        comment = f"  # {note}" if note else ""
        lines.append(format_instruction(instruction) + comment)
    return "\n".join(lines) + "\n"


def assemble(text: str) -> list[Instruction]:
    """The instructions of assembly text.

    Raises:
        InstructionError: the message begins with the line's number.
    """
    instructions = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0].strip()
        if code:
            try:
                instructions.append(parse_instruction(code))
            except InstructionError as error:
                raise InstructionError(f"line {number}: {error}") from None
    return instructions
