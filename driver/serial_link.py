"""The host's end of the link to a board: requests that are repeated until they are answered (docs/host-link.md)."""

import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from npukit.driver.device import DeviceError
from npukit.isa.host_link import (
    CRC_BYTES,
    FLAG,
    MAX_WORDS,
    PROTOCOL_VERSION,
    ROOM,
    Answer,
    Identity,
    Kind,
    Status,
    framed,
    request,
    unescaped,
)

__all__ = ["LinkError", "Port", "SerialLink", "SilentError"]

_SILENCE = 10.0
"""Seconds without any answer, through all repetitions, after which a board is given up."""
_FIRST_GUESS = 0.002
"""Seconds for a byte, before the first answer has shown how fast the board is."""
_LONGEST = 120.0
"""Seconds of silence that are waited for at most, however slow the board was before."""
_BACK_OFF = 5
"""Times that the time for an answer is doubled."""
_WRITES = 8
"""WRITEs that are under way at a time: the board takes them up faster than the line brings them."""
_LEAST_WORDS = 4
"""Of a frame on a line that damages longer ones."""
_BATCH = 16
"""Frames of a long transfer that are asked for together."""
_TRIES = 10
"""A request is repeated at least so many times before a board is given up."""
_QUIET = 0.1
"""Seconds without a byte, doubled with each repetition, after which no more answers are expected to be under way."""
_GOOD = 32
"""Answers in a row without a repetition after which frames grow again."""
_LONGEST_ANSWER = 2 * (8 + 4 * MAX_WORDS + 1 + CRC_BYTES)
"""Bytes between two flags, all of them escaped."""


class LinkError(DeviceError):
    """A board that does not answer, was reset, or is used by somebody else; or a line that has gone."""


class SilentError(LinkError):
    """Nobody answers."""


class _Damaged(Exception):
    """Frames did not get through, and shorter ones may.

    Attributes:
        last: when there was an answer last.
    """

    def __init__(self, last: float) -> None:
        super().__init__()
        self.last = last


class Port(Protocol):
    """The serial line: what pyserial's `Serial` has."""

    @property
    def in_waiting(self) -> int:
        """Bytes that have come."""
        ...

    def read(self, size: int = 1) -> bytes:
        """At least a byte, or none after the port's timeout; at most `size`."""
        ...

    def write(self, data: bytes, /) -> int | None:
        """Send bytes."""
        ...

    def close(self) -> None:
        """Give the line back."""
        ...


@dataclass
class _Request:
    kind: Kind
    address: int = 0
    words: int = 0
    data: bytes = b""
    sequence: int = -1
    sent: float = 0.0
    """When it was sent last."""
    tries: int = 0
    under_way: int = 0
    """Bytes that were to be moved before its answer is there, when it was sent."""
    answer: Answer | None = None


def _bytes_of(ahead: Sequence[_Request]) -> int:
    """Bytes on the line for requests and their answers; a word takes as long to add to a digest as a byte."""
    return sum(32 + len(one.data) + (1 if one.kind is Kind.CHECKSUM else 4) * one.words for one in ahead)


