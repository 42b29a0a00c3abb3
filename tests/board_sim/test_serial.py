"""A board behind a serial line: the bitstream's design in Verilator, driven as a real one is."""

import json
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom

import numpy as np
import onnx
import pytest
import serial
from npukit.driver.device import DeviceError
from npukit.driver.serial_device import SerialDevice, open_port
from npukit.driver.serial_link import LinkError, SerialLink
from npukit.isa.config import PRESETS
from npukit.isa.host_link import framed
from npukit.isa.registers import address_of
from npukit.sim.dram import SdramDram

from npukit import Session, zoo
from npukit.board_sim.model import load_library
from npukit.cli import main
from tests.board_sim.served import FaultyLine, Made, served

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """Digits."""
    return onnx.load_from_string(zoo.load("digits"))


@pytest.fixture(scope="module")
def simulated(made: Made, model: onnx.ModelProto) -> Session:
    """The same on the simulator, with the board's memory."""
    return Session(model, made.config, dram=SdramDram(megahertz=made.board.megahertz, rate=made.board.memory_rate))


def run_digits(simulated: Session, model: onnx.ModelProto, device: SerialDevice, images) -> None:
    """Outputs as the simulator's, and cycles but for the moment at which a refresh is due."""
    session = Session(model, device.config, device, dram=simulated.dram)
    for image in images:
        expected, found = simulated.run({"image": image}), session.run({"image": image})
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
        assert found.keys() == expected.keys()
        assert session.profile.cycles == pytest.approx(simulated.profile.cycles, rel=0.01)
        near = {"cycles": 0.01, "fetch_stall": 1.0}
        for counter in ("matrix_busy", "read_beats", "write_beats", "cycles"):
            value = session.profile.counters[counter]
            assert value == pytest.approx(simulated.profile.counters[counter], rel=near.get(counter, 0.0)), counter


def test_digits(made: Made, model: onnx.ModelProto, simulated: Session) -> None:
    """Several images; weights are sent once, and are still there for the next host."""
    images, _, _ = zoo.digits_heldout()
    with served(made) as server:
        device = SerialDevice(made.config, server.path)
        assert device.identity.board == "ulx3s" and device.memory_bytes == 1 << 25
        run_digits(simulated, model, device, images[:3])
        assert device.sent > 50_000 and device.kept > 2 * 50_000
        device.close()
        device = SerialDevice(made.config, server.path)
        run_digits(simulated, model, device, images[3:4])
        assert device.sent < 2000 and device.kept > 50_000
        # what was changed on the board is sent again
        device.write_memory(0x1234, np.arange(8, dtype=np.uint8))
        sent = device.sent
        run_digits(simulated, model, device, images[4:5])
        assert device.sent > sent + 2000
        device.close()


def test_a_memory_at_twice_the_rate(made: Made, model: onnx.ModelProto) -> None:
    """As larger arrays have it."""
    board = replace(made.board, memory_rate=2)
    fast = Made(board, made.config, load_library(board, made.config))
    images, _, _ = zoo.digits_heldout()
    with served(fast) as server:
        device = SerialDevice(made.config, server.path)
        assert device.dram == SdramDram(megahertz=board.megahertz, rate=2, io_cycles=3)
        run_digits(Session(model, made.config, dram=device.dram), model, device, images[:2])
        device.close()


