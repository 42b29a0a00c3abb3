"""A single data rate SDRAM chip and what its controller has: shared by the hardware and by the simulator's model of it.

The times are those of the 256 Mbit x16 chips that the ULX3S carries (Alliance AS4C16M16SA-7, ISSI IS42S16160G-7,
Winbond W9825G6KH-6), each the slowest of the three data sheets.
"""

from dataclasses import dataclass
from math import ceil

__all__ = ["READ_BUFFER", "REFRESHES_LATE", "ROW_SPACING", "WRITE_BUFFER", "SdramChip", "SdramTimes"]

READ_BUFFER = 16
"""Beats that the controller has read and the master has not taken, those on their way included."""
WRITE_BUFFER = 16
"""Beats that the master has sent and the controller has not written."""
REFRESHES_LATE = 8
"""Refreshes that may be late, so that a long burst need not stop for one."""

ROW_SPACING = 2
"""Cycles from a command that opens or closes a row to the next one at least: rows are looked up a cycle before."""


@dataclass(frozen=True)
class SdramChip:
    """Sizes in bits of addresses, times in nanoseconds.

    activate_to_column: tRCD. precharge: tRP. row_active: tRAS, at least and at most. row_cycle: tRC. refresh_cycle:
    tRFC. bank_to_bank: tRRD. write_recovery: tWR (tDPL), from the last word written to the precharge. refresh_period:
    in which each row is refreshed once. power_up: with a stable clock before the first command. mode_cycles: tMRD.
    """

    row_bits: int = 13
    column_bits: int = 9
    bank_bits: int = 2
    activate_to_column: float = 21.0
    precharge: float = 21.0
    row_active: tuple[float, float] = (45.0, 100_000.0)
    row_cycle: float = 67.5
    refresh_cycle: float = 67.5
    bank_to_bank: float = 15.0
    write_recovery: float = 15.0
    refresh_period: float = 64e6
    power_up: float = 200_000.0
    mode_cycles: int = 2
    initial_refreshes: int = 8

    @property
    def bytes(self) -> int:
        """Of 16-bit words."""
        return 2 << (self.row_bits + self.column_bits + self.bank_bits)

    def times(self, megahertz: float) -> "SdramTimes":
        """In cycles of a clock.

        Raises:
            ValueError: a clock that the chip does not take.
        """
        if not 0 < megahertz <= 133:
            raise ValueError(f"the SDRAM takes clocks up to 133 MHz, not {megahertz}")

        def cycles(nanoseconds: float) -> int:
            return max(1, ceil(nanoseconds * megahertz / 1000 - 1e-9))

        return SdramTimes(
            cas_latency=2 if megahertz <= 100 else 3,
            activate_to_column=cycles(self.activate_to_column),
            precharge=cycles(self.precharge),
            row_active=cycles(self.row_active[0]),
            row_active_most=int(self.row_active[1] * megahertz / 1000),
            row_cycle=cycles(self.row_cycle),
            refresh_cycle=cycles(self.refresh_cycle),
            bank_to_bank=cycles(self.bank_to_bank),
            write_recovery=max(2, cycles(self.write_recovery)),
            refresh_interval=int(self.refresh_period / (1 << self.row_bits) * megahertz / 1000),
            power_up=cycles(self.power_up),
            mode=self.mode_cycles,
        )


@dataclass(frozen=True)
class SdramTimes:
    """A chip's times in cycles; `cas_latency` from a READ to its first word."""

    cas_latency: int
    activate_to_column: int
    precharge: int
    row_active: int
    row_active_most: int
    row_cycle: int
    refresh_cycle: int
    bank_to_bank: int
    write_recovery: int
    refresh_interval: int
    power_up: int
    mode: int
