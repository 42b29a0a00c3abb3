"""A search of the design space as a page: all machines, the front, and each one's configuration."""

from html import escape
from itertools import combinations

from npukit.exploration.outcome import area_beyond, commands, label, to_json
from npukit.exploration.study import Explored, Point
from npukit.profiling.text import thousands
from npukit.reports.charts import trade_off
from npukit.reports.page import Cell, cards, chart, note, page, section, table

__all__ = ["exploration_page"]

UNITS = {"cycles": "cycles", "area": "LUT4 (modelled)", "energy": "uJ (modelled)", "memory": "KiB on chip"}


def shown(name: str, value: float) -> float:
    """An objective in its unit here."""
    return value / {"energy": 1e6, "memory": 1024}.get(name, 1)


def exploration_page(found: Explored, folder: str) -> str:
    """One HTML file.

    Args:
        folder: where the configurations are, for commands.

    Raises:
        ToolError: packages of the extra `profile` are not installed.
    """
    front = found.front
    names = ", ".join(model.name for model in found.models)
    refused = sum(bool(one.refused) for one in found.points)
    entries = [
        (str(len(found.points)), "machines compiled for and simulated"),
        (str(len(front)), "on the front"),
        (str(refused), "cannot run the models whole"),
    ]
    parts = [section("Summary", cards(entries), note(
        "The front has the machines that no other one equals or beats in every objective. Of several models, cycles "
        "and energy are geometric means. Area is estimated by a model that is fitted to synthesised cores, energy by "
        "published figures for operations; cycles are simulated."
    ))]  # fmt: skip
    for across, up in combinations(found.objectives, 2):
        parts.append(
            section(f"{up} over {across}", chart(f"{across}-{up}", trade_off(_rows(found), across, up).to_dict()))
        )
    heads = ["trial", "machine", "preset", *(UNITS[name] for name in found.objectives)]
    rows = [_cells(found, point) for point in front]
    parts.append(section("The front", table("front", heads, rows)))
    details = [
        f"<details><summary>Trial {point.number}: {escape(label(point))}</summary>"
        f"<pre>{escape(point.candidate.config.to_toml())}</pre>"
        f"<pre>{escape(chr(10).join(commands(found, point, folder)))}</pre>"
        f"{_beyond(area_beyond(found, point))}</details>"
        for point in front
    ]
    parts.append(section("Configurations, and how to run them again", *details))
    others = [one for one in found.points if one.values and one not in front]
    if others:
        parts.append(
            section("Other machines", table("others", heads, [_cells(found, one) for one in others], filtered=True))
        )
    if refused:
        lines = [[Cell.number(one.number, str(one.number)), Cell(label(one)), Cell(one.refused)]
                 for one in found.points if one.refused]  # fmt: skip
        parts.append(section("Refused", table("refused", ["trial", "machine", "why"], lines)))
    return page(f"Machines for {names}", parts, to_json(found, folder))


def _beyond(fields: list[str]) -> str:
    """Where the area is no more than the model's continuation."""
    if not fields:
        return ""
    return note(f"The area model was fitted to no machine like it in {', '.join(fields)}: synthesise it to be sure.")


def _cells(found: Explored, point: Point) -> list[Cell]:
    values = [shown(name, point.values[name]) for name in found.objectives]
    return [
        Cell.number(point.number, str(point.number)), Cell(label(point)), Cell(point.origin),
        *(Cell.number(value, thousands(round(value)) if value >= 100 else f"{value:.3g}") for value in values),
    ]  # fmt: skip


def _rows(found: Explored) -> list[dict[str, object]]:
    front = {one.number for one in found.front}
    return [
        {"trial": point.number, "machine": label(point), "preset": point.origin,
         "kind": "front" if point.number in front else "other",
         **{name: shown(name, point.values[name]) for name in found.objectives}}
        for point in found.points if point.values
    ]  # fmt: skip
