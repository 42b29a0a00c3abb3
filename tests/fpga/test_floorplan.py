"""Places for multipliers and block RAMs: each its own, neighbours side by side."""

import re
from itertools import product

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.fpga.boards import BOARDS, Device
from npukit.fpga.floorplan import place_blocks

ULX3S = BOARDS["ulx3s"].device


def name_of(row: int, column: int, *, shared: bool = False) -> str:
    """Of the multiplier of an element, or of it and its neighbour."""
    part = "" if shared else f".{('first', 'second')[column % 2]}"
    return f"matrix.array.product_{row}_{column // 2}{part}.block.cell"


def netlist(
    size: int, *, rows: int = 0, logic: int = 40, act: int = 4, luts: int = 0, words: int = 2, shared: bool = False,
    others: int = 0,
) -> dict:  # fmt: skip
    """What a design has of multipliers and block RAMs, by Yosys' names; `rows`: other than `size`, the columns;
    `logic`: flip-flops of an element, `luts`: elements without a multiplier, `words`: block RAMs of a column of WGT,
    `shared`: a multiplier at twice the clock for two elements, `others`: VECTOR's."""
    core = "system.core.machine."
    places = list(product(range(rows or size), range(size)))
    names = dict.fromkeys(name_of(row, column, shared=shared) for row, column in places)
    multipliers = [f"{core}{name}" for name in names]
    more = [f"{core}vector.datapath.lane_{number}.block.cell" for number in range(others)]
    memories = [f"{core}act.bank_{bank}.0.{k}" for bank in range(act) for k in range(size)]
    memories += [f"{core}acc.bank_{bank}.0.{k}" for bank in range(2) for k in range(size)]
    memories += [f"{core}wgt.bank_0.0.{k}" for k in range(words * size)] + [
        f"{core}par.bank_0.0.{k}" for k in range(size)
    ]
    for kind in ("parameter_0", "parameter_1", "parameter_2", "taps_0", "taps_1"):
        memories += [f"{core}vector.datapath.{kind}.0.{k}" for k in range(size)]
    cells = {
        name: {"type": "MULT18X18D", "attributes": {}, "connections": {"CLK0": [clock]}}
        for clock, some in ((2 + shared, multipliers[luts:]), (2, more))
        for name in some
    }
    cells |= {name: {"type": "DP16KD", "attributes": {}} for name in (*memories, f"{core}log.numbers.0.0")}
    registers = [
        f"{core}matrix.array.element_{row}_{column}.sum_TRELLIS_FF_Q_{k}"
        for row, column in places
        for k in range(logic)
    ]
    return cells | {name: {"type": "TRELLIS_FF", "attributes": {}} for name in registers}


def parts(bel: str) -> tuple[int, int, str]:
    """X, Y and kind of a place."""
    found = re.fullmatch(r"X(\d+)/Y(\d+)/(\w+)", bel)
    assert found
    return int(found[1]), int(found[2]), found[3]


def places(cells: dict) -> dict[str, tuple[int, int]]:
    """X and Y by name, of what got them."""
    found = {}
    for name, cell in cells.items():
        if bel := cell["attributes"].get("BEL"):
            found[name.removeprefix("system.core.machine.")] = parts(bel)[:2]
    return found


@pytest.mark.parametrize(("size", "logic"), [(8, 40), (4, 40), (4, 700), (6, 40), (2, 40)])
def test_each_block_has_a_place_of_its_own(size: int, logic: int) -> None:
    cells = netlist(size, logic=logic)
    place_blocks(cells, ULX3S)
    bels = [cell["attributes"]["BEL"] for cell in cells.values() if "BEL" in cell["attributes"]]
    assert len(bels) == len(set(bels)) == size**2 + 14 * size  # all but the log's
    # which of the kinds of site a column has: by nextpnr's database, in turn
    kinds = {0: "MULT18_0", 1: "MULT18_1", 4: "MULT18_4", 5: "MULT18_5"}, {0: "EBR0", 2: "EBR1", 4: "EBR2", 6: "EBR3"}
    for bel in bels:
        x, y, kind = parts(bel)
        tile = (x - 4 if x < 67 else x - 69) % 9
        assert kind == kinds[kind.startswith("EBR")][tile] and y in (
            (22, 46, 70, 82) if "EBR" in kind else (10, 34, 58)
        )


