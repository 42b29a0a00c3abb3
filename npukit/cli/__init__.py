"""The command line: one file a command, and exit codes that mean the same everywhere.

0: done. 1: a difference was found. 2: bad input. 3: a tool or a device failed. 130: interrupted.
"""

import argparse
import os
import sys
from typing import NoReturn

import npukit
from npukit.cli import asm, check, compile, configs, explain, ops, profile, run, synth, verify, verilog, zoo
from npukit.errors import TOOL_ERRORS, USER_ERRORS

__all__ = ["main"]

_COMMANDS = (zoo, ops, check, compile, run, profile, explain, asm, configs, verilog, verify, synth)
_EXIT_CODES = "exit codes: 0 done, 1 a difference was found, 2 bad input, 3 a tool or device failed, 130 interrupted"


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


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()  # here, so that a reader that has gone is noticed
        return code
    except USER_ERRORS as error:
        return _report(error, 2)
    except TOOL_ERRORS as error:
        return _report(error, 3)
    except BrokenPipeError:
        # the reader has gone; point stdout elsewhere so that closing it raises nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _report("interrupted", 130)


def _report(message: object, code: int) -> int:
    print(f"npukit: {' '.join(str(message).split())}", file=sys.stderr)
    return code
