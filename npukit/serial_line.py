"""Boards on serial lines, as users name them: `serial:/dev/ttyUSB0`, or with a rate behind an @."""

import sys
from dataclasses import dataclass

from npukit.driver.serial_device import identify
from npukit.errors import UsageError
from npukit.isa.config import PRESETS, NpuConfig
from npukit.sim.dram import SdramDram

__all__ = ["BoardOnLine", "board_behind", "line_of", "show_transfer"]

_WORTH_SHOWING = 1 << 16
"""Bytes of a transfer of which progress is shown."""


def show_transfer(what: str, done: int, total: int) -> None:
    """A line of progress on the terminal, of a transfer that takes more than a moment; it goes at the end."""
    if total < _WORTH_SHOWING:
        return
    text = f"{what} {done / 1e6:.2f} of {total / 1e6:.2f} MB" if done < total else ""
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def line_of(address: str) -> tuple[str, int | None]:
    """Port and rate of `PORT` or `PORT@BAUD`.

    Raises:
        UsageError: a rate that is none.
    """
    port, at, rate = address.rpartition("@")
    if not at:
        return address, None
    if not rate.isdecimal() or not 0 < int(rate) < 1 << 31:
        raise UsageError(
            f"the rate of serial:{address} must be bits a second, as in serial:/dev/ttyUSB0@3000000, not {rate!r}"
        )
    return port, int(rate)


@dataclass(frozen=True)
class BoardOnLine:
    """What a board on a line says of itself. config: the preset that it was flashed with, or None: none of them."""

    config: NpuConfig | None
    dram: SdramDram


def board_behind(text: str) -> BoardOnLine | None:
    """What is behind a device's name and address, before a model is compiled for it; None of a device that takes any
    configuration.

    Raises:
        DeviceError: nobody answers, or no board.
        ToolError: what the device needs is missing.
        UsageError: a rate that is none.
    """
    name, _, address = text.partition(":")
    if name != "serial":
        return None
    link, identity = identify(*line_of(address))
    link.close()
    config = next((one for one in PRESETS.values() if one.hash == identity.config_hash), None)
    return BoardOnLine(config, SdramDram(megahertz=identity.hertz / 1e6, rate=identity.memory_rate))
