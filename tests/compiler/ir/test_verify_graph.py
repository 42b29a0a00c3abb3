"""What the IR's verifier refuses: for each of its rules, a graph that breaks it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.parser import parse_graph
from npukit.compiler.ir.tensor import Constant
from npukit.compiler.ir.verify import InvalidGraph, verify_graph

Q = 'quantized {"scale": [0.5], "zero_point": [3]}'
LINES = {
    "convolution": (
        f'input "x": int8[1, 4, 5, 5] {Q}\nconstant "w": int8[6, 2, 3, 3] {Q}\nconstant "b": int32[6]\n'
        '"y" = convolution(input="x", weights="w", bias="b") {"strides": [2, 1], "pads": [1, 1, 1, 1], "groups": 2}: '
        f'uint8[1, 6, 3, 5] {Q} from "Conv" "n"'
    ),
    "depthwise": (
        f'input "x": int8[1, 4, 5, 5] {Q}\nconstant "w": int8[4, 1, 3, 3] {Q}\n'
        '"y" = depthwise_convolution(input="x", weights="w") {"strides": [1, 1], "pads": [0, 0, 0, 0]}: '
        f'int8[1, 4, 3, 3] {Q} from "Conv" "n"'
    ),
    "transposed": (
        f'input "x": int8[1, 4, 5, 5] {Q}\nconstant "w": int8[4, 3, 3, 3] {Q}\n'
        '"y" = transposed_convolution(input="x", weights="w") {"strides": [2, 1], "pads": [0, 0, 0, 0], "groups": 2}: '
        f'int8[1, 6, 11, 7] {Q} from "ConvTranspose" "n"'
    ),
    "dilate": (
        f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = dilate(input="x") {{"factors": [2, 3]}}: int8[1, 4, 9, 13] {Q} '
        'from "ConvTranspose" "n"'
    ),
    "fully_connected": (
        f'input "x": int8[3, 4] {Q}\nconstant "w": int8[4, 7] {Q}\n'
        f'"y" = fully_connected(input="x", weights="w"): int8[3, 7] {Q} from "Gemm" "n"'
    ),
    "matrix_product": (
        f'input "x": int8[2, 3, 4] {Q} channels 2\ninput "z": int8[4, 7] {Q}\n'
        f'"y" = matrix_product(left="x", right="z"): int8[2, 3, 7] {Q} channels 2 from "MatMul" "n"'
    ),
    "softmax": f'input "x": int8[3, 4] {Q}\n"y" = softmax(input="x"): int8[3, 4] {Q} from "Softmax" "n"',
    "normalization": (
        f'input "x": int8[3, 4] {Q}\nconstant "s": float32[4]\nconstant "b": float32[4]\n'
        f'"y" = normalization(input="x", scale="s", bias="b") {{"epsilon": 0.5}}: uint8[3, 4] {Q} from "N" "n"'
    ),
    "add": (
        f'input "x": int8[1, 4, 5, 5] {Q}\nconstant "c": uint8[4, 1, 1] {Q}\n'
        f'"y" = add(left="x", right="c"): int8[1, 4, 5, 5] {Q} from "Add" "n"'
    ),
    "lookup": (
        f'input "x": int8[1, 4] {Q}\nconstant "t": uint8[256] {Q}\n'
        f'"y" = lookup(input="x", table="t"): uint8[1, 4] {Q} from "Tanh" "n"'
    ),
    "pad": (
        f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = pad(input="x") {{"before": [0, 0, 1, 2], "after": [0, 0, 0, -1], '
        f'"value": 3}}: int8[1, 4, 6, 6] {Q} from "Pad" "n"'
    ),
    "slice": (
        f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = slice(input="x") {{"starts": [0, 1, 2, 3]}}: int8[1, 3, 3, 2] {Q} '
        'from "Slice" "n"'
    ),
    "concatenation": (
        f'input "x": int8[1, 4, 5, 5] {Q}\nconstant "t": int8[256] {Q}\n"y" = concatenation(inputs=["x", "x"], '
        f'tables=[null, "t"]) {{"axis": 1}}: int8[1, 8, 5, 5] {Q} from "Concat" "n"'
    ),
    "repeat": (
        f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = repeat(input="x") {{"factors": [2, 3]}}: int8[1, 4, 10, 15] {Q} '
        'from "Resize" "n"'
    ),
    "max_pool": (
        f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = max_pool(input="x") {{"strides": [1, 1], "pads": [0, 0, 0, 0], '
        f'"kernel": [2, 2]}}: int8[1, 4, 4, 4] {Q} from "MaxPool" "n"'
    ),
    "global_average_pool": (
        f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = global_average_pool(input="x"): int8[1, 4, 1, 1] {Q} from "G" "n"'
    ),
    "reshape": f'input "x": int8[1, 4, 5, 5] {Q}\n"y" = reshape(input="x"): int8[1, 100] {Q} from "Reshape" "n"',
    "reinterpret": (
        f'input "x": int8[1, 4] {Q}\n"y" = reinterpret(input="x"): int8[1, 4] quantized '
        '{"scale": [2.0], "zero_point": [0]} from "Add" "n"'
    ),
    "clamp": (
        'input "x": bfloat16[1, 4]\n"y" = clamp(input="x") {"limits": [0.0, Infinity]}: bfloat16[1, 4] from "Relu" "n"'
    ),
}


def graph_of(text: str) -> Graph:
    """A graph of those lines, its constants made of zeros."""
    lines = f'graph "g" {{\n{text}\noutput "y"\n}}'
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith("constant")]
    unknown: Any = {name: Constant(None, np.zeros(0)) for name in names}  # type: ignore[arg-type]
    graph = parse_graph(lines, unknown)
    constants = {
        name: Constant(one.tensor, np.zeros(one.tensor.shape, one.tensor.format.storage))
        for name, one in graph.constants.items()
    }
    return replace(graph, constants=constants)


@pytest.mark.parametrize("name", LINES)
def test_what_holds(name: str) -> None:
    verify_graph(graph_of(LINES[name]))


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("convolution", "uint8[1, 6, 3, 5]", "uint8[1, 6, 4, 5]", "its windows reach over 9 of 7 rows"),
        ("convolution", "uint8[1, 6, 3, 5]", "uint8[2, 6, 3, 5]", "x has 1 images and y 2"),
        ("convolution", "uint8[1, 6, 3, 5]", "uint8[1, 8, 3, 5]", "its weights w are for 6 outputs of 8"),
        ("convolution", f"uint8[1, 6, 3, 5] {Q}", "bfloat16[1, 6, 3, 5]", "x is int8 and y bfloat16"),
        ("convolution", f"uint8[1, 6, 3, 5] {Q}", "uint8[1, 6, 3, 5]", "y is uint8 and its scale is False"),
        ("convolution", '"groups": 2', '"groups": 4', "6 channels in 4 groups"),
        ("convolution", '"groups": 2', '"groups": 1', "1 groups of 2 input channels, of 4"),
        ("convolution", '"strides": [2, 1]', '"strides": [0, 1]', "a kernel, stride or dilation is below 1"),
        ("convolution", "[1, 1, 1, 1]", "[1, 1, -1, 1]", "pads .* are negative"),
        ("convolution", "int32[6]", "int32[5]", "its bias b is int32"),
        ("convolution", "int32[6]", "float32[6]", "its bias b is float32"),
        ("convolution", f"int8[6, 2, 3, 3] {Q}", "int32[6, 2, 3, 3]", "its weights w are int32"),
        ("convolution", "int8[6, 2, 3, 3]", "int8[6, 2, 9]", "its weights w have 3 dimensions"),
        ("convolution", 'weights="w"', 'weights="x"', "its weights x are no constant"),
        ("convolution", 'weights="w"', 'weights="v"', "reads v before it is made"),
        (
            "convolution", f"int8[6, 2, 3, 3] {Q}",
            'int8[6, 2, 3, 3] quantized {"scale": [1.0, 1.0], "zero_point": [0, 0], "axis": 1}', "the scales of w",
        ),
        ("convolution", '"zero_point": [3]', '"zero_point": [200]', "x has a zero point that int8 has not"),
        ("convolution", '"scale": [0.5]', '"scale": [0.0]', "x has a scale that is not above 0"),
        ("convolution", '"scale": [0.5]', '"scale": [0.5, 0.5]', "x has 2 scales and 1 zero points, not 1"),
        ("convolution", "int8[1, 4, 5, 5]", "int8[1, 0, 5, 5]", "x has the shape"),
        ("convolution", "int8[1, 4, 5, 5]", "int8[1, 1, 4, 5, 5]", "2 groups of 2 input channels, of 1"),
        ("lookup", f"int8[1, 4] {Q}", f"int8[1, 4] {Q} channels 2", "has no axis 2 for its channels"),
        (
            "convolution", f"int8[6, 2, 3, 3] {Q}",
            'int8[6, 2, 3, 3] quantized {"scale": [1.0], "zero_point": [0], "axis": 4}', "w has no axis 4",
        ),
        ("depthwise", "int8[1, 4, 3, 3]", "int8[1, 8, 3, 3]", "its weights w are for 4 outputs of 8"),
        ("depthwise", "int8[4, 1, 3, 3]", "int8[4, 2, 3, 3]", "4 channels become 4"),
        ("transposed", "int8[1, 6, 11, 7]", "int8[1, 8, 11, 7]", "its weights w are for 6 outputs of 8"),
        ("transposed", "int8[4, 3, 3, 3]", "int8[5, 3, 3, 3]", "weights for 5 input channels, of 4"),
        ("transposed", '"groups": 2', '"groups": 4', "6 channels in 4 groups"),
        ("transposed", '"strides": [2, 1]', '"strides": [2, 0]', "a stride or dilation is below 1"),
        ("transposed", "[0, 0, 0, 0]", "[0, 0, 0, -1]", r"pads \[0, 0, 0, -1\] are negative"),
        ("dilate", "int8[1, 4, 9, 13]", "int8[1, 4, 10, 13]", r"becomes \[1, 4, 9, 13\], not \[1, 4, 10, 13\]"),
        ("dilate", "[2, 3]", "[0, 3]", "a factor is below 1"),
        ("fully_connected", "int8[3, 7]", "int8[2, 7]", r"\[3, 4\] becomes \[2, 7\]"),
        ("fully_connected", "int8[4, 7]", "int8[5, 7]", "weights for 5 inputs, of 4"),
        ("matrix_product", "int8[4, 7]", "int8[5, 7]", r"\[2, 3, 4\] times \[5, 7\]"),
        ("matrix_product", "int8[4, 7]", "int8[5, 4, 7]", "make no"),
        ("matrix_product", "int8[2, 3, 7]", "int8[2, 4, 7]", "make no"),
        ("matrix_product", f"int8[2, 3, 4] {Q} channels 2", f"int8[2, 3, 4] {Q}", r"along the axes \[-2, -1, -1\]"),
        ("softmax", "int8[3, 4]", "int8[3, 5]", r"becomes \[3, 4\], of"),
        ("softmax", f"int8[3, 4] {Q} from", f"uint8[3, 4] {Q} from", "int8 becomes uint8"),
        ("normalization", "uint8[3, 4]", "uint8[4, 3]", r"\[3, 4\], of \[.*\], becomes \[4, 3\]"),
        ("normalization", '"s": float32[4]', '"s": float32[3]', r"s is float32 of \[3\], for 4 channels"),
        ("normalization", '"b": float32[4]', '"b": int32[4]', r"b is int32 of \[4\], for 4 channels"),
        ("normalization", '"epsilon": 0.5', '"epsilon": -0.5', "an epsilon of -0.5"),
        ("add", "uint8[4, 1, 1]", "uint8[3, 1, 1]", "make no"),
        ("add", f"uint8[4, 1, 1] {Q}", "float32[4, 1, 1]", "constant c is float32"),
        ("lookup", "uint8[256]", "uint8[255]", "its table t is uint8"),
        ("lookup", "uint8[256]", "int8[256]", "its table t is int8"),
        ("lookup", "uint8[1, 4]", "uint8[1, 5]", r"\[1, 4\], of \[1, 4, 1\], becomes \[1, 5\]"),
        ("pad", "int8[1, 4, 6, 6]", "int8[1, 4, 6, 7]", r"5\] becomes \[1, 4, 6, 6\], not \[1, 4, 6, 7\]"),
        ("pad", '"before": [0, 0, 1, 2]', '"before": [0, 1, 2]', "not one for each dimension"),
        ("slice", '"starts": [0, 1, 2, 3]', '"starts": [0, 1, 2, 4]', "are not within"),
        ("concatenation", "int8[1, 8, 5, 5]", "int8[1, 9, 5, 5]", "its inputs have 8 along axis 1, of 9"),
        ("concatenation", '"axis": 1', '"axis": 4', "axis 4 of 4"),
        ("concatenation", '[null, "t"]', '["t"]', "not a table, or none, for each input"),
        ("repeat", "int8[1, 4, 10, 15]", "int8[1, 4, 15, 10]", r"becomes \[1, 4, 10, 15\], not \[1, 4, 15, 10\]"),
        ("max_pool", f"int8[1, 4, 4, 4] {Q}", f"uint8[1, 4, 4, 4] {Q}", "y is not quantized as x"),
        ("max_pool", "int8[1, 4, 4, 4]", "int8[1, 5, 4, 4]", "4 channels become 5"),
        ("global_average_pool", "int8[1, 4, 1, 1]", "int8[1, 4, 1, 2]", r"\[1, 4, 5, 5\] becomes \[1, 4, 1, 2\]"),
        ("reshape", "int8[1, 100]", "int8[1, 99]", r"\[1, 4, 5, 5\] becomes \[1, 99\]"),
        ("reinterpret", 'int8[1, 4] quantized {"scale": [2.0]', 'uint8[1, 4] quantized {"scale": [2.0]', "becomes"),
        ("clamp", '"x": bfloat16[1, 4]', '"x": float32[1, 4]', "x is float32"),
    ],
)  # fmt: skip
def test_what_does_not(name: str, old: str, new: str, message: str) -> None:
    assert old in LINES[name]
    with pytest.raises(InvalidGraph, match=message):
        verify_graph(graph_of(LINES[name].replace(old, new, 1)))


def test_the_graph_itself() -> None:
    graph = graph_of(LINES["convolution"])
    (operation,) = graph.operations
    x = graph.tensors["x"]
    for changes, message in (
        ({"inputs": ()}, "reads x before it is made"),
        ({"outputs": ("x", "z")}, "the output z is never made"),
        ({"operations": (operation, operation)}, "makes y, which is there already"),
        ({"operations": (replace(operation, sources=()),)}, "stands for no node"),
        ({"operations": (replace(operation, output="z"),)}, "makes z, which is no tensor"),
        ({"tensors": {**graph.tensors, "w": x}}, "w are tensors and constants"),
        ({"tensors": {**graph.tensors, "z": x}}, "x is known as z"),
        (
            {"constants": {**graph.constants, "b": Constant(graph.constants["b"].tensor, np.zeros(6))}},
            "its data float64",
        ),
    ):
        with pytest.raises(InvalidGraph, match=message):
            verify_graph(replace(graph, **changes))


def test_groups() -> None:
    lines = (
        f'input "x": int8[1, 4] {Q}\n"a" = reshape(input="x"): int8[1, 4] {Q} from "R" "1"\n'
        f'"b" = reshape(input="a"): int8[1, 4] {Q} from "R" "2"\n"y" = reshape(input="b"): int8[1, 4] {Q} from "R" "3"'
    )
    graph = graph_of(lines)
    verify_graph(replace(graph, groups=(("a", "b", "y"),)))
    for groups, message in (
        ((("a", "z"),), "z, of a group, is no operation's result"),
        ((("x", "a"),), "x, of a group, is no operation's result"),
        ((("a", "b"), ("b", "y")), "b belongs to two groups"),
        ((("a", "y"),), "a is not read by y alone"),
    ):
        with pytest.raises(InvalidGraph, match=message):
            verify_graph(replace(graph, groups=groups))
    with pytest.raises(InvalidGraph, match="a is not read by b alone"):
        verify_graph(replace(graph, outputs=("a", "y"), groups=(("a", "b"),)))
