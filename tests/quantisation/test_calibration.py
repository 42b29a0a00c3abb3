"""Samples from files: one or several in an array, one or several files, and what is refused."""

import numpy as np
import pytest
from onnx import helper

from npukit.errors import UsageError
from npukit.quantisation.calibration import random_samples, read_samples

INPUTS = [helper.make_tensor_value_info("x", 1, [2, 3, 4]), helper.make_tensor_value_info("ids", 7, [2, 3])]
MODEL = helper.make_model(helper.make_graph([], "g", INPUTS, []))


@pytest.mark.parametrize(
    ("x", "ids", "count"),
    [
        ((2, 3, 4), (2, 3), 1),
        ((5, 2, 3, 4), (5, 2, 3), 5),
        ((10, 3, 4), (10, 3), 5),
        ((10, 3, 4), (5, 2, 3), 5),
    ],
)
def test_samples_of_a_file(tmp_path, x, ids, count) -> None:
    values = np.arange(np.prod(x), dtype=np.float32), np.arange(np.prod(ids), dtype=np.int64)
    np.savez(tmp_path / "f.npz", x=values[0].reshape(x), ids=values[1].reshape(ids))
    samples = read_samples(MODEL, tmp_path / "f.npz")
    assert len(samples) == count
    assert all(one["x"].shape == (2, 3, 4) and one["ids"].shape == (2, 3) for one in samples)
    assert np.array_equal(np.concatenate([one["x"].reshape(-1) for one in samples]), values[0])
    assert np.array_equal(np.concatenate([one["ids"].reshape(-1) for one in samples]), values[1])


def test_files_of_a_folder_in_the_order_of_their_names(tmp_path) -> None:
    for name, value in (("b", 2), ("a", 1), ("c", 3)):
        np.savez(tmp_path / f"{name}.npz", x=np.full((2, 3, 4), value, np.float32), ids=np.zeros((2, 3), np.int64))
    assert [one["x"][0, 0, 0] for one in read_samples(MODEL, tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3, 4), np.float32)}, "has no array ids"),
        ({"y": np.zeros(1)}, "'y' is no input of the model; it has x, ids"),
        ({"x": np.zeros((2, 3, 4))}, "x is float64, the model's input is float32"),
        ({"x": np.zeros((2, 4, 3), np.float32)}, r"has the shape \[2, 4, 3\]; one sample has \[2, 3, 4\]"),
        ({"x": np.zeros((3, 3, 4), np.float32)}, r"has the shape \[3, 3, 4\]"),
        ({"x": np.zeros((0, 3, 4), np.float32)}, r"has the shape \[0, 3, 4\]"),
        (
            {"x": np.zeros((4, 3, 4), np.float32), "ids": np.zeros((3, 2, 3), np.int64)},
            "samples of different numbers: 2 of x, 3 of ids",
        ),
    ],
)
def test_what_is_refused(tmp_path, arrays, message) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(UsageError, match=message):
        read_samples(MODEL, tmp_path / "f.npz")


def test_a_folder_without_files(tmp_path) -> None:
    with pytest.raises(UsageError, match="has no .npz file"):
        read_samples(MODEL, tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        read_samples(MODEL, tmp_path / "nothing.npz")


def test_random_samples_differ() -> None:
    samples = random_samples(MODEL)
    assert len({one["x"].tobytes() for one in samples}) == len(samples) == 8
