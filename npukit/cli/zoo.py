"""`npukit zoo`: models that come with the kit."""

import argparse
from dataclasses import asdict

from npukit import zoo
from npukit.cli.common import add_output, print_json, say
from npukit.errors import UsageError
from npukit.npufile import check_writable, write_bytes

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser("zoo", help="list or write the models that come with the kit")
    parser.add_argument("name", nargs="?", metavar="NAME", help="model to write")
    parser.add_argument("--list", action="store_true", help="list the models")
    parser.add_argument("-o", "--output", metavar="F", help="file to write (default: NAME.onnx, or NAME.tflite)")
    parser.add_argument("--precision", default="int8", help="int8 (default), fp32, or tflite, of those that have it")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of synthetic weights (default: 0)")
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.name is None or options.list:
        if options.name is not None:
            raise UsageError("zoo takes --list or a NAME, not both")
        if options.output is not None:
            raise UsageError("-o goes with the NAME of a model")
        if options.json:
            print_json({"schema": 1, "models": [asdict(entry) for entry in zoo.ZOO.values()]})
        else:
            for entry in zoo.ZOO.values():
                print(f"{entry.name:<14}{', '.join(entry.precisions):<14}{entry.description}")
        return 0
    if options.seed < 0:
        raise UsageError(f"--seed must be 0 or above, not {options.seed}")
    path = options.output or f"{options.name}.{'tflite' if options.precision == 'tflite' else 'onnx'}"
    check_writable(path)
    try:
        data = zoo.load(options.name, options.precision, options.seed, lambda text: say(options, text))
    except ValueError as error:
        raise UsageError(str(error)) from None
    write_bytes(path, data)
    say(options, f"wrote {path}: {len(data)} bytes")
    if options.json:
        print_json(
            {"schema": 1, "model": options.name, "precision": options.precision, "seed": options.seed, "path": path}
        )
    return 0
