"""Two profiles beside each other as a page."""

from npukit.profiling.difference import LayerDifference, ProfileDifference, change_text
from npukit.profiling.text import thousands
from npukit.reports.charts import gains
from npukit.reports.page import Cell, cards, chart, note, page, section, table

__all__ = ["difference_page"]


def difference_page(found: ProfileDifference) -> str:
    """One HTML file.

    Raises:
        ToolError: packages of the extra `profile` are not installed.
    """
    before, after = found.before, found.after
    entries = [
        (change_text(old, new), f"{what}: {thousands(old)} to {thousands(new)}")
        for what, old, new in (
            ("cycles", before.cycles, after.cycles), ("bytes of DRAM traffic", before.moved, after.moved)
        )
    ]  # fmt: skip
    if before.milliseconds is not None and after.milliseconds is not None:
        change = after.milliseconds - before.milliseconds
        entries.insert(1, (f"{change:+.4g} ms", f"{before.milliseconds:.4g} ms to {after.milliseconds:.4g} ms"))
    rows = [
        [
            Cell(one.layer.node), Cell(one.layer.op), _count(one.before and one.before.cycles),
            _count(one.after and one.after.cycles), _change(one), _count(one.before and one.before.moved),
            _count(one.after and one.after.moved), Cell.number(one.moved), Cell(one.bound),
        ]
        for one in found.layers
    ]  # fmt: skip
    heads = ["layer", "operator", "cycles in A", "cycles in B", "change", "bytes in A", "bytes in B", "change of bytes"]
    parts = [
        section(
            "Summary", note(f"A: {before.source}. B: {after.source}."), cards(entries),
            *(note(line) for line in found.changes or ["Nothing is known to differ between machines and models."]),
        ),
        section(
            "Layers that changed most", note("Cycles that B takes more or fewer than A."),
            chart("gains", gains(found).to_dict()),
        ),
        section("Layers", table("layers", [*heads, "bound by"], rows, filtered=True)),
    ]  # fmt: skip
    return page(f"{after.model}: A and B", parts, found.to_json())


def _count(value: int | None) -> Cell:
    return Cell("-", -1) if value is None else Cell.number(value)


def _change(one: LayerDifference) -> Cell:
    text = change_text(one.before.cycles if one.before else 0, one.after.cycles if one.after else 0)
    return Cell.number(one.cycles, text, "gain" if one.cycles < 0 else "loss" if one.cycles else "")
