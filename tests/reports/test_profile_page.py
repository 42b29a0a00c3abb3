"""The report of a profile, in a browser: nothing is missing, nothing is asked for, sums are the JSON's."""

import json
from collections.abc import Callable

import onnx
import pytest
from npukit.isa.instructions import Memory

import npukit
from npukit import zoo
from npukit.profiling.timed import TimedModel

CHARTS = ["roofline", "timeline", "traffic", *(f"memory-{memory.name}" for memory in Memory)]


def _numbers(page, table: str, column: str) -> list[float]:
    script = """([table, column]) => {
        const found = document.getElementById(table);
        const place = [...found.tHead.rows[0].cells].findIndex((cell) => cell.textContent === column);
        const rows = [...found.tBodies[0].rows].filter((row) => !row.hidden);
        return rows.map((row) => Number(row.cells[place].dataset.value));
    }"""
    return page.evaluate(script, [table, column])


def _names(page, table: str) -> list[str]:
    script = """(table) => [...document.getElementById(table).tBodies[0].rows]
        .filter((row) => !row.hidden).map((row) => row.cells[0].textContent)"""
    return page.evaluate(script, table)


@pytest.mark.parametrize(
    ("name", "config"), [("resnet18", "int8-16x16"), ("mobilenetv2", "int8-16x16"), ("bert-tiny", "int8-8x8")]
)
def test_whole_networks(open_page: Callable, name: str, config: str) -> None:
    timed = npukit.profile(zoo.load(name), config)
    html = timed.to_html()
    assert len(html.encode()) < 5_000_000
    opened = open_page(html)
    page = opened.page
    assert opened.complaints == [] and opened.requests == []
    data = json.loads(page.locator("#data").text_content())
    assert data == json.loads(json.dumps(timed.to_json()))
    assert _names(page, "layers") == [layer["node"] for layer in data["layers"]]
    for column, field, total in (
        ("cycles", "cycles", data["cycles"]), ("MACs", "macs", data["macs"]),
        ("bytes read", "read_bytes", data["dram"]["read_bytes"]),
        ("bytes written", "write_bytes", data["dram"]["write_bytes"]),
    ):  # fmt: skip
        shown = _numbers(page, "layers", column)
        assert shown == [layer[field] for layer in data["layers"]] and sum(shown) == total
    charts = page.locator(".chart[data-drawn] canvas")
    assert charts.count() == len(CHARTS)
    assert page.evaluate("[...document.querySelectorAll('.chart')].map((one) => one.dataset.chart)") == CHARTS
    assert all(box.bounding_box()["width"] > 300 for box in charts.all())
    assert all(one.title in page.locator("#advice").inner_text() for one in timed.advice)


@pytest.fixture(scope="module")
def digits() -> TimedModel:
    return npukit.profile(zoo.load("digits"), "int8-8x8")


def test_tables_sort_and_filter(open_page: Callable, digits: TimedModel) -> None:
    page = open_page(digits.to_html()).page
    cycles = [layer.cycles for layer in digits.profile.layers]
    head = page.locator("#layers th").filter(has_text="cycles").first
    head.get_by_role("button").click()
    assert _numbers(page, "layers", "cycles") == sorted(cycles, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert _numbers(page, "layers", "cycles") == sorted(cycles)
    page.locator("#layers th").first.get_by_role("button").click()
    names = [layer.node for layer in digits.profile.layers]
    assert sorted(_names(page, "layers")) == sorted(names) and _names(page, "layers")[0] == max(names)
    page.locator("input.filter").fill("GEMM")
    assert _names(page, "layers") == [layer.node for layer in digits.profile.layers if layer.op == "Gemm"]


def test_names_are_text(open_page: Callable) -> None:
    """A model from elsewhere may name its nodes as it likes, and the page may go to somebody else."""
    model = onnx.load_from_string(zoo.load("digits"))
    name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    node = next(node for node in model.graph.node if node.name == "stem/Conv")
    node.name = name
    timed = npukit.profile(model, "int8-8x8")
    opened = open_page(timed.to_html())
    assert opened.complaints == [] and opened.requests == []
    assert name in _names(opened.page, "layers")
    assert json.loads(opened.page.locator("#data").text_content())["layers"][0]["node"] == name


def test_nothing_on_the_accelerator(open_page: Callable) -> None:
    """A page all the same, which says so and why."""
    timed = npukit.profile(zoo.load("digits", "fp32"), "int8-8x8")
    opened = open_page(timed.to_html())
    assert opened.complaints == []
    text = opened.page.locator("body").inner_text()
    assert "Nothing of this model runs on the accelerator" in text and timed.offload.suggestion in text
    assert set(_names(opened.page, "offload")) == {reason.op for reason in timed.offload.reasons}
