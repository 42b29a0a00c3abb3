"""`npukit synth` and `npukit boards`: bitstreams."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from npukit.cli.common import add_config, add_output, chosen_config, print_json, say, say_config
from npukit.errors import UsageError
from npukit.files import final, staged
from npukit.fpga.boards import Board, BoardError, board_of, boards
from npukit.fpga.parts import DEFAULT_PART, PARTS, shortfalls, used_by
from npukit.hw.toolchain import needs
from npukit.isa.config import PRESETS
from npukit.npufile import check_folder

__all__ = ["add_parsers"]

_ZYNQ_MEGAHERTZ = 100.0
"""Of the clock that the script asks of the processing system."""


def add_parsers(commands) -> None:
    """Add the commands."""
    parser = commands.add_parser(
        "synth", help="make a board's bitstream with open tools, or files for another system",
        description="Synthesise, place and route the accelerator with its board's memory controller and host link, "
        "and write the bitstream. Each preset of a board names it (npukit boards); --set changes fields. With --target "
        "axi: write the accelerator alone as Verilog, and a Vivado script for Zynq-7020, which is not run; Yosys "
        "synthesises it, and the exit code is 1 if that does not fit the chip (--part).",
    )  # fmt: skip
    parser.add_argument("--target", choices=("board", "axi"), default="board", help="what for (default: board)")
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="folder for the bitstream, logs and reports"
    )
    parser.add_argument("--board", metavar="NAME", help="for a configuration that names none (npukit boards)")
    parser.add_argument(
        "--part", choices=PARTS, metavar="NAME",
        help=f"of --target axi: the chip to compare with: {', '.join(PARTS)} (default: {DEFAULT_PART})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of the placement (default: one with which the preset routes, or 1)")
    parser.add_argument(
        "--seeds", type=int, metavar="N",
        help="place with N seeds, that one and the first others, as many at once as there are cores, and keep the "
        "placement with the fastest clock (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="give up a placement that is not routed then (default: never)"
    )
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_synth)

    parser = commands.add_parser("boards", help="list the boards", description="List the boards and their presets.")
    add_output(parser)
    parser.set_defaults(run=_boards)


def _synth(options: argparse.Namespace) -> int:
    folder = Path(options.output)
    check_folder(folder)
    for name, value, least, most in (("--seed", options.seed, 0, (1 << 31) - 1), ("--seeds", options.seeds, 1, 1000)):
        if value is not None and not least <= value <= most:
            raise UsageError(f"{name} must be from {least} to {most}, not {value}")
    if options.minutes is not None and not 0 < options.minutes <= 10_000:
        raise UsageError(f"--minutes must be above 0, and at most 10000, not {options.minutes:g}")
    if options.part is not None and options.target != "axi":
        raise UsageError("--part goes with --target axi; a board has its chip")
    if options.target == "axi" and not (options.seed is options.seeds is options.minutes is None):
        raise UsageError("--seed, --seeds and --minutes are of a board's placement; --target axi places nothing")
    return _axi(options, folder) if options.target == "axi" else _bitstream(options, folder)


def _axi(options: argparse.Namespace, folder: Path) -> int:
    config = chosen_config(options)
    say_config(options, config)
    with needs("fpga", "synthesis"):
        from npukit.fpga.axi_target import write_target, xilinx_cells

    with staged(folder) as work:
        say(options, "elaborate ...")
        files = [final(path) for path in write_target(config, work, _ZYNQ_MEGAHERTZ)]
        say(options, "synthesise for 7 series with Yosys; Vivado is not run ...")
        with _line(options) as show:
            cells = xilinx_cells(work, show)
    part = options.part or DEFAULT_PART
    used, have = used_by(cells), PARTS[part]
    missing = shortfalls(used, part)
    if options.json:
        found = {"files": [str(path) for path in files], "cells": cells, "part": part}
        found |= {"used": asdict(used), "available": asdict(have)}
        print_json({"schema": 1, "target": "axi", "config": config.to_dict(), **found})
    else:
        print(
            f"{part}: LUT {used.luts} of {have.luts}, flip-flops {used.flip_flops} of {have.flip_flops}, "
            f"DSP48E1 {used.multipliers} of {have.multipliers}, block RAM {used.block_rams} of {have.block_rams}"
        )
    for path in files:
        say(options, f"wrote {path}")
    if missing:
        say(options, f"the design does not fit {part}: {'; '.join(missing)}")
    return 1 if missing else 0


@contextmanager
def _line(options: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """What shows a text in one line of the terminal, in place of the one before; nothing where there is none."""
    if options.quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: print(f"\r\x1b[K  {text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bitstream(options: argparse.Namespace, folder: Path) -> int:
    if options.config is None:
        presets = [name for board in boards().values() for name in board.presets]
        raise UsageError(f"--config names the board: {', '.join(presets)}")
    config = chosen_config(options)
    say_config(options, config)
    try:
        board = board_of(options.config, config, options.board)
    except BoardError as error:
        raise UsageError(str(error)) from None
    with needs("fpga", "synthesis"):
        from npukit.fpga.synth import make_bitstream

    limit = None if options.minutes is None else 60 * options.minutes
    try:
        report = make_bitstream(
            board, config, folder, _seeds(options, board), lambda text: say(options, text), limit=limit
        )
    except BoardError as error:
        raise UsageError(str(error)) from None
    if options.json:
        print_json(report.to_json())
    else:
        print("\n".join(report.lines()))
    say(options, f"wrote {report.bitstream}")
    if not report.met:
        say(options, f"the clock is missed: {report.megahertz:.1f} MHz of {report.asked:.1f}")
    return 0 if report.met else 1


def _seeds(options: argparse.Namespace, board: Board) -> list[int]:
    first = board.seeds.get(options.config, 1) if options.seed is None else options.seed
    count = 1 if options.seeds is None else options.seeds
    others = (seed for seed in range(1, count + 1) if seed != first)
    return [first, *islice(others, count - 1)]


def _boards(options: argparse.Namespace) -> int:
    if options.json:
        print_json(
            {
                "schema": 1,
                "boards": [
                    {"name": board.name, "about": board.about, "megahertz": board.megahertz, "presets": board.presets}
                    for board in boards().values()
                ],
            }
        )
        return 0
    for board in boards().values():
        print(f"{board.name}: {board.about}")
        for name in board.presets:
            print(f"  {name}: {PRESETS[name].size} {PRESETS[name].dtype}")
    return 0
