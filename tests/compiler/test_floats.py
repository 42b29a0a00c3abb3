"""fp32 models in bf16: every layer equals the ordered sums bit for bit, infinities and NaN included."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS, NpuConfig
from onnx import TensorProto, helper, numpy_helper

from npukit.compare_floats import compare_floats
from npukit.session import Session

SMALL = PRESETS["bf16-4x4"]
ODD = replace(
    PRESETS["bf16-8x8"], act_depth=997, act_banks=3, wgt_depth=1031, acc_depth=61, acc_banks=2, par_depth=67,
    vector_lanes=2, fma_lanes=4, bus_bytes=4, max_burst=9, queue_depth=2,
)  # fmt: skip
CONFIGS = {"4x4": SMALL, "odd": ODD, "16x16": PRESETS["bf16-16x16"]}
RARE = np.array([np.inf, -np.inf, np.nan, 1e-40, -1e-40, -0.0, 3e38, 1e-38, 2.0**-126], np.float32)


class Floats:
    """A float graph in the making, around the helper of the quantised ones."""

    def __init__(self, graphs, seed: int = 0) -> None:
        self.graph = graphs.Graph(seed=seed)
        self.random = self.graph.random

    def input(self, *shape: int) -> str:
        name = self.graph.name("input")
        self.graph.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    def weights(self, *shape: int) -> str:
        return self.graph.constant(self.random.standard_normal(shape).astype(np.float32), "weights")

    def conv(self, x: str, out: int, kernel: tuple[int, int] = (3, 3), group: int = 1, bias=True, **options) -> str:
        inner = self.graph.shape(x)[1] // group
        names = [x, self.weights(out, inner, *kernel), *([self.weights(out)] if bias else [])]
        return self.graph.node("Conv", names, group=group, **options)

    def node(self, op: str, *names: str, **attributes) -> str:
        return self.graph.node(op, names, **attributes)

    def parts(self, x: str, sizes: tuple[int, ...], axis: int) -> list[str]:
        names = [self.graph.name("part") for _ in sizes]
        self.graph.nodes.append(
            helper.make_node(
                "Split", [x, self.number(np.array(sizes))], names, name=self.graph.name("split"), axis=axis
            )
        )
        return names

    def number(self, value) -> str:
        return self.graph.constant(np.asarray(value))

    def model(self, *outputs: str) -> onnx.ModelProto:
        for name in outputs:
            self.graph.output_value(name)
        return self.graph.model()


def agree(model: onnx.ModelProto, config: NpuConfig, stays: tuple[str, ...] = (), rare: bool = True) -> Session:
    """Compile, run on ordinary numbers and on such with rare ones among them, and compare every layer."""
    session = Session(model, config, capture=True)
    left = [(reason.op, reason.reason) for reason in session.offload.reasons]
    assert {op for op, _ in left} <= set(stays), left
    random = np.random.default_rng(7)
    for share in (0.0, 0.02) if rare else (0.0,):
        inputs = {}
        for value in model.graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            array = random.standard_normal(shape).astype(np.float32)
            inputs[value.name] = np.where(random.random(shape) < share, random.choice(RARE, shape), array)
        with np.errstate(all="ignore"):
            found = compare_floats(session, inputs, session.run(inputs))
        assert found.tensors and found.mismatches == 0, found.first_mismatch
        if not share:
            assert found.worst[1] < 0.03, found.worst
    return session


def test_windows_larger_than_a_bank(graphs) -> None:
    """The input comes once for each row of the kernel, and sums keep their order."""
    floats = Floats(graphs)
    x = floats.conv(floats.input(1, 9, 14, 15), 6, dilations=[9, 10], pads=[9, 10, 9, 10])
    agree(floats.model(x), replace(SMALL, act_depth=256))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_convolutions(graphs, config) -> None:
    made = Floats(graphs)
    x = made.input(2, 7, 13, 11)
    y = made.conv(x, 19, pads=[1] * 4)
    z = made.node("Relu", made.conv(y, 5, (1, 1), bias=False))
    w = made.conv(made.node("Relu", y), 9, (2, 3), strides=[2, 1], dilations=[1, 2], pads=[0, 2, 1, 1])
    agree(made.model(z, w), config)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_depthwise(graphs, config, stride, dilation) -> None:
    made = Floats(graphs, stride)
    x = made.input(1, 9, 12, 13)
    options = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [1, 2, 0, 1]}
    agree(made.model(made.conv(x, 9, (3, 2), group=9, **options)), config)


def test_groups(graphs) -> None:
    made = Floats(graphs)
    agree(made.model(made.conv(made.input(1, 16, 6, 6), 24, group=2)), SMALL)
    made = Floats(graphs)  # that share words
    agree(made.model(made.conv(made.input(1, 6, 6, 6), 4, group=2)), SMALL)
    made = Floats(graphs)
    agree(made.model(made.conv(made.input(1, 21, 6, 6), 30, (3, 2), group=3)), SMALL)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_products(graphs, config) -> None:
    made = Floats(graphs)
    x = made.conv(made.input(3, 4, 5, 6), 6)
    flat = made.node("Flatten", x)
    y = made.node("Gemm", flat, made.weights(72, 21), made.weights(21))
    z = made.node("Clip", made.node("Gemm", y, made.weights(9, 21), transB=1), made.number(np.float32(-1)))
    agree(made.model(made.node("MatMul", z, made.weights(9, 33))), config)


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_two_operands(graphs, op) -> None:
    made = Floats(graphs)
    a, b, c = made.input(2, 6, 5, 7), made.input(2, 6, 5, 7), made.input(1, 6, 1, 1)
    y = made.node("Relu", made.node(op, a, b))
    z = made.node(op, c, y)
    w = made.node(op, made.weights(6, 1, 1), z)
    v = made.node(
        "Clip", made.node(op, w, made.number(np.float32(0.7))), made.number(np.float32(-2)), made.number(np.float32(3))
    )
    agree(made.model(y, z, w, v), ODD)


def test_limits_by_themselves(graphs) -> None:
    """A Relu whose input is used elsewhere, too, or is not made on the machine."""
    made = Floats(graphs)
    x = made.input(2, 6, 5, 7)
    y = made.node("Relu", x)
    z = made.conv(y, 6, (1, 1))
    limits = [made.number(np.float32(limit)) for limit in (-0.5, 0.25)]
    agree(made.model(y, z, made.node("Clip", z, *limits), made.node("Relu", z)), SMALL)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_pools(graphs, config) -> None:
    made = Floats(graphs)
    x = made.input(2, 9, 17, 23)
    outputs = [
        made.node("MaxPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        made.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        made.node("AveragePool", x, kernel_shape=[2, 3], pads=[1, 1, 0, 1], count_include_pad=1),
        made.node("GlobalAveragePool", x),  # more than a window
        made.node("GlobalAveragePool", made.node("MaxPool", x, kernel_shape=[5, 5], strides=[5, 5])),
    ]
    agree(made.model(*outputs), config)


def test_movement(graphs) -> None:
    made = Floats(graphs)
    x, y = made.input(1, 8, 6, 5), made.input(1, 3, 6, 5)
    pads = made.number(np.array([0, 0, 2, 1, 0, 0, 0, 3]))
    outputs = [
        made.node("Concat", x, y, axis=1),
        made.node("Concat", y, x, axis=1),
        *made.parts(x, (4, 3, 1), 1),
        made.node("Slice", x, *(made.number(np.array([part])) for part in (3, 8, 1))),
        made.node("Concat", x, x, axis=2),
        made.node("Pad", x, pads, made.number(np.float32(-1.5))),
        made.node("Slice", x, *(made.number(np.array(part)) for part in ([4, 1], [8, 5], [1, 2]))),
        *made.parts(x, (4, 4), 1),
        *made.parts(x, (1, 5), 2),
        made.node("Resize", y, "", made.number(np.array([1, 1, 2, 3], np.float32)), mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    ]  # fmt: skip
    agree(made.model(*outputs), SMALL)


def test_transposed_convolutions(graphs) -> None:
    made = Floats(graphs)
    x = made.input(1, 8, 6, 5)
    first = made.node("ConvTranspose", x, made.weights(8, 4, 3, 3), made.weights(4), strides=[2, 2], pads=[1, 1, 1, 1])
    outputs = [
        made.node("Relu", first),
        made.node("ConvTranspose", x, made.weights(8, 4, 2, 3), group=2, strides=[2, 3]),
        made.node("ConvTranspose", x, made.weights(8, 1, 3, 3), group=8, strides=[2, 1], output_padding=[1, 0]),
        made.node("ConvTranspose", x, made.weights(8, 6, 3, 2), dilations=[2, 1], pads=[1, 0, 2, 1]),
    ]
    session = agree(made.model(*outputs), SMALL)
    assert len(session.programs) == 1


def test_what_stays(graphs) -> None:
    """A function that no straight lines come near, and an operator that is none."""
    for op, problem in (
        ("Sin", "256 straight lines do not come near it: the nearest ones are too far away at "),
        ("Exp", "256 straight lines do not come near it: it is inf at 89"),
        (
            "LpNormalization",
            "operator LpNormalization is not supported in bf16; supported are Add, Attention, AveragePool",
        ),
    ):
        made = Floats(graphs)
        y = made.conv(made.input(1, 4, 8, 8), 6)
        z = made.conv(made.node(op, y), 5)
        session = agree(made.model(z), SMALL, stays=(op,), rare=False)
        assert len(session.programs) == 2
        (reason,) = session.offload.reasons
        assert reason.reason.startswith(problem)
    made = Floats(graphs)
    outputs = [made.node(op, made.input(1, 8)) for op in ("Sigmoid", "Softmax")]
    found = check_model(made.model(*outputs), replace(SMALL, softmax_cycles=0)).partition.reasons
    assert [one.reason for one in found] == [
        "a function of one element takes an operation that is not there with softmax_cycles = 0",
        "a softmax takes operations that are not there with softmax_cycles = 0",
    ]


# ---- functions, softmax and normalisations

FUNCTIONS = ("Sigmoid", "Tanh", "Erf", "Gelu", "HardSwish", "Elu", "Softplus", "LeakyRelu", "Mish", "Abs", "Neg")


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_functions(graphs, config) -> None:
    """Alone, behind convolutions, of which they take the tiles, and in chains of several operators."""
    made = Floats(graphs, 5)
    x = made.input(1, 6, 9, 7)
    y = made.conv(x, 10)
    outputs = [made.node(op, x) for op in FUNCTIONS] + [made.node("Gelu", made.conv(x, 7), approximate="tanh")]
    outputs.append(made.conv(made.node("Mul", y, made.node("Sigmoid", y)), 3))
    half, one, root = (made.number(np.float32(value)) for value in (0.5, 1, np.sqrt(2)))
    z = made.conv(x, 5)
    bell = made.node("Add", made.node("Erf", made.node("Div", z, root)), one)
    outputs.append(made.node("Mul", made.node("Mul", z, bell), half))
    session = agree(made.model(*outputs), config)
    assert not session.offload.fallback and len(session.programs) == 1


def test_what_a_chain_takes(graphs) -> None:
    """No operator whose result somebody else reads, and none that a convolution would take as its limit."""
    made = Floats(graphs)
    y = made.conv(made.input(1, 4, 8, 8), 6)
    limited = made.node("Relu", y)
    outputs = [made.node("Tanh", limited)]
    shared = made.node("Mul", y, made.number(np.float32(3)))
    outputs += [made.node("Sigmoid", shared), shared]
    session = agree(made.model(*outputs), SMALL)
    assert session.compilation is not None
    made_of = {tuple(one.op for one in layer.sources) for layer in session.compilation.graphs[0].operations}
    assert made_of == {("Conv",), ("Tanh", "Relu"), ("Sigmoid",), ("Mul",)}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    "shape", [(1, 5, 1), (2, 37, 7), (1, 1, 50), (3, 4, 33), (1, 70, 128), (2, 3, 5, 300)], ids=str
)
def test_softmax(graphs, config, shape) -> None:
    made = Floats(graphs, 3)
    x = made.input(*shape)
    model = made.model(made.node("Softmax", x, axis=-1))
    if config is ODD and shape[-1] == 300:
        (reason,) = check_model(model, config).partition.reasons
        assert reason.reason.startswith("300 numbers make 43 partial sums, and there is room for 30: use a config")
        return
    session = agree(model, config)
    assert not session.offload.reasons


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    "shape", [(1, 5, 1), (2, 37, 7), (1, 1, 50), (3, 4, 33), (1, 70, 128), (2, 3, 5, 300)], ids=str
)
def test_normalization(graphs, config, shape) -> None:
    made = Floats(graphs, 4)
    x, scale, bias = made.input(*shape), made.weights(shape[-1]), made.weights(shape[-1])
    outputs = [
        made.node("LayerNormalization", x, scale, bias, epsilon=1e-3),
        made.node("LayerNormalization", x, scale),
    ]
    session = agree(made.model(*outputs), config)
    assert not session.offload.reasons


def test_masked_and_extreme_rows(graphs) -> None:
    """Softmax of rows with -infinity, of equal numbers, of one that is far above the others, and of huge ones."""
    made = Floats(graphs)
    x = made.input(1, 6, 40)
    session = Session(made.model(made.node("Softmax", x, axis=-1)), SMALL, capture=True)
    rows = np.random.default_rng(3).standard_normal((1, 6, 40)).astype(np.float32)
    rows[0, 0, 7:] = -np.inf
    rows[0, 1] = 2.5
    rows[0, 2, 11] = 1000
    rows[0, 3] *= 1e30
    rows[0, 4, ::2] = -3e38
    inputs = {x: rows}
    outputs = session.run(inputs)
    assert compare_floats(session, inputs, outputs).mismatches == 0
    (found,) = outputs.values()
    assert (found[0, 0, 7:] == 0).all() and np.allclose(found.sum(axis=-1), 1, atol=0.01)
    assert (found[0, 1] == np.float32(0.025)).all() or np.abs(found[0, 1] - 0.025).max() < 2e-4
    assert found[0, 2, 11] == 1 and found[0, 2].sum() == 1 and found[0, 3].max() == 1


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_normalization_without_mean(config) -> None:
    scale = np.linspace(-2, 3, 40).astype(np.float32)
    node = helper.make_node("RMSNormalization", ["x", "scale"], ["y"], name="n", epsilon=1e-6)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 7, 40]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", info[:1], info[1:], [numpy_helper.from_array(scale, "scale")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    assert not agree(model, config).offload.reasons


@pytest.mark.parametrize("mode", ["CRD", "DCR", None])
def test_space_to_depth(mode: str | None) -> None:
    """Channels before blocks, or blocks before channels, as operator set 28 has both."""
    options = {} if mode is None else {"mode": mode}
    node = helper.make_node("SpaceToDepth", ["r"], ["y"], name="n", blocksize=2, **options)
    shapes = {"x": [1, 8, 6, 4], "y": [1, 32, 3, 2]}
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["r"], name="m"), node], "g", info[:1], info[1:])
    opset = 13 if mode is None else 28
    session = agree(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), SMALL)
    x = np.arange(192, dtype=np.float32).reshape(1, 8, 6, 4)
    blocks = x.reshape(8, 3, 2, 2, 2).transpose((0, 2, 4, 1, 3) if mode == "CRD" else (2, 4, 0, 1, 3))
    assert np.array_equal(session.run({"x": x})["y"], blocks.reshape(1, 32, 3, 2))
    assert not session.offload.reasons


def test_a_long_chain() -> None:
    """As many operators as a path may have, one after the other."""
    nodes = [helper.make_node("Tanh", [f"v{index}"], [f"v{index + 1}"], name=f"n{index}") for index in range(1200)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("v0", "v1200")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert not check_model(model, SMALL).partition.reasons
