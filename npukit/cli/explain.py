"""`npukit explain`: why a layer costs what it costs."""

import argparse
from dataclasses import asdict
from difflib import get_close_matches

from npukit.cli.common import add_model, print_json
from npukit.cli.timing_session import add_session_options, timing_session
from npukit.errors import UsageError
from npukit.profiling.explain import explain
from npukit.profiling.layers import LayerProfile, layer_profiles

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
    names: list[str] = []
    found: list[tuple[LayerProfile, list[str]]] = []
    schedules = session.schedules()
    for name, program in session.programs.items():
        schedule = schedules[name]
        events = {"start": schedule.start, "end": schedule.end}
        layers = layer_profiles(program, events, schedule.cycles, session.dram)
        for node, layer in zip(program.nodes, layers, strict=True):
            names.append(node.name)
            if node.name == options.node:  # a node may be several operations
                found.append((layer, explain(program, schedule, node, layer, session.dram)))
    if found:
        # of several, the one that takes longest stands for the node
        layer, _ = max(found, key=lambda one: one[0].cycles)
        if options.json:
            print_json({"schema": 1, "model": options.model, "config": config.to_dict(),
                        "text": [line for _, lines in found for line in lines], "layer": asdict(layer)})  # fmt: skip
        else:
            print("\n\n".join("\n".join(lines) for _, lines in found))
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
