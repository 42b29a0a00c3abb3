"""MatMulInteger and ConvInteger: sums of 32 bits, of any zero points, equal to ONNX Runtime's."""

import secrets
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Matrix, Operation, Vector
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npukit import Session
from npukit.compare import Oracle, compare

_KINDS: dict[Any, int] = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
_CONFIGS = [PRESETS["int8-4x4"], PRESETS["int8-16x16"]]


def integers(random: np.random.Generator, dtype: Any, shape: Any) -> NDArray:
    """Any numbers of a type."""
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max + 1, shape).astype(dtype)


class Product:
    """A model of one node, and inputs for it."""

    def __init__(self, random: np.random.Generator, shape: list[int], weights: tuple[int, ...], axis: int) -> None:
        self.random = random
        self.x_type, self.w_type = ((np.uint8, np.int8)[random.integers(2)] for _ in range(2))
        self.constants = [numpy_helper.from_array(integers(random, self.w_type, weights), "w")]
        self.inputs = {"x": integers(random, self.x_type, shape)}
        self.names = ["x", "w", "", ""]
        kind = random.choice(["input", "constant", "none"])
        if kind == "input":
            self.inputs["z"] = integers(random, self.x_type, (1,) if random.random() < 0.3 else ())
        elif kind == "constant":
            self.constants.append(numpy_helper.from_array(integers(random, self.x_type, ()), "z"))
        if kind != "none":
            self.names[2] = "z"
        if random.random() < 0.6:
            several = axis == 1 and random.random() < 0.5
            points = integers(random, self.w_type, (weights[axis],) if several else ())
            self.constants.append(numpy_helper.from_array(points, "wz"))
            self.names[3] = "wz"

    def model(self, op: str, **attributes: Any) -> onnx.ModelProto:
        """The node's model; shapes are inferred."""
        names = self.names
        while not names[-1]:
            names = names[:-1]
        values = [
            helper.make_tensor_value_info(name, _KINDS[array.dtype.type], array.shape)
            for name, array in self.inputs.items()
        ]
        result = helper.make_tensor_value_info("y", TensorProto.INT32, None)
        node = helper.make_node(op, names, ["y"], "product", **attributes)
        graph = helper.make_graph([node], "g", values, [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def agree(model: onnx.ModelProto, inputs: dict[str, NDArray], config: Any) -> Session:
    """The products run on the accelerator, and every number is ONNX Runtime's."""
    session = Session(model, config, capture=True)
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert found.mismatches == 0 and found.elements > 0, found.first_mismatch
    assert session.offload.macs == session.offload.macs_total > 0
    parts = [
        one for program in session.programs.values() for one in program.instructions
        if isinstance(one, Vector) and one.operation is Operation.PART
    ]  # fmt: skip
    assert len(parts) % 4 == 0 and parts
    return session


SEEDS = [*range(6), pytest.param(secrets.randbelow(1 << 30), id="fresh")]


@pytest.mark.parametrize("seed", SEEDS)
def test_products_of_matrices(seed: int) -> None:
    print("seed", seed)
    random = np.random.default_rng([seed, 0])
    for _ in range(3):
        rows = [int(size) for size in random.integers(1, 9, random.integers(1, 4))]
        inner, outputs = (int(size) for size in random.integers(1, 70, 2))
        product = Product(random, [*rows, inner], (inner, outputs), 1)
        agree(product.model("MatMulInteger"), product.inputs, _CONFIGS[random.integers(2)])


@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions(seed: int) -> None:
    print("seed", seed)
    random = np.random.default_rng([seed, 1])
    for _ in range(3):
        axes, groups = int(random.integers(1, 3)), int(random.choice([1, 1, 2, 4]))
        channels, outputs = groups * int(random.integers(1, 9)), groups * int(random.integers(1, 20))
        if random.random() < 0.2:
            groups, outputs = channels, channels
        kernel = [int(size) for size in random.integers(1, 5, axes)]
        sizes = [int(size) for size in random.integers(9, 20, axes)]
        shape = [int(random.choice([1, 1, 2, 3])), channels, *sizes]
        product = Product(random, shape, (outputs, channels // groups, *kernel), 0)
        model = product.model(
            "ConvInteger", group=groups, strides=random.integers(1, 3, axes).tolist(),
            pads=random.integers(0, 3, 2 * axes).tolist(), dilations=random.integers(1, 3, axes).tolist(),
        )  # fmt: skip
        agree(model, product.inputs, _CONFIGS[random.integers(2)])


def test_rows_are_places() -> None:
    """197 rows of a matrix are places under the same weights, in each of the four parts of their sums."""
    random = np.random.default_rng(3)
    product = Product(random, [197, 192], (192, 64), 1)
    session = agree(product.model("MatMulInteger"), product.inputs, PRESETS["int8-16x16"])
    (program,) = session.programs.values()
    steps = [one for one in program.instructions if isinstance(one, Matrix)]
    assert min(one.height * one.width for one in steps) > 16


def test_sums_that_wrap() -> None:
    """More products of the largest numbers than 31 bits hold."""
    rows = np.full((1, 1 << 18), 255, np.uint8)
    weights = np.full((1 << 18, 1), 255, np.uint8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"], "product")
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, rows.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    agree(model, {"x": rows}, PRESETS["int8-16x16"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("weights", "weights w are not a constant"),
        ("point of the weights", "the zero point of w is not constant"),
        ("points of rows", "its zero point is not one number"),
    ],
)
def test_what_stays(change: str, reason: str) -> None:
    inputs = {"x": [5, 8]}
    constants = [numpy_helper.from_array(np.ones((8, 6), np.int8), "w")]
    names = ["x", "w", "z", "wz"]
    if change == "weights":
        inputs["w"], constants = [8, 6], []
    inputs["z"] = [5] if change == "points of rows" else []
    if change == "point of the weights":
        inputs["wz"] = []
    else:
        constants.append(numpy_helper.from_array(np.array(0, np.int8), "wz"))
    values = [helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name, shape in inputs.items()]
    node = helper.make_node("MatMulInteger", names, ["y"], "product")
    result = helper.make_tensor_value_info("y", TensorProto.INT32, [5, 6])
    model = helper.make_model(
        helper.make_graph([node], "g", values, [result], constants), opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )  # fmt: skip
    (found,) = check_model(model, PRESETS["int8-4x4"]).partition.fallback
    assert found.op == "MatMulInteger" and reason in found.reason


def test_a_machine_of_floats_leaves_them_as_they_are() -> None:
    random = np.random.default_rng(5)
    product = Product(random, [5, 8], (8, 6), 1)
    model = product.model("MatMulInteger")
    partition = check_model(model, PRESETS["bf16-4x4"]).partition
    assert partition.nodes_total == 1 and not partition.subgraphs
    assert "--config int8-4x4" in partition.suggestion
