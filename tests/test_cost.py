"""A short version of `make cost`, and what estimates must agree with."""

import importlib.util
import sys
from pathlib import Path

import pytest
from npukit.compiler.cost import CostModel
from npukit.compiler.tiling import ConvShape, best_tilings
from npukit.isa.config import PRESETS
from npukit.sim.dram import DramModel, SdramDram

_spec = importlib.util.spec_from_file_location("npukit_cost", Path(__file__).with_name("cost.py"))
assert _spec is not None and _spec.loader is not None
cost = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = cost  # dataclasses look their module up
_spec.loader.exec_module(cost)

SHAPES = [
    ConvShape(PRESETS[preset], 1, blocks, 2 * blocks, (size, size), (size, size), kernel, (1, 1), (1, 1))
    for preset in ("int8-4x4", "int8-16x16", "bf16-4x4", "ulx3s-int8-8x8")
    for blocks, size, kernel in ((1, 7, (1, 1)), (4, 28, (1, 1)), (8, 14, (3, 3)), (40, 1, (1, 1)))
]


@pytest.mark.slow
def test_estimates_of_resnet18() -> None:
    """Near the timing simulator with each memory, and what they choose is as good as what else was tried, or nearly."""
    layers = list(cost.tried("resnet18", "int8", "ulx3s-int8-8x8"))
    assert len(layers) == 12 * len(cost.MEMORIES)
    for memory in cost.MEMORIES:
        print(cost.report(layers, memory))
        assert not cost.problems(layers, memory)


def test_what_is_wrong_is_said() -> None:
    layers = [cost.Layer("one", "slow", 100.0, 100, 100)] * 9
    assert not cost.problems(layers, "slow")
    far = cost.Layer("far", "slow", 70.0, 100, 100)
    poor = cost.Layer("poor", "slow", 106.0, 106, 100)
    assert len(cost.problems([*layers, far], "slow")) == 0  # one in ten is not too many
    assert len(cost.problems([*layers, far, far], "slow")) == 1
    assert len(cost.problems([*layers, poor, poor], "slow")) == 1
    assert len(cost.problems([*layers, far, far, poor, poor], "slow")) == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slower_memory_costs_more(shape) -> None:
    memories = [DramModel(latency=latency, read_bursts=4, write_bursts=4) for latency in (1, 100, 1000)]
    costs = [CostModel(shape.config, dram).convolution(shape) for dram in memories]
    for tiling in best_tilings(shape, costs[0].in_program, 4):
        assert costs[0].alone(tiling) < costs[1].alone(tiling) < costs[2].alone(tiling)
        assert costs[0].in_program(tiling) <= costs[1].in_program(tiling) < costs[2].in_program(tiling)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_estimate_is_below_what_the_array_takes(shape) -> None:
    taps = shape.kernel[0] * shape.kernel[1]
    least = shape.in_blocks * shape.out_blocks * taps * shape.out_size[0] * shape.out_size[1]
    for dram in (DramModel(), SdramDram(megahertz=40.0)):
        found = CostModel(shape.config, dram).convolution(shape)
        for tiling in best_tilings(shape, found.in_program, 4):
            assert found.alone(tiling) > least


@pytest.mark.parametrize("dram", [DramModel(), DramModel(latency=400, read_bursts=2), SdramDram(megahertz=60.0)])
def test_long_runs_cost_less_than_short_ones(dram) -> None:
    config = PRESETS["int8-8x8"]
    for write in (False, True):
        each = [dram.run_cycles(config, size, write) / size for size in (8, 64, 512, 4096)]
        assert each == sorted(each, reverse=True) and each[0] > each[-1]
        assert each[-1] >= 1 / dram.bytes_per_cycle(config)
