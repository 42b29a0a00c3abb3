"""The Icepi Zero: a smaller chip of the same family, and the same kind of memory."""

from npukit.fpga.board import Board, Device

__all__ = ["ICEPI_ZERO"]

ICEPI_ZERO = Board(
    "icepi-zero",
    "Icepi Zero 1.3: Lattice LFE5U-25F-6BG256C, 32 MiB SDRAM of 16 bits, FTDI serial line",
    Device("25k", "CABGA256", luts=24288, multipliers=28, block_rams=56),
    platform="amaranth_boards.icepi_zero:IcepiZero1_3Platform",
    oscillator=50.0,
    oscillator_pin="clk50",
    megahertz=50.0,
    bf16_megahertz=40.0,
    large_megahertz=50.0,
    leds=5,
    loader="icepi-zero",
    seeds={"icepi-zero-int8-4x4": 1},
)
