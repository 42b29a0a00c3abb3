"""`npukit configs`: the presets, or one configuration as TOML."""

import argparse

from npukit.cli.common import add_output, print_json
from npukit.isa.config import PRESETS, load_config
from npukit.isa.timing import Timing

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser("configs", help="list the configurations, or show one as TOML")
    parser.add_argument("name", nargs="?", metavar="NAME|FILE.toml", help="configuration to show")
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.name is None:
        if options.json:
            print_json({"schema": 1, "configs": {name: config.to_dict() for name, config in PRESETS.items()}})
            return 0
        print(f"{'name':<15}{'array':>7}{'dtype':>7}{'KiB':>7}{'B/cycle':>9}{'lanes':>7}  hash")
        for name, config in PRESETS.items():
            size = config.size
            print(
                f"{name:<15}{size:>7}{config.dtype:>7}{config.on_chip_bytes / 1024:>7g}{config.bus_bytes:>9}"
                f"{config.vector_lanes:>7}  {config.hash:016x}"
            )
        return 0
    config = load_config(options.name)
    if options.json:
        print_json({"schema": 1, "name": options.name, "config": config.to_dict(), "hash": f"{config.hash:016x}"})
        return 0
    timing = Timing(config)
    print(f"# hash {config.hash:016x}; {config.on_chip_bytes / 1024:g} KiB on chip")
    print(f"# matrix latency {timing.matrix_latency}, vector latency {timing.vector_latency} cycles")
    print(config.to_toml(), end="")
    return 0
