"""`npukit registers`: the register map for other tools."""

import argparse

from npukit.cli.common import add_config, add_output, check_outputs, chosen_config, print_json, say
from npukit.errors import UsageError
from npukit.firmware.register_header import register_header
from npukit.firmware.register_map import MAP_BYTES, register_list
from npukit.firmware.register_rdl import register_rdl
from npukit.firmware.register_svd import register_svd
from npukit.npufile import write_bytes

__all__ = ["add_parsers"]

_BASE = 0x40000000


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "registers", help="print the register map as a C header, CMSIS-SVD or SystemRDL",
        description="Print the register map, from the declaration that the hardware is made of. It is the same for all "
        "configurations, but for the value of CONFIG_HASH, which is stated with --config.",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("c", "svd", "rdl"),
        help="c: a C header; svd: CMSIS-SVD, for debuggers; rdl: SystemRDL 2.0 (default: c)",
    )  # fmt: skip
    parser.add_argument(
        "--base", metavar="ADDRESS", help=f"svd: byte address of the registers on the bus (default: {_BASE:#x})"
    )
    parser.add_argument("--interrupt", type=int, metavar="N", help="svd: number of the accelerator's interrupt")
    parser.add_argument("-o", "--output", metavar="F", help="file to write (default: stdout)")
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.json and (options.format is not None or options.output is not None):
        raise UsageError("--json prints the register map as JSON; leave out --format and -o")
    if options.format != "svd" and (options.base is not None or options.interrupt is not None):
        raise UsageError("--base and --interrupt go with --format svd")
    config = chosen_config(options) if options.config is not None or options.fields else None
    if options.json:
        print_json({"schema": 1, "registers": register_list(config)})
        return 0
    if options.format == "svd":
        text = register_svd(_base_of(options), _interrupt_of(options), config)
    else:
        text = register_rdl(config) if options.format == "rdl" else register_header(config)
    if options.output is None:
        print(text, end="")
        return 0
    check_outputs(options, {"-o": options.output}, {})
    write_bytes(options.output, text.encode())
    say(options, f"wrote {options.output}: {len(text.splitlines())} lines")
    return 0


def _base_of(options: argparse.Namespace) -> int:
    if options.base is None:
        return _BASE
    try:
        base = int(options.base, 0)
    except ValueError:
        base = -1
    if not 0 <= base < 1 << 64 or base % MAP_BYTES:
        raise UsageError(f"--base must be an address below 2^64 and a multiple of {MAP_BYTES}, not {options.base!r}")
    return base


def _interrupt_of(options: argparse.Namespace) -> int | None:
    if options.interrupt is not None and options.interrupt < 0:
        raise UsageError(f"--interrupt must be 0 or above, not {options.interrupt}")
    return options.interrupt
