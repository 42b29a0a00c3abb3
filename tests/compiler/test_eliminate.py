"""eliminate: what repeats is computed once, what nobody reads never, and the host's part is left as it is."""

from pathlib import Path

import numpy as np
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS

from npukit import Session
from npukit.compare import Oracle, compare
from npukit.npufile import write_artifact


def operators(session: Session) -> list[str]:
    return [node.op for program in session.programs.values() for node in program.nodes]


def twice(graph, make):
    """Two equal things under other names."""
    state = graph.random.bit_generator.state
    first = make()
    graph.random.bit_generator.state = state
    return first, make()


def test_repeated_layers_are_computed_once(graphs, tmp_path: Path) -> None:
    """Convolutions with equal weights, and all that follows alike; what differs stays apart. All are compared."""
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 3, 6, 6))
    first, second = twice(graph, lambda: graph.conv(x, 4))
    third = graph.conv(x, 4)
    one, two = twice(graph, lambda: graph.add(first, third))
    other = graph.add(second, third)
    graph.output(graph.conv(graph.add(one, two), 2))
    graph.output(other)
    model = graph.model()
    session, found = graphs.agree(model, "int8-4x4")
    assert operators(session).count("Conv") == 3
    assert found.tensors == found.tensors_total == 9
    path = tmp_path / "compiled.onnx"
    write_artifact(path, session.artifact)
    again = Session(path, capture=True)
    inputs = graphs.inputs_of(model)
    assert compare(again, Oracle(model), inputs, again.run(inputs)).tensors == 9


@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("fallback", ["cpu", "none"])
def test_equal_outputs(graphs, integer: bool, fallback: str) -> None:
    """Each under its name, and where one is read further on as well."""
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 3, 6, 6), integer=integer)
    first, second = twice(graph, lambda: graph.conv(x, 4))
    for y in (first, second, graph.conv(second, 3)):
        graph.output(y, integer=integer)
    model = graph.model()
    session = Session(model, "int8-4x4", capture=True, fallback=fallback)
    assert operators(session) == ["Conv", "Conv"]
    inputs = graphs.inputs_of(model)
    outputs = session.run(inputs)
    found = compare(session, Oracle(model), inputs, outputs)
    assert found.mismatches == 0 and found.tensors == found.tensors_total
    names = [value.name for value in model.graph.output]
    assert list(outputs) == names and np.array_equal(outputs[names[0]], outputs[names[1]])


def test_other_quantisations_are_other_layers(graphs) -> None:
    graph = graphs.Graph(seed=1)
    x = graph.input((1, 4, 6, 6))
    graph.output(graph.add(graph.unary("Sigmoid", x, 0.01), graph.unary("Sigmoid", x, 0.02)))
    session, _ = graphs.agree(graph.model(), "int8-4x4")
    assert operators(session).count("Sigmoid") == 2


def test_reshaped_repeats(graphs) -> None:
    """An alias of what is not computed."""
    graph = graphs.Graph(seed=6)
    x = graph.input((1, 3, 5, 5))
    first, second = twice(graph, lambda: graph.global_average(x, 0.02))
    graph.output(graph.gemm(graph.flatten(first), 5))
    graph.output(graph.gemm(graph.flatten(second), 7))
    session, found = graphs.agree(graph.model(), "int8-4x4")
    assert operators(session) == ["GlobalAveragePool", "Gemm", "Gemm"]
    assert found.tensors == found.tensors_total


def test_repeated_pools(graphs) -> None:
    """Equal windows over one tensor, and one of them with padding that counts."""
    graph = graphs.Graph(seed=9)
    x = graph.input((1, 4, 6, 6), 2.0**-5)
    first, second = twice(graph, lambda: graph.average(x, (2, 2), 2.0**-5, pads=[1, 1, 0, 0]))
    state = graph.random.bit_generator.state
    third = graph.average(x, (2, 2), 2.0**-5, pads=[1, 1, 0, 0], count_include_pad=1)
    graph.random.bit_generator.state = state
    pools = [graph.maxpool(x, 2), graph.maxpool(x, 2), graph.maxpool(x, 2, strides=[2, 2])]
    for y in (first, second, third, *pools):
        graph.output(y)
    session, _ = graphs.agree(graph.model(), "int8-4x4")
    assert operators(session) == ["AveragePool", "AveragePool", "MaxPool", "MaxPool"]


def test_dead_layers(graphs) -> None:
    """What no output needs is neither computed nor compared."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 3, 6, 6)), 4)
    graph.conv(graph.conv(y, 5, 1), 6, 1)
    graph.conv(graph.input((1, 3, 6, 6)), 4)
    graph.output(y)
    session, found = graphs.agree(graph.model(), "int8-4x4")
    assert operators(session) == ["Conv"]
    (program,) = session.programs.values()
    assert [tensor.role for tensor in program.tensors] == ["input", "output"]
    assert found.tensors == found.tensors_total == 2


def test_nothing_but_dead_layers(graphs) -> None:
    graph = graphs.Graph()
    x = graph.input((1, 3, 6, 6))
    graph.conv(x, 4)
    graph.output_value(graph.node("Cos", [graph.dequantize(x)]))
    graphs.agree(graph.model(), "int8-4x4", stays={*graphs.EDGES, "Cos"}, subgraphs=None)


@pytest.mark.parametrize("dead", ["Cos", "quantised", "repeated"])
@pytest.mark.parametrize("kind", ["conv", "average", "global average"])
def test_the_host_computes_what_onnx_runtime_does(graphs, kind: str, dead: str) -> None:
    """ONNX Runtime fuses a node with its quantiser where nothing else reads its result, dead or equal as it may be, and
    then rounds differently; so the host's part keeps all of them."""
    graph = graphs.Graph(seed=5)
    x = graph.input((1, 32, 40, 40), scale=0.013)
    y = {
        "conv": lambda: graph.conv(x, 64, 1, bias=False, per_channel=False),
        "average": lambda: graph.average(x, (2, 2), 0.03),
        "global average": lambda: graph.global_average(x),
    }[kind]()
    value = graph.nodes[-1].input[0]
    if dead == "Cos":
        graph.node("Cos", [value])
    elif dead == "quantised":
        graph.quantize(value, y.scale * 1.5, y.zero_point)
    else:
        graph.output(graph.quantize(value, y.scale, y.zero_point))
    graph.output(y)
    operator = {"conv": "Conv", "average": "AveragePool", "global average": "GlobalAveragePool"}[kind]
    graphs.agree(graph.model(), "int8-8x8", stays={*graphs.EDGES, operator, "Cos"}, subgraphs=None, runs=3)


def test_levels_agree_on_what_is_there(graphs) -> None:
    graph = graphs.Graph(seed=4)
    x = graph.input((1, 3, 6, 6))
    first, second = twice(graph, lambda: graph.conv(x, 4))
    graph.output(graph.add(first, second))
    model = graph.model()
    for level in (0, 1, 2):
        (program,) = compile_model(model, PRESETS["int8-4x4"], optimize=level).programs
        assert [node.op for node in program.nodes] == ["Conv", "Add"]
