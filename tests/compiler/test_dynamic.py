"""MatMulInteger and ConvInteger: sums of 32 bits, of any zero points, equal to ONNX Runtime's."""

import secrets
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS
from npukit.isa.descriptors import decode_descriptor
from npukit.isa.instructions import Load, Matrix, Memory, Operation, Vector
from npukit.isa.program import Program
from npukit.sim.int8_datapath import Int8Datapath
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
        ("points of rows", "it is not one number"),
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


def simple(op: str = "MatMulInteger", zero: str = "", **change: Any) -> onnx.ModelProto:
    """A small product of uint8 numbers; `change`: shapes of x, w and y, names of the node and of initializers."""
    convolution = op == "ConvInteger"
    x = change.get("x", [1, 3, 9, 9] if convolution else [5, 8])
    w = change.get("w", [4, 3, 3, 3] if convolution else [8, 6])
    weights = np.random.default_rng(0).integers(-128, 128, w).astype(np.int8)
    constants = [numpy_helper.from_array(weights, change.get("weights", "w"))]
    names = ["x", change.get("weights", "w")]
    inputs = [helper.make_tensor_value_info("x", change.get("type", TensorProto.UINT8), x)]
    if zero == "input":
        inputs.append(helper.make_tensor_value_info("z", TensorProto.UINT8, []))
    elif zero:
        constants.append(numpy_helper.from_array(np.array(int(zero), np.uint8), "z"))
    if zero:
        names.append("z")
    nodes = [helper.make_node(op, names, ["y"], "product", **change.get("attributes", {})), *change.get("nodes", [])]
    result = helper.make_tensor_value_info("y", TensorProto.INT32, change.get("y"))
    graph = helper.make_graph(nodes, "g", inputs, [result, *change.get("results", [])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model) if change.get("y") is None else model


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
@pytest.mark.parametrize("zero", ["", "0", "128", "input"])
def test_a_machine_of_floats_leaves_them_as_they_are(op: str, zero: str) -> None:
    for kind in (TensorProto.UINT8, TensorProto.INT8) if zero in ("", "0") else (TensorProto.UINT8,):
        model = simple(op, zero if kind == TensorProto.UINT8 else "", type=kind)
        partition = check_model(model, PRESETS["bf16-4x4"]).partition
        assert partition.nodes_total == 1 and not partition.subgraphs
        assert "--config int8-4x4" in partition.suggestion
        assert partition.fallback[0].reason.startswith("the configuration computes bf16")


def test_a_vector_stays() -> None:
    model = simple(zero="input", x=[8])
    assert check_model(model, PRESETS["int8-4x4"]).partition.nodes_total == 1
    inputs = {"x": np.arange(8, dtype=np.uint8), "z": np.array(3, np.uint8)}
    assert Session(model, PRESETS["int8-4x4"]).run(inputs)["y"].shape == (6,)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "y: sums of weights"},
        {"nodes": [helper.make_node("Abs", ["y"], ["a"], "product: difference")],
         "results": [helper.make_tensor_value_info("a", TensorProto.INT32, [5, 6])]},
        {"nodes": [helper.make_node("Abs", ["y"], ["y: products"], "abs")],
         "results": [helper.make_tensor_value_info("y: products", TensorProto.INT32, [5, 6])]},
    ],
)  # fmt: skip
def test_names_that_are_taken(change: dict[str, Any]) -> None:
    model = simple(zero="input", **change)
    inputs = {"x": integers(np.random.default_rng(1), np.uint8, (5, 8)), "z": np.array(3, np.uint8)}
    agree(model, inputs, PRESETS["int8-4x4"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"w": [4, 2, 3, 3]}, "do not fit 3 input channels"),
        ({"attributes": {"kernel_shape": [2, 2]}}, "kernel_shape"),
        ({"w": [4, 3, 11, 11]}, "does not make"),
        ({"attributes": {"group": 0}}, "0 groups"),
    ],
)
def test_what_makes_no_sense_gets_a_reason(change: dict[str, Any], reason: str) -> None:
    """ONNX's own inference says nothing where the result's shape is declared."""
    try:
        partition = check_model(simple("ConvInteger", "input", y=[1, 4, 7, 7], **change), PRESETS["int8-4x4"]).partition
    except ModelError:
        return  # ONNX's inference, or ONNX Runtime, refuses the model itself
    assert any(reason in one.reason for one in partition.fallback), partition.fallback


def test_borders_take_no_room() -> None:
    """What a zero point adds at the border of an image is kept once for each kind of row and column."""
    model = simple("ConvInteger", "input", x=[1, 3, 300, 200], attributes={"pads": [1, 1, 1, 1]})
    inputs = {"x": integers(np.random.default_rng(2), np.uint8, (1, 3, 300, 200)), "z": np.array(77, np.uint8)}
    session = agree(model, inputs, PRESETS["int8-16x16"])
    assert max(len(one.raw_data) for one in session.artifact.graph.initializer) < 8 * 301


def test_a_program_by_itself(tmp_path: Path) -> None:
    model = simple(zero="128")
    inputs = {"x": integers(np.random.default_rng(3), np.uint8, (5, 8))}
    session = Session(model, PRESETS["int8-4x4"])
    (program,) = session.programs.values()
    file = tmp_path / "bare.npu"
    file.write_bytes(program.to_bytes())
    np.testing.assert_array_equal(Session(file).run(inputs)["y"], session.run(inputs)["y"])


@pytest.mark.parametrize(("op", "zero"), [("MatMulInteger", "128"), ("MatMulInteger", "5"), ("ConvInteger", "5")])
def test_a_wrong_sum_is_the_accelerators(op: str, zero: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit of one byte of a sum: the instruction that wrote it is named, also where the host adds to the sum."""
    model = simple(op, zero)
    session = Session(model, PRESETS["int8-4x4"], capture=True)
    compute = Int8Datapath.compute

    def wrong(self: Int8Datapath, vector: Vector, *operands: Any) -> NDArray:
        result = compute(self, vector, *operands)
        if vector.operation is Operation.PART and operands[2]["part"] == 2:
            result = result.copy()
            result[-1, -1, -1, 0] ^= 4
        return result

    monkeypatch.setattr(Int8Datapath, "compute", wrong)
    shape = (5, 8) if op == "MatMulInteger" else (1, 3, 9, 9)
    inputs = {"x": integers(np.random.default_rng(4), np.uint8, shape)}
    found = compare(session, Oracle(model), inputs, session.run(inputs)).first_mismatch
    assert found is not None and found["op"] == op
    (program,) = session.programs.values()
    one = program.instructions[found["instruction"]]
    assert isinstance(one, Vector) and one.operation is Operation.PART
    part = decode_descriptor(program.config, Operation.PART, _parameters(program, one))["part"]
    assert part == 2


def _parameters(program: Program, vector: Vector) -> NDArray[np.uint32]:
    """The descriptor of an instruction, from the LOAD that brings it."""
    loads = [one for one in program.instructions if isinstance(one, Load) and one.memory is Memory.PAR]
    load = [one for one in loads if one.offset == vector.parameters][-1]
    start = load.dram * program.config.word_bytes
    raw = program.constants[start : start + program.config.wide_word_bytes]
    return np.frombuffer(raw, np.uint32).reshape(1, -1)
