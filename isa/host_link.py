"""The link between a host and a board, declared once: hardware, host and tests read it; docs/host-link.md explains it.

A frame on the line is a flag, its content, in which flags and escapes are escaped (RFC 1662, section 4.2), and a flag.
The content is a head, words, and a CRC-32 of all that is before it (IEEE 802.3; `zlib.crc32`). Numbers of several bytes
have their low byte first.
"""

import enum
import struct
from dataclasses import dataclass
from typing import Self
from zlib import crc32

__all__ = [
    "ANSWER",
    "ANSWER_HEAD",
    "BAUD_RATES",
    "CRC_BYTES",
    "CRC_POLYNOMIAL",
    "CRC_RESIDUE",
    "DIGEST_BITS",
    "DIGEST_POLYNOMIAL",
    "ESCAPE",
    "ESCAPED",
    "FLAG",
    "IDENTITY_WORDS",
    "MAX_WORDS",
    "PROTOCOL_VERSION",
    "REGISTERS",
    "REQUEST_HEAD",
    "ROOM",
    "UNREADABLE",
    "Answer",
    "Identity",
    "Kind",
    "Status",
    "baud_of",
    "divisor_of",
    "framed",
    "request",
    "unescaped",
]

FLAG, ESCAPE, ESCAPED = 0x7E, 0x7D, 0x20
"""A frame's ends; what stands before a flag or an escape within; which bit of the escaped byte is turned over."""
CRC_POLYNOMIAL = 0xEDB88320
"""Of CRC-32 with the low bit first; it begins with ones and is inverted at the end."""
DIGEST_POLYNOMIAL, DIGEST_BITS = 0xC96C5795D7870F42, 64
"""Of what CHECKSUM answers, CRC-64 as in XZ files: alike, of 64 bits."""
CRC_RESIDUE = 0xDEBB20E3
"""What the CRC's register holds behind a content that is whole."""
CRC_BYTES = 4
PROTOCOL_VERSION = 2
MAX_WORDS = 256
"""Words of 32 bits that a frame carries at most."""
ROOM = 2
"""Requests that the board keeps while it works: the one that it carries out is among them."""
REGISTERS = 1 << 31
"""The host's address of the accelerator's registers; memory begins at 0."""
REQUEST_HEAD = (("kind", 1), ("sequence", 1), ("words", 2), ("session", 4), ("address", 4))
"""Names and bytes of a request's fields."""
ANSWER_HEAD = (("kind", 1), ("sequence", 1), ("words", 2), ("session", 4))
"""The same of an answer; its words follow, and a byte with its status."""
BAUD_RATES = (3_000_000, 2_000_000, 1_000_000)
"""Rates that an FTDI chip's 3 MHz give exactly, best first."""


class Kind(enum.IntEnum):
    """What a request asks for."""

    IDENTIFY = 0
    OPEN = 1
    READ = 2
    WRITE = 3
    CHECKSUM = 4


ANSWER = 0x80
"""Added to the kind of the request that is answered."""
UNREADABLE = 0xFF
"""Kind of the answer to what was no frame."""


class Status(enum.IntEnum):
    """How a request went."""

    OK = 0
    REFUSED = 1
    SESSION = 2
    INVALID = 3
    UNREADABLE = 4


_FORMATS = {1: "B", 2: "H", 4: "I"}
_REQUEST = struct.Struct("<" + "".join(_FORMATS[size] for _, size in REQUEST_HEAD))
_ANSWER = struct.Struct("<" + "".join(_FORMATS[size] for _, size in ANSWER_HEAD))


def framed(content: bytes) -> bytes:
    """The bytes on the line of a content, to which its CRC is added."""
    whole = content + struct.pack("<I", crc32(content))
    for byte in (ESCAPE, FLAG):
        whole = whole.replace(bytes([byte]), bytes([ESCAPE, byte ^ ESCAPED]))
    return bytes([FLAG]) + whole + bytes([FLAG])


def unescaped(between: bytes) -> bytes | None:
    """The content of what came between two flags, or None where it was damaged."""
    parts = between.split(bytes([ESCAPE]))
    if any(not part for part in parts[1:]):  # an escape before an escape, or at the end
        return None
    whole = parts[0] + b"".join(bytes([part[0] ^ ESCAPED]) + part[1:] for part in parts[1:])
    content = whole[:-CRC_BYTES]
    return content if len(whole) >= CRC_BYTES and whole == content + struct.pack("<I", crc32(content)) else None


