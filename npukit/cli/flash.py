"""`npukit flash`: a bitstream into a board."""

import argparse
from pathlib import Path

from npukit.cli.common import add_output, print_json, say
from npukit.errors import UsageError
from npukit.fpga.boards import BoardError, board_named
from npukit.fpga.flash import flash

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "flash", help="put a bitstream into a board",
        description="Put a bitstream that npukit synth has made into a board, through openFPGALoader: into the FPGA, "
        "which forgets it when it is switched off, or with --keep into the flash memory that it starts from.",
    )  # fmt: skip
    parser.add_argument("bitstream", metavar="F.bit", help="the bitstream, or the folder that npukit synth has written")
    parser.add_argument("--board", metavar="NAME", default="ulx3s", help="which board (default: ulx3s)")
    parser.add_argument("--keep", action="store_true", help="into the flash memory")
    parser.add_argument("--cable", metavar="NAME", help="which cable, for openFPGALoader")
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    path = Path(options.bitstream)
    if path.is_dir():
        path = path / "top.bit"
    if not path.is_file():
        raise UsageError(f"there is no bitstream {path}: npukit synth makes one")
    try:
        board = board_named(options.board)
    except BoardError as error:
        raise UsageError(str(error)) from None
    say(options, f"flashing {board.name} with {path}{', which takes a minute or more' if options.keep else ''} ...")
    flash(board, path, keep=options.keep, cable=options.cable)
    if options.json:
        print_json({"schema": 1, "board": board.name, "bitstream": str(path), "kept": options.keep})
    say(options, "done")
    return 0
