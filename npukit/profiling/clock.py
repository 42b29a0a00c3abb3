"""The clock at which cycles are told as milliseconds."""

from dataclasses import dataclass
from math import isfinite

from npukit.errors import UsageError
from npukit.fpga.boards import BOARDS, board_with
from npukit.isa.config import NpuConfig
from npukit.sim.dram import AnyDram, SdramDram

__all__ = ["Clock", "clock_of"]

_BOARD = "ulx3s"
"""Whose clock is assumed for configurations that are no board's."""


@dataclass(frozen=True)
class Clock:
    """A clock, and where it comes from.

    Attributes:
        megahertz: above 0.
        source: "as asked for", "the SDRAM's", "half the SDRAM's", "of the board NAME", or "assumed, as on the board
            NAME".
    """

    megahertz: float
    source: str

    def milliseconds(self, cycles: int) -> float:
        """What cycles take."""
        return cycles / self.megahertz / 1e3

    def text(self, cycles: int) -> str:
        """Milliseconds of one cycle or more, and how many times a second that is, with the clock and its source."""
        milliseconds = self.milliseconds(cycles)
        return (
            f"{milliseconds:.3g} ms, {1e3 / milliseconds:.4g} inferences a second, at {self.megahertz:g} MHz "
            f"({self.source})"
        )

    def to_json(self, cycles: int) -> dict[str, float | str | None]:
        """The same as a JSON object; of no cycles, there is no rate."""
        milliseconds = self.milliseconds(cycles)
        return {
            "megahertz": self.megahertz,
            "source": self.source,
            "milliseconds": milliseconds,
            "inferences_per_second": 1e3 / milliseconds if cycles else None,
        }


def clock_of(config: NpuConfig, megahertz: float | None = None, dram: AnyDram | None = None) -> Clock:
    """The clock that is asked for, or that for which an SDRAM was simulated, or of the configuration's board,
    or, for configurations of none, that of the ULX3S with such a datapath.

    Raises:
        UsageError: a clock that is not above 0, or not that for which the SDRAM was simulated.
    """
    if megahertz is not None and not (isfinite(megahertz) and megahertz > 0):
        raise UsageError(f"the clock's megahertz must be above 0, not {megahertz:g}")
    if isinstance(dram, SdramDram):
        if megahertz is not None and megahertz != dram.megahertz:
            raise UsageError(
                f"the SDRAM was simulated beside an accelerator at {dram.megahertz:g} MHz, not "
                f"{megahertz:g}: give the memory that clock instead (--dram-megahertz)"
            )
        return Clock(dram.megahertz, "the SDRAM's" if dram.rate == 1 else "half the SDRAM's")
    if megahertz is not None:
        return Clock(megahertz, "as asked for")
    board = board_with(config)
    if board is not None:
        return Clock(board.clocked_for(config).megahertz, f"of the board {board.name}")
    return Clock(BOARDS[_BOARD].clocked_for(config).megahertz, f"assumed, as on the board {_BOARD}")
