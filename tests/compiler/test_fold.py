"""fold: what a first layer becomes, and when it stays."""

import numpy as np
import pytest
from npukit.compiler.ir.operations import Convolution
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS

CONFIG = PRESETS["int8-16x16"]


def folded(graphs, channels: int, kernel: tuple[int, int], config=CONFIG, **attributes):
    """(shape of the weights, the convolution, the image's tensor, the model), of a convolution over an input."""
    graph = graphs.Graph(seed=4)
    x = graph.input((2, channels, 15, 13), integer=True, zero_point=-7)
    graph.output(graph.conv(x, 20, kernel, **attributes), integer=True)
    model = graph.model()
    (subgraph,) = compile_model(model, config, stop_after="fold").graphs
    (layer,) = subgraph.operations
    assert isinstance(layer, Convolution)
    return subgraph.tensor(layer.weights).shape, layer, subgraph.tensors[layer.input], model


@pytest.mark.parametrize(
    ("kernel", "attributes", "left"),
    [
        ((7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}, 1),
        ((3, 5), {"pads": [0, 2, 1, 1]}, 3),  # as many steps as whole, in fewer words
        ((4, 2), {"strides": [2, 3], "dilations": [2, 1], "pads": [3, 0, 0, 1]}, 2),
        ((1, 9), {"pads": [0, 4, 0, 4]}, 1),
    ],
)
def test_windows_become_channels(graphs, kernel, attributes, left: int) -> None:
    shape, layer, image, model = folded(graphs, 3, kernel, **attributes)
    assert shape[1:] == (3 * kernel[0] * kernel[1] // left, left, 1)
    assert layer.pads == (0, 0, 0, 0) and image.folded is not None
    assert image.folded.elements % CONFIG.array == 0
    graphs.agree(model, CONFIG, runs=2)


def test_an_image_has_the_windows(graphs) -> None:
    shape, _, image, _ = folded(graphs, 2, (3, 2), pads=[1, 0, 1, 1])
    assert image.folded is not None
    values = np.random.default_rng(1).integers(-128, 128, (2, 2, 15, 13)).astype(np.int8)
    places = image.folded.to_dram(values).reshape(2, 15, 13, -1)
    padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (0, 1)), constant_values=-7)
    for batch, y, x in ((0, 0, 0), (1, 7, 4), (1, 14, 12)):
        window = padded[batch, :, y : y + 3, x : x + 2].transpose(1, 2, 0).reshape(-1)
        np.testing.assert_array_equal(places[batch, y, x, : window.size], window)
    assert shape == (20, 12, 1, 1)


def test_what_stays(graphs) -> None:
    """Channels that fill the array, and an input that something else reads."""
    assert folded(graphs, 16, (3, 3))[2].folded is None
    graph = graphs.Graph(seed=5)
    x = graph.input((1, 3, 9, 9), integer=True)
    graph.output(graph.add(x, graph.conv(x, 3, 3, pads=[1] * 4)), integer=True)
    (subgraph,) = compile_model(graph.model(), CONFIG, stop_after="fold").graphs
    assert all(tensor.folded is None for tensor in subgraph.tensors.values())


def test_places_that_fit_no_bank_are_not_made(graphs) -> None:
    from dataclasses import replace

    config = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=2)
    shape, _, image, model = folded(graphs, 3, (7, 7), config, pads=[3] * 4)
    assert image.folded is None or shape[1] < 147
    graphs.agree(model, config)
