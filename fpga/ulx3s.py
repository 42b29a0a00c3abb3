"""The ULX3S with the largest of its chips."""

from npukit.fpga.board import Board, Device

__all__ = ["ULX3S"]

# nine tiles have four multipliers, or four block RAMs; the clock's tiles divide the row
_NINES = (*range(4, 59, 9), *range(69, 115, 9))

ULX3S = Board(
    "ulx3s",
    "Radiona ULX3S 85F: Lattice LFE5U-85F-6BG381C, 32 MiB SDRAM of 16 bits, FTDI serial line",
    Device(
        multiplier_columns=tuple(nine + tile for nine in _NINES for tile in (0, 1, 4, 5)),
        multiplier_rows=(10, 34, 58),
        memory_columns=tuple(nine + tile for nine in _NINES for tile in (0, 2, 4, 6)),
        memory_rows=(22, 46, 70, 82),
    ),
    platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
    oscillator=25.0,
    oscillator_pin="clk25",
    megahertz=60.0,
    bf16_megahertz=40.0,
    large_megahertz=50.0,
    large_memory_rate=2,
    leds=8,
    loader="ulx3s",
    seeds={"ulx3s-int8-16x16": 1, "ulx3s-int8-8x8": 4, "ulx3s-int8-4x4": 1, "ulx3s-bf16-4x4": 1},
)