def test_neighbours_lie_side_by_side() -> None:
    """A sum goes a tile or two from row to row, but where the clock's tiles or the next nine are between; where columns
    are folded, straight down; the memory of a column is at that column."""
    cells = netlist(8)
    place_blocks(cells, ULX3S)
    found = places(cells)

    def element(row: int, column: int) -> tuple[int, int]:
        return found[name_of(row, column)]

    for column, row in product(range(8), range(7)):
        (x, y), (next_x, next_y) = element(row, column), element(row + 1, column)
        assert y == next_y and 1 <= next_x - x <= 7
    assert all(element(row, 3)[0] == element(row, 4)[0] for row in range(8))
    for column, bank in product(range(8), range(2)):
        x, y = found[f"acc.bank_{bank}.0.{column}"]
        assert y == 46 and element(0, column)[0] - 4 <= x <= element(7, column)[0] + 4


def test_a_rectangle_in_three_rows() -> None:
    """Eight rows of sixteen columns: six columns in each of the chip's rows, there and back and there again."""
    cells = netlist(16, rows=8, act=2, words=1)
    place_blocks(cells, ULX3S)
    found = places(cells)
    at = {(row, column): found[name_of(row, column)] for row, column in product(range(8), range(16))}
    assert len(set(at.values())) == 128
    assert [at[0, column][1] for column in range(16)] == [10] * 6 + [34] * 6 + [58] * 4
    for row in range(8):
        assert at[row, 5][0] == at[row, 6][0] and at[row, 11][0] == at[row, 12][0]
        assert all(at[row, column][0] < at[row, column + 1][0] for column in (*range(5), *range(12, 15)))
        assert all(at[row, column][0] > at[row, column + 1][0] for column in range(6, 11))
    assert len(found) == 128 + len([one for one in cells.values() if one["type"] == "DP16KD"]) - 1  # but the log's


def test_two_elements_to_a_multiplier() -> None:
    """Sixteen rows of eight pairs: three pairs in a row of the chip; VECTOR's multipliers, which have another clock, in
    tiles without any of the array's."""
    cells = netlist(16, act=2, words=1, logic=60, shared=True, others=14)
    place_blocks(cells, ULX3S)
    found = places(cells)
    pairs = {(row, pair): found[name_of(row, 2 * pair, shared=True)] for row, pair in product(range(16), range(8))}
    assert [pairs[0, pair][1] for pair in range(8)] == [10] * 3 + [34] * 3 + [58] * 2
    assert all(pairs[row, 2][0] == pairs[row, 3][0] for row in range(16))
    places_of_vector = [place for name, place in found.items() if name.startswith("vector.datapath.lane_")]
    assert len({*pairs.values(), *places_of_vector}) == 128 + 14

    def tile(place: tuple[int, int]) -> tuple[int, int]:
        return ULX3S.multiplier_columns.index(place[0]) // 4, place[1]

    assert not {*map(tile, pairs.values())} & {*map(tile, places_of_vector)}


def test_others_with_the_array_s_clock_are_left_to_nextpnr() -> None:
    cells = netlist(8, others=14)
    place_blocks(cells, ULX3S)
    assert not any(name.startswith("vector.datapath.lane_") for name in places(cells))


@pytest.mark.parametrize(
    ("cells", "device"),
    [
        (netlist(16), ULX3S),  # 96 of a row's 52 multipliers, in three rows
        (netlist(8, luts=3), ULX3S),
        (netlist(8, act=8), ULX3S),  # 64 of a row's 52 block RAMs
        (netlist(8), Device()),
        ({}, ULX3S),
    ],
    ids=["array", "luts", "memory", "device", "nothing"],
)
def test_what_does_not_fit_is_left_to_nextpnr(cells: dict, device: Device) -> None:
    place_blocks(cells, device)
    assert not places(cells)
