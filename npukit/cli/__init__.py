"""The command line: one file a command, and exit codes that mean the same everywhere.

0: done. 1: a difference was found. 2: bad input. 3: a tool or a device failed. 130: interrupted.
"""

import argparse
import os
import sys

import npukit
from npukit.cli import asm, check, compile, configs, run, zoo
from npukit.driver.device import DeviceError
from npukit.errors import USER_ERRORS

__all__ = ["main"]

_COMMANDS = (zoo, check, compile, run, asm, configs)
_EXIT_CODES = "exit codes: 0 done, 1 a difference was found, 2 bad input, 3 a tool or device failed, 130 interrupted"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
        return options.run(options)
    except USER_ERRORS as error:
        return _report(error, 2)
    except DeviceError as error:
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


if __name__ == "__main__":
    sys.exit(main())
