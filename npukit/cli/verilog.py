"""`npukit verilog`: the accelerator as one Verilog file."""

import argparse

from npukit.cli.common import add_config, add_output, check_outputs, chosen_config, print_json, say, say_config
from npukit.isa.config import NpuConfig
from npukit.npufile import write_bytes

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verilog", help="write the accelerator as Verilog",
        description="Write the accelerator with that configuration as one Verilog file: module npu, with AXI4-Lite "
        "for registers (s_axil) and AXI4 for memory (m_axi).",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="F", required=True, help="file to write")
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    config = chosen_config(options, NpuConfig())
    assert config is not None
    say_config(options, config)
    check_outputs(options, {"-o": options.output}, {})
    from npukit.hw.verilog import core_verilog

    text = core_verilog(config)
    write_bytes(options.output, text.encode())
    say(options, f"wrote {options.output}: {len(text.splitlines())} lines")
    if options.json:
        print_json({"schema": 1, "config": config.to_dict(), "output": options.output})
    return 0
