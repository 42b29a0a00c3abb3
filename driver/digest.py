"""The digest by which a host and a board agree that memory holds what it should: CRC-64 as in XZ files."""

import numba
import numpy as np
from npukit.isa.host_link import DIGEST_BITS, DIGEST_POLYNOMIAL
from numpy.typing import NDArray

__all__ = ["digest"]

_ONES = (1 << DIGEST_BITS) - 1


def _table() -> NDArray[np.uint64]:
    entries = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (DIGEST_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return np.array(entries, np.uint64)


_TABLE = _table()


@numba.njit(cache=False)
def _add(data, table, register):
    for byte in data:
        register = table[(register ^ np.uint64(byte)) & np.uint64(0xFF)] ^ (register >> np.uint64(8))
    return register


def digest(data: NDArray[np.uint8]) -> int:
    """CRC-64 of bytes."""
    return int(_add(np.ascontiguousarray(data), _TABLE, np.uint64(_ONES))) ^ _ONES
