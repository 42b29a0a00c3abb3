"""Functions as straight lines, against numpy in binary64."""

import numpy as np
import pytest
from npukit.compiler.lines import ALL_NUMBERS, Lines, exponential, fit, reciprocal, reciprocal_root, scaling
from npukit.isa.descriptors import Indexing
from npukit.sim.bfloat16 import function
from numpy.typing import NDArray


def on_lines(lines: Lines, x: NDArray[np.float32]) -> NDArray[np.float64]:
    slopes, intercepts = lines.table.T
    return function(x, slopes, intercepts, Indexing.VALUE, lines.step, lines.offset).astype(np.float64)


def test_exponential() -> None:
    lines = exponential()
    x = -np.arange(0, 15.875, 1e-4).astype(np.float32)
    assert np.abs(on_lines(lines, x) / np.exp(x.astype(np.float64)) - 1).max() < 2.0**-11
    edges = np.array([0, -15.875, -15.8751, -16, -1e30, -np.inf], np.float32)
    found = on_lines(lines, edges)
    assert found[0] == 1 and found[1] > 0 and not found[2:].any()


@pytest.mark.parametrize("power", [-100, -3, 0, 1, 2, 7, 100])
def test_reciprocals(power: int) -> None:
    x = np.linspace(1, 4, 50_001).astype(np.float32) * np.float32(2.0**power)
    exact = x.astype(np.float64)
    slopes, intercepts = reciprocal().T
    found = function(x, slopes, intercepts, Indexing.RECIPROCAL, 0, 0)
    assert np.abs(found * exact - 1).max() < 2.0**-17
    assert np.array_equal(function(-x, slopes, intercepts, Indexing.RECIPROCAL, 0, 0), -found)
    slopes, intercepts = reciprocal_root(24.0).T
    found = function(x, slopes, intercepts, Indexing.RECIPROCAL_ROOT, 0, 0)
    assert np.abs(found * np.sqrt(exact) / 24 - 1).max() < 2.0**-17


def test_scaling() -> None:
    x = np.array([0, 1, -3, 1e30, -np.inf], np.float32)
    assert np.array_equal(on_lines(Lines(scaling(-0.25), 0, 0), x), -x / 4)


def logistic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "logistic": logistic,
    "tanh": np.tanh,
    "silu": lambda x: x * logistic(x),
    "softplus": lambda x: np.logaddexp(0, x),
    "hard": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "steep": lambda x: 1e-4 * np.tanh(100 * x),
    "line": lambda x: x / 3 - 7,
    "constant": lambda x: 0 * x + 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fit(name: str) -> None:
    with np.errstate(over="ignore"):
        exact = FUNCTIONS[name](ALL_NUMBERS.astype(np.float64))
    lines, problem = fit(exact.astype(np.float32))
    assert lines is not None, problem
    near = np.abs(ALL_NUMBERS) <= 2.0**30
    scale = min(1.0, np.abs(exact[np.abs(ALL_NUMBERS) <= 1]).max())
    apart = np.abs(on_lines(lines, ALL_NUMBERS) - exact)[near]
    assert (apart <= 1.01 * (2.0**-8 * np.abs(exact[near]) + 2.0**-9 * scale)).all()


@pytest.mark.parametrize(
    ("function_of", "problem"),
    [
        (np.exp, "it is inf at 89"),
        (np.sqrt, "it is nan at -"),
        (np.square, "the nearest ones are too far away at "),
        (np.sin, "the nearest ones are too far away at "),
        (np.rint, "the nearest ones are too far away at "),
        (np.cbrt, "the nearest ones are too far away at "),
    ],
)
def test_no_fit(function_of: np.ufunc, problem: str) -> None:
    with np.errstate(all="ignore"):
        lines, found = fit(function_of(ALL_NUMBERS.astype(np.float64)).astype(np.float32))
    assert lines is None and found.startswith(problem)
