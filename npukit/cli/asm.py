"""`npukit disasm` and `npukit asm`: programs as text, and text as programs."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npukit.cli.common import (
    add_config,
    add_limits,
    add_output,
    check_outputs,
    chosen_config,
    limits_of,
    print_json,
    say,
    say_config,
)
from npukit.driver.executor import programs_of
from npukit.errors import UsageError
from npukit.isa.assembly import assemble, disassemble
from npukit.isa.instructions import End, Instruction, InstructionError, Load, Vector
from npukit.isa.program import Program
from npukit.npufile import read_model, write_bytes
from npukit.sim.addressing import dram_operand
from npukit.sim.validator import refuse, validate_program

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the two commands."""
    parser = commands.add_parser("disasm", help="write a compiled model's or program's instructions as text")
    parser.add_argument("file", metavar="F", help="compiled model or program")
    parser.add_argument("-o", "--output", metavar="F", help="file to write (default: stdout)")
    parser.add_argument("--subgraph", metavar="NAME", help="which program, where the file has several")
    add_output(parser)
    parser.set_defaults(run=_disassemble)
    parser = commands.add_parser(
        "asm", help="assemble text to a program",
        description="Assemble text as disasm writes it. With --like, constants, tensors and configuration come "
        "from that program, so that an edited program still runs.",
    )  # fmt: skip
    parser.add_argument("file", metavar="F", help="assembly text")
    parser.add_argument("-o", "--output", metavar="F", required=True, help="program file to write")
    parser.add_argument("--like", metavar="F", help="compiled model or program to take everything else from")
    parser.add_argument("--subgraph", metavar="NAME", help="which program of --like, where it has several")
    parser.add_argument(
        "--dram-bytes",
        type=int,
        default=1 << 20,
        metavar="N",
        help="DRAM that the program may touch, zeros when it starts (default: 1 MiB)",
    )
    add_limits(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_assemble)


def _program(path: str, subgraph: str | None) -> Program:
    programs = programs_of(read_model(path))
    if not programs:
        raise UsageError(f"{path} holds no program: compile it first with npukit compile")
    if subgraph is not None:
        if subgraph not in programs:
            raise UsageError(f"{path} has the programs {', '.join(programs)}, not {subgraph!r}")
        return programs[subgraph]
    if len(programs) > 1:
        raise UsageError(f"{path} has the programs {', '.join(programs)}: choose one with --subgraph")
    return next(iter(programs.values()))


def _disassemble(options: argparse.Namespace) -> int:
    program = _program(options.file, options.subgraph)
    say_config(options, program.config)
    check_outputs(options, {"-o": options.output}, {"F": options.file})
    notes = [""] * len(program.instructions)
    for node in program.nodes:
        for first, _ in node.runs:
            notes[first] = f"{node.op} {node.name}"
    text = disassemble(program.instructions, notes)
    if options.output is not None:
        write_bytes(options.output, text.encode())
        say(options, f"wrote {options.output}: {len(program.instructions)} instructions")
    if options.json:
        print_json({"schema": 1, "config": program.config.to_dict(), "text": text})
    elif options.output is None:
        print(text, end="")
    return 0


def _same_work(like: Program, instructions: Sequence[Instruction]) -> bool:
    """Whether tables that number `like`'s instructions hold for others as well."""

    def shape(program: Sequence[Instruction], index: int) -> tuple[int, ...] | None:
        one = program[index]
        return (one.blocks, one.height, one.width) if isinstance(one, Vector) else None

    return len(instructions) == len(like.instructions) and all(
        shape(instructions, capture.instruction) == shape(like.instructions, capture.instruction)
        for capture in like.captures
    )


def _zeros(program: Program) -> bytes:
    """DRAM up to the last word that a LOAD reads: that it is 0 when the program starts, the program itself says."""
    loads = [one for one in program.instructions if isinstance(one, Load)]
    end = max((dram_operand(program.config, load).extent[1] + 1 for load in loads), default=0)
    return bytes(end * program.config.word_bytes)


def _assemble(options: argparse.Namespace) -> int:
    like = _program(options.like, options.subgraph) if options.like is not None else None
    config = chosen_config(options, like.config if like is not None else None)
    if like is not None and config != like.config:
        raise UsageError("--like gives the configuration; leave out --config and --set")
    say_config(options, config)
    check_outputs(options, {"-o": options.output}, {"F": options.file, "--like": options.like})
    limits = limits_of(options)
    if options.dram_bytes < 0:
        raise UsageError(f"--dram-bytes must be 0 or above, not {options.dram_bytes}")
    try:
        instructions = assemble(Path(options.file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {options.file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{options.file} is not text") from None
    except InstructionError as error:
        raise UsageError(f"{options.file}: {error}") from None
    if not instructions or not isinstance(instructions[-1], End):
        raise UsageError(f"{options.file}: the last instruction must be END")
    if like is None:
        program = Program(config, tuple(instructions), dram_bytes=options.dram_bytes, name="program")
        refuse(validate_program(program, limits, [(0, program.dram_bytes)]))
        program = replace(program, constants=_zeros(program))
    elif _same_work(like, instructions):
        program = replace(like, instructions=tuple(instructions))
    else:
        say(
            options,
            "the instructions do other work than those of --like: its layers and captures are left out",
        )
        program = replace(like, instructions=tuple(instructions), nodes=(), captures=(), captured={})
    refuse(validate_program(program, limits))
    write_bytes(options.output, program.to_bytes())
    say(options, f"wrote {options.output}: {len(instructions)} instructions")
    if options.json:
        print_json({"schema": 1, "output": options.output, "instructions": len(instructions)})
    return 0
