"""How users name boards on serial lines, and what they see while much is sent."""

import pytest

from npukit.devices import check_device
from npukit.errors import UsageError
from npukit.serial_line import board_behind, line_of, show_transfer


def test_addresses() -> None:
    assert line_of("/dev/ttyUSB0") == ("/dev/ttyUSB0", None)
    assert line_of("/dev/ttyUSB0@2000000") == ("/dev/ttyUSB0", 2_000_000)
    assert line_of("socket://host:4000@115200") == ("socket://host:4000", 115_200)
    assert line_of("COM3") == ("COM3", None)
    for rate in ("", "0", "fast", "-1", "3e6"):
        with pytest.raises(UsageError, match=r"must be bits a second, as in serial:/dev/ttyUSB0@3000000"):
            line_of(f"COM3@{rate}")


def test_names() -> None:
    check_device("serial:/dev/ttyUSB0")
    check_device("sim")
    assert board_behind("sim") is None and board_behind("rtl") is None
    for name, message in (
        ("serial", "the device serial needs an address: serial:PORT"),
        ("serial:", "the device serial needs an address: serial:PORT"),
        ("rtl:3", "the device rtl has no address, so it is not 'rtl:3'"),
        ("/dev/ttyUSB0", "the devices are sim, rtl, serial, not '/dev/ttyUSB0'"),
    ):
        with pytest.raises(UsageError, match=message):
            check_device(name)


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of what is over in a moment; the line goes away at the end."""
    for done, total in ((0, 100), (100, 100), (1_000_000, 4_000_000), (4_000_000, 4_000_000)):
        show_transfer("send", done, total)
    shown = capsys.readouterr().err
    assert shown == "\r\x1b[Ksend 1.00 of 4.00 MB\r\x1b[K"
