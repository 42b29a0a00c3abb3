"""interleave: the same tasks, each engine's in its order; chains of layers as they are chosen."""

import pytest
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.pipeline import compile_model
from npukit.compiler.schedule.fusion import fused_additions
from npukit.compiler.schedule.strips import chains
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES

from npukit import zoo

CONFIG = PRESETS["int8-16x16"]


@pytest.mark.parametrize("room", [0.3, 0.6, 0.9])
def test_engines_keep_their_order(room: float) -> None:
    (plan,) = compile_model(zoo.load("mobilenetv2"), CONFIG, stop_after="schedule").stages["schedule"]  # type: ignore[misc]
    mixed = InterleavePass(CONFIG, room).run(plan)
    assert mixed.constants is plan.constants
    assert len(mixed.tasks) == len(plan.tasks) and set(map(id, mixed.tasks)) == set(map(id, plan.tasks))
    assert mixed.tasks != plan.tasks
    for engine in ENGINES:
        before, after = ([task for task in one.tasks if task.engine is engine] for one in (plan, mixed))
        assert all(a is b for a, b in zip(before, after, strict=True))
    # what is read has been written
    written = set()
    for task in mixed.tasks:
        assert all(operand.write or operand.buffer in written for operand in task.operands)
        written.update(operand.buffer for operand in task.operands if operand.write)


def test_blocks_of_mobilenet_are_chains() -> None:
    (subgraph,) = compile_model(zoo.load("mobilenetv2"), CONFIG, stop_after="fold").stages["fold"]  # type: ignore[misc]
    additions = fused_additions(subgraph)
    found = chains(CONFIG, subgraph, additions)
    assert len(found) == 17 and len(additions) == 10
    assert sum(chain.product is not None for chain in found.values()) >= 12
    for first, chain in found.items():
        window = subgraph.layers[chain.window]
        assert window.inputs == (subgraph.layers[first].output,)
        if chain.product is not None:
            assert subgraph.layers[chain.product].inputs == (window.output,)
    used = [
        number
        for first, chain in found.items()
        for number in (first, chain.window, chain.product)
        if number is not None
    ]
    assert len(set(used)) == len(used)


def test_shared_tensors_are_not_fused(graphs) -> None:
    """Between the layers of a chain nobody else reads, and nothing is an output."""
    graph = graphs.Graph(seed=6)
    x = graph.conv(graph.input((1, 16, 9, 9), integer=True), 32, 1)
    y = graph.conv(x, 32, 3, group=32, pads=[1] * 4)
    graph.output(graph.add(y, x), integer=True)
    graph.output(x, integer=True)
    model = graph.model()
    (subgraph,) = compile_model(model, CONFIG, stop_after="fold").stages["fold"]  # type: ignore[misc]
    assert not chains(CONFIG, subgraph, fused_additions(subgraph))
    graphs.agree(model, CONFIG)
