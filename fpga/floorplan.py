"""Where multipliers and block RAMs lie on the chip.

nextpnr's placers find places for these one after the other, each near where it would be best alone, and so scatter
neighbours over the chip: a third of all wire was the array's, and how much it was depended on luck.
"""

import re
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any

from npukit.fpga.boards import Device

__all__ = ["place_blocks"]

_PRODUCT = re.compile(r"\barray\.(?:element|product)_(\d+)_(\d+)\.(first|second)?")
_ELEMENT = re.compile(r"\barray\.(?:element|product)_\d+_\d+\.")
_MEMORY = re.compile(r"\b(act|acc|wgt|par)\.bank_(\d+)\.(\d+)\.(\d+)$")
_PARAMETERS = re.compile(r"\bvector\.datapath\.(parameter|taps)_(\d+)\.(\d+)\.(\d+)$")
_MULTIPLIERS = ("MULT18_0", "MULT18_1", "MULT18_4", "MULT18_5")
_MEMORIES = ("EBR0", "EBR1", "EBR2", "EBR3")
_CELLS_OF_A_SITE = 200
"""LUTs, or flip-flops, that have room around one of a row's multipliers, with as much space left free."""

Cells = dict[str, dict[str, Any]]


def place_blocks(cells: Cells, device: Device) -> None:
    """Give the array's multipliers, by the names of their products, and the memories beside them places (nextpnr's
    attribute BEL). Where a multiplier has the products of two columns, a column here is those two.

    The array lies along two of the chip's rows of multipliers, or along three where its columns need them, column
    beside column, as the most wires go from row to row of a column. It is folded, from left to right in one row of the
    chip and back in the next, so that columns that meet lie above each other. Between its last two rows lie ACC and
    WGT, each block RAM at its column, above them ACT; below, from where the array begins to the left, PAR and what
    VECTOR has of it, each element's side by side.

    Multipliers beside an array at twice the clock get what places are left in tiles without any of its own: those of
    a tile have one clock.

    Nothing happens where the device states no places, or where something does not fit into its rows, or where some
    of the array's products are made of LUTs.
    """
    elements = _multipliers(cells)
    tall, broad = (1 + max((place[axis] for place in elements), default=-1) for axis in (0, 1))
    if not tall or len(elements) != tall * broad or not device.multiplier_columns:
        return
    step = max(1, ceil(_cells_of_array(cells) / len(elements) / _CELLS_OF_A_SITE))
    sites = len(device.multiplier_columns)
    for used in range(2, len(device.multiplier_rows) + 1):
        fold = ceil(broad / used)
        """Columns in one row of the chip."""
        wide = fold * tall * step
        if wide <= sites:
            break
    else:
        return
    chip_rows = device.multiplier_rows[-used:]

    def across(column: int) -> int:
        """The place of a column, folded."""
        row, place = divmod(column, fold)
        return fold - 1 - place if row % 2 else place

    above, between, below = _memories(cells, broad, across)
    side = ceil(len(below) / 2)
    begin = min(max(0, (sites - wide - side) // 2) + side, sites - wide)
    middle = (3 * (begin + wide // 2) + begin - side // 2) // 4
    rows = device.memory_rows
    runs = [
        (above, rows[0], middle - len(above) // 2),
        (between, rows[1], begin + (wide - len(between)) // 2),
        (below[0::2], rows[2], begin - side),
        (below[1::2], rows[3], begin - side),
    ]
    # a little to the side where the chip ends
    runs = [(run, row, min(max(0, first), sites - len(run))) for run, row, first in runs]
    if any(first < 0 for _, _, first in runs):
        return
    for run, row, first in runs:
        for place, cell in enumerate(run, first):
            _put(cell, device.memory_columns[place], row, _MEMORIES[place % 4])
    taken = set()
    for (row, column), cell in elements.items():
        place = begin + (across(column) * tall + row) * step
        _put(cell, device.multiplier_columns[place], chip_rows[column // fold], _MULTIPLIERS[place % 4])
        taken.add((column // fold, place // 4))
    others = [cell for cell in cells.values() if cell["type"] == "MULT18X18D" and "BEL" not in cell["attributes"]]
    clocks = [{_clock(cell) for cell in some} - {None} for some in (elements.values(), others)]
    if not clocks[0] & clocks[1]:
        free = [(place, row) for place in range(sites) for row in range(used) if (row, place // 4) not in taken]
        for cell, (place, row) in zip(others, free, strict=False):
            _put(cell, device.multiplier_columns[place], chip_rows[row], _MULTIPLIERS[place % 4])


def _put(cell: dict[str, Any], x: int, y: int, kind: str) -> None:
    cell["attributes"]["BEL"] = f"X{x}/Y{y}/{kind}"


def _multipliers(cells: Cells) -> dict[tuple[int, int], dict[str, Any]]:
    """Those of a systolic array, by row and column, as they are counted here."""
    found = {}
    for name, cell in cells.items():
        if cell["type"] == "MULT18X18D" and (place := _PRODUCT.search(name)):
            found[int(place[1]), int(place[2]), place[3] or ""] = cell
    if any(part for _, _, part in found):  # a multiplier for each element of a pair
        return {(row, 2 * column + (part == "second")): cell for (row, column, part), cell in found.items()}
    return {(row, column): cell for (row, column, _), cell in found.items()}


def _clock(cell: dict[str, Any]) -> Any:
    """The net of its registers' clock, None of one that has none."""
    pins = cell["connections"].get("CLK0")
    return tuple(pins) if pins else None


def _cells_of_array(cells: Cells) -> int:
    """LUTs, or flip-flops, of which there are more, of the elements and of what is around their multipliers."""
    kinds = [cell["type"] for name, cell in cells.items() if _ELEMENT.search(name)]
    return max(kinds.count("LUT4"), kinds.count("TRELLIS_FF"))


def _memories(
    cells: Cells, columns: int, across: Callable[[int], int]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Block RAMs of ACT; of ACC and WGT; of PAR and VECTOR's parameters; each in the order of its elements."""
    found: dict[str, list[tuple[int, str, str]]] = {name: [] for name in ("act", "acc", "wgt", "par")}
    for name, cell in cells.items():
        if cell["type"] == "DP16KD":
            if place := _MEMORY.search(name):
                found[place[1]].append((int(place[4]), f"{place[2]}.{place[3]}", name))
            elif place := _PARAMETERS.search(name):
                found["par"].append((int(place[4]), f"{place[1]}_{place[2]}.{place[3]}", name))

    def in_order(keyed: Iterable[tuple[int, str, str]]) -> list[dict[str, Any]]:
        return [cells[name] for _, _, name in sorted(keyed)]

    def by_column(name: str) -> Iterable[tuple[int, str, str]]:
        slices = 1 + max((part for part, _, _ in found[name]), default=0)
        return ((across(part * columns // slices), f"{name}{bank}", cell) for part, bank, cell in found[name])

    return in_order(found["act"]), in_order([*by_column("acc"), *by_column("wgt")]), in_order(found["par"])
