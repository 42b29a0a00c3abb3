"""The page of a search, in a browser."""

import json
from collections.abc import Callable
from dataclasses import replace

from npukit.isa.config import PRESETS

from npukit.exploration.evaluate import Candidate, Model, Result
from npukit.exploration.space import Space
from npukit.exploration.study import Explored, Point
from npukit.reports.exploration_page import exploration_page

BASE = PRESETS["int8-8x8"]
OBJECTIVES: tuple[str, ...] = ("cycles", "area", "energy")


def _point(number: int, values: tuple[float, float, float] | None, **fields: int) -> Point:
    shown = dict(zip(OBJECTIVES, values, strict=True)) if values else {}
    refused = "" if values else "<b>digits</b>: 3 nodes would stay on the host"
    origin = "int8-8x8" if number == 1 else ""
    return Point(number, Candidate(replace(BASE, **fields)), shown, [Result()], refused, origin)


def test_all_machines(open_page: Callable) -> None:
    points = [
        _point(1, (1000.0, 500.0, 3e6)), _point(2, (800.0, 600.0, 4e6), bus_bytes=16, array_rows=4),
        _point(5, None, bus_bytes=4), _point(7, (2000.0, 700.0, 5e6), act_depth=512),
    ]  # fmt: skip
    found = Explored(Space(BASE), [Model("digits", b"")], OBJECTIVES, points)
    opened = open_page(exploration_page(found, "a folder"))
    assert opened.complaints == [] and opened.requests == []
    page = opened.page
    trials = {
        table: page.evaluate(
            f"[...document.getElementById('{table}').tBodies[0].rows].map((r) => r.cells[0].textContent)"
        )
        for table in ("front", "others", "refused")
    }
    assert trials == {"front": ["2", "1"], "others": ["7"], "refused": ["5"]}
    assert page.locator(".chart[data-drawn] canvas").count() == 3
    details = page.locator("details:has(pre)").all_inner_texts()
    assert len(details) == 2
    page.locator("details:has(pre)").first.click()
    text = page.locator("details:has(pre)").first.inner_text()
    assert "bus_bytes = 16" in text and "npukit run digits --config 'a folder/configs/0002.toml'" in text
    assert "npukit verify --config 'a folder/configs/0002.toml'" in text
    assert "fitted to no machine like it in array_rows 4 (synthesised: 0 to 0)" in " ".join(text.split())
    assert page.locator("#refused b").count() == 0, "names are text"
    data = json.loads(page.locator("#data").text_content() or "")
    assert [one["trial"] for one in data["points"] if one["front"]] == [1, 2]
