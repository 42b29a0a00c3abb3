"""`npukit synth` and `npukit boards`: bitstreams."""

import argparse
from pathlib import Path

from npukit.cli.common import add_config, add_output, chosen_config, print_json, say, say_config
from npukit.errors import UsageError
from npukit.files import final, staged
from npukit.fpga.boards import BoardError, board_of, boards
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
        "axi: write the accelerator alone as Verilog, and a Vivado script for Zynq-7020, which is not run.",
    )  # fmt: skip
    parser.add_argument("--target", choices=("board", "axi"), default="board", help="what for (default: board)")
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="folder for the bitstream, logs and reports"
    )
    parser.add_argument("--board", metavar="NAME", help="for a configuration that names none (npukit boards)")
    parser.add_argument("--seed", type=int, help="of the placement (default: one with which the preset routes, or 1)")
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_synth)

    parser = commands.add_parser("boards", help="list the boards", description="List the boards and their presets.")
    add_output(parser)
    parser.set_defaults(run=_boards)


def _synth(options: argparse.Namespace) -> int:
    folder = Path(options.output)
    check_folder(folder)
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
        cells = xilinx_cells(work)
    if options.json:
        paths = [str(path) for path in files]
        print_json({"schema": 1, "target": "axi", "config": config.to_dict(), "files": paths, "cells": cells})
    else:
        luts = sum(count for name, count in cells.items() if name.startswith("LUT"))
        registers = sum(count for name, count in cells.items() if name in ("FDRE", "FDSE", "FDCE", "FDPE"))
        memories = sum(count for name, count in cells.items() if name.startswith("RAMB"))
        print(f"LUT {luts}, flip-flops {registers}, DSP48E1 {cells.get('DSP48E1', 0)}, block RAM {memories}")
    for path in files:
        say(options, f"wrote {path}")
    return 0


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

    seed = board.seeds.get(options.config, 1) if options.seed is None else options.seed
    try:
        report = make_bitstream(board, config, folder, seed, lambda step: say(options, f"{step} ..."))
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
            print(f"  {name}: {PRESETS[name].array}x{PRESETS[name].array} {PRESETS[name].dtype}")
    return 0
