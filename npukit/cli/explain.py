"""`npukit explain`: why a layer costs what it costs."""

import argparse
from dataclasses import asdict

from npukit.cli.common import add_model, print_json
from npukit.cli.timing_session import add_session_options, timing_session

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain", help="say why a layer costs what it costs",
        description="Simulate a model's timing, and say of one node how it is tiled, what it moves, what bounds it and "
        "what would change that.",
    )  # fmt: skip
    add_model(parser, "ONNX model, compiled model, or program")
    parser.add_argument("node", metavar="NODE", help="name of a node, as npukit run lists it")
    add_session_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    session, config = timing_session(options)
    timed = session.timed(options.model)
    text = timed.explain(options.node)
    if options.json:
        found = timed.explained(options.node)
        # of several, the one that takes longest stands for the node
        layer, _ = max(found, key=lambda one: one[0].cycles)
        print_json({"schema": 1, "model": options.model, "config": config.to_dict(),
                    "text": [line for _, lines in found for line in lines], "layer": asdict(layer)})  # fmt: skip
    else:
        print(text)
    return 0
