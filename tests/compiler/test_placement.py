"""placement and cuts: what stays is computed as in ONNX Runtime's whole graph, wherever the graph is cut.

Results lie on ties, so that a part which ONNX Runtime computes in float and not in integers shows.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from npukit.isa.config import PRESETS

from npukit import Session, zoo
from npukit.compare import Oracle, compare
from npukit.sample_inputs import random_inputs

SMALL = PRESETS["int8-4x4"]
SHAPE = (2, 4, 6, 6)
"""Of an input, whose channels an addition may repeat: that stays, and ONNX Runtime has it in integers."""


def host_nodes(session: Session) -> list[list[str]]:
    """Operators of each host part, in order."""
    parts: list[list[str]] = [[]]
    for node in session.artifact.graph.node:
        if node.op_type == "EPContext":
            parts.append([])
        else:
            parts[-1].append(node.op_type)
    return parts


def first_channel(graph, x):
    """A part of a tensor, in its quantisation, that an addition may repeat along channels; the machine makes it."""
    return graph.moved("Slice", x, [np.array([one], np.int64) for one in (0, 1, 1)])


def reasons(session: Session) -> dict[str, str]:
    assert session.compilation is not None
    return {reason.node: reason.reason for reason in session.compilation.partition.reasons}


def test_digits_whose_convolutions_do_not_fit() -> None:
    session = Session(zoo.load("digits"), replace(PRESETS["int8-16x16"], wgt_depth=32), capture=True)
    assert len(session.programs) == 2 and session.compilation is not None
    oracle = Oracle(session.compilation.source)
    for seed in range(6, 12):  # the tenth crosses a tie
        inputs = random_inputs(session.artifact, session.inputs, seed)
        found = compare(session, oracle, inputs, session.run(inputs))
        assert found.mismatches == 0 and found.tensors == found.tensors_total, found.first_mismatch


def test_a_dequantizer_that_two_stages_read(graphs) -> None:
    graph = graphs.Graph(seed=1, ties=True)
    x = graph.input(SHAPE)
    value = graph.dequantize(x)
    graph.output(graph.quantize(graph.node("LpNormalization", [value]), 0.01))
    late = graph.node("Sub", [value, graph.dequantize(first_channel(graph, x))])
    graph.output(graph.quantize(late, 2 * x.scale))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "LpNormalization", "Sub"}, runs=3)
    first, second = host_nodes(session)
    # in each one that is an output's
    assert Counter(first)["DequantizeLinear"] == 2 and Counter(second)["DequantizeLinear"] == 3
    assert session.compilation is not None
    partition = session.compilation.partition
    assert partition.nodes_total == len(graph.nodes), "copies are not counted"
    assert partition.nodes + len(partition.reasons) == partition.nodes_total
    assert len(reasons(session)) == len(partition.reasons), "nor listed"


@pytest.mark.parametrize("op", ["MaxPool", "Transpose", "Reshape", "Slice", "Squeeze"])
def test_what_moves_elements_behind_a_dequantizer_that_two_stages_read(graphs, op) -> None:
    """ONNX Runtime moves the DequantizeLinear past it, so each of its readers is one of the DequantizeLinear."""
    graph = graphs.Graph(seed=2, ties=True)
    x = graph.input(SHAPE)

    def integers(*values: int) -> str:
        return graph.constant(np.array(values, np.int64))

    value = graph.dequantize(x)
    moved = {
        "MaxPool": lambda: graph.node("MaxPool", [value], kernel_shape=[3, 3], pads=[1] * 4),
        "Transpose": lambda: graph.node("Transpose", [value], perm=[0, 1, 3, 2]),
        "Reshape": lambda: graph.node("Reshape", [value, integers(2, 4, 6, 6)]),
        "Slice": lambda: graph.node("Slice", [value, integers(0), integers(1), integers(0)]),
        "Squeeze": lambda: graph.node("Squeeze", [graph.node("Unsqueeze", [value, integers(0)]), integers(0)]),
    }[op]()
    weights = graph.weights(graph.random_weights((5, 4, 7, 7)), 0.01)  # a kernel larger than the image
    early = graph.node("Conv", [moved, weights], pads=[3] * 4)
    graph.output(graph.quantize(early, graph.tied(x.scale, x.scale, 0.01)))
    late = graph.node("Add", [moved, graph.dequantize(first_channel(graph, x))])
    graph.output(graph.quantize(late, 2 * x.scale))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, op, "Unsqueeze", "Conv", "Add"}, runs=3)
    assert [part.count(op) for part in host_nodes(session)] == [1, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_floats_on_their_way_to_one_reader(graphs, dtype) -> None:
    """What ONNX Runtime makes one operator of (here a Gelu) comes in the stage of its last node."""
    graph = graphs.Graph(seed=3, ties=True, dtype=dtype)
    x = graph.input(SHAPE)
    value = graph.dequantize(x)
    half, one, root = (graph.constant(np.float32(number)) for number in (0.5, 1, 2**0.5))
    error = graph.node("Erf", [graph.node("Div", [value, root])])
    product = graph.node("Mul", [value, graph.node("Add", [error, one])])
    late = graph.node("Mul", [product, half])
    total = graph.node("Sum", [late, graph.dequantize(graph.conv(x, 4, 1))])
    graph.output(graph.quantize(total, x.scale))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Erf", "Div", "Mul", "Add", "Sum"}, runs=3)
    assert host_nodes(session)[0] == ["QuantizeLinear"]


def test_a_reader_fewer_that_lets_onnx_runtime_fuse_more(graphs) -> None:
    """In the whole graph the result of Squeeze has a QuantizeLinear besides, so the addition behind it is in float.

    That comes in an earlier stage than the addition, if the machine takes what the addition also needs: Squeeze would
    then have one reader, and ONNX Runtime move the DequantizeLinear past it, and compute the addition in integers.
    """
    graph = graphs.Graph(seed=4, ties=True)
    x = graph.input(SHAPE)
    value = graph.dequantize(x)
    double = graph.quantize(graph.node("Add", [value, value]), x.scale)
    axis = graph.constant(np.array([0], np.int64))
    moved = graph.node("Squeeze", [graph.node("Unsqueeze", [value, axis]), axis])
    graph.output(graph.quantize(moved, x.scale))
    graph.output(graph.quantize(graph.node("Add", [moved, graph.dequantize(double)]), x.scale))
    stays = {*graphs.EDGES, "Squeeze", "Unsqueeze", "Add"}
    session, _ = graphs.agree(graph.model(), SMALL, stays=stays, subgraphs=0, runs=3)
    text = "; ".join(reasons(session).values())
    assert "by QLinearAdd and not by QuantizeLinear, with other roundings" in text


def test_a_reader_that_leads_nowhere(graphs) -> None:
    """ONNX Runtime counts it: the convolution stays in float, on the host as well, with all that this reader needs."""
    graph = graphs.Graph(seed=8, ties=True)
    x = graph.input(SHAPE)
    graph.output(graph.conv(x, 4, 1, per_channel=False))
    value = graph.nodes[-2].input[0]
    weights = graph.weights(graph.random_weights((3, 4, 1, 1)), 0.01)
    graph.node("Conv", [value, weights])
    graph.output(graph.conv(x, 5, 1))
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv"}, runs=3)


def test_what_leads_nowhere_counts_where_nothing_is_accelerated(graphs) -> None:
    graph = graphs.Graph(seed=5, ties=True)
    x = graph.input(SHAPE)
    value = graph.dequantize(x)
    graph.node("Softmax", [value])
    axis = graph.constant(np.array([0], np.int64))
    moved = graph.node("Squeeze", [graph.node("Unsqueeze", [value, axis]), axis])
    graph.output(graph.quantize(graph.node("Mul", [moved, moved]), graph.tied(0.01, x.scale, x.scale)))
    stays = {*graphs.EDGES, "Squeeze", "Unsqueeze", "Mul", "Softmax"}
    graphs.agree(graph.model(), SMALL, stays=stays, subgraphs=0, runs=3)


def test_a_flattened_image_that_is_both_operands(graphs) -> None:
    graph = graphs.Graph(seed=6)
    flat = graph.flatten(graph.conv(graph.input(SHAPE), 3))
    graph.output(graph.add(flat, flat))
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Flatten"}, subgraphs=2)


def test_sequences_between_parts(graphs) -> None:
    """Only tensors can go from one part to the next: what reads a sequence runs where that is made."""
    graph = graphs.Graph(seed=7)
    x = graph.input((1, 4, 6, 6))
    halves = graph.node("SplitToSequence", [graph.dequantize(x)], axis=1)
    y = graph.conv(x, 5)
    length = graph.node("SequenceLength", [halves])
    graph.output_value(graph.node("ConcatFromSequence", [halves], axis=1))
    kind = graph.node("Cast", [length], to=1)
    graph.output_value(graph.node("Mul", [graph.dequantize(y), kind]))
    stays = {*graphs.EDGES, "SplitToSequence", "SequenceLength", "ConcatFromSequence", "Cast", "Mul"}
    graphs.agree(graph.model(), SMALL, stays=stays)


def test_a_sequence_that_would_be_cut(graphs) -> None:
    """Where that cannot be, nothing is accelerated."""
    graph = graphs.Graph(seed=9)
    x = graph.input((1, 4, 6, 6))
    y = graph.conv(x, 5)
    halves = graph.node("SplitToSequence", [graph.dequantize(x)], axis=1)
    zero = graph.node("Cast", [graph.node("ReduceMax", [graph.dequantize(y)], keepdims=0)], to=7)
    last = graph.node("SequenceAt", [halves, graph.node("Mul", [zero, graph.constant(np.int64(0))])])
    graph.output_value(last)
    graphs.agree(graph.model(), SMALL, stays={node.op_type for node in graph.nodes})
    graph.output_value(graph.node("SequenceLength", [halves]), 7)  # before there is any program
    session, _ = graphs.agree(graph.model(), SMALL, stays={node.op_type for node in graph.nodes}, subgraphs=0)
    assert "is a seq(tensor(float)); between parts of a model only tensors are supported" in str(reasons(session))
