"""Ports of ACT's and ACC's banks, and WGT's to write: one engine holds each, for one or more of its instructions."""

import numpy as np
from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.state import ENGINE_COUNT, PORTS

__all__ = ["free", "release", "take"]


@njit_part
def free(machine, engine, mask, writes_weights):
    """Whether no other engine holds a port of the mask, nor, if that is wanted, the one that writes WGT."""
    for other in range(ENGINE_COUNT):
        if other == engine:
            continue
        if machine.engines[other].held & mask != 0 or (writes_weights and machine.engines[other].writes_weights > 0):
            return False
    return True


@njit_part
def take(machine, engine, mask):
    """Hold the ports of a mask for one more instruction."""
    machine.engines[engine].held |= mask
    for port in range(PORTS):
        if (mask >> port) & 1:
            machine.holds[port] += 1


@njit_part
def release(machine, engine, mask):
    """For one instruction less."""
    for port in range(PORTS):
        if (mask >> port) & 1:
            machine.holds[port] -= 1
            if machine.holds[port] == 0:
                machine.engines[engine].held &= ~(np.int64(1) << port)
