"""Tensors that stay on chip: which do, where, and that nothing of them goes through DRAM."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from npukit.compiler import strategy
from npukit.compiler.cost import CostModel
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Load, Memory, Store
from npukit.isa.program import Program

from npukit import zoo

SMALL = replace(PRESETS["int8-4x4"], act_depth=150, act_banks=6)


def activation_words(program: Program) -> int:
    """ACT words that are loaded and stored."""
    return sum(
        prod((one.planes, one.rows, one.words))
        for one in program.instructions
        if isinstance(one, Store) or (isinstance(one, Load) and one.memory is Memory.ACT)
    )


def without_residents(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {level: tuple(replace(one, resident=0.0) for one in tries) for level, tries in strategy.LEVELS.items()}
    monkeypatch.setattr(strategy, "LEVELS", levels)


@pytest.mark.parametrize("name", ["mobilenetv2", "resnet18", "resnet50"])
def test_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less goes through DRAM, and what stays at a time has room."""
    config = PRESETS["int8-16x16"]
    result = compile_model(zoo.load(name), config)
    (subgraph,), (plan,) = result.graphs, result.plans
    words = activation_words(result.programs[0])
    stored = {task.dram.tensor for task in plan.tasks if task.dram is not None and task.dram.write}
    stays = {layer.output for layer in subgraph.operations} - stored
    without_residents(monkeypatch)
    before = compile_model(zoo.load(name), config)
    (plan,) = before.plans
    stored = {task.dram.tensor for task in plan.tasks if task.dram is not None and task.dram.write}
    assert len(stays) > len({layer.output for layer in subgraph.operations} - stored)
    assert words < activation_words(before.programs[0])


def agree_and_stay(graphs, graph, config: NpuConfig, stores: set[str] | None = None) -> None:
    """Equal to ONNX Runtime, and nothing but the given tensors, by default the outputs, is stored."""
    model = graph.model()
    session, _ = graphs.agree(model, config)
    assert session.compilation is not None
    (plan,) = session.compilation.plans
    (subgraph,) = session.compilation.graphs
    stored = {task.dram.tensor for task in plan.tasks if task.dram is not None and task.dram.write}
    assert stored == (stores if stores is not None else subgraph.outside())


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [3, 17, 30])
def test_borders_strides_and_slabs(graphs, channels: int, batch: int) -> None:
    """Readers with other borders, strides and dilations; blocks of which several slabs hold some."""
    graph = graphs.Graph(seed=channels)
    x = graph.conv(graph.input((batch, 5, 9, 8)), channels, 1)
    one = graph.conv(x, 6, 3, pads=[1, 1, 1, 1])
    two = graph.conv(x, 6, 3, pads=[2, 0, 1, 2], strides=[2, 2], dilations=[2, 1])
    three = graph.conv(x, 6, 1, strides=[2, 3])
    four = graph.conv(x, 6, (5, 2), strides=[3, 1])
    for y in (one, two, three, four):
        graph.output(y)
    agree_and_stay(graphs, graph, replace(SMALL, act_depth=420, act_banks=16))


def test_residual(graphs) -> None:
    """An addition whose other source stays, and whose result does; then an average over what stayed."""
    graph = graphs.Graph(seed=2)
    x = graph.conv(graph.input((1, 5, 7, 7)), 21, 1)
    y = graph.conv(x, 21, 3, pads=[1, 1, 1, 1])
    y = graph.add(graph.conv(y, 21, 1), x)
    y = graph.add(graph.conv(y, 21, 3, pads=[1, 1, 1, 1]), y)
    graph.output(graph.global_average(y))
    agree_and_stay(graphs, graph, replace(SMALL, act_depth=420, act_banks=16))


def test_blocks_of_mobilenets(graphs) -> None:
    """A chain between tensors that stay."""
    graph = graphs.Graph(seed=3)
    x = graph.conv(graph.input((1, 5, 8, 8)), 8, 1)
    y = graph.conv(graph.conv(x, 24, 1), 24, 3, group=24, pads=[1] * 4)
    y = graph.add(graph.conv(y, 8, 1), x)
    graph.output(graph.conv(y, 8, 1))
    agree_and_stay(graphs, graph, replace(SMALL, act_depth=420, act_banks=16))


def test_what_does_not_stay(graphs) -> None:
    """Outputs, what a Pad or a grouped convolution reads, and readers that pad with different values."""
    graph = graphs.Graph(seed=5)
    x = graph.conv(graph.input((1, 4, 6, 6)), 8, 1)
    graph.output(x)
    graph.output(graph.conv(x, 8, 1))
    y = graph.conv(graph.conv(x, 8, 1), 8, 3, group=2)
    graph.output(y)
    z = graph.conv(x, 8, 1)
    graph.output(graph.moved("Pad", z, [np.array([0, 0, 1, 0, 0, 0, 0, 2])]))
    graph.output(graph.conv(z, 4, 1))
    w = graph.conv(x, 8, 1)
    graph.output(graph.maxpool(w, 3, pads=[1] * 4))
    graph.output(graph.conv(w, 4, 3, pads=[1] * 4))
    model = graph.model()
    session, _ = graphs.agree(model, SMALL)
    assert session.compilation is not None
    (plan,) = session.compilation.plans
    (subgraph,) = session.compilation.graphs
    stored = {task.dram.tensor for task in plan.tasks if task.dram is not None and task.dram.write}
    assert stored == {layer.output for layer in subgraph.operations}


