"""Operations that are computed some places after the other, because their neighbours wait for places."""

import pytest
from npukit.compiler.cost import CostModel
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Convolution, Rearrange
from npukit.compiler.pipeline import compile_model
from npukit.compiler.schedule.in_parts import to_compute_in_parts
from npukit.compiler.tiling import ConvShape, choose_tiling
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Vector

from npukit import zoo

CONFIG = PRESETS["int8-16x16"]


def graph_of(name: str) -> Graph:
    """A network of the zoo, before its tasks are made."""
    (plan,) = compile_model(zoo.load(name), CONFIG, stop_after="schedule").plans
    return plan.graph


def test_neighbours_of_normalisations_and_products() -> None:
    graph = graph_of("digits-vit")
    found = to_compute_in_parts(graph)
    assert all(isinstance(graph.operations[number], Convolution | Rearrange) for number in found)
    nodes = {graph.operations[number].node.split("/product")[0] for number in found}
    one = {f"layer1/{name}" for name in ("key", "query", "value", "mixed", "inner", "outer", "back")}
    assert one | {"patches"} <= nodes, "elementwise operations in between do not count"
    assert "logits" not in nodes, "a mean lies between"
    rearranged = sum(isinstance(graph.operations[number], Rearrange) for number in found)
    assert rearranged == 8, "of two layers: three before attention, one behind"


@pytest.mark.parametrize("name", ["digits", "resnet18"])
def test_networks_without_them(name: str) -> None:
    assert not to_compute_in_parts(graph_of(name))


@pytest.mark.parametrize("blocks", [(12, 12), (12, 48), (48, 12)])
@pytest.mark.parametrize("columns", [128, 197])
def test_all_channels_of_half_the_places(blocks: tuple[int, int], columns: int) -> None:
    """At little more than the least cost."""
    shape = ConvShape(CONFIG, 1, *blocks, (1, columns), (1, columns), (1, 1), (1, 1), (1, 1))
    cost = CostModel(CONFIG).convolution(shape).in_program
    least, chosen = choose_tiling(shape, cost), choose_tiling(shape, cost, in_parts=True)
    assert 0.4 < chosen.first_share < 0.6
    assert cost(least) <= cost(chosen) < 1.03 * cost(least)
    assert blocks[0] == 48 or least.first_share == 1


def test_places_that_are_moved_are_few_at_a_time() -> None:
    """Ranges as even as can be, of at most four times the array's rows."""
    (plan,) = compile_model(zoo.load("vit-tiny"), CONFIG, stop_after="schedule").plans
    moving = {
        number for number in to_compute_in_parts(plan.graph) if isinstance(plan.graph.operations[number], Rearrange)
    }
    widths = {
        task.instruction.width for task in plan.tasks if task.node in moving and isinstance(task.instruction, Vector)
    }
    assert widths == {49, 50}