class SerialLink:
    """Requests to a board, one session.

    Every request may be repeated: reads, and writes of memory, give the same again, and a WRITE that comes again with
    the number of the one before it is not carried out twice; writes of registers go alone for that. Frames are made
    shorter when requests have to be repeated, and longer again when they have not.

    Attributes:
        identity: what the board says of itself, once `open` was called.
        repeated: requests that were sent again.
        was_reset: whether the session has ended because the board was reset.
    """

    identity: Identity

    def __init__(self, port: Port, name: str) -> None:
        self._port, self._name = port, name
        self._session = 0
        self._sequence = dict.fromkeys((True, False), secrets.randbelow(256))
        """Of WRITEs and of all others: the board compares a WRITE with the one before it, whatever came in between."""
        self._between = bytearray()
        """Of the frame that is coming."""
        self._words = self._batch_words = MAX_WORDS
        self._good = 0
        self._heard = 0.0
        """When the last byte came."""
        self._seconds_per_byte = _FIRST_GUESS
        self.repeated = 0
        self.was_reset = False

    def open(self, silence: float | None = None) -> Identity:
        """Find out who is there, and begin a session, which ends any other host's.

        Raises:
            SilentError: nobody answers for that many seconds, 10 by default.
            LinkError: somebody else than a board of this kit does.
        """
        self._seconds_per_byte = _FIRST_GUESS
        (answer,) = self._exchange([_Request(Kind.IDENTIFY)], silence)
        identity = Identity.of(answer.data)
        if identity is None:
            raise LinkError(f"what answers on {self._name} is no board of npukit")
        if identity.protocol != PROTOCOL_VERSION:
            raise LinkError(
                f"the board {identity.board} on {self._name} speaks version {identity.protocol} of the host link, this "
                f"npukit version {PROTOCOL_VERSION}: flash a bitstream of this npukit"
            )
        session = secrets.randbelow((1 << 32) - 1) + 1
        self._session = session
        self._exchange([_Request(Kind.OPEN)])
        self.identity, self.was_reset = identity, False
        return identity

    def close(self) -> None:
        """Give the line back."""
        self._port.close()

    def read(self, address: int, words: int, progress: Callable[[int], None] = lambda _: None) -> bytes:
        """So many words, in bytes; `progress` is called with the bytes that are there."""
        found = b""

        def part(at: int, size: int) -> _Request:
            return _Request(Kind.READ, address + 4 * at, min(size, words - at))

        for answers in self._in_batches(words, part):
            found += b"".join(answer.data for answer in answers)
            progress(len(found))
        return found

    def write(self, address: int, data: bytes, progress: Callable[[int], None] = lambda _: None) -> None:
        """Words into memory; `progress` is called with the bytes that are there."""
        done = 0

        def part(at: int, size: int) -> _Request:
            return _Request(Kind.WRITE, address + 4 * at, data=data[4 * at : 4 * (at + size)])

        for answers in self._in_batches(len(data) // 4, part):
            done += len(answers) * 4 * self._batch_words
            progress(min(done, len(data)))

    def _in_batches(self, words: int, part: Callable[[int, int], _Request]) -> Iterator[list[Answer]]:
        """Answers of the parts of a transfer, made of their first word and the most words, in batches."""
        done, last = 0, None
        while done < words:
            size = self._batch_words = self._words
            starts = range(done, min(words, done + _BATCH * size), size)
            try:
                answers = self._exchange([part(at, size) for at in starts], may_split=True, last=last)
            except _Damaged as damaged:  # what has been moved of this batch is moved again
                last = damaged.last
                continue
            last = None
            done = min(words, starts[-1] + size)
            yield answers

    def write_register(self, address: int, value: int) -> bool:
        """One word, once; whether it was taken."""
        (answer,) = self._exchange([_Request(Kind.WRITE, address, data=struct.pack("<I", value))], may_refuse=True)
        return answer.status is Status.OK

    def read_registers(self, address: int, words: int) -> bytes | None:
        """Words of registers, or None where one was refused."""
        (answer,) = self._exchange([_Request(Kind.READ, address, words)], may_refuse=True)
        return answer.data if answer.status is Status.OK else None

    def digest(self, address: int, words: int) -> int:
        """CRC-64 of a block of memory, at most 65535 words."""
        (answer,) = self._exchange([_Request(Kind.CHECKSUM, address, words)])
        return int.from_bytes(answer.data, "little")

    def _exchange(
        self, wanted: list[_Request], silence: float | None = None, *, may_refuse: bool = False,
        may_split: bool = False, last: float | None = None,
    ) -> list[Answer]:  # fmt: skip
        """The answers of requests, sent in this order, several at a time. `last`: when there was an answer, if the same
        was tried before.

        Raises:
            LinkError: there is none within `silence` seconds, or the session has ended.
            DeviceError: an access that was refused, but for `may_refuse`.
            _Damaged: with `may_split`: something has to be repeated, and is longer than frames are now.
        """
        waiting, ahead = list(wanted), list[_Request]()
        silence = _SILENCE if silence is None else silence
        last = monotonic() if last is None else last
        damaged = False
        while waiting or ahead:
            room = _WRITES if waiting and all(one.kind is Kind.WRITE for one in (*waiting[:1], *ahead)) else ROOM
            while waiting and len(ahead) < room:
                ahead.append(waiting.pop(0))
                ahead[-1].sequence = self._next_sequence(ahead[-1].kind)
                self._send(ahead[-1], ahead)
            answers, damaged_now = self._receive()
            damaged |= damaged_now
            for answer in answers:
                if answer.kind is None:
                    damaged = True
                    continue
                match = next((one for one in ahead if (one.kind, one.sequence) == (answer.kind, answer.sequence)), None)
                if match is None:  # of a request that was repeated although it was carried out
                    continue
                self._check(answer, may_refuse)
                match.answer = answer
                ahead.remove(match)
                last = monotonic()
                self._learn(match, last)
            if not ahead:
                damaged = False  # of what nobody waits for any more
                continue
            now = monotonic()
            limit = min(_LONGEST, max(silence, _TRIES * max(map(self._patience, ahead))))
            if now - last > limit:
                raise SilentError(
                    f"nothing has answered on {self._name} for {now - last:.0f} s: is the board on and flashed?"
                )
            if now > self._until(ahead, limit, damaged=damaged):
                self._good, self._words = 0, max(_LEAST_WORDS, self._words // 2)
                if may_split and any(one.words + len(one.data) // 4 > self._words for one in ahead):
                    self.repeated += len(ahead)
                    raise _Damaged(last)
                self._repeat(ahead)
                damaged = False
        return [one.answer for one in wanted if one.answer is not None]

    def _until(self, ahead: Sequence[_Request], limit: float, *, damaged: bool) -> float:
        """When requests are repeated. Where something damaged has come, that is once the answers to all that was sent
        must have passed, or none seems to come any more: what is repeated before only makes more answers, which may be
        damaged as well, so that the line would be full of them for ever."""
        backed_off = [2 ** min(_BACK_OFF, one.tries - 1) for one in ahead]
        if damaged:
            passed = max(one.sent + one.under_way * self._seconds_per_byte for one in ahead)
            quiet = max(self._heard, *(one.sent for one in ahead)) + _QUIET * max(backed_off)
            return min(passed, quiet)
        waits = (min(limit / _TRIES, self._patience(one) * times) for one, times in zip(ahead, backed_off, strict=True))
        return max(one.sent + wait for one, wait in zip(ahead, waits, strict=True))

    def _patience(self, one: _Request) -> float:
        """Seconds that an answer may take: four times what so many bytes took lately."""
        return 4 * one.under_way * self._seconds_per_byte + 0.1

    def _learn(self, one: _Request, now: float) -> None:
        """How fast the board is, and that a frame got through. Of a request that was repeated, nobody knows which one
        the answer is to: the time since the last one is the least that it can have taken. Where the board has become
        slower, it is a quarter of the true one on average, because the waits between repetitions double."""
        taken = (now - one.sent) / one.under_way
        self._seconds_per_byte = max(taken, 0.9 * self._seconds_per_byte + 0.1 * taken)
        self._good += 1
        if self._good >= _GOOD:
            self._good, self._words = 0, min(MAX_WORDS, 2 * self._words)

    def _next_sequence(self, kind: Kind) -> int:
        writes = kind is Kind.WRITE
        self._sequence[writes] = (self._sequence[writes] + 1) % 256
        return self._sequence[writes]

    def _repeat(self, ahead: list[_Request]) -> None:
        self.repeated += len(ahead)
        for count, one in enumerate(ahead, 1):
            self._send(one, ahead[:count])

    def _send(self, one: _Request, ahead: list[_Request]) -> None:
        one.sent = monotonic()
        one.tries += 1
        one.under_way = _bytes_of(ahead)
        frame = framed(request(one.kind, one.sequence, self._session, one.address, one.words, one.data))
        try:
            self._port.write(frame)
        except OSError as error:  # pyserial's errors are such
            raise self._gone(error) from None

    def _receive(self) -> tuple[list[Answer], bool]:
        """Answers that have come, or come within the port's timeout; whether there were others, which are damaged."""
        try:
            data = self._port.read(max(1, self._port.in_waiting))
        except (OSError, TypeError) as error:  # the latter where the descriptor is closed meanwhile
            raise self._gone(error) from None
        if data:
            self._heard = monotonic()
        found, damaged = [], False
        *whole, rest = (bytes(self._between) + data).split(bytes([FLAG]))
        self._between = bytearray(rest[-_LONGEST_ANSWER:])
        for part in whole:
            content = unescaped(part) if part else None
            answer = Answer.of(content) if content is not None else None
            if answer is not None:
                found.append(answer)
            damaged |= bool(part) and answer is None
        return found, damaged

    def _check(self, answer: Answer, may_refuse: bool) -> None:
        if answer.status is Status.SESSION:
            if answer.session == 0:
                self.was_reset = True
                raise LinkError(f"the board on {self._name} was reset or flashed while it was in use: run again")
            raise LinkError(
                f"another host has taken over the board on {self._name}: when it is free, open it anew (another "
                "Session, or SerialDevice)"
            )
        if answer.status is Status.INVALID:
            raise DeviceError(f"the board on {self._name} does not know what it was asked: {answer}")
        if answer.status is Status.REFUSED and not may_refuse:
            raise DeviceError(f"the board on {self._name} refused an access to its memory")

    def _gone(self, error: BaseException) -> LinkError:
        return LinkError(f"the serial line {self._name} has gone, or takes no bytes: {error}; is the cable pulled?")
