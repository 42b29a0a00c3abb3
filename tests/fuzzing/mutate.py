"""Changes of bytes and of numbers that any kind of input may suffer."""

from random import Random

__all__ = ["change_bytes", "change_number", "odd_number"]

_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF, 0x0A, 0x20, 0x22, 0x2D, 0x30, 0x3D, 0x5B)
_MOST = 1 << 16
"""Bytes that a duplication adds at most."""


def odd_number(random: Random) -> int:
    """A number at which something may change: small, around a power of two, or far away."""
    if random.random() < 0.4:
        return random.randint(-2, 70)
    if random.random() < 0.1:
        return random.choice([10**19, -(10**19), 10**40, 1 << 200])
    number = (1 << random.randrange(66)) + random.randint(-1, 1)
    return -number if random.random() < 0.2 else number


def change_number(random: Random, number: int) -> int:
    """Another number, often one near by."""
    if random.random() < 0.6:
        return number + random.choice([-1, 1, 1, -2, 2, random.randint(-16, 16)])
    if random.random() < 0.3:
        return random.choice([-number, number * 2, number // 2, number * 1000])
    return odd_number(random)


def change_bytes(random: Random, data: bytes, most: int = 6) -> bytes:
    """`data` with 1 to `most` changes: bits, bytes, runs of bytes left out, put in or doubled, an end cut off."""
    changed = bytearray(data)
    for _ in range(random.randint(1, most)):
        size = len(changed)
        at = random.randrange(size + 1)
        run = min(random.choice([1, 1, 2, 4, 8, random.randint(1, 64), random.randint(1, 4096)]), _MOST)
        match random.randrange(8) if size else 4:
            case 0:
                changed[min(at, size - 1)] ^= 1 << random.randrange(8)
            case 1:
                changed[min(at, size - 1)] = random.choice(_BYTES)
            case 2:
                del changed[at : at + run]
            case 3:
                changed[at:at] = changed[at : at + run]
            case 4:
                changed[at:at] = random.randbytes(min(run, 16))
            case 5:
                source = random.randrange(size)
                changed[at : at + run] = changed[source : source + run]
            case 6:
                changed[at : at + 4] = (odd_number(random) & 0xFFFFFFFF).to_bytes(4, random.choice(["little", "big"]))
            case _:
                if random.random() < 0.3:
                    del changed[at:]
                else:
                    changed[at : at + run] = bytes([random.choice(_BYTES)]) * min(run, size - at)
    return bytes(changed)
