"""The SDRAM controller's one cycle: what `npukit.fpga.sdram` does behind its AXI port.

`docs/timing.md`, section 14, states it. Registers of a cycle decide; what they become is written back at its end.
"""

from npukit.sim.compiled import njit_part
from npukit.sim.timing_kernel.state import CLOSED

__all__ = ["step"]


@njit_part
def _any_open(machine):
    """Whether a row of any bank is open."""
    for bank in range(1 << machine.sdram.bank_bits):
        if machine.open_rows[bank] != CLOSED:
            return True
    return False


@njit_part
def _count_down(controller):
    """Waits that commands have left; whether there was one."""
    ticks = controller.wait > 0 or controller.open > 0 or controller.recovery > 0 or controller.turn > 0
    controller.wait = max(0, controller.wait - 1)
    controller.open = max(0, controller.open - 1)
    controller.recovery = max(0, controller.recovery - 1)
    controller.turn = max(0, controller.turn - 1)
    return ticks


@njit_part
def _refresh(machine, may_close):
    """A refresh is late: close all rows, then refresh; whether it did in this cycle."""
    sdram, controller = machine.sdram, machine.controller
    if not _any_open(machine):
        controller.ticks = True
        controller.wait = sdram.refresh_wait
        return True
    if may_close:
        controller.ticks = True
        controller.wait = sdram.precharge_wait
        for bank in range(1 << sdram.bank_bits):
            machine.open_rows[bank] = CLOSED
    return False


@njit_part
def _serve(machine, may_close, turned):
    """The accepted burst's next beat, or what opens its row."""
    sdram, controller, rows = machine.sdram, machine.controller, machine.open_rows
    above = controller.beat >> sdram.column_bits
    bank = above & ((1 << sdram.bank_bits) - 1)
    row = (above >> sdram.bank_bits) & ((1 << sdram.row_bits) - 1)
    if rows[bank] == row:
        if controller.is_write:
            if controller.written != 0 and turned:
                controller.write_goes = True
                controller.recovery = sdram.recovery_wait
        elif controller.room != 0:
            controller.read_goes = True
            controller.turn = sdram.turn_wait
        if controller.read_goes or controller.write_goes:
            controller.wait = sdram.column_wait
            if controller.left == 0:
                controller.last = True
                controller.valid = False
            controller.beat += 1
            controller.left -= 1
    elif rows[bank] != CLOSED:
        if may_close:
            controller.ticks = True
            controller.wait = sdram.precharge_wait
            rows[bank] = CLOSED
    else:
        controller.ticks = True
        controller.wait = sdram.activate_wait
        controller.open = sdram.open_wait
        rows[bank] = row


@njit_part
def _accept(controller, ar_valid, ar_beat, ar_left, aw_valid, aw_beat, aw_left):
    """A burst, when there is none: reads and writes by turns where both are presented."""
    write = aw_valid and (not ar_valid or not controller.is_write)
    controller.write_accepted = write
    controller.read_accepted = not write
    controller.valid = True
    controller.settled = False
    controller.is_write = write
    controller.beat = aw_beat if write else ar_beat
    controller.left = aw_left if write else ar_left


@njit_part
def step(machine, ar_valid, ar_beat, ar_left, aw_valid, aw_beat, aw_left, popped, pushed):
    """One cycle.

    `ar_*`, `aw_*`: the presented addresses, in beats, and beats - 1. popped: a read beat is taken from the read buffer
    in this cycle; pushed: a write beat goes to the write buffer.
    """
    sdram, controller = machine.sdram, machine.controller
    was_valid, was_settled, waited = controller.valid, controller.settled, controller.wait == 0
    may_close, turned = controller.open == 0 and controller.recovery == 0, controller.turn == 0
    controller.read_accepted = False
    controller.write_accepted = False
    controller.read_goes = False
    controller.write_goes = False
    controller.last = False
    controller.settled = True
    controller.ticks = _count_down(controller) or (was_valid and not was_settled)

    refreshed = False
    if waited and controller.late != 0:
        refreshed = _refresh(machine, may_close)
    elif waited and was_valid and was_settled:
        _serve(machine, may_close, turned)
    if not was_valid and (ar_valid or aw_valid):
        _accept(controller, ar_valid, ar_beat, ar_left, aw_valid, aw_beat, aw_left)

    if controller.interval == 0:
        controller.interval = sdram.interval - 1
        if controller.late != sdram.late:
            controller.late += 1
    else:
        controller.interval -= 1
    if refreshed:
        controller.late -= 1
    if controller.wait > 0 or controller.late > 0:
        controller.ticks = True
    controller.room += popped
    controller.room -= controller.read_goes
    controller.written += pushed
    controller.written -= controller.write_goes
