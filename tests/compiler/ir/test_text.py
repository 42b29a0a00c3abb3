"""The IR as text: what is printed is what is read, and what is no graph is refused where it goes wrong."""

import os
import secrets
from dataclasses import replace

import numpy as np
import pytest
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import OPERATIONS
from npukit.compiler.ir.parser import GraphSyntaxError, parse_graph
from npukit.compiler.ir.printer import print_graph
from npukit.compiler.ir.verify import verify_graph
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS

from npukit import zoo
from tests.ir_graphs import random_graph

COUNT = 500


def same(one: Graph, other: Graph) -> None:
    """Equal, constants by their elements."""
    empty = {"constants": {}}
    assert replace(one, **empty) == replace(other, **empty)
    assert one.constants.keys() == other.constants.keys()
    for name, constant in one.constants.items():
        found = other.constants[name]
        assert found.tensor == constant.tensor and found.data.dtype == constant.data.dtype
        assert found.data.shape == constant.data.shape and found.data.tobytes() == constant.data.tobytes()


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_random_graphs(kind: str) -> None:
    """Every operation comes up, each graph holds, and its text gives it back."""
    first = 1_000_000 if kind == "fixed" else secrets.randbelow(10**6)
    count = int(os.environ.get("IR_GRAPHS", COUNT))
    print(f"seeds {first} to {first + count - 1}")
    seen = set()
    for seed in range(first, first + count):
        graph = random_graph(seed)
        verify_graph(graph)
        seen.update(type(operation) for operation in graph.operations)
        text = print_graph(graph)
        found = parse_graph(text)
        same(graph, found)
        assert print_graph(found) == text, seed
        same(graph, parse_graph(print_graph(graph, data=False), graph.constants))
    assert count < COUNT or seen == set(OPERATIONS.values())


# bert-base-128 has the operations of bert-tiny, with a hundred times as many numbers
@pytest.mark.parametrize("name", [name for name in zoo.names() if name != "bert-base-128"])
@pytest.mark.parametrize("stage", ["lower", "legalise", "fold"])
def test_zoo(name: str, stage: str) -> None:
    config = PRESETS["int8-16x16" if "int8" in zoo.ZOO[name].precisions else "bf16-16x16"]
    for graph in compile_model(zoo.load(name), config, stop_after=stage).graphs:
        same(graph, parse_graph(print_graph(graph)))


TEXT = """graph "g" {
  input "x": int8[1, 3, 4, 4] quantized {"scale": [0.5], "zero_point": [3]}
  constant "w": int8[2, 3, 1, 1] quantized {"scale": [0.1, 0.2], "zero_point": [0, 0], "axis": 0}
  "y" = convolution(input="x", weights="w") {"strides": [1, 1], "pads": [0, 0, 0, 0]}: uint8[1, 2, 4, 4] quantized {"scale": [0.25], "zero_point": [128]} from "Conv" "c"
  output "y"
}
data "w" = "AQIDBAUG"
"""  # noqa: E501


def test_written_by_hand() -> None:
    graph = parse_graph(TEXT)
    verify_graph(graph)
    assert print_graph(graph) == TEXT
    assert graph.constants["w"].data.reshape(-1).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('graph "g"', 'grape "g"', "line 1, column 6: expected 'graph'"),
        (
            "input",
            "inputs",
            "line 2, column 9: expected a line of a graph: .*, output, alias, group; not 'inputs'",
        ),
        ("int8[1, 3, 4, 4]", "int4[1, 3, 4, 4]", "expected a number format: int8, uint8, .*; not 'int4'"),
        ("int8[1, 3, 4, 4]", 'int8[1, "3", 4, 4]', 'expected a shape as int, not "3"'),
        ('"scale": [0.5]', '"scales": [0.5]', "expected quantized with scale, zero_point, axis"),
        ('"scale": [0.5], ', "", "expected quantized with scale, zero_point, axis"),
        ("convolution", "convolve", "expected an operation: .*; not 'convolve'"),
        ('input="x", ', "", "operands and attributes of convolution; input is missing or too much"),
        ('"strides"', '"stride"', "operands and attributes of convolution; stride, strides is missing or too much"),
        ('"strides": [1, 1]', '"strides": [1, 1, 1]', "expected strides as tuple, not"),
        ('"pads"', '"rounding": "up", "pads"', 'expected rounding as Rounding, not "up"'),
        (' from "Conv" "c"', "", "line 5, column 9: expected 'from'"),
        ('  "y" =', '  "x" =', "expected 'x' once; it is declared above"),
        ('output "y"', "output y", "line 5, column 10: expected a name in quotes"),
        ('"AQIDBAUG"', '"AQIDBAU"', "line 7, column 21: expected base64"),
        ('"AQIDBAUG"', '"AQIDBA=="', "expected elements for 'w' of shape .2, 3, 1, 1., of 4 bytes"),
        ('data "w" = "AQIDBAUG"', "", "expected the data of constant 'w'"),
        ("}\ndata", "data", "expected a line of a graph"),
    ],
)
def test_what_is_no_graph(old: str, new: str, message: str) -> None:
    with pytest.raises(GraphSyntaxError, match=message):
        parse_graph(TEXT.replace(old, new, 1))


def test_any_damage_is_an_error_of_syntax() -> None:
    """Text with a character changed or cut off is a graph, or refused as one; there is no other exception."""
    seed = secrets.randbelow(10**6)
    print("seed", seed)
    random = np.random.default_rng(seed)
    text = print_graph(random_graph(7))
    for _ in range(2000):
        at = int(random.integers(len(text)))
        damaged = (
            text[:at] if random.random() < 0.2 else text[:at] + chr(int(random.integers(32, 127))) + text[at + 1 :]
        )
        try:
            parse_graph(damaged)
        except GraphSyntaxError as error:
            assert str(error).startswith("line ")
