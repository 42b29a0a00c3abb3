"""A host of a board's serial line, written from docs/host-link.md alone: who is there, and a block of memory.

    python host_link_client.py /dev/ttyUSB0 [ADDRESS [WORDS]]

It needs pyserial, and nothing of npukit.
"""

import random
import struct
import sys
import time
import zlib

import serial

FLAG, ESCAPE = 0x7E, 0x7D
IDENTIFY, OPEN, READ = 0, 1, 2
STATUS = ("ok", "refused", "the session has ended", "invalid", "unreadable")


class Board:
    """Requests, each sent until it is answered."""

    def __init__(self, port: str, baud: int = 3_000_000) -> None:
        self.line = serial.Serial(port, baud, timeout=0.02, exclusive=True)
        self.line.reset_input_buffer()
        self.session = random.randrange(1, 1 << 32)
        self.sequence = 0

    def ask(self, kind: int, address: int = 0, words: int = 0) -> bytes:
        """The data of the answer."""
        self.sequence = (self.sequence + 1) % 256
        content = struct.pack("<BBHII", kind, self.sequence, words, self.session, address)
        content += struct.pack("<I", zlib.crc32(content))
        frame = bytes([FLAG]) + b"".join(
            bytes([ESCAPE, byte ^ 0x20]) if byte in (FLAG, ESCAPE) else bytes([byte]) for byte in content
        ) + bytes([FLAG])  # fmt: skip
        patience, end = 0.5, time.monotonic() + 30
        while time.monotonic() < end:
            self.line.write(frame)
            for answer in self.frames(patience):
                found, sequence, count, _ = struct.unpack_from("<BBHI", answer)
                if (found, sequence) == (kind | 0x80, self.sequence) and len(answer) == 9 + 4 * count:
                    if answer[-1]:
                        raise SystemExit(f"the board answers: {STATUS[answer[-1]]}")
                    return answer[8:-1]
            patience *= 2
        raise SystemExit("nobody answers")

    def frames(self, seconds: float):
        """Contents of whole frames that come in that time."""
        end, content, escaped = time.monotonic() + seconds, bytearray(), False
        while time.monotonic() < end:
            for byte in self.line.read(max(1, self.line.in_waiting)):
                if byte == FLAG:
                    whole = len(content) >= 13 and not escaped
                    if whole and struct.pack("<I", zlib.crc32(content[:-4])) == content[-4:]:
                        yield bytes(content[:-4])
                    content.clear()
                    escaped = False
                elif byte == ESCAPE:
                    escaped = True
                else:
                    content.append(byte ^ (0x20 if escaped else 0))
                    escaped = False


def main() -> None:
    """Print both."""
    if not 2 <= len(sys.argv) <= 4:
        raise SystemExit(__doc__)
    port, address, words = (*sys.argv[1:], *("0", "16")[len(sys.argv) - 2 :])
    board = Board(port)
    identity = board.ask(IDENTIFY)
    magic, version, low, high, isa, hertz, memory, divisor, rate = struct.unpack_from("<9I", identity)
    if magic != 0x4C55504E:
        raise SystemExit("this is no board of npukit")
    if version != 2:
        raise SystemExit(f"the board speaks version {version} of the protocol, and this client 2")
    print(f"board {identity[36:].rstrip(bytes(1)).decode()}, configuration {low | high << 32:016x}, protocol {version}")
    print(f"instruction set {isa}, {hertz / 1e6:g} MHz, {divisor} cycles for a bit")
    print(f"{memory >> 20} MiB of memory at {rate * hertz / 1e6:g} MHz")
    board.ask(OPEN)
    start = int(address, 0)
    data = board.ask(READ, start, int(words, 0))
    for at in range(0, len(data), 16):
        print(f"{start + at:08x}  {data[at : at + 16].hex(' ', 4)}")


if __name__ == "__main__":
    main()
