"""Inputs of a seed: of the right kind, and indices within what they index."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from npukit.errors import UsageError
from npukit.sample_inputs import random_inputs


def _embedding(rows: int, axis: int = 0):
    table = np.zeros((rows, 4) if axis == 0 else (4, rows), np.float32)
    nodes = [
        helper.make_node("Reshape", ["ids", "shape"], ["flat"], "reshape"),
        helper.make_node("Gather", ["table", "flat"], ["found"], "gather", axis=axis),
        helper.make_node("Cast", ["mask"], ["floats"], "cast", to=1),
    ]
    inputs = [helper.make_tensor_value_info("ids", 7, [2, 500]), helper.make_tensor_value_info("mask", 6, [2, 500])]
    outputs = [helper.make_tensor_value_info("found", 1, None), helper.make_tensor_value_info("floats", 1, None)]
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([-1]), "shape")]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, constants))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_indices_lie_within_what_they_index(axis) -> None:
    model = _embedding(7, axis)
    arrays = random_inputs(model, list(model.graph.input), 3)
    assert arrays["ids"].dtype == np.int64 and set(arrays["ids"].reshape(-1)) == set(range(7))
    assert arrays["mask"].dtype == np.int32 and set(arrays["mask"].reshape(-1)) == {0, 1}
    again = random_inputs(model, list(model.graph.input), 3)
    assert all((again[name] == arrays[name]).all() for name in arrays)


def test_numbers_of_every_kind() -> None:
    kinds = {"f": 1, "half": 10, "wide": 11, "i8": 3, "u8": 2, "flag": 9}
    inputs = [helper.make_tensor_value_info(name, kind, [3000]) for name, kind in kinds.items()]
    model = helper.make_model(helper.make_graph([], "g", inputs, []))
    arrays = random_inputs(model, inputs, 1)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "f": "float32", "half": "float16", "wide": "float64", "i8": "int8", "u8": "uint8", "flag": "bool",
    }  # fmt: skip
    assert (arrays["i8"].min(), arrays["i8"].max(), arrays["u8"].max()) == (-128, 127, 255)
    text = helper.make_tensor_value_info("words", 8, [2])
    with pytest.raises(UsageError, match=r"input words is string, for which there are no random values"):
        random_inputs(model, [text], 1)
