"""HTML pages of one file that need no network: Vega's libraries, charts and data are in them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from npukit.hw.toolchain import needs
from npukit.profiling.text import thousands

__all__ = ["Cell", "cards", "chart", "note", "page", "section", "table"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what is shown.
        value: what it is sorted by, for numbers.
        kind: a class of the page's style: `gain` or `loss`.
    """

    text: str
    value: float | None = None
    kind: str = ""

    @classmethod
    def number(cls, value: float, text: str | None = None, kind: str = "") -> "Cell":
        """A number, by default as thousands."""
        return cls(thousands(round(value)) if text is None else text, value, kind)

    def html(self) -> str:
        """The cell."""
        classes = " ".join(one for one in ("" if self.value is None else "number", self.kind) if one)
        value = "" if self.value is None else f' data-value="{self.value:.12g}"'
        return f"<td{_class(classes)}{value}>{escape(self.text)}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def table(identity: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, filtered: bool = False) -> str:
    """A table that is sorted by a click on a head, with a field that filters its rows if asked."""
    numeric = [bool(rows) and row.value is not None for row in (rows[0] if rows else [])] or [False] * len(heads)
    head = "".join(
        f'<th scope="col"{_class("number" if one else "")}><button type="button">{escape(text)}</button></th>'
        for text, one in zip(heads, numeric, strict=True)
    )
    body = "\n".join("<tr>" + "".join(cell.html() for cell in row) + "</tr>" for row in rows)
    field = (
        f'<input class="filter" type="search" placeholder="filter" aria-label="filter" data-table="{identity}">'
        if filtered
        else ""
    )
    return (
        f'{field}<div class="wide"><table class="sortable" id="{identity}"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def cards(entries: Sequence[tuple[str, str]]) -> str:
    """(figure, what it is) in boxes."""
    boxes = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in entries
    )
    return f'<div class="cards">{boxes}</div>'


def note(text: str) -> str:
    """A paragraph that says how to read what follows."""
    return f'<p class="note">{escape(text)}</p>'


def section(title: str, *parts: str) -> str:
    """A heading and what belongs to it."""
    return "\n".join([f"<h2>{escape(title)}</h2>", *parts])


def chart(identity: str, specification: Mapping[str, Any], *, stretched: bool = True) -> str:
    """A Vega-Lite chart, as wide as the page."""
    if stretched:
        specification = {**specification, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return f'<div class="chart" data-chart="{identity}"></div>{_json(identity, specification)}'


def _json(identity: str, value: Any) -> str:
    # a script ends where its text says so, even within a string
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{identity}">{text}</script>'


def page(title: str, parts: Sequence[str], data: Mapping[str, Any]) -> str:
    """The page.

    Args:
        parts: sections.
        data: what programs may read from it, as JSON in the element `data`.

    Raises:
        ToolError: the package `vl-convert-python`, which holds Vega's libraries, is not installed.
    """
    with needs("profile", "an HTML report"):
        from vl_convert import javascript_bundle
    own = files("npukit.reports") / "files"
    libraries = javascript_bundle("window.vegaEmbed = vegaEmbed;").replace(
        "</script", "<\\/script"
    )  # which would end the script
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{(own / 'page.css').read_text()}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            _json("data", data),
            f'<script type="module">{libraries}</script>',
            f'<script type="module">{(own / "page.js").read_text()}</script>',
            "</body></html>\n",
        ]
    )
