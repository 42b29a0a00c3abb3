"""One program on simulator and RTL: memories, counters, and the cycles of every instruction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.driver.device import DeviceError, error_text, read_counters, read_wide, write_wide
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.assembly import format_instruction
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Instruction, encode
from npukit.isa.registers import ControlBit, address_of
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import Schedule, simulate_timing
from npukit.verify.observed import Observer
from npukit.verify.placement import Placement
from npukit.verify.readback import WrittenWords, read_back

__all__ = ["Outcome", "Simulated", "compare_program", "simulate_program", "start_program"]

_QUICK = DramModel(latency=1, read_bursts=32, write_bursts=32)
"""For reading back, where cycles do not count."""
_HOSTILE_PATIENCE = 100
"""How many times as long a run may take where its surroundings stall."""
_FIRST = Placement()
"""The image at 0, the instructions behind it."""
_EVENTS = ("queue", "issue", "start", "end")


@dataclass(frozen=True)
class Outcome:
    """What differed; `first` describes the earliest difference, None where all is equal."""

    bits: int
    cycles: int
    schedule: Schedule
    first: dict[str, Any] | None
    memory: NDArray[np.uint8]
    """DRAM as the simulator left it."""
    rtl_seconds: float = 0.0
    sim_seconds: float = 0.0
    observed: set[str] = field(default_factory=set)
    """What an `Observer` found of its values."""


@dataclass(frozen=True)
class Simulated:
    """A program on the simulator: its schedule, the machine as it left it, and what an `Observer` found."""

    schedule: Schedule
    machine: FunctionalSimulator
    written: WrittenWords
    observed: set[str]
    seconds: float
    """That the timing took."""


def simulate_program(
    config: NpuConfig,
    instructions: Sequence[Instruction],
    memory: NDArray[np.uint8],
    dram: AnyDram,
    placement: Placement = _FIRST,
) -> Simulated:
    """Run a program, END included, on both halves of the simulator; `memory` stays as it is."""
    origin = placement.origin
    begun = perf_counter()
    behind = dram.at(origin + placement.code(memory.size), origin + placement.data)
    schedule = simulate_timing(config, instructions, behind)
    seconds = perf_counter() - begun
    machine, written, observer = FunctionalSimulator(config, memory.copy()), WrittenWords(config), Observer(config)
    for instruction in instructions:
        observer.execute(machine, instruction)
        written.mark(instruction)
    return Simulated(schedule, machine, written, observer.found, seconds)


def start_program(
    device: RtlDevice,
    instructions: Sequence[Instruction],
    memory: NDArray[np.uint8],
    placement: Placement = _FIRST,
) -> None:
    """Start a program, END included, whose DRAM image is `memory`."""
    config = device.config
    code = np.frombuffer(b"".join(encode(one) for one in placement.moved(instructions)), np.uint8)
    program = placement.code(memory.size)
    device.set_origin(placement.origin)
    device.write_memory(placement.data, memory)
    device.write_memory(program, code)
    values = {
        "PROGRAM_HASH": config.hash, "PROGRAM": placement.origin + program, "BASE": placement.base(config),
        "LIMIT": placement.limit_of(config, memory.size),
    }  # fmt: skip
    for name, value in values.items():
        write_wide(device, name, value)
    device.write_register(address_of("PROGRAM_LENGTH"), len(instructions))
    for name, value in values.items():
        if (found := read_wide(device, name)) != value:
            raise DeviceError(f"the register {name} holds {found:#x}, not {value:#x}")
    device.write_register(address_of("CONTROL"), 1 << ControlBit.START)


def _run(
    device: RtlDevice,
    instructions: Sequence[Instruction],
    memory: NDArray[np.uint8],
    placement: Placement = _FIRST,
) -> dict[str, int]:
    start_program(device, instructions, memory, placement)
    device.wait(60.0)
    problem = error_text(device)
    if problem is not None:
        raise DeviceError(problem)
    return read_counters(device)


def compare_program(
    device: RtlDevice,
    instructions: Sequence[Instruction],
    memory: NDArray[np.uint8],
    dram: AnyDram,
    *,
    placement: Placement = _FIRST,
    reset: bool = True,
    hostile: bool = False,
) -> Outcome:
    """Run a program, END included, on both sides.

    DRAM is compared whole, on-chip memories wherever the program wrote to them. They are read back by a second
    program, of which only the bits are compared.

    Args:
        placement: where program and image lie on the device.
        reset: pull the reset pin first; without, the core is as earlier programs left it.
        hostile: the device's surroundings stall, so only bits are compared.
    """
    config = device.config
    simulated = simulate_program(config, instructions, memory, dram, placement)
    schedule, machine = simulated.schedule, simulated.machine
    expected_memory = machine.dram
    if reset:
        device.reset()
    device.set_dram(dram)
    patience = _HOSTILE_PATIENCE if hostile else 1
    device.max_cycles = patience * (4 * schedule.cycles + 10_000)
    begun = perf_counter()
    try:
        counters = _run(device, instructions, memory, placement)
        seconds = perf_counter() - begun
        seen = device.instruction_cycles(instructions)
        actual_memory = device.read_memory(placement.data, memory.size)
        reading = read_back(config, simulated.written, machine.acc)
        device.max_cycles = patience * (100 * reading.mask.size + 10_000)
        if isinstance(dram, DramModel):
            device.set_dram(_QUICK)
        _run(device, reading.instructions, reading.image)
        actual = device.read_memory(0, reading.image.size)
    except DeviceError as error:
        first = {"what": "error", "message": str(error)}
        return Outcome(1, 1, schedule, first, expected_memory, observed=simulated.observed)
    machine.dram = reading.image.copy()
    for instruction in reading.instructions:
        machine.execute(instruction)

    first: dict[str, Any] | None = None
    wrong = {name: (seen[name] != getattr(schedule, name)) & (not hostile) for name in _EVENTS}
    cycles = sum(int(found.sum()) for found in wrong.values())
    if cycles:
        _, index, name = min(
            (int(getattr(schedule, name)[index]), int(index), name)
            for name in _EVENTS
            for index in np.nonzero(wrong[name])[0]
        )
        first = {
            "what": name,
            "instruction": index,
            "text": format_instruction(instructions[index]),
            "simulator": int(getattr(schedule, name)[index]),
            "rtl": int(seen[name][index]),
        }
    for name, value in schedule.counters.items():
        if counters[name] != value and not hostile:
            cycles += 1
            first = first or {"what": f"counter {name}", "simulator": value, "rtl": counters[name]}
    different = np.nonzero(expected_memory != actual_memory)[0]
    bits = len(different)
    if bits and first is None:
        at = int(different[0])
        first = {
            "what": "DRAM", "byte": at, "simulator": int(expected_memory[at]), "rtl": int(actual_memory[at]),
        }  # fmt: skip
    mine, theirs = (
        image.view(machine.act.dtype).reshape(-1, config.array)[: len(reading.mask)] for image in (machine.dram, actual)
    )
    words = (mine != theirs).any(axis=1) & reading.mask
    bits += int(words.sum())
    if words.any() and first is None:
        at = int(np.nonzero(words)[0][0])
        first = {**reading.place(at), "simulator": mine[at].tolist(), "rtl": theirs[at].tolist()}
    return Outcome(bits, cycles, schedule, first, expected_memory, seconds, simulated.seconds, simulated.observed)
