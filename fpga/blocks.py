"""What each block of a netlist takes, by the names that Yosys leaves."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from npukit.fpga.ecp5 import Area

__all__ = ["area_by_block"]

_LEVELS_DOWN = {"core", "machine"}
"""Blocks whose parts are blocks."""
_PINS = "pins and clock"
"""All that is beside the system."""


def area_by_block(netlist: Path) -> dict[str, dict[str, int]]:
    """Fields of `Area` of each block of Yosys' JSON netlist, the largest first.

    After flattening, a cell has the name of what it drives: so this says whose signals cost how much. What a block's
    result costs to select counts where it is selected.
    """
    cells = json.loads(netlist.read_text(encoding="utf-8"))["modules"]["top"]["cells"]
    kinds: dict[str, Counter[str]] = {}
    for name, cell in cells.items():
        kinds.setdefault(_block(name), Counter())[cell["type"]] += 1
    found = {block: asdict(Area.of(count)) for block, count in kinds.items()}
    return dict(sorted(found.items(), key=lambda one: -one[1]["lut4"]))


def _block(name: str) -> str:
    *path, _ = name.lstrip("\\").split(".")
    if path and path[0] != "system":
        return _PINS
    place = path[1:]
    while place[:1] and place[0] in _LEVELS_DOWN and len(place) > 1:
        place = place[1:]
    return place[0] if place else "top"
