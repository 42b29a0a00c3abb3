"""`npukit ops`: the operators that the compiler takes over."""

import argparse
from dataclasses import asdict
from pathlib import Path

from npukit.cli.common import add_output, print_json, say
from npukit.errors import UsageError
from npukit.npufile import check_writable, write_bytes

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "ops", help="list the operators that run on the accelerator, and what keeps a node from it"
    )
    parser.add_argument("--markdown", action="store_true", help="as the page docs/operators.md")
    parser.add_argument("-o", "--output", metavar="F.md", help="with --markdown: file to write (default: stdout)")
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from npukit.compiler.frontends.onnx.operators.catalogue import catalogue, markdown, tflite_catalogue

    if options.output is not None and not options.markdown:
        raise UsageError("-o goes with --markdown")
    if options.markdown and options.json:
        raise UsageError("--markdown and --json are two forms of one list: use one of them")
    if options.json:
        operators, tflite = ([asdict(entry) for entry in entries()] for entries in (catalogue, tflite_catalogue))
        print_json({"schema": 1, "operators": operators, "tflite": tflite})
    elif not options.markdown:
        for entry in catalogue():
            print(f"{', '.join(entry.names)}\n    {entry.summary.splitlines()[0]}")
        print("\nof TFLite models:")
        for entry in tflite_catalogue():
            print(f"{', '.join(entry.names)}\n    {entry.summary.splitlines()[0]}")
    elif options.output is None:
        print(markdown(), end="")
    else:
        check_writable(options.output)
        write_bytes(options.output, markdown().encode())
        say(options, f"wrote {Path(options.output)}")
    return 0
