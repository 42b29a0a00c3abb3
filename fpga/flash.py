"""A bitstream into a board, through openFPGALoader."""

from pathlib import Path

from npukit.fpga.board import Board
from npukit.hw.process import run_command
from npukit.hw.toolchain import ToolError, find_tool, tail

__all__ = ["flash"]

_INSTALL = "sudo apt-get install -y openfpgaloader, or a newer one, which knows more boards, from its sources"


def flash(board: Board, bitstream: Path, *, keep: bool = False, cable: str | None = None) -> None:
    """Load a bitstream into the FPGA, or with `keep` into the flash memory that it starts from.

    Raises:
        ToolError: openFPGALoader is missing, or failed; the message has the end of what it said.
    """
    tool = find_tool("openFPGALoader", _INSTALL)
    command = [tool, "--board", board.loader, *(["--cable", cable] if cable else [])]
    command += ["--write-flash" if keep else "--write-sram", str(bitstream.resolve())]
    code, output = run_command(command)
    if code:
        raise ToolError(
            f"openFPGALoader failed with exit code {code} on {board.name}; is the board connected, and may you use it? "
            f"It said:\n{tail(output)}"
        )