def test_shares(graphs) -> None:
    """What stays at a time never exceeds the share; with none, nothing stays."""
    config = PRESETS["int8-16x16"]
    (subgraph,) = compile_model(zoo.load("mobilenetv2"), config, stop_after="fuse").graphs
    tensors = {name for name, tensor in subgraph.tensors.items()}
    for share in (0.0, 0.1, 0.35):
        plan = SchedulePass(CostModel(config), 0.5, share).run(subgraph)
        stored = {task.dram.tensor for task in plan.tasks if task.dram is not None and task.dram.write}
        living: dict = {}
        for index, task in enumerate(plan.tasks):
            for operand in task.operands:
                if operand.part is not None and operand.buffer.label in tensors - stored:
                    first, _ = living.get(operand.buffer, (index, index))
                    living[operand.buffer] = (first, index)
        most = max(
            (sum(one.words for one, (low, high) in living.items() if low <= at <= high)
             for at in {first for first, _ in living.values()}),
            default=0,
        )  # fmt: skip
        assert most <= share * config.act_depth * config.act_banks
        assert bool(living) == bool(share)


@pytest.mark.parametrize("group", [2, 4])
@pytest.mark.parametrize("swap", [False, True])
def test_grouped_convolution_with_an_addition(graphs, group: int, swap: bool) -> None:
    """The parts of the grouped layer begin at channel blocks of their own, and the other source stays in slabs."""
    graph = graphs.Graph(seed=1)
    i = graph.input((1, 5, 6, 6))
    x, w = graph.conv(i, 64, 1), graph.conv(i, 64, 1)
    y = graph.conv(w, 64, 3, group=group, pads=[1] * 4)
    graph.output(graph.add(y, x) if swap else graph.add(x, y))
    graphs.agree(graph.model(), "int8-16x16")
    graphs.agree(graph.model(), replace(SMALL, act_depth=420, act_banks=16))


def test_wide_borders(graphs) -> None:
    """A border of more columns than an instruction counts."""
    graph = graphs.Graph(seed=2)
    x = graph.conv(graph.input((1, 4, 2, 1100)), 4, 1)
    graph.output(graph.conv(x, 4, 3, pads=[1] * 4))
    agree_and_stay(graphs, graph, replace(PRESETS["int8-4x4"], act_depth=8192))


@pytest.mark.parametrize("depths", [(420, 512), (512, 1024)])
def test_accumulators_deeper_than_banks(graphs, depths: tuple[int, int]) -> None:
    graph = graphs.Graph(seed=1)
    x = graph.conv(graph.input((1, 5, 13, 11)), 32, 1)
    x = graph.conv(x, 32, 3, group=32, pads=[1] * 4)
    graph.output(graph.conv(x, 64, 1))
    graphs.agree(graph.model(), replace(PRESETS["int8-16x16"], act_depth=depths[0], act_banks=16, acc_depth=depths[1]))


@pytest.mark.parametrize("config", ["int8-4x4", "int8-16x16"])
@pytest.mark.parametrize("batch", [1, 2])
def test_squeeze_and_excite(graphs, config: str, batch: int) -> None:
    """Windows, means, gates and their products stay, with the borders that readers want."""
    graph = graphs.Graph(seed=batch)
    x = graph.conv(graph.input((batch, 12, 9, 8)), 20, 1, relu=True)
    x = graph.conv(x, 20, 5, pads=[2] * 4, group=20, relu=True)
    gate = graph.conv(graph.conv(graph.global_average(x), 6, 1, relu=True), 20, 1)
    y = graph.mul(x, graph.unary("Sigmoid", gate, 0.004))
    y = graph.unary("HardSwish", graph.conv(y, 10, 1))
    z = graph.conv(y, 10, 3, strides=[2, 2], pads=[1] * 4, group=10)
    graph.output(graph.add(z, graph.conv(z, 10, 3, pads=[1] * 4)))
    if batch == 1:
        agree_and_stay(graphs, graph, PRESETS[config])
    else:  # a mean has one place in each image, and what comes of all of them is seen as one
        graphs.agree(graph.model(), config)


def test_pools_stay(graphs) -> None:
    graph = graphs.Graph(seed=9)
    x = graph.conv(graph.input((1, 9, 12, 12)), 11, 3, pads=[1] * 4)
    y = graph.average(graph.maxpool(x, 2, strides=[2, 2]), (3, 3), x.scale * 0.71, pads=[1] * 4)
    graph.output(graph.conv(y, 7, 3, pads=[1] * 4))
    agree_and_stay(graphs, graph, PRESETS["int8-4x4"])
