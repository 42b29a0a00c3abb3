"""The page of two profiles, in a browser."""

import json
from collections.abc import Callable
from pathlib import Path

from npukit.isa.config import PRESETS

import npukit
from npukit import zoo
from npukit.profiling.difference import difference
from npukit.profiling.saved import read_profile
from npukit.reports.difference_page import difference_page


def test_two_machines(open_page: Callable, tmp_path: Path) -> None:
    for name in ("int8-4x4", "int8-8x8"):
        timed = npukit.profile(zoo.load("digits"), PRESETS[name])
        (tmp_path / name).write_text(json.dumps(timed.to_json()))
    found = difference(read_profile(tmp_path / "int8-4x4"), read_profile(tmp_path / "int8-8x8"))
    opened = open_page(difference_page(found))
    assert opened.complaints == [] and opened.requests == []
    shown = opened.page.evaluate(
        "[...document.getElementById('layers').tBodies[0].rows]"
        ".map((row) => [row.cells[0].textContent, row.cells[4].dataset.value])"
    )
    assert [(name, int(change)) for name, change in shown] == [(one.layer.node, one.cycles) for one in found.layers]
    assert sum(int(change) for _, change in shown) == found.cycles
    assert opened.page.locator(".chart[data-drawn] canvas").count() == 1
    assert "config array: 4 -> 8" in opened.page.locator("body").inner_text()
