"""What docs/host-link.md says that a board does, byte by byte, without the kit's own frames."""

import struct
import zlib
from dataclasses import dataclass, field

__all__ = ["LinkModel", "framed", "request"]


def crc64(data: bytes) -> int:
    """As in XZ files."""
    register = (1 << 64) - 1
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xC96C5795D7870F42 if register & 1 else 0)
    return register ^ (1 << 64) - 1


def framed(content: bytes) -> bytes:
    """The bytes of a frame."""
    line = bytearray([0x7E])
    for byte in content + zlib.crc32(content).to_bytes(4, "little"):
        line += bytes([0x7D, byte ^ 0x20]) if byte in (0x7D, 0x7E) else bytes([byte])
    return bytes(line) + b"\x7e"


def request(kind: int, sequence: int, session: int, address: int = 0, words: int = 0, data: bytes = b"") -> bytes:
    """A frame that asks for something."""
    return framed(struct.pack("<BBHII", kind, sequence, words or len(data) // 4, session, address) + data)


@dataclass
class LinkModel:
    """A board: identity, the words that it answers to IDENTIFY; memory, words by address; accesses from `refused` on
    answer with an error. Answers and writes (address, word) are in the order in which they happen."""

    identity: tuple[int, ...]
    memory: dict[int, int] = field(default_factory=dict)
    refused: int = 1 << 32
    session: int = 0
    last: tuple[int, int] | None = None
    """Sequence number and status of the latest WRITE of this session."""
    answers: list[bytes] = field(default_factory=list)
    unreadable: int = 0
    """Answers that what was no frame asks for."""
    writes: list[tuple[int, int]] = field(default_factory=list)
    _content: bytearray = field(default_factory=bytearray)
    _escaped: bool = False
    _damaged: bool = False

    def hear(self, byte: int, right: bool = True) -> None:
        """A byte of the line, and whether its stop bit is."""
        if not right:
            self._damaged = True
        elif byte == 0x7E:
            content = bytes(self._content)
            if self._damaged or self._escaped or (content and not self._whole(content)):
                self.unreadable += 1
            elif content:
                self._carry_out(content[:-4])
            self._content.clear()
            self._escaped = self._damaged = False
        elif byte == 0x7D:
            self._damaged |= self._escaped
            self._escaped = True
        else:
            self._content.append(byte ^ (0x20 if self._escaped else 0))
            self._escaped = False

    @staticmethod
    def _whole(content: bytes) -> bool:
        return len(content) >= 16 and zlib.crc32(content[:-4]).to_bytes(4, "little") == content[-4:]

    def _carry_out(self, content: bytes) -> None:
        head = content[:12].ljust(12, b"\0")
        kind, sequence, words, session, address = struct.unpack("<BBHII", head)
        data, status = b"", 0
        most = 65535 if kind == 4 else 256
        wanted = 12 + (4 * words if kind == 3 else 0)
        moves, last = kind in (2, 3, 4), address + 4 * words - 4
        there = last < self.identity[6] or 0x80000000 <= address <= last < 0x80001000
        if len(content) != wanted or kind > 4 or (moves and (not 0 < words <= most or address % 4 or not there)):
            status = 3
        elif moves and (session != self.session or session == 0):
            status = 2
        elif kind == 0:
            data = struct.pack(f"<{len(self.identity)}I", *self.identity)
        elif kind == 1:
            self.session, self.last = session, None
        elif kind == 3:
            status = self._write(sequence, address, content[12:])
        else:
            addresses = [(address + 4 * index) % (1 << 32) for index in range(words)]
            status = int(any(one >= self.refused for one in addresses))
            data = struct.pack(f"<{words}I", *(self.memory.get(one, 0) for one in addresses))
            if kind == 4:
                data = crc64(data).to_bytes(8, "little")
        answer = struct.pack("<BBHI", kind | 0x80, sequence, len(data) // 4, self.session) + data + bytes([status])
        self.answers.append(framed(answer))

    def _write(self, sequence: int, address: int, data: bytes) -> int:
        if self.last is not None and self.last[0] == sequence:
            return self.last[1]
        status = 0
        for index, (word,) in enumerate(struct.iter_unpack("<I", data)):
            place = (address + 4 * index) % (1 << 32)
            self.writes.append((place, word))
            if place < self.refused:
                self.memory[place] = word
            else:
                status = 1
        self.last = (sequence, status)
        return status
