"""`npukit board-sim` as a process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from npukit.driver.serial_device import SerialDevice

from npukit.cli import main
from tests.board_sim.served import FAST, Made


def test_a_board_of_its_own(made: Made, tmp_path: Path) -> None:
    """It says where it is, is switched off and on by a signal, and leaves nothing behind."""
    link = tmp_path / "board"
    os.symlink(tmp_path / "nowhere", link)  # as one that was killed leaves behind
    command = [sys.executable, "-m", "npukit", "board-sim", "--config", "ulx3s-int8-4x4", "--baud", str(FAST)]
    process = subprocess.Popen(
        [*command, "--link", str(link), "--json", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        told = json.loads(text)
        assert told == {"schema": 1, "board": "ulx3s", "device": f"serial:{os.readlink(link)}", "divisor": 4}
        device = SerialDevice(made.config, str(link))
        device.write_memory(0, device.read_memory(64, 4) + 1)
        assert device.read_memory(0, 4).tolist() == [1, 1, 1, 1]
        device.close()
        process.send_signal(signal.SIGUSR1)
        device = SerialDevice(made.config, str(link))
        assert device.read_memory(0, 4).tolist() == [0, 0, 0, 0]
        device.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143 and process.stderr.read() == "npukit: terminated\n"
        assert not os.path.lexists(link)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config names the board: ulx3s-int8-8x8"),
        (["--config", "int8-4x4"], "int8-4x4 names no board"),
        (["--config", "ulx3s-int8-4x4", "--baud", "0"], "--baud must be above 0"),
        (["--config", "ulx3s-int8-4x4", "--baud", "-5"], "--baud must be above 0"),
        (["--config", "ulx3s-int8-4x4", "--baud", "25000000"], "with 2 cycles for a bit"),
        (["--config", "ulx3s-int8-4x4", "--board", "none"], "no board is called 'none'"),
    ],
)
def test_bad_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board-sim", *arguments, "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_link_that_is_in_the_way(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there stays."""
    path = tmp_path / "file"
    path.write_text("mine")
    command = ["board-sim", "--config", "ulx3s-int8-4x4", "--baud", str(FAST), "--quiet", "--link", str(path)]
    assert main(command) == 2
    assert f"--link {path}: File exists" in capsys.readouterr().err and path.read_text() == "mine"
