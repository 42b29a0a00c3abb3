"""The SDRAM controller's one cycle, over integer arrays: what `npukit.fpga.sdram` does behind its AXI port.

`docs/timing.md`, section 14, states it. Registers of a cycle decide; what they become is written back at its end.
"""

import numpy as np
from npukit.sim.compiled import njit

__all__ = [
    "AR_TAKEN",
    "AW_TAKEN",
    "BANKS",
    "LAST",
    "P_COUNT",
    "Q_COUNT",
    "READ_GOES",
    "WRITE_GOES",
    "step",
]

BANKS = 16

# parameters, in cycles and bits; those called _WAIT are what a command leaves to be waited for
(
    P_FIRST_BEAT, P_COLUMN_WAIT, P_ACTIVATE_WAIT, P_OPEN_WAIT, P_PRECHARGE_WAIT, P_REFRESH_WAIT, P_RECOVERY_WAIT,
    P_TURN_WAIT, P_INTERVAL, P_LATE, P_COLUMN_BITS, P_BANK_BITS, P_ROW_BITS, P_READ_BUFFER, P_WRITE_BUFFER, P_PHASE,
    P_PROGRAM, P_BASE, P_COUNT,
) = range(19)  # fmt: skip

# registers; rows of banks follow
(
    Q_VALID, Q_IS_WRITE, Q_BEAT, Q_LEFT, Q_WAIT, Q_OPEN, Q_RECOVERY, Q_TURN, Q_LATE, Q_INTERVAL, Q_ROOM, Q_WRITTEN,
    Q_ROW, Q_COUNT,
) = (*range(12), 12, 12 + BANKS)  # fmt: skip
CLOSED = np.int64(-1)

# what happened in a cycle, bits
AR_TAKEN, AW_TAKEN, READ_GOES, WRITE_GOES, LAST, TICKS = 1, 2, 4, 8, 16, 32
"""TICKS: the next cycle differs, although nothing new is asked for."""


@njit
def step(parameters, state, ar_valid, ar_beat, ar_left, aw_valid, aw_beat, aw_left, popped, pushed):
    """One cycle; what happened in it.

    `ar_*`, `aw_*`: the presented addresses, in beats, and beats - 1. popped: a read beat is taken from the read buffer
    in this cycle; pushed: a write beat goes to the write buffer.
    """
    happened = 0
    valid, is_write, beat, left = state[Q_VALID], state[Q_IS_WRITE], state[Q_BEAT], state[Q_LEFT]
    waited = state[Q_WAIT] == 0
    may_close = state[Q_OPEN] == 0 and state[Q_RECOVERY] == 0
    turned = state[Q_TURN] == 0
    for counter in (Q_WAIT, Q_OPEN, Q_RECOVERY, Q_TURN):
        if state[counter] > 0:
            state[counter] -= 1
            happened |= TICKS

    refreshed = 0
    if waited and state[Q_LATE] != 0:
        any_open = False
        for bank in range(1 << parameters[P_BANK_BITS]):
            any_open = any_open or state[Q_ROW + bank] != CLOSED
        if not any_open:
            happened |= TICKS
            refreshed = 1
            state[Q_WAIT] = parameters[P_REFRESH_WAIT]
        elif may_close:
            happened |= TICKS
            state[Q_WAIT] = parameters[P_PRECHARGE_WAIT]
            for bank in range(1 << parameters[P_BANK_BITS]):
                state[Q_ROW + bank] = CLOSED
    elif waited and valid != 0:
        above = beat >> parameters[P_COLUMN_BITS]
        bank = above & ((1 << parameters[P_BANK_BITS]) - 1)
        row = (above >> parameters[P_BANK_BITS]) & ((1 << parameters[P_ROW_BITS]) - 1)
        if state[Q_ROW + bank] == row:
            if is_write != 0:
                if state[Q_WRITTEN] != 0 and turned:
                    happened |= WRITE_GOES
                    state[Q_RECOVERY] = parameters[P_RECOVERY_WAIT]
            elif state[Q_ROOM] != 0:
                happened |= READ_GOES
                state[Q_TURN] = parameters[P_TURN_WAIT]
            if happened & (READ_GOES | WRITE_GOES):
                state[Q_WAIT] = parameters[P_COLUMN_WAIT]
                if left == 0:
                    happened |= LAST
                    state[Q_VALID] = 0
                state[Q_BEAT] = beat + 1
                state[Q_LEFT] = left - 1
        elif state[Q_ROW + bank] != CLOSED:
            if may_close:
                happened |= TICKS
                state[Q_WAIT] = parameters[P_PRECHARGE_WAIT]
                state[Q_ROW + bank] = CLOSED
        else:
            happened |= TICKS
            state[Q_WAIT] = parameters[P_ACTIVATE_WAIT]
            state[Q_OPEN] = parameters[P_OPEN_WAIT]
            state[Q_ROW + bank] = row

    if valid == 0 and (ar_valid or aw_valid):
        write = aw_valid and (not ar_valid or is_write == 0)
        happened |= AW_TAKEN if write else AR_TAKEN
        state[Q_VALID] = 1
        state[Q_IS_WRITE] = 1 if write else 0
        state[Q_BEAT] = aw_beat if write else ar_beat
        state[Q_LEFT] = aw_left if write else ar_left

    if state[Q_INTERVAL] == 0:
        state[Q_INTERVAL] = parameters[P_INTERVAL] - 1
        if state[Q_LATE] != parameters[P_LATE]:
            state[Q_LATE] += 1
    else:
        state[Q_INTERVAL] -= 1
    state[Q_LATE] -= refreshed
    if state[Q_WAIT] > 0 or state[Q_LATE] > 0:
        happened |= TICKS
    state[Q_ROOM] += (1 if popped else 0) - (1 if happened & READ_GOES else 0)
    state[Q_WRITTEN] += (1 if pushed else 0) - (1 if happened & WRITE_GOES else 0)
    return happened
