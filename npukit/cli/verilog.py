"""`npukit verilog`: the accelerator as one Verilog file, or as a package for other systems."""

import argparse
from pathlib import Path

from npukit.cli.common import (
    add_config,
    add_output,
    check_outputs,
    chosen_config,
    config_label,
    print_json,
    say,
    say_config,
)
from npukit.files import staged
from npukit.hw.toolchain import needs
from npukit.isa.config import NpuConfig
from npukit.npufile import check_folder, write_bytes

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verilog", help="write the accelerator as Verilog, or as a package for other systems",
        description="Write the accelerator with that configuration as one Verilog file: module npu, with AXI4-Lite "
        "for registers (s_axil), AXI4 for memory (m_axi) and an interrupt (irq). With --package: a folder that stands "
        "alone, with a Verilog file for each module, a FuseSoC core file, a LiteX module, a README of ports, addresses "
        "and reset, and a testbench in cocotb that runs a network.",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--output", metavar="F", help="file to write")
    where.add_argument("--package", metavar="DIR", help="folder to write a package to, new or empty")
    parser.add_argument(
        "--trace", action="store_true",
        help="with the trace ports, by which a simulation sees when each engine queues, starts and ends an instruction",
    )  # fmt: skip
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    config = chosen_config(options, NpuConfig())
    assert config is not None
    say_config(options, config)
    return _file(options, config) if options.package is None else _package(options, config)


def _file(options: argparse.Namespace, config: NpuConfig) -> int:
    check_outputs(options, {"-o": options.output}, {})
    from npukit.hw.verilog import core_verilog

    text = core_verilog(config, trace=options.trace)
    write_bytes(options.output, text.encode())
    say(options, f"wrote {options.output}: {len(text.splitlines())} lines")
    if options.json:
        print_json({"schema": 1, "config": config.to_dict(), "output": options.output})
    return 0


def _package(options: argparse.Namespace, config: NpuConfig) -> int:
    folder = Path(options.package)
    check_folder(folder)
    with needs("rtl", "the hardware"):
        from npukit.soc.package import check_empty, write_package

    check_empty(folder)
    label = config_label(config)
    name = label if label != "custom" else f"{config.dtype}-{config.size}-{config.hash:016x}"
    with staged(folder) as work:
        files = write_package(
            work, config, name, trace=options.trace, progress=lambda step: say(options, f"{step} ...")
        )
    say(options, f"wrote {folder}: {len(files)} files")
    if options.json:
        paths = [str(folder / path) for path in files]
        print_json({"schema": 1, "config": config.to_dict(), "name": name, "package": str(folder), "files": paths})
    return 0
