"""All commands, and one of them run."""

import argparse
import logging
from typing import NoReturn

import npukit
from npukit.cli import (
    asm,
    board_sim,
    check,
    compile,
    configs,
    diff,
    explain,
    explore,
    flash,
    ops,
    profile,
    quantize,
    registers,
    run,
    synth,
    verify,
    verilog,
    zoo,
)
from npukit.errors import TOOL_ERRORS, USER_ERRORS

__all__ = ["TOOL_ERRORS", "USER_ERRORS", "run_command"]

_COMMANDS = (
    *(
        zoo,
        ops,
        quantize,
        check,
        compile,
        run,
        profile,
        diff,
        explain,
        explore,
        asm,
        configs,
        registers,
        verilog,
        verify,
    ),
    *(synth, board_sim, flash),
)
_EXIT_CODES = (
    "exit codes: 0 done, 1 a difference was found (or nothing to compare), 2 bad input, 3 a tool or device failed, "
    "129 the terminal has gone, 130 interrupted, 141 nobody reads the output, 143 terminated; the environment variable "
    "NPUKIT_TRACEBACK=1 shows where an error comes from"
)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="npukit",
        description="NPU co-design kit: compile models to accelerator instructions, simulate them cycle by cycle.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"npukit {npukit.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parsers(commands)
    return parser


def run_command(arguments: list[str]) -> int:
    """Run one command; its exit code.

    Raises:
        SystemExit: after --help and the like, and for arguments that are none.
        BaseException: whatever a command raises.
    """
    options = _parser().parse_args(arguments)
    logging.getLogger("npukit").setLevel(logging.ERROR if getattr(options, "quiet", False) else logging.NOTSET)
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)  # of what is unusual in a model, the kit speaks itself
    return options.run(options)
