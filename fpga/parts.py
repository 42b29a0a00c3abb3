"""Chips of AMD's 7 series, what they hold, and whether a netlist fits.

The numbers are those of the product tables in AMD's data sheets DS190 (Zynq-7000) and DS180 (7 series), where a slice
has four LUTs and eight flip-flops.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

__all__ = ["DEFAULT_PART", "PARTS", "Resources", "shortfalls", "used_by"]


@dataclass(frozen=True)
class Resources:
    """What a chip has, or a netlist needs: LUTs, flip-flops, DSP48E1, block RAMs of 36 Kbit."""

    luts: int
    flip_flops: int
    multipliers: int
    block_rams: int


_NAMES = {"luts": "LUTs", "flip_flops": "flip-flops", "multipliers": "DSP48E1", "block_rams": "block RAMs"}


def _of_slices(slices: int, multipliers: int, block_rams: int) -> Resources:
    return Resources(4 * slices, 8 * slices, multipliers, block_rams)


PARTS: dict[str, Resources] = {
    # DS190
    "xc7z007s": Resources(14_400, 28_800, 66, 50),
    "xc7z012s": Resources(34_400, 68_800, 120, 72),
    "xc7z014s": Resources(40_600, 81_200, 170, 107),
    "xc7z010": Resources(17_600, 35_200, 80, 60),
    "xc7z015": Resources(46_200, 92_400, 160, 95),
    "xc7z020": Resources(53_200, 106_400, 220, 140),
    "xc7z030": Resources(78_600, 157_200, 400, 265),
    "xc7z035": Resources(171_900, 343_800, 900, 500),
    "xc7z045": Resources(218_600, 437_200, 900, 545),
    "xc7z100": Resources(277_400, 554_800, 2_020, 755),
    # DS180
    "xc7s50": _of_slices(8_150, 120, 75),
    "xc7s100": _of_slices(16_000, 160, 120),
    "xc7a35t": _of_slices(5_200, 90, 50),
    "xc7a50t": _of_slices(8_150, 120, 75),
    "xc7a75t": _of_slices(11_800, 180, 105),
    "xc7a100t": _of_slices(15_850, 240, 135),
    "xc7a200t": _of_slices(33_650, 740, 365),
    "xc7k70t": _of_slices(10_250, 240, 135),
    "xc7k160t": _of_slices(25_350, 600, 325),
    "xc7k325t": _of_slices(50_950, 840, 445),
    "xc7k410t": _of_slices(63_550, 1_540, 795),
}
"""By the part's name, without package and speed grade."""
DEFAULT_PART = "xc7z020"
"""Of the PYNQ-Z1 and Z2."""

_LUTS_OF_MEMORY = {
    "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4,
    "RAM32M": 4, "RAM64M": 4, "SRL16E": 1, "SRLC16E": 1, "SRLC32E": 1,
}  # fmt: skip
"""LUTs that a cell of distributed memory, or a shift register, takes (UG474)."""
_FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")


def used_by(cells: Mapping[str, int]) -> Resources:
    """What a netlist of these cells, by type, needs; inverters go into LUTs or pins that are there anyway."""
    count = Counter(cells)
    logic = sum(number for name, number in count.items() if name.startswith("LUT"))
    memory = sum(luts * count[name] for name, luts in _LUTS_OF_MEMORY.items())
    return Resources(
        luts=logic + memory,
        flip_flops=sum(count[name] for name in _FLIP_FLOPS),
        multipliers=count["DSP48E1"],
        block_rams=count["RAMB36E1"] + -(-count["RAMB18E1"] // 2),  # two of 18 Kbit in one of 36
    )


def shortfalls(used: Resources, part: str) -> list[str]:
    """What does not fit a part, and by how much; empty if all does."""
    have = asdict(PARTS[part])
    return [
        f"{count} {_NAMES[name]} where {part} has {have[name]}, {count - have[name]} too many"
        for name, count in asdict(used).items()
        if count > have[name]
    ]
