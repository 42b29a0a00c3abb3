"""Random programs in surroundings that do anything that AXI allows, and interrupted in the middle.

A bus stalls on all channels, takes its time with each burst anew, takes more bursts than the core has use for, and
answers with errors; a program is ended by the reset register, by the reset pin, or by such an error. Afterwards the
next program must be right, on memories and registers that are full of what the earlier ones left.
"""

import enum
from random import Random

from npukit.driver.device import DeviceError, error_text, reset_core
from npukit.driver.rtl_device import RtlDevice
from npukit.driver.surroundings import Surroundings
from npukit.isa.registers import address_of
from npukit.sim.dram import DramModel
from npukit.sim.timing import simulate_timing
from npukit.verify.compare import Outcome, compare_program, start_program
from npukit.verify.generator import RandomProgram, random_program

__all__ = ["Interruption", "hostile_run", "hostile_share", "interrupt", "random_surroundings"]

_SHARE = 5
"""Every fifth random program is followed by a hostile run."""


class Interruption(enum.Enum):
    """What ends a program before its END."""

    SOFT_RESET = "reset by the register"
    PIN_RESET = "reset by the pin"
    BUS_ERROR = "bus error"


def random_surroundings(random: Random, errors_per_mille: int = 0) -> Surroundings:
    """Surroundings of any kind, friendly ones among them."""
    return Surroundings(
        seed=random.getrandbits(64),
        stall_percent=random.choice([0, 0, 5, 30, 60, 90]),
        spread=random.choice([0, 0, 20, 300]),
        bursts=random.choice([None, 1, 2, 33, 40, 100]),
        errors_per_mille=errors_per_mille,
    )


def interrupt(device: RtlDevice, made: RandomProgram, how: Interruption, random: Random) -> str:
    """Start a program in random surroundings, end it that way at a random cycle, and reset the core.

    Returns:
        What became of the program, for a count of outcomes.

    Raises:
        DeviceError: the core broke a rule of its buses, did not end its bursts, or was not reset.
    """
    errors = random.choice([5, 50, 500]) if how is Interruption.BUS_ERROR else 0
    device.surround(random_surroundings(random, errors))
    cycles = simulate_timing(device.config, made.instructions, DramModel(latency=1)).cycles
    device.max_cycles = 400 * (cycles + 10_000)
    start_program(device, made.instructions, made.memory, made.placement)
    if how is Interruption.BUS_ERROR:
        device.wait(60.0)
        stopped = "ended in an error" if error_text(device) is not None else "ran to its end"
    else:
        device.step(random.randrange(2 * cycles))
        stopped = "ran" if device.running else "had ended"
    if how is Interruption.PIN_RESET:
        device.reset()
    else:
        reset_core(device)
        left = {name: device.read_register(address_of(name)) for name in ("STATUS", "ERROR", "LIMIT_LOW")}
        if any(left.values()):
            raise DeviceError(f"registers after a reset: {left}")
    return f"{how.value}: {stopped}"


def hostile_run(device: RtlDevice, seed: str, how: Interruption | None = None) -> tuple[str | None, Outcome]:
    """Interrupt a random program, if asked to, and run another one without a reset by the pin.

    That one runs in random surroundings, where its bits are compared, or in the reference DRAM, cycles included. The
    device has friendly surroundings afterwards.

    Returns:
        The interruption's outcome, and what differed.
    """
    random = Random(f"{seed}/hostile")
    try:
        happened = None if how is None else interrupt(device, random_program(device.config, f"{seed}/0"), how, random)
        hostile = random.random() < 0.7
        device.surround(random_surroundings(random) if hostile else None)
        made = random_program(device.config, f"{seed}/1")
        dram = DramModel(latency=random.choice([1, 20, 100]))
        return happened, compare_program(
            device, made.instructions, made.memory, dram, placement=made.placement, reset=False, hostile=hostile
        )  # fmt: skip
    finally:
        device.surround(None)


def hostile_share(device: RtlDevice, seed: int, index: int) -> tuple[str, Outcome] | None:
    """The hostile run that follows random program `index`, if one does: each kind in turn.

    Returns:
        The interruption's outcome, and what differed.
    """
    if index % _SHARE:
        return None
    kinds = (None, *Interruption)
    happened, outcome = hostile_run(device, f"{seed}/{index}", kinds[index // _SHARE % len(kinds)])
    return happened or "not interrupted", outcome
