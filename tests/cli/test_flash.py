"""`npukit flash`: what it refuses, and what it asks openFPGALoader to do; the tool itself needs a board."""

from pathlib import Path

import pytest
from npukit.fpga.boards import BOARDS

_TOOL = """\
#!/bin/sh
echo "$@" > "{log}"
echo "unable to open ftdi device: -3 (device not found)" >&2
exit {code}
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A tool of that name that notes what it is asked for."""

    def make(code: int) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path, log = folder / "openFPGALoader", tmp_path / "asked"
        path.write_text(_TOOL.format(log=log, code=code))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return log

    return make


@pytest.fixture
def bitstream(tmp_path: Path) -> Path:
    """What `npukit synth` leaves in a folder."""
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "top.bit").write_bytes(b"bits")
    return folder


def test_flash(npukit, tool, bitstream: Path) -> None:
    log = tool(0)
    for arguments, asked in (
        ([bitstream], "--board ulx3s --write-sram"),
        ([bitstream / "top.bit", "--keep"], "--board ulx3s --write-flash"),
        ([bitstream, "--board", "icepi-zero", "--cable", "ft232"], "--board icepi-zero --cable ft232 --write-sram"),
    ):
        result = npukit("flash", *arguments)
        assert result.code == 0 and result.out == ""
        assert log.read_text().split() == [*asked.split(), str(bitstream / "top.bit")]
    result = npukit("flash", bitstream, "--json", "--quiet")
    assert result.json == {"schema": 1, "board": "ulx3s", "bitstream": str(bitstream / "top.bit"), "kept": False}
    assert result.err == "" and all(board.loader for board in BOARDS.values())


def test_what_goes_wrong(npukit, tool, bitstream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npukit("flash", bitstream / "none.bit").refused("there is no bitstream", "npukit synth makes one")
    npukit("flash", bitstream, "--board", "de10").refused("no board is called 'de10'; there are ulx3s, icepi-zero")
    tool(3)
    result = npukit("flash", bitstream, "--quiet")
    assert result.code == 3 and "openFPGALoader failed with exit code 3 on ulx3s" in result.err
    assert "device not found" in result.err
    monkeypatch.setenv("PATH", "/nonexistent")
    result = npukit("flash", bitstream, "--quiet")
    assert result.code == 3 and "openFPGALoader is neither beside" in result.err and "apt-get install" in result.err
