"""A compiled model that says of each node what it costs: Netron shows it."""

from collections.abc import Sequence

import onnx

from npukit.isa.place import Place
from npukit.isa.program import Program
from npukit.profiling.layers import layer_profiles
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.timing import simulate_timing

__all__ = ["annotate"]

_NODE_PROPERTIES = 10
"""The first IR version in which nodes have properties."""


def annotate(artifact: onnx.ModelProto, programs: Sequence[Program], dram: AnyDram) -> None:
    """Add each program's layers to its node's `metadata_props`, with cycles on that memory, where a device has them."""
    nodes = {node.name: node for node in artifact.graph.node if node.op_type == "EPContext"}
    artifact.ir_version = max(artifact.ir_version, _NODE_PROPERTIES)
    memory = "" if isinstance(dram, DramModel) else " with an SDRAM"
    address = 0
    for program in programs:
        place = Place.of(program, address)
        address = place.end
        there = dram.at(place.code_address, place.base)
        schedule = simulate_timing(program.config, program.instructions, there)
        events = {"start": schedule.start, "end": schedule.end}
        texts: dict[str, list[str]] = {}
        for layer in layer_profiles(program, events, schedule.cycles, dram):
            text = f"{layer.op}, {layer.macs} MACs, {layer.cycles} cycles{memory}, "
            text += f"{100 * layer.utilization:.1f} % of the array, bound by {layer.bound}"
            texts.setdefault(layer.node, []).append(text)
        for name, lines in texts.items():  # a node may be several operations
            nodes[program.name].metadata_props.add(key=f"npukit: {name}", value="; ".join(lines))
