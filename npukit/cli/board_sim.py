"""`npukit board-sim`: a board in Verilator behind a pseudo-terminal."""

import argparse
import signal
import sys
from contextlib import closing
from dataclasses import replace

from npukit.cli.common import add_config, add_output, chosen_config, print_json, say, say_config
from npukit.errors import UsageError
from npukit.fpga.boards import board_of, boards
from npukit.isa.host_link import divisor_of

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "board-sim", help="run a board's bitstream in Verilator, behind a terminal like a real board's",
        description="Run what goes into a board's bitstream in Verilator, pins and all, with a model of its SDRAM "
        "chip, and give its serial line a name that npukit run --device serial:NAME opens like a real board. It runs "
        "until it is interrupted. The signal USR1 switches the board off and on.",
    )  # fmt: skip
    parser.add_argument("--board", metavar="NAME", help="for a configuration that names none (npukit boards)")
    parser.add_argument(
        "--baud", type=int, metavar="N",
        help="bits a second on the board's serial line (default: the board's; a quarter of the clock is fastest here)",
    )  # fmt: skip
    parser.add_argument("--link", metavar="PATH", help="make a symbolic link to the terminal there")
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.config is None:
        presets = [name for board in boards().values() for name in board.presets]
        raise UsageError(f"--config names the board: {', '.join(presets)}")
    config = chosen_config(options)
    say_config(options, config)
    if options.baud is not None and options.baud <= 0:
        raise UsageError(f"--baud must be above 0, not {options.baud}")
    try:
        board = board_of(options.config, config, options.board)
        board = board if options.baud is None else replace(board, baud=options.baud)
        divisor = divisor_of(board.megahertz, board.rate)
    except ValueError as error:  # of which a BoardError is one
        raise UsageError(str(error)) from None
    from npukit.board_sim.model import BoardModel, load_library
    from npukit.board_sim.server import BoardServer, linked

    library = load_library(board, config, lambda text: say(options, text))
    server = BoardServer(lambda: BoardModel(board, config, library))
    signal.signal(signal.SIGUSR1, lambda *_: server.power_cycle())
    with closing(server), linked(server.path, options.link):
        if options.json:
            print_json({"schema": 1, "board": board.name, "device": f"serial:{server.path}", "divisor": divisor})
        else:
            print(f"serial:{server.path}")
        sys.stdout.flush()
        say(options, f"{board.name} at {board.megahertz:g} MHz, {divisor} cycles for a bit; until it is interrupted")
        server.serve()
    return 0
