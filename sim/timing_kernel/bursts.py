"""The bursts that LOAD and STORE move their rows in."""

import numpy as np
from npukit.isa.timing import PAGE_BYTES
from npukit.sim.compiled import njit_part

__all__ = ["advance", "begin_walk", "next_burst"]


@njit_part
def begin_walk(walk):
    """To an instruction's first burst."""
    walk.plane = 0
    walk.row = 0
    walk.done = 0


@njit_part
def next_burst(parameters, instruction, walk):
    """(address, bytes, beats, words of its first and of its last beat) of the burst where a walk is.

    It ends at the row's end, after `max_burst` beats, or at a page's end.
    """
    bus = parameters.bus_bytes
    address = (
        instruction.address + walk.plane * instruction.plane_stride + walk.row * instruction.row_stride + walk.done
    )
    size = min(
        instruction.row_bytes - walk.done,
        address // bus * bus + parameters.max_burst * bus - address,
        PAGE_BYTES - address % PAGE_BYTES,
    )
    beats = (address % bus + size + bus - 1) // bus
    word_bytes = instruction.word_bytes
    if word_bytes >= bus:
        return address, size, beats, np.int64(1), np.int64(1)
    end = (address + size) % bus
    if end == 0:
        end = np.int64(bus)
    return address, size, beats, min(bus - address % bus, size) // word_bytes, min(end, size) // word_bytes


@njit_part
def advance(instruction, walk, size):
    """Go on by a burst of so many bytes; whether it was the instruction's last."""
    walk.done += size
    if walk.done < instruction.row_bytes:
        return False
    walk.done = 0
    walk.row += 1
    if walk.row < instruction.rows:
        return False
    walk.row = 0
    walk.plane += 1
    return walk.plane == instruction.planes
