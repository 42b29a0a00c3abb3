"""`npukit explain`: why a layer costs what it costs."""

import argparse
from dataclasses import asdict
from difflib import get_close_matches

from npukit.cli.common import (
    add_config,
    add_optimize,
    add_output,
    add_partition,
    add_shapes,
    chosen_config,
    min_macs_of,
    print_json,
    say_config,
    search_of,
    shapes_of,
)
from npukit.driver.executor import programs_of
from npukit.errors import UsageError
from npukit.npufile import read_model
from npukit.profiling.explain import explain
from npukit.profiling.layers import layer_profiles
from npukit.session import FALLBACKS, Session
from npukit.sim.timing import simulate_timing

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain", help="say why a layer costs what it costs",
        description="Simulate a model's timing, and say of one node how it is tiled, what it moves, what bounds it and "
        "what would change that.",
    )  # fmt: skip
    parser.add_argument("model", metavar="MODEL|F", help="ONNX model, compiled model, or program")
    parser.add_argument("node", metavar="NODE", help="name of a node, as npukit run lists it")
    add_optimize(parser)
    add_shapes(parser)
    add_partition(parser, FALLBACKS)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    model = read_model(options.model)
    compiled = programs_of(model)
    config = chosen_config(options, next(iter(compiled.values())).config if compiled else None)
    say_config(options, config)
    session = Session(
        model, config, shapes=shapes_of(options), compute=False, fallback=options.fallback,
        min_macs=min_macs_of(options), optimize=options.optimize, search=search_of(options),
    )  # fmt: skip
    names: list[str] = []
    for program in session.programs.values():
        schedule = simulate_timing(config, program.instructions)
        events = {"start": schedule.start, "end": schedule.end}
        for node, layer in zip(program.nodes, layer_profiles(program, events, schedule.cycles), strict=True):
            names.append(node.name)
            if node.name != options.node:
                continue
            lines = explain(program, schedule, node, layer)
            if options.json:
                print_json({"schema": 1, "model": options.model, "config": config.to_dict(), "text": lines,
                            "layer": asdict(layer)})  # fmt: skip
            else:
                print("\n".join(lines))
            return 0
    for reason in session.offload.reasons:
        if reason.node == options.node:
            raise UsageError(f"{options.node} ({reason.op}) stays off the accelerator: {reason.reason}")
    if not names:
        raise UsageError(f"{options.model} names no nodes: it is a program without a table of them, or all stays off")
    near = get_close_matches(options.node, names, 3) or names[:3]
    raise UsageError(
        f"{options.model} has no node {options.node!r} on the accelerator; there are {', '.join(near)}, ..."
    )
