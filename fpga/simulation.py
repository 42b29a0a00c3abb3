"""A board's whole design, pins and all, as Verilog that simulates."""

from pkgutil import resolve_name

from npukit.fpga.board import Board, BoardError
from npukit.fpga.cell_models import TOP_CELLS
from npukit.hw.toolchain import needs
from npukit.hw.verilog import rtlil_verilog
from npukit.isa.config import NpuConfig

__all__ = ["TOP", "top_verilog"]

TOP = "board"
"""Name of the module whose ports are the pins that something is connected to."""
_DESIGN = "top"
"""Name of the design's own top module, as in the bitstream."""
_LEDS = 3
"""Those that say whether the accelerator and the host link are at work are among them."""
_SDRAM = (
    ("output", "clk", ""), ("output", "clk_en", ""), ("output", "cs", ""), ("output", "we", ""), ("output", "ras", ""),
    ("output", "cas", ""), ("output", "ba", "bank_bits"), ("output", "a", "row_bits"), ("output", "dqm", "mask_bits"),
    ("inout", "dq", "data_bits"),
)  # fmt: skip


def top_verilog(board: Board, config: NpuConfig) -> str:
    """Verilog of what goes into a board's bitstream, before synthesis, with models of the cells that it instantiates.

    The module `board` around the design's own, `top`, gives its pins names that are the same for every board:
    oscillator, rx, tx, leds, sdram_*. The oscillator is to be driven with four times the system's clock (see
    `npukit.fpga.cell_models`).

    Raises:
        ToolError: Amaranth or Yosys is missing, or fails.
        BoardError: the board and the configuration do not go together.
    """
    if board.leds < _LEDS:
        raise BoardError(f"{board.name} has {board.leds} LEDs; the simulation looks at the first {_LEDS}")
    with needs("fpga", "a board"):
        design = resolve_name(board.top)(board, config)
    return "\n".join((rtlil_verilog(design.rtlil, _DESIGN), TOP_CELLS, _wrapper(board)))


def _wrapper(board: Board) -> str:
    """`board`: the design with its pins, which Amaranth calls after resources and their numbers."""
    chip = board.sdram
    bits = {"": 1, "bank_bits": chip.bank_bits, "row_bits": chip.row_bits, "mask_bits": 2, "data_bits": 16}
    ports = ["input oscillator", "input rx", "output tx", f"output [{board.leds - 1}:0] leds"]
    pins = [f".{board.oscillator_pin}_0__io(oscillator)", ".uart_0__rx__io(rx)", ".uart_0__tx__io(tx)"]
    pins += [f".led_{number}__io(leds[{number}])" for number in range(board.leds)]
    for direction, name, width in _SDRAM:
        ports.append(f"{direction} {f'[{bits[width] - 1}:0] ' if width else ''}sdram_{name}")
        pins.append(f".sdram_0__{name}__io(sdram_{name})")
    return f"module {TOP}({', '.join(ports)});\n  {_DESIGN} {_DESIGN}({', '.join(pins)});\nendmodule\n"
