"""interleave: the same tasks, each engine's in its order; buffers between layers that are computed together."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from npukit.compiler.cost import CostModel
from npukit.compiler.passes.allocate import AllocatePass
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.pipeline import compile_model
from npukit.compiler.strategy import Order
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES
from npukit.sim.dram import DramModel
from npukit.sim.timing import simulate_timing

from npukit import zoo

CONFIG = PRESETS["int8-16x16"]


@pytest.mark.parametrize("room", [0.3, 0.6, 0.9])
def test_engines_keep_their_order(room: float) -> None:
    (plan,) = compile_model(zoo.load("mobilenetv2"), CONFIG, stop_after="schedule").plans
    mixed = InterleavePass(CostModel(CONFIG), room).run(plan)
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


@pytest.mark.parametrize(("room", "ahead"), [(0.3, 60), (0.8, 100), (1.0, 1000)])
def test_looking_ahead(room: float, ahead: int) -> None:
    """The same tasks; each behind all that it shares words with, one of both writing them, in the plan's order."""
    (plan,) = compile_model(zoo.load("digits-vit"), CONFIG, stop_after="schedule").plans
    mixed = InterleavePass(CostModel(CONFIG), room, ahead).run(plan)
    assert len(mixed.tasks) == len(plan.tasks) and set(map(id, mixed.tasks)) == set(map(id, plan.tasks))
    place = {id(task): index for index, task in enumerate(mixed.tasks)}
    moved = 0
    for second, task in enumerate(plan.tasks):
        for earlier in plan.tasks[:second]:
            if place[id(earlier)] < place[id(task)]:
                continue
            moved += earlier.engine is task.engine
            for one, other in product(earlier.operands, task.operands):
                assert one.buffer is not other.buffer or not (one.write or other.write)
            if earlier.dram is not None and task.dram is not None and earlier.dram.tensor == task.dram.tensor:
                mine, theirs = task.dram.box, earlier.dram.box
                apart = mine is not None and theirs is not None and not mine.overlaps(theirs)
                assert earlier.dram.write == task.dram.write or apart
    assert moved > 50, moved


def test_the_array_does_not_wait_for_a_softmax(graphs) -> None:
    """Products that follow in the plan, and need nothing of it, are computed meanwhile."""
    graph = graphs.Graph(seed=3, opset=13)
    x = graph.input((1, 200, 64))
    scores = graph.matmul(x, 256)
    graph.output(graph.quantize(graph.node("Softmax", [graph.dequantize(scores)], axis=-1), 1 / 256, -128))
    graph.output(graph.matmul(graph.matmul(x, 128), 192))
    model = graph.model()
    cycles = []
    for order in (Order(0.6), Order(0.6, 300)):
        (plan,) = compile_model(model, CONFIG, stop_after="schedule").plans
        cost = CostModel(CONFIG)
        made: Any = InterleavePass(cost, order.room, order.ahead).run(plan)
        program = EmitPass(CONFIG).run(AllocatePass(CONFIG, order.compact).run(made))
        cycles.append(simulate_timing(CONFIG, program.instructions, DramModel()).cycles)
    assert cycles[1] < 0.97 * cycles[0], cycles


@pytest.mark.parametrize("window", ["depthwise", "maximum"])
def test_borders_of_buffers_that_held_fewer_blocks(graphs, window: str) -> None:
    """Five channel blocks in parts of three and two, several images: each part finds another one's buffer."""
    graph = graphs.Graph(seed=1)
    x = graph.input((4, 16, 14, 14))
    before = graph.conv(graph.conv(x, 160, 3, pads=[1] * 4), 32, 3, pads=[1] * 4)  # fills ACT with something
    y = graph.conv(before, 80, 1)
    if window == "depthwise":
        graph.output(graph.conv(y, 80, 3, group=80, pads=[1] * 4))
    else:
        graph.output(graph.maxpool(y, 3, pads=[1] * 4))
    graphs.agree(graph.model(), CONFIG)


@pytest.mark.parametrize("kernel, pads", [(2, [12, 0, 0, 0]), (1, [5, 0, 5, 0]), (3, [1, 4, 1, 0])])
def test_windows_of_nothing_but_border(graphs, kernel: int, pads: list[int]) -> None:
    graph = graphs.Graph(seed=1)
    x = graph.conv(graph.input((1, 16, 40, 24)), 32, 1)
    graph.output(graph.conv(graph.conv(x, 32, kernel, group=32, pads=pads), 16, 1))
    graphs.agree(graph.model(), CONFIG)


@pytest.mark.parametrize("case", ["many blocks", "many blocks behind", "many rows", "many rows without sides"])
def test_what_exceeds_a_field(graphs, case: str) -> None:
    """Sizes that fit in memory but not in an instruction."""
    large = replace(PRESETS["int8-4x4"], act_depth=16384, acc_depth=4096, par_depth=4096, wgt_depth=32768)
    graph = graphs.Graph(seed=2)
    if case.startswith("many blocks"):
        x = graph.input((1, 8, 2, 2))
        if case == "many blocks":
            graph.output(graph.maxpool(graph.conv(x, 1040, 1), 3, pads=[1] * 4))
        else:
            y = graph.conv(graph.conv(x, 24, 1), 24, 3, group=24, pads=[1] * 4)
            graph.output(graph.conv(y, 1040, 1))
    else:
        x = graph.conv(graph.input((1, 8, 2500, 1)), 8, 1)
        kernel, pads = ((3, 1), [1, 0, 1, 0]) if case.endswith("sides") else ((3, 3), [1] * 4)
        graph.output(graph.conv(x, 8, kernel, group=8, strides=[2, 1], pads=pads))
    graphs.agree(graph.model(), large)
