"""Each of TFLite's operators, as random models, against TensorFlow Lite Micro."""

import secrets

import pytest

from tests.tflite_cases import run_cases
from tests.tflite_models import OPERATORS

_FRESH = secrets.randbelow(1 << 30)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("seed", [pytest.param(1, id="fixed"), pytest.param(_FRESH, id="fresh")])
def test_random_models_equal_the_reference(op: str, seed: int) -> None:
    print(f"seed {seed}")
    found = run_cases(op, range(seed, seed + 9))
    assert not found.wrong
    assert found.accelerated >= 3, found.host
