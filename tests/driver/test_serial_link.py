"""The host's end of the link, against the protocol's model: numbers that wrap, boards that fall silent."""

import struct
from collections.abc import Callable
from random import Random, SystemRandom

import numpy as np
import pytest
from npukit.driver import serial_link
from npukit.driver.digest import digest
from npukit.driver.serial_link import LinkError, SerialLink, SilentError
from npukit.isa.host_link import REGISTERS, Identity

from tests.board_sim.served import FaultyLine
from tests.fpga.link_model import LinkModel, crc64, framed

IDENTITY = Identity("a model", 0x1234, 2, 60_000_000, 1 << 25, 20)


class Clock:
    """Time that passes with what is done on the line."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class ModelPort:
    """A line to the model, at so many seconds for a byte.

    Attributes:
        deaf: the board is switched off. most: bytes that come at once.
        to_board, to_host: what the line makes of bytes.
    """

    def __init__(self, model: LinkModel, clock: Clock, seconds: float = 4e-6) -> None:
        self.model, self.clock, self.seconds = model, clock, seconds
        self.waiting = b""
        self.deaf = False
        self.heard = 0
        self.most = 1 << 16
        self.to_board: Callable[[bytes], bytes] = bytes
        self.to_host: Callable[[bytes], bytes] = bytes

    @property
    def in_waiting(self) -> int:
        return len(self.waiting)

    def read(self, size: int = 1) -> bytes:
        size = min(size, self.most)
        data, self.waiting = self.waiting[:size], self.waiting[size:]
        self.clock.now += len(data) * self.seconds or 0.005
        return data

    def write(self, data: bytes) -> int:
        self.clock.now += len(data) * self.seconds
        if not self.deaf:
            for byte in self.to_board(data):
                self.model.hear(byte)
            self.heard += len(data)
            self.waiting += self.to_host(b"".join(self.model.answers))
            self.model.answers.clear()
        return len(data)

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(serial_link, "monotonic", made.monotonic)
    return made


@pytest.fixture
def port(clock: Clock) -> ModelPort:
    return ModelPort(LinkModel(IDENTITY.to_words()), clock)


@pytest.fixture
def link(port: ModelPort) -> SerialLink:
    made = SerialLink(port, "the line")
    assert made.open() == IDENTITY
    return made


@pytest.mark.parametrize("between", [0, 1, 254, 255, 256, 511])
def test_a_write_is_never_taken_for_the_one_before(link: SerialLink, port: ModelPort, between: int) -> None:
    """However many reads were in between."""
    for value in (1, 2, 3):
        assert link.write_register(REGISTERS + 0x20, value)
        for _ in range(between):
            link.read(0, 1)
        assert link.read_registers(REGISTERS + 0x20, 1) == struct.pack("<I", value)
    link.write(0x1000, bytes(range(200)) * 20)
    assert link.read(0x1000, 1000) == bytes(range(200)) * 20 and link.repeated == 0


@pytest.mark.parametrize("seconds", [4e-6, 1e-4])
@pytest.mark.parametrize("what", ["register", "read", "write", "digest"])
def test_a_board_that_falls_silent(link: SerialLink, port: ModelPort, clock: Clock, what: str, seconds: float) -> None:
    """It is given up in about ten seconds, whatever was under way, on a fast board; a slow one has more time."""
    port.seconds = seconds
    link.write(0, bytes(1 << 16))
    port.deaf, begin = True, clock.now
    with pytest.raises(SilentError, match="nothing has answered on the line for"):
        if what == "register":
            link.read_registers(REGISTERS, 1)
        elif what == "read":
            link.read(0, 1 << 14)
        elif what == "write":
            link.write(0, bytes(1 << 16))
        else:
            link.digest(0, 1 << 14)
    assert 10 <= clock.now - begin < (16 if seconds < 1e-5 else 130)
    port.deaf = False
    assert link.read(0, 4) == bytes(16)


def test_a_board_that_becomes_slow(link: SerialLink, port: ModelPort) -> None:
    """A hundred times, in the middle: some requests come twice, and nothing else happens."""
    data = Random(1).randbytes(1 << 16)
    link.write(0, data[: 1 << 15])
    port.seconds *= 100
    link.write(1 << 15, data[1 << 15 :])
    assert link.read(0, 1 << 14) == data


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
def test_a_line_that_damages_bytes_is_not_filled_with_repetitions(
    link: SerialLink, port: ModelPort, seed: int | None
) -> None:
    """A board whose answers take their time: what is repeated meanwhile is answered as well, and may be damaged."""
    drawn = SystemRandom().randrange(10**6) if seed is None else seed
    print("seed", drawn)
    data = Random(drawn).randbytes(1 << 13)
    port.to_board, port.to_host = (FaultyLine(Random(drawn + one), 0.01) for one in range(2))
    port.most, port.seconds = 8, 1e-3
    link.write(0, data)
    assert link.read(0, 1 << 11) == data
    assert 100 < link.repeated < 3 * (2 * len(data) // 16)


def test_who_else_may_answer(port: ModelPort, clock: Clock) -> None:
    """Another version of the protocol, or something else that speaks in frames, is told at once."""
    newer = Identity("a model", 0, 2, 1, 1 << 25, 20, protocol=3)
    of_version_1 = (newer.to_words()[0], 1, *newer.to_words()[2:8], *newer.to_words()[9:])
    for words, message in (
        (newer.to_words(), "the board a model on the line speaks version 3"),
        (of_version_1, "the board a model on the line speaks version 1"),
        (range(12), "is no board of npukit"),
    ):
        begin = clock.now
        port.model.identity = tuple(words)
        with pytest.raises(LinkError, match=message) as raised:
            SerialLink(port, "the line").open()
        assert not isinstance(raised.value, SilentError) and clock.now - begin < 1


def test_answers_of_every_byte(link: SerialLink, port: ModelPort) -> None:
    """The longest frames, all of whose bytes are escaped."""
    for byte in (0x7D, 0x7E):
        data = bytes([byte]) * 4096
        link.write(0, data)
        assert link.read(0, 1024) == data
    assert link.repeated == 0 and framed(b"").count(0x7E) == 2


def test_digests() -> None:
    """Of the check that XZ files have, and of what the model says."""
    assert digest(np.frombuffer(b"123456789", np.uint8)) == 0x995DC9BBDF1939FA
    for size in (0, 1, 1000):
        data = Random(size).randbytes(size)
        assert digest(np.frombuffer(data, np.uint8)) == crc64(data)
