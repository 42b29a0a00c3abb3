"""Random programs in surroundings that do anything that AXI allows, and interrupted in the middle.

A bus stalls on all channels, takes its time with each burst anew, takes more bursts than the core has use for, and
answers with errors; a program is ended by the reset register, by the reset pin, or by such an error. Afterwards the
next program must be right, on memories and registers that are full of what the earlier ones left.
"""

import enum
from dataclasses import dataclass
from random import Random
from typing import Any

from npukit.driver.device import DeviceError, error_text, reset_core
from npukit.driver.rtl_device import RtlDevice
from npukit.driver.surroundings import CHANNELS, Surroundings
from npukit.isa.instructions import Load, Store
from npukit.isa.registers import address_of
from npukit.sim.dram import DramModel
from npukit.sim.timing import simulate_timing
from npukit.verify.compare import compare_program, start_program
from npukit.verify.generator import RandomProgram, random_program

__all__ = ["HostileRun", "Interruption", "hostile_run", "hostile_share", "random_surroundings"]

_SHARE = 3
"""Every third random program is followed by a hostile run."""


class Interruption(enum.Enum):
    """What ends a program before its END."""

    SOFT_RESET = "reset by the register"
    PIN_RESET = "reset by the pin"
    BUS_ERROR = "bus error"


@dataclass(frozen=True)
class HostileRun:
    """What happened to the program that was interrupted, and what was wrong then or with the next one: None, or as
    `Outcome.first`."""

    happened: str
    first: dict[str, Any] | None = None
    bits: int = 0


def _stalled(random: Random) -> tuple[str, ...]:
    """All channels, or one: where the others go on, the core comes to states that it passes quickly otherwise."""
    return random.choice([CHANNELS, CHANNELS, *((one,) for one in CHANNELS)])


def random_surroundings(random: Random, errors_per_mille: int = 0) -> Surroundings:
    """Surroundings of any kind, friendly ones among them."""
    return Surroundings(
        seed=random.getrandbits(64),
        stall_percent=random.choice([0, 0, 5, 30, 60, 90]),
        stalled=_stalled(random),
        spread=random.choice([0, 0, 20, 300]),
        bursts=random.choice([None, 1, 2, 33, 40, 100]),
        errors_per_mille=errors_per_mille,
    )


def _interrupt(device: RtlDevice, made: RandomProgram, how: Interruption, random: Random) -> str:
    """Start a program, end it that way, and reset the core; what became of the program.

    A bus error may come from the start on. Before a reset the program runs in the reference DRAM up to a cycle around
    the start of one of its instructions, mostly one that uses the bus, and some cycles in a bus that is almost deaf, or
    whose one channel is: so addresses, data and responses of all kinds wait when the reset comes, and each alone.

    Raises:
        DeviceError: the core broke a rule of its buses, did not end its bursts, or was not reset.
    """
    dram = DramModel(latency=random.choice([1, 20, 100]))
    schedule = simulate_timing(device.config, made.instructions, dram)
    device.max_cycles = 400 * (schedule.cycles + 10_000)
    device.surround(None)
    device.set_dram(dram)
    if how is Interruption.BUS_ERROR:
        device.surround(random_surroundings(random, random.choice([5, 50, 500])))
        start_program(device, made.instructions, made.memory, made.placement)
        device.wait(60.0)
        stopped = "ended in an error" if error_text(device) is not None else "ran to its end"
    else:
        kind = random.choice([Load, Store, Store, object])
        chosen = [index for index, one in enumerate(made.instructions) if isinstance(one, kind)] or [0]
        start_program(device, made.instructions, made.memory, made.placement)
        device.step(max(0, int(schedule.start[random.choice(chosen)]) + random.randint(-3, 12)))
        percent, stalled = random.choice([0, 50, 90, 98]), random.choice([CHANNELS, ("aw",), _stalled(random)])
        device.surround(Surroundings(seed=random.getrandbits(64), stall_percent=percent, stalled=stalled))
        device.step(random.randrange(60))
        stopped = "ran" if device.running else "had ended"
    if how is Interruption.PIN_RESET:
        device.reset()
    else:
        reset_core(device)
        left = {name: device.read_register(address_of(name)) for name in ("STATUS", "ERROR", "LIMIT_LOW")}
        if any(left.values()):
            raise DeviceError(f"registers after a reset: {left}")
    return f"{how.value}: {stopped}"


def hostile_run(device: RtlDevice, seed: str, how: Interruption | None = None) -> HostileRun:
    """Interrupt a random program, if asked to, and run another one without a reset by the pin.

    That one runs in random surroundings, where its bits are compared, or in the reference DRAM, cycles included. The
    device has friendly surroundings afterwards.
    """
    random = Random(f"{seed}/hostile")
    happened = "not interrupted"
    try:
        if how is not None:
            try:
                happened = _interrupt(device, random_program(device.config, f"{seed}/0"), how, random)
            except DeviceError as error:
                return HostileRun(how.value, {"what": "error", "message": str(error)}, 1)
        hostile = random.random() < 0.7
        device.surround(random_surroundings(random) if hostile else None)
        made = random_program(device.config, f"{seed}/1")
        dram = DramModel(latency=random.choice([1, 20, 100]))
        found = compare_program(
            device, made.instructions, made.memory, dram, placement=made.placement, reset=False, hostile=hostile
        )
        return HostileRun(happened, found.first, found.bits)
    finally:
        device.surround(None)


def hostile_share(device: RtlDevice, seed: int, index: int) -> HostileRun | None:
    """The hostile run that follows random program `index`, if one does: each kind in turn."""
    if index % _SHARE:
        return None
    kinds = (None, *Interruption, Interruption.SOFT_RESET)
    return hostile_run(device, f"{seed}/{index}", kinds[index // _SHARE % len(kinds)])
