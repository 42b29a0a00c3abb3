"""A part of ONNX's backend tests (`make onnx-suite` runs them all), and that a lost case is seen."""

import secrets
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where its worker processes find it as well
from onnx_suite import FORMS, names, problems, read_expected, run_case, run_cases, summary

ALWAYS = ("qlinear", "conv_with", "maxpool_2d", "averagepool_2d", "sequence_insert", "tril_zero", "softmax_large")
"""Parts of the names of cases that are always looked at: what the machine runs, and what the kit does not take in."""


@pytest.mark.parametrize("config", ["int8-16x16", "bf16-16x16"])
def test_a_part(config) -> None:
    seed = secrets.randbelow(1 << 30)
    print(f"cases chosen with seed {seed}")
    known = [name for name in names() if not name.startswith("test_real")]
    always = [name for name in known if any(part in name for part in ALWAYS)]
    others = [str(name) for name in np.random.default_rng(seed).choice(known, 30, replace=False)]
    wanted = [(name, form) for form in FORMS for name in dict.fromkeys([*always, *others])]
    outcomes = list(run_cases(wanted, config, 1))
    print("\n".join(summary(outcomes)))
    assert not problems(outcomes, read_expected())
    ran = {one.name for one in outcomes if one.nodes and not one.error}
    assert ran >= (
        {"test_qlinearconv", "test_maxpool_2d_uint8"}
        if config.startswith("int8")
        else {"test_conv_with_strides_padding"}
    )


def test_what_is_lost_is_seen() -> None:
    good = run_case("test_add", FORMS[0], "int8-16x16")
    assert not good.error and not good.alone and not problems([good], {})
    assert problems([replace(good, error="differs")], {})[0].startswith("test_add: ONNX Runtime alone passes")
    assert problems([replace(good, error="no", alone="no")], {})[0].startswith("test_add: not on the list")
    assert problems([good], {"test_add": "never"}) == ["test_add: on the list, and it passes"]
    rounded = replace(good, name="test_softmax_large_number", rounded=True)
    assert problems([rounded], {})[0].startswith("test_softmax_large_number: passes, although")
    assert not problems([replace(rounded, error="differs")], {})
    assert problems([replace(rounded, error="differs", rounded=False)], {})
    assert problems([replace(good, error="differs", rounded=True)], {})