def request(kind: Kind, sequence: int, session: int, address: int = 0, words: int = 0, data: bytes = b"") -> bytes:
    """A request's content. data: of a WRITE, a multiple of 4 bytes."""
    return _REQUEST.pack(kind, sequence, words or len(data) // 4, session, address) + data


@dataclass(frozen=True)
class Answer:
    """An answer. kind: of the request, or None: what the board got was no frame. session: the one in force."""

    kind: Kind | None
    sequence: int
    session: int
    data: bytes
    status: Status

    @classmethod
    def of(cls, content: bytes) -> "Answer | None":
        """An answer from its content, or None where it is none."""
        if len(content) < _ANSWER.size + 1:
            return None
        kind, sequence, words, session = _ANSWER.unpack_from(content)
        data, status = content[_ANSWER.size : -1], content[-1]
        known = kind == UNREADABLE or kind - ANSWER in list(Kind)
        if not known or len(data) != 4 * words or status not in list(Status):
            return None
        return cls(None if kind == UNREADABLE else Kind(kind - ANSWER), sequence, session, data, Status(status))


_MAGIC = 0x4C55504E  # "NPUL"
_NAME_BYTES = 16
IDENTITY_WORDS = 9 + _NAME_BYTES // 4
"""Words of the answer to IDENTIFY."""


@dataclass(frozen=True)
class Identity:
    """What a board says of itself.

    board: its name, of which 16 bytes are kept. config_hash: of the accelerator's configuration. isa_version: of its
    instruction set. hertz: of its clock. memory_bytes: from address 0. divisor: cycles of a bit on the line.
    memory_rate: cycles of its memory in one of its clock. Of another version of the protocol, the name and `protocol`
    alone are known.
    """

    board: str
    config_hash: int
    isa_version: int
    hertz: int
    memory_bytes: int
    divisor: int
    memory_rate: int = 1
    protocol: int = PROTOCOL_VERSION

    def to_words(self) -> tuple[int, ...]:
        """As the board answers."""
        name = self.board.encode("ascii", "replace")[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
        low, high = self.config_hash & 0xFFFFFFFF, self.config_hash >> 32
        numbers = (_MAGIC, self.protocol, low, high, self.isa_version, self.hertz, self.memory_bytes, self.divisor)
        return (*numbers, self.memory_rate, *struct.unpack(f"<{_NAME_BYTES // 4}I", name))

    @classmethod
    def of(cls, data: bytes) -> Self | None:
        """From an answer's words, or None where it is none of this kit's boards."""
        if len(data) < 8 or struct.unpack_from("<I", data)[0] != _MAGIC:
            return None
        protocol = struct.unpack_from("<I", data, 4)[0]
        name = data[-_NAME_BYTES:].rstrip(b"\0").decode("ascii", "replace")
        if len(data) != 4 * IDENTITY_WORDS:
            return cls(name, 0, 0, 0, 0, 0, 0, protocol) if protocol != PROTOCOL_VERSION else None
        low, high, isa, hertz, memory, divisor, rate = struct.unpack_from("<7I", data, 8)
        return cls(name, low | high << 32, isa, hertz, memory, divisor, rate, protocol)


def baud_of(megahertz: float) -> int:
    """The fastest rate that a clock divides to within 1 %, with a bit of 8 cycles at least.

    Raises:
        ValueError: there is none.
    """
    for rate in BAUD_RATES:
        divisor = round(megahertz * 1e6 / rate)
        if divisor >= 8 and abs(divisor * rate / (megahertz * 1e6) - 1) <= 0.01:
            return rate
    raise ValueError(f"{megahertz:g} MHz gives none of the rates {', '.join(map(str, BAUD_RATES))} within 1 %")


def divisor_of(megahertz: float, baud: int) -> int:
    """Cycles of a bit.

    Raises:
        ValueError: a rate that the clock does not give within 1 %, or that leaves fewer than 4 cycles for a bit.
    """
    hertz = megahertz * 1e6
    divisor = round(hertz / baud)
    error = abs(divisor * baud / hertz - 1)
    if error > 0.01 or divisor < 4:
        raise ValueError(
            f"{baud} baud is {100 * error:.1f} % off at {megahertz:g} MHz, with {divisor} cycles for a bit; at most "
            "1 % and at least 4 cycles work"
        )
    return divisor
