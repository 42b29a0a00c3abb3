"""`npukit check`: what would run on the accelerator, and why the rest would not."""

import argparse

from npukit.cli.common import (
    add_config,
    add_min_macs,
    add_model,
    add_output,
    add_shapes,
    chosen_config,
    min_macs_of,
    model_of,
    print_json,
    say_config,
    shapes_of,
)
from npukit.compiler.pipeline import check_model
from npukit.profiling.text import offload_json, offload_text, thousands

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "check", help="say which nodes and MACs would run on the accelerator, and why the others would not"
    )
    add_model(parser)
    add_shapes(parser)
    add_min_macs(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    config = chosen_config(options)
    say_config(options, config)
    partition = check_model(model_of(options), config, shapes_of(options), min_macs_of(options)).partition
    if options.json:
        print_json(
            {
                "schema": 1,
                "model": options.model,
                "config": config.to_dict(),
                "subgraphs": len(partition.subgraphs),
                "offload": offload_json(partition),
            }
        )
        return 0
    print(offload_text(partition))
    print(f"{len(partition.subgraphs)} accelerated subgraph(s), {thousands(partition.macs)} MACs")
    return 0
