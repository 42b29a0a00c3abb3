"""The area model against the synthesised cores that it is fitted to."""

import pytest
from npukit.fpga.area_model import beyond, leave_one_out, points, predict
from npukit.isa.config import PRESETS

pytest.importorskip("scipy")


def test_points() -> None:
    found = points()
    assert len(found) >= 40 and len({config for config, _ in found}) == len(found)


@pytest.mark.parametrize("dtype", ["int8", "bf16"])
def test_cores_that_it_has_not_seen(dtype: str) -> None:
    """The goal for LUTs: less than 10 % on average."""
    errors = leave_one_out(dtype)
    assert errors["lut4"].mean < 0.10 and errors["flip_flops"].mean < 0.10 and errors["multipliers"].mean < 0.10


def test_multipliers_are_counted() -> None:
    """int8's are known by structure: one for an element, some for each lane."""
    for config, area in points():
        if config.dtype == "int8":
            assert predict(config).multipliers == area.multipliers


def test_it_says_where_it_only_continues() -> None:
    assert beyond(PRESETS["ulx3s-int8-8x8"]) == []
    assert any(one.startswith("vector_lanes 16") for one in beyond(PRESETS["int8-16x16"]))