def test_from_the_command_line(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """The board's own configuration and memory are the defaults."""
    with served(made) as server:
        device = ("run", "digits", "--device", f"serial:{server.path}")
        assert main([*device, "--compare", "--json", "--quiet"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["config"] == made.config.to_dict() and told["compare"]["mismatches"] == 0
        assert told["memory"]["megahertz"] == made.board.megahertz
        assert main([*device, "--config", "ulx3s-int8-8x8", "--quiet"]) == 3
        (error,) = capsys.readouterr().err.splitlines()
        assert "has ulx3s-int8-4x4, and not ulx3s-int8-8x8" in error


def test_memory_of_any_alignment(made: Made) -> None:
    draw = Random(3)
    with served(made) as server:
        device = SerialDevice(made.config, server.path)
        expected = np.zeros(6000, np.uint8)
        for _ in range(12):
            size = draw.choice([0, 1, 2, 5, 255, 256, 1000, 3001])
            at = draw.randrange(expected.size - size)
            data = np.frombuffer(draw.randbytes(size), np.uint8)
            expected[at : at + size] = data
            device.write_memory(0x10000 + at, data)
            at, size = draw.randrange(3000), draw.choice([0, 1, 3, 1025, 3000])
            np.testing.assert_array_equal(device.read_memory(0x10000 + at, size), expected[at : at + size])
        for address, size in ((-4, 8), (device.memory_bytes - 4, 8)):
            with pytest.raises(DeviceError, match="are outside of the board's 33554432 bytes"):
                device.read_memory(address, size)
        with pytest.raises(DeviceError, match="there is no register at offset 0xffc"):
            device.read_register(0xFFC)
        with pytest.raises(DeviceError, match="there is no register at offset 0xffc, or the core is busy"):
            device.write_register(0xFFC, 0)
        assert device.read_registers(0, 2)[0] == device.read_register(0) == 0x4E50554B
        device.close()


def test_a_client_that_was_written_from_the_document(made: Made) -> None:
    """`examples/host_link_client.py` reads identity and memory; the document's frames are the kit's."""
    with served(made) as server:
        server.board.memory[0x1000 // 2 : 0x1020 // 2] = np.arange(16, dtype=np.uint16) * 0x0F1E + 0x7D
        command = [sys.executable, ROOT / "examples" / "host_link_client.py", server.path, "0x1000", "8"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        held = server.board.memory[0x1000 // 2 : 0x1020 // 2].tobytes()
    assert told.splitlines()[0] == f"board ulx3s, configuration {made.config.hash:016x}, protocol 2"
    assert told.splitlines()[1] == "instruction set 2, 60 MHz, 4 cycles for a bit"
    assert told.splitlines()[2] == "32 MiB of memory at 60 MHz"
    assert told.splitlines()[3:] == [f"{0x1000 + at:08x}  {held[at : at + 16].hex(' ', 4)}" for at in (0, 16)]
    text = (ROOT / "docs" / "host-link.md").read_text()
    frames = re.findall(r"^((?:[0-9a-f]{2} )+7e)  ", text, re.MULTILINE)
    assert len(frames) == 7
    for frame in frames:
        content = bytes.fromhex(frame)[1:-1]
        for byte in (0x7E, 0x7D):
            content = content.replace(bytes([0x7D, byte ^ 0x20]), bytes([byte]))
        assert framed(content[:-4]) == bytes.fromhex(frame)


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
def test_a_line_that_damages_bytes(made: Made, model: onnx.ModelProto, simulated: Session, seed: int | None) -> None:
    """One byte of a hundred is lost, flipped or doubled, both ways: right results all the same."""
    drawn = seed or SystemRandom().randrange(10**6)
    print("seed", drawn)
    images, _, _ = zoo.digits_heldout()
    with served(made) as server:
        device = SerialDevice(made.config, server.path)
        run_digits(simulated, model, device, images[:1])
        lines = server.to_board, server.to_host = (FaultyLine(Random(drawn + one), 0.01) for one in range(2))
        run_digits(simulated, model, device, images[1:3])
        assert all(line.faults > 10 for line in lines) and device._link.repeated > 5
        device.close()


def in_the_middle(device: SerialDevice, act: Callable[[], None]) -> None:
    """Something that happens once some requests of a run were made."""
    asked = device._link._exchange
    count = 0

    def counted(*arguments, **options):
        nonlocal count
        count += 1
        if count == 12:
            act()
        return asked(*arguments, **options)

    device._link._exchange = counted


def test_what_ends_a_run(made: Made, model: onnx.ModelProto, simulated: Session, monkeypatch) -> None:
    """A cable that is pulled, a board that is switched off and on, another host: a clear error each, and the next run
    works."""
    images, _, _ = zoo.digits_heldout()
    monkeypatch.setattr("npukit.driver.serial_link._SILENCE", 2.0)
    with served(made) as server:

        def switch() -> None:
            server.power_cycle()
            while server._restart.is_set():
                time.sleep(0.01)

        def take_over() -> None:
            other = SerialLink(serial.Serial(server.path, timeout=0.005), "another")
            other.open()
            other.close()

        def nothing(data: bytes) -> bytes:
            return b""

        def cut() -> None:
            server.to_host = nothing

        for act, message in (
            (switch, "was reset or flashed while it was in use: run again"),
            (take_over, "another host has taken over the board"),
            (cut, r"nothing has answered on .* for \d+ s: is the board on and flashed"),
        ):
            device = SerialDevice(made.config, server.path)
            in_the_middle(device, act)
            with pytest.raises(LinkError, match=message):
                run_digits(simulated, model, device, images[:1])
            device.close()
            server.to_host = bytes
            device = SerialDevice(made.config, server.path)
            run_digits(simulated, model, device, images[:1])
            device.close()


def test_a_cable_that_is_pulled(made: Made, model: onnx.ModelProto, simulated: Session, monkeypatch) -> None:
    """The terminal goes away as a USB adapter does; a board that is there again works."""
    images, _, _ = zoo.digits_heldout()
    monkeypatch.setattr("npukit.driver.serial_link._SILENCE", 2.0)
    for _ in range(2):
        with served(made) as server:
            device = SerialDevice(made.config, server.path)
            run_digits(simulated, model, device, images[:1])

            def pull(server=server) -> None:
                server.stop()
                time.sleep(1)

            in_the_middle(device, pull)
            with pytest.raises(LinkError, match=r"the serial line .* has gone|nothing has answered"):
                run_digits(simulated, model, device, images[:1])
            device.close()


def test_two_hosts(made: Made) -> None:
    """While one has the line, nobody else opens it; what listens there beside is no board."""
    with served(made) as server:
        device = SerialDevice(made.config, server.path)
        with pytest.raises(DeviceError, match="cannot be opened: .*lock.*; another process, or another Session"):
            open_port(server.path)
        device.close()
        open_port(server.path).close()


def test_another_configuration(made: Made) -> None:
    with served(made) as server:
        message = "the board ulx3s on .* has ulx3s-int8-4x4, and not bf16-4x4: use --config"
        with pytest.raises(DeviceError, match=message):
            SerialDevice(PRESETS["bf16-4x4"], server.path)
        device = SerialDevice(made.config, server.path)  # the line was given back
        assert device.read_register(address_of("IDENTITY")) == struct.unpack("<I", b"KUPN")[0]
        device.close()
