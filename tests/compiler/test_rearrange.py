"""Elements in another order: what moves nothing, what moves places and channels, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    OPERATIONS,
    Clamp,
    FullyConnected,
    Lookup,
    Rearrange,
    Reinterpret,
    Reshape,
    SourceNode,
    TransposedConvolution,
)
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.legality import check_operation
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS
from npukit.isa.formats import BFLOAT16
from npukit.isa.instructions import Operation, Vector
from onnx import TensorProto, helper, numpy_helper

from npukit import ordered_sums
from npukit.compare_floats import compare_floats
from npukit.session import Session

SMALL = PRESETS["int8-4x4"]


def kinds(model, config=SMALL) -> list[str]:
    """What the operations are after they have been lowered, and after what moves nothing has gone."""
    result = compile_model(model, config, stop_after="legalise")
    return [operation.mnemonic for graph in result.graphs for operation in graph.operations]


def shuffle(graph, x, groups: int):
    """A channel shuffle as exporters write it."""
    batch, channels, height, width = graph.shape(x.name)
    split = graph.moved("Reshape", x, [np.array([batch, groups, channels // groups, height, width])])
    turned = graph.moved("Transpose", split, [], perm=[0, 2, 1, 3, 4])
    return graph.moved("Reshape", turned, [np.array([batch, channels, height, width])])


@pytest.mark.parametrize("config", ["int8-4x4", "int8-16x16"])
@pytest.mark.parametrize(("channels", "groups"), [(24, 2), (30, 3), (8, 4), (64, 2)])
def test_channel_shuffle(graphs, config: str, channels: int, groups: int) -> None:
    graph = graphs.Graph(seed=channels)
    x = graph.conv(graph.input((2, 5, 6, 7)), channels, 1)
    graph.output(graph.conv(shuffle(graph, x, groups), 9, 3))
    model = graph.model()
    assert kinds(model) == ["convolution", "rearrange", "convolution"]
    graphs.agree(model, config, runs=2)


@pytest.mark.parametrize("config", ["int8-4x4", "int8-16x16"])
@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("DepthToSpace", (2, 12, 5, 3), {"blocksize": 2}),
        ("DepthToSpace", (1, 12, 5, 3), {"blocksize": 2, "mode": "CRD"}),
        ("DepthToSpace", (1, 27, 4, 6), {"blocksize": 3, "mode": "CRD"}),
        ("DepthToSpace", (1, 64, 40, 41), {"blocksize": 2}),
        ("SpaceToDepth", (2, 3, 6, 8), {"blocksize": 2}),
        ("SpaceToDepth", (1, 16, 9, 6), {"blocksize": 3}),
        ("SpaceToDepth", (1, 4, 64, 60), {"blocksize": 2}),
    ],
)
def test_depth_and_space(graphs, config: str, op: str, shape, attributes) -> None:
    graph = graphs.Graph(seed=shape[1])
    x = graph.constant_operand("Add", graph.input(shape), (1,))
    graph.output(graph.moved(op, x, [], **attributes))
    model = graph.model()
    assert kinds(model)[-1] == "rearrange"
    graphs.agree(model, config)


def test_places_become_rows_for_nothing(graphs) -> None:
    """The patches of a vision transformer, and the way back."""
    graph = graphs.Graph(seed=1)
    x = graph.conv(graph.input((2, 3, 16, 16)), 24, 4, strides=[4, 4])
    rows = graph.moved("Transpose", graph.moved("Reshape", x, [np.array([2, 24, 16])]), [], perm=[0, 2, 1])
    rows = graph.add(rows, graph.constant_operand("Add", rows, (1, 16, 24)))
    y = graph.constant_operand("Mul", graph.matmul(rows, 32), (32,))
    image = graph.moved("Reshape", graph.moved("Transpose", y, [], perm=[0, 2, 1]), [np.array([2, 32, 4, 4])])
    graph.output(graph.conv(image, 8, 3))
    model = graph.model()
    assert kinds(model) == ["convolution", "add", "add", "convolution", "multiply", "convolution"]
    for config in ("int8-4x4", "int8-16x16"):
        graphs.agree(model, config, runs=2)


def test_channels_last(graphs) -> None:
    """A block of a ConvNeXt, between convolutions that want channels along the second dimension."""
    graph = graphs.Graph(seed=2)
    x = graph.conv(graph.input((2, 5, 6, 7)), 12, 3, pads=[1] * 4)
    y = graph.moved("Transpose", x, [], perm=[0, 2, 3, 1])
    y = graph.matmul(graph.unary("Sigmoid", graph.matmul(y, 30), 0.004), 12)
    y = graph.concat([y, graph.constant_operand("Add", y, (2, 1, 7, 1))], 3)
    y = graph.moved("Slice", y, [np.array([2, 1]), np.array([17, 5]), np.array([3, 1])])
    y = graph.moved("Pad", y, [np.array([0, 1, 2, 0, 0, 0, 1, 0])])
    y = graph.moved("Transpose", y, [], perm=[0, 3, 1, 2])
    graph.output(graph.conv(y, 4, 3))
    model = graph.model()
    assert "rearrange" not in kinds(model)
    for config in ("int8-4x4", "int8-16x16"):
        graphs.agree(model, config, runs=2)


def test_heads(graphs) -> None:
    """Channels that become places, where they are whole words and where they are not."""
    for width in (16, 12):
        graph = graphs.Graph(seed=width)
        x = graph.matmul(graph.input((10, 9)), 3 * width)
        heads = graph.moved(
            "Transpose", graph.moved("Reshape", x, [np.array([1, 10, 3, width])]), [], perm=[0, 2, 1, 3]
        )
        y = graph.matmul(heads, width)
        back = graph.moved("Transpose", y, [], perm=[0, 2, 1, 3])
        graph.output(graph.matmul(graph.moved("Reshape", back, [np.array([10, 3 * width])]), 7))
        model = graph.model()
        assert kinds(model).count("rearrange") == 2
        for config in ("int8-4x4", "int8-16x16"):
            graphs.agree(model, config, runs=2)


def test_other_places(graphs) -> None:
    """Rows and columns change, and an image is cut into windows."""
    graph = graphs.Graph(seed=3)
    x = graph.conv(graph.input((2, 5, 6, 8)), 9, 1)
    graph.output(graph.conv(graph.moved("Transpose", x, [], perm=[0, 1, 3, 2]), 4, 3))
    windows = graph.moved("Reshape", x, [np.array([2, 9, 2, 3, 2, 4])])
    windows = graph.moved("Transpose", windows, [], perm=[0, 2, 4, 1, 3, 5])
    graph.output(graph.conv(graph.moved("Reshape", windows, [np.array([8, 9, 3, 4])]), 3, 2))
    model = graph.model()
    assert kinds(model).count("rearrange") == 2
    for config in ("int8-4x4", "int8-16x16"):
        graphs.agree(model, config, runs=2)


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(40))
def test_random_orders(graphs, seed: int) -> None:
    """Any shapes and orders, one to three in a row, against ONNX Runtime; what is refused stays there."""
    random = np.random.default_rng(seed)
    graph = graphs.Graph(seed=seed, dtype=np.uint8 if seed % 2 else np.int8)
    sizes = [int(random.choice([1, 2, 3, 4, 6, 8])) for _ in range(int(random.integers(2, 6)))]
    x = graph.input((int(random.integers(1, 3)), int(np.prod(sizes[:2])), *sizes[2:]))
    x = graph.unary("Sigmoid", x, 0.004)
    for _ in range(int(random.integers(1, 4))):
        shape = graph.shape(x.name)
        choice = int(random.integers(3))
        if choice == 0:
            x = graph.moved("Transpose", x, [], perm=[int(axis) for axis in random.permutation(len(shape))])
        elif choice == 1:
            axis = int(random.integers(len(shape)))
            factors = [one for one in range(1, shape[axis] + 1) if shape[axis] % one == 0]
            cut = int(random.choice(factors))
            new = (*shape[:axis], cut, shape[axis] // cut, *shape[axis + 1 :])
            x = graph.moved("Reshape", x, [np.array(new)])
        elif len(shape) > 2:
            axis = int(random.integers(len(shape) - 1))
            new = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
            x = graph.moved("Reshape", x, [np.array(new)])
    graph.output(graph.unary("Neg", x, x.scale))
    moves = {"Reshape", "Transpose"}
    graphs.agree(graph.model(), "int8-16x16" if seed % 3 else "int8-4x4", stays={*graphs.EDGES, *moves}, subgraphs=None)


def test_rows_that_become_channels_are_refused(graphs) -> None:
    """A matrix turned around has each channel at a place of its own, and this machine turns none around."""
    graph = graphs.Graph(seed=4)
    x = graph.matmul(graph.input((256, 32)), 512)
    turned = graph.moved("Transpose", x, [], perm=[1, 0])
    graph.output(graph.matmul(turned, 8))
    result = compile_model(graph.model(), replace(PRESETS["int8-16x16"], transpose=0), stop_after="partition")
    (reason,) = [one.reason for one in result.partition.reasons if one.op == "Transpose"]
    assert "bringing channels to other places takes 256 cycles for each word" in reason


def test_lanes_in_bfloat16() -> None:
    x = Tensor("x", (1, 8, 4), BFLOAT16)
    node = (SourceNode("n", "Transpose"),)

    def check(shape, sizes, permutation, **fields) -> None:
        y = replace(Tensor("y", shape, BFLOAT16), **fields)
        operation = Rearrange(output="y", sources=node, input="x", sizes=sizes, permutation=permutation)
        check_operation(PRESETS["bf16-4x4"], Graph("g", (operation,), {"x": x, "y": y}, {}, ("x",), ("y",)), operation)

    check((1, 4, 8), (8, 4), (1, 0), channel_axis=2)  # for nothing
    check((1, 4, 2, 4), (2, 4, 4), (1, 2, 0))  # words become places
    check((1, 8, 4), (2, 4, 4), (1, 0, 2))  # lanes change, by products with zeros and ones


def test_where_two_wishes_meet(graphs) -> None:
    """A convolution has its channels along the second dimension, and a product right behind it wants them in the last:
    one of the two stays, or what is between them does."""
    graph = graphs.Graph(seed=7)
    x = graph.conv(graph.input((1, 4, 6)), 8, (1,))
    graph.output(graph.matmul(graph.unary("Sigmoid", x, 0.004), 5))
    session, _ = graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "MatMul"})
    (reason,) = [one.reason for one in session.compilation.partition.reasons if one.op == "MatMul"]
    assert reason.endswith("hold what lies along its axis 1, and axis 2 is wanted")
    graph = graphs.Graph(seed=8)
    both = graph.input((2, 6, 6))
    graph.output(graph.conv(both, 6, (3,), pads=[1, 1]))
    graph.output(graph.add(graph.matmul(both, 6), both))
    graphs.agree(graph.model(), SMALL, stays={*graphs.EDGES, "Conv", "MatMul", "Add"}, subgraphs=None)


def test_limits_where_two_wishes_meet() -> None:
    """The same of floats, which a Relu by itself hands on."""
    random = np.random.default_rng(1)
    constants = {"w": random.normal(0, 0.3, (8, 4, 1)), "m": random.normal(0, 0.3, (6, 5))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]), helper.make_node("MatMul", ["s", "m"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 4, 6])],
        [helper.make_tensor_value_info("y", 1, [1, 8, 5])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = Session(model, PRESETS["bf16-4x4"])
    assert session.compilation is not None
    assert [one.op for one in session.compilation.partition.reasons] == ["Relu"]
    found = session.run({"x": random.normal(0, 1, (1, 4, 6)).astype(np.float32)})
    assert found["y"].shape == (1, 8, 5)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["split", "concat"])
def test_dimensions_that_are_one_in_memory(graphs, op: str, axis: int) -> None:
    """Of five dimensions two are the height: cutting either is refused, and the others are cut."""
    graph = graphs.Graph(seed=axis)
    y = graph.matmul(graph.input((2, 4, 4, 6, 6)), 8)
    size = graph.shape(y.name)[axis]
    parts = graph.split(y, [1, size - 1], axis) if op == "split" else [graph.concat([y, y], axis)]
    for part in parts:
        graph.output(graph.matmul(part, 3))
    stays = {*graphs.EDGES, "Split", "Concat", "Slice"}
    graphs.agree(graph.model(), "int8-4x4", stays=stays, subgraphs=None)


@pytest.mark.parametrize("op", ["Slice", "Pad"])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_channels_first_of_all(graphs, op: str, axis: int) -> None:
    """Channels along the first of four dimensions: the next two are the height."""
    graph = graphs.Graph(seed=axis)
    y = graph.matmul(graph.input((2, 3, 4, 6)), 8)
    y = graph.moved("Transpose", y, [], perm=[3, 0, 1, 2])
    if op == "Slice":
        y = graph.moved("Slice", y, [np.array([one]) for one in (1, 2, axis)])
    else:
        y = graph.moved("Pad", y, [np.array([int(one == axis) for one in range(8)])])
    graph.output(graph.matmul(graph.moved("Transpose", y, [], perm=[1, 2, 3, 0]), 3))
    stays = {*graphs.EDGES, op, "Transpose"}
    graphs.agree(graph.model(), "int8-4x4", stays=stays, subgraphs=None)


def test_other_orders_of_floats() -> None:
    """Words that move are held to the reference of bf16 like everything else."""
    random = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Transpose", ["c"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("Conv", ["t", "v"], ["y"]),
    ]  # fmt: skip
    constants = {"w": random.normal(0, 0.3, (8, 4, 1, 1)), "v": random.normal(0, 0.3, (5, 8, 3, 2))}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 4, 5, 7])],
        [helper.make_tensor_value_info("y", 1, [1, 5, 5, 4])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = Session(model, PRESETS["bf16-4x4"], capture=True)
    inputs = {"x": random.normal(0, 1, (1, 4, 5, 7)).astype(np.float32)}
    found = compare_floats(session, inputs, session.run(inputs))
    assert found.mismatches == 0 and found.tensors == 3


def test_every_operation_has_a_reference() -> None:
    # other operations, or of int8
    gone = {FullyConnected, Clamp, Reshape, Reinterpret, TransposedConvolution, Lookup}
    assert set(OPERATIONS.values()) - gone == set(ordered_sums._OPERATIONS)


@pytest.mark.parametrize("config", ["int8-4x4", "int8-8x8", "int8-16x16"])
@pytest.mark.parametrize("shape", [(1, 16, 128), (1, 7, 9), (3, 5, 33), (2, 130, 20), (1, 1000, 24)], ids=str)
def test_matrices_that_are_turned(graphs, config: str, shape: tuple[int, int, int]) -> None:
    """Channels become places and places channels, between products; each word is turned once."""
    graph = graphs.Graph(seed=1)
    a = graph.matmul(graph.input(shape, 0.05), shape[2])
    turned = graph.node("Transpose", [graph.dequantize(a)], perm=[0, 2, 1])
    graph.output(graph.matmul(graph.quantize(turned, a.scale, a.zero_point), 11))
    session, _ = graphs.agree(graph.model(), PRESETS[config])
    (program,) = session.programs.values()
    vectors = [one for one in program.instructions if isinstance(one, Vector)]
    size = PRESETS[config].array
    words = -(-shape[1] // size) * -(-shape[2] // size) * size * shape[0]
    turning = [one for one in vectors if one.operation is Operation.TRANSPOSE]
    assert sum(one.blocks * one.height * one.width for one in turning) == words


def test_matrices_that_are_turned_in_bf16() -> None:
    weights = np.random.default_rng(2).normal(size=(20, 20)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "v"], ["y"]),
    ]
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(weights[:13, :6].copy(), "v")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 13, 20])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 20, 6])
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = Session(model, "bf16-4x4", capture=True, fallback="none")
    inputs = {"x": np.random.default_rng(3).normal(size=(2, 13, 20)).astype(np.float32)}
    found = compare_floats(session, inputs, session.run(inputs))
    assert found.mismatches == 0 and found.tensors == found.tensors_total, found.first_mismatch
