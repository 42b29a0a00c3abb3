"""A comparison as a page: the first tensor that differs, its tile, and the instructions that made it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.compare import Comparison
from npukit.divergence import Divergence, Made, made_by
from npukit.isa.program import Program
from npukit.profiling.text import shape_text, thousands
from npukit.reports.charts import elements_map
from npukit.reports.page import Cell, cards, chart, note, page, section, table

__all__ = ["divergence_page"]

_ELEMENTS = 100
"""Elements that differ, in the table."""
_WINDOW = 48
"""Rows and columns of the map around the first one."""

_NOTHING = (
    "No part of the model ran on the accelerator: ONNX Runtime was compared with itself, which says nothing of it."
)


def divergence_page(name: str, found: Comparison, programs: Mapping[str, Program]) -> str:
    """One HTML file, of a comparison that found a difference or none.

    Args:
        name: the model's.

    Raises:
        ToolError: packages of the extra `profile` are not installed.
    """
    apart = sum(count > 0 for _, count in found.seen.values())
    entries = [
        (thousands(found.mismatches), f"of {thousands(found.elements)} elements differ"),
        (str(apart), f"of {len(found.seen)} tensors differ"),
    ]
    parts = [section("Summary", cards(entries), note(f"Compared with {found.reference} ({found.host})."))]
    first, divergence = found.first_mismatch, found.divergence
    if first is None or divergence is None:
        parts.append(note("Nothing differs." if programs else _NOTHING))
    else:
        made = made_by(programs, divergence, first.get("instruction"))
        parts.append(_first(divergence, made, first.get("host", ())))
        parts.append(_place(divergence, made))
        if made:
            parts.append(_instructions(made))
    rows = [
        [Cell(tensor), Cell.number(size), Cell.number(count, kind="loss" if count else "")]
        for tensor, (size, count) in found.seen.items()
    ]
    parts.append(
        section(
            "All tensors",
            note("In the order in which they are compared, from the model's front to its back."),
            table("tensors", ["tensor", "elements", "that differ"], rows, filtered=True),
        )
    )
    return page(f"{name}: compared with {found.reference}", parts, found.to_json())


def _first(found: Divergence, made: Made | None, host: Sequence[str]) -> str:
    index = ", ".join(map(str, found.index))
    what = (
        f"Tensor {found.tensor}, {shape_text(found.expected.shape)} of {found.expected.dtype}: "
        f"{thousands(int(found.unequal.sum()))} of {thousands(found.unequal.size)} elements differ. The first is "
        f"[{index}]: expected {found.expected[found.index]}, got {found.actual[found.index]}."
    )
    lines = [what]
    if made is None:
        lines.append(
            "The cause lies on the host, not on the accelerator: what the following nodes read is equal. "
            + ", ".join(host)
            if host
            else "The host made it: a quantiser at the accelerator's edge, or a node that stays in ONNX Runtime."
        )
    else:
        lines.append(f"The cause lies on the accelerator: {made.node.op} {made.node.name} of {made.program} made it.")
        if made.instruction is not None:
            lines.append(f"Instruction {made.instruction} wrote that element.")
        if made.tile is not None:
            inside = int((found.unequal & made.tile).sum())
            lines.append(
                f"Its tile, {_box(made.tile)}, has {thousands(inside)} of the elements that differ, of "
                f"{thousands(int(made.tile.sum()))}."
            )
    return section("The first difference", *(note(line) for line in lines))


def _box(tile: NDArray[np.bool_]) -> str:
    """The least box around a tile, as ranges of indices."""
    places = np.argwhere(tile)
    return "[" + ", ".join(f"{low}..{high}" for low, high in zip(places.min(0), places.max(0), strict=True)) + "]"


def _place(found: Divergence, made: Made | None) -> str:
    tile = made.tile if made else None
    indices = np.argwhere(found.unequal)[:_ELEMENTS]
    rows = []
    for index in map(tuple, indices.tolist()):
        expected, actual = found.expected[index], found.actual[index]
        within = "" if tile is None else "yes" if tile[index] else "no"
        rows.append([Cell(", ".join(map(str, index))), Cell(str(expected)), Cell(str(actual)), Cell(within)])
    heads = ["index", "expected", "actual", "in the tile of the first"]
    parts = [table("elements", heads, rows)]
    if found.unequal.ndim >= 2:
        fixed = found.index[:-2]
        text = ", ".join([*map(str, fixed), "row", "column"])
        cells = _window(found, tile)
        parts.insert(0, note(f"Elements [{text}] around the first that differs."))
        parts.insert(1, chart("map", elements_map(cells).to_dict(), stretched=False))
    return section("Where in the tensor", *parts)


def _window(found: Divergence, tile: NDArray[np.bool_] | None) -> list[dict[str, Any]]:
    plane = found.index[:-2]
    spans = []
    for size, middle in zip(found.unequal.shape[-2:], found.index[-2:], strict=True):
        low = max(0, min(middle - _WINDOW // 2, size - _WINDOW))
        spans.append(range(low, min(size, low + _WINDOW)))
    cells = []
    for row in spans[0]:
        for column in spans[1]:
            index = (*plane, row, column)
            state = "differs" if found.unequal[index] else "equal"
            if tile is not None:
                state += ", in the tile" if tile[index] else ", outside"
            cells.append({
                "row": row, "column": column, "state": state, "expected": str(found.expected[index]),
                "actual": str(found.actual[index]),
            })  # fmt: skip
    return cells


def _instructions(made: Made) -> str:
    rows = [
        [Cell.number(number, str(number)), Cell(text), Cell("wrote the element" if number == made.instruction else "")]
        for number, text in made.lines
    ]
    text = f"Of {made.node.op} {made.node.name}, in the order of the program"
    text += f"; {made.left_out} more are not shown." if made.left_out else "."
    return section("Instructions", note(text), table("instructions", ["number", "instruction", ""], rows))
