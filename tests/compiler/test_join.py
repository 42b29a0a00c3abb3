"""join: images of a batch as rows of one, where they are small, and the views of everything else as they were."""

import numpy as np
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Load, Matrix, Memory

CONFIG = PRESETS["int8-16x16"]


def views(graph) -> dict[str, tuple[int, ...]]:
    """Each operation's node, and the view in which it makes its result."""
    return {operation.node: graph.tensors[operation.output].view for operation in graph.operations}


def joined(model, config=CONFIG) -> list[tuple[int, ...]]:
    """The views of the results, in the operations' order."""
    (graph,) = compile_model(model, config, stop_after="join").graphs
    return [*views(graph).values()]


@pytest.mark.parametrize("config", ["int8-4x4", "int8-16x16"])
@pytest.mark.parametrize("rows", [2, 37, 300])
def test_rows_of_a_matrix(graphs, config: str, rows: int) -> None:
    graph = graphs.Graph(seed=rows)
    x = graph.input((rows, 27))
    y = graph.gemm(x, 40)
    z = graph.add(graph.matmul(y, 27), x)
    graph.output(graph.constant_operand("Add", graph.unary("Sigmoid", z, 0.004), (27,)))
    model = graph.model()
    assert {view[0] for view in joined(model)} == {1}
    graphs.agree(model, config, runs=2)


def test_weights_are_loaded_once_for_all_rows(graphs) -> None:
    graph = graphs.Graph(seed=1)
    graph.output(graph.matmul(graph.input((64, 64)), 64))
    (program,) = compile_model(graph.model(), CONFIG).programs
    tiles = [one for one in program.instructions if isinstance(one, Matrix)]
    assert sum(one.blocks * one.channels * one.height * one.width for one in tiles) == 4 * 4 * 64
    loads = [one for one in program.instructions if isinstance(one, Load) and one.memory is Memory.WGT]
    assert sum(one.planes * one.rows * one.words for one in loads) == 4 * 4 * 16


def test_what_works_place_by_place_is_joined_and_the_rest_is_not(graphs) -> None:
    graph = graphs.Graph(seed=2)
    x = graph.input((3, 20, 5, 5))
    a = graph.conv(x, 24, 1)
    b = graph.conv(a, 20, 3, pads=[1] * 4)
    c = graph.add(graph.conv(b, 20, 1), x)
    d = graph.concat([c, b, a], 1)
    graph.output(graph.gemm(graph.flatten(graph.global_average(d)), 9))
    graph.output(a)
    model = graph.model()
    one, images = (1, 15, 5), (3, 5, 5)
    found = [(view[0], *view[2:]) for view in joined(model)]
    # the concatenation reads b, which is computed image by image; a mean has one place for each image
    assert found == [one, images, one, one, images, (3, 1, 1), (1, 3, 1)]
    for config in ("int8-4x4", "int8-16x16"):
        graphs.agree(model, config, runs=2)


def test_images_that_fill_the_array_stay_images(graphs) -> None:
    graph = graphs.Graph(seed=3)
    graph.output(graph.conv(graph.input((2, 16, 8, 8)), 16, 1))
    assert joined(graph.model()) == [(2, 16, 8, 8)]
    assert joined(graph.model(), PRESETS["int8-32x32"]) == [(1, 16, 16, 8)]


def test_strips_keep_their_images(graphs) -> None:
    """The blocks of a MobileNet are computed in strips of an image, which stay on chip."""
    graph = graphs.Graph(seed=4)
    x = graph.input((2, 16, 6, 6))
    e = graph.conv(x, 48, 1, relu=True)
    d = graph.conv(e, 48, 3, pads=[1] * 4, group=48, relu=True)
    graph.output(graph.conv(d, 16, 1))
    model = graph.model()
    assert {view[0] for view in joined(model)} == {2}
    (fused,) = compile_model(model, CONFIG, stop_after="fuse").graphs
    assert len(fused.groups) == 1 and len(fused.groups[0]) >= 2
    graphs.agree(model, "int8-16x16")


def test_sums_of_what_is_joined_and_what_is_not(graphs) -> None:
    """A sum goes with the convolution right before it, in whose view it reads the other operand."""
    graph = graphs.Graph(seed=6)
    x = graph.conv(graph.input((2, 16, 5, 5)), 16, 3, pads=[1] * 4)
    graph.output(graph.add(graph.conv(x, 16, 1), x))
    y = graph.conv(graph.input((2, 16, 5, 5)), 16, 1)
    graph.output(graph.add(graph.conv(y, 16, 3, pads=[1] * 4), y))
    model = graph.model()
    assert [view[0] for view in joined(model)] == [2, 1, 1, 1, 2, 2]
    (fused,) = compile_model(model, CONFIG, stop_after="fuse").graphs
    assert [len(group) for group in fused.groups] == [2, 2]
    for config in ("int8-4x4", "int8-16x16"):
        graphs.agree(model, config, runs=2)


def test_numbers_that_differ_from_image_to_image(graphs) -> None:
    """A constant with rows or images of its own is no operand for one image."""
    graph = graphs.Graph(seed=5)
    x = graph.input((3, 10, 2, 4))
    y = graph.constant_operand("Add", x, (3, 1, 1, 1))
    y = graph.constant_operand("Mul", y, (1, 10, 2, 1))
    y = graph.constant_operand("Add", y, (1, 10, 1, 1))
    graph.output(y)
    model = graph.model()
    assert [view[0] for view in joined(model)] == [3, 3, 3]
    graphs.agree(model, "int8-4x4")


@pytest.mark.parametrize("seed", range(6))
def test_captured_tensors_are_the_models(graphs, seed: int) -> None:
    """No other name for the same memory is among them."""
    graph = graphs.Graph(seed=seed)
    x = graph.input((4, 12, 3, 3))
    a = graph.conv(x, 12, 1)
    b = graph.conv(a, 12, 3, pads=[1] * 4)
    graph.output(graph.concat([graph.add(a, b), x, b], int(np.random.default_rng(seed).integers(4))))
    session, _ = graphs.agree(graph.model(), "int8-4x4")
    values = {value for node in graph.model().graph.node for value in node.output}
    for program in session.programs.values():
        assert set(program.captured) <= values
