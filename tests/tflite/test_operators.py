"""Each of TFLite's operators, as random models, against TensorFlow Lite Micro."""

import secrets

import pytest

from tests.tflite_cases import run_cases
from tests.tflite_models import FLOAT_OPERATORS, OPERATORS

_FRESH = secrets.randbelow(1 << 30)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("seed", [pytest.param(1, id="fixed"), pytest.param(_FRESH, id="fresh")])
def test_random_models_equal_the_reference(op: str, seed: int) -> None:
    print(f"seed {seed}")
    found = run_cases(op, range(seed, seed + 9))
    assert not found.wrong
    assert found.accelerated or op == "RESHAPE", found.host  # of those, most move nothing and stay


@pytest.mark.parametrize("op", FLOAT_OPERATORS)
@pytest.mark.parametrize("seed", [pytest.param(2, id="fixed"), pytest.param(_FRESH, id="fresh")])
def test_random_float_models_equal_ordered_sums(op: str, seed: int) -> None:
    """How near they are to fp32 depends on how much of a sum cancels; `make tflite` states it."""
    print(f"seed {seed}")
    found = run_cases(op, range(seed, seed + 6), floats=True)
    assert not found.wrong
    assert found.accelerated or op == "RESHAPE", found.host
