"""One program on simulator and RTL: memories, counters, and the cycles of every instruction."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.driver.device import ALIGNMENT, DeviceError, error_text, read_counters, write_wide
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.assembly import format_instruction
from npukit.isa.instructions import Instruction, encode
from npukit.isa.registers import ControlBit, address_of
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import Schedule, simulate_timing
from npukit.verify.readback import WrittenWords, read_back

__all__ = ["Outcome", "compare_program", "start_program"]

_QUICK = DramModel(latency=1, read_bursts=32, write_bursts=32)
"""For reading back, where cycles do not count."""
_HOSTILE_PATIENCE = 100
"""How many times as long a run may take where its surroundings stall."""
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


def start_program(device: RtlDevice, instructions: Sequence[Instruction], memory: NDArray[np.uint8]) -> None:
    """Start a program, END included, whose DRAM image is `memory`, base 0, code behind it."""
    code = np.frombuffer(b"".join(encode(one) for one in instructions), np.uint8)
    limit = _code_address(memory)
    device.write_memory(0, memory)
    device.write_memory(limit, code)
    write_wide(device, "PROGRAM_HASH", device.config.hash)
    write_wide(device, "PROGRAM", limit)
    device.write_register(address_of("PROGRAM_LENGTH"), len(instructions))
    write_wide(device, "BASE", 0)
    write_wide(device, "LIMIT", limit)
    device.write_register(address_of("CONTROL"), 1 << ControlBit.START)


def _run(device: RtlDevice, instructions: Sequence[Instruction], memory: NDArray[np.uint8]) -> dict[str, int]:
    start_program(device, instructions, memory)
    device.wait(60.0)
    problem = error_text(device)
    if problem is not None:
        raise DeviceError(problem)
    return read_counters(device)


def _code_address(memory: NDArray[np.uint8]) -> int:
    return -(-memory.size // ALIGNMENT) * ALIGNMENT


def compare_program(
    device: RtlDevice,
    instructions: Sequence[Instruction],
    memory: NDArray[np.uint8],
    dram: AnyDram,
    *,
    reset: bool = True,
    hostile: bool = False,
) -> Outcome:
    """Run a program, END included, on both sides.

    DRAM is compared whole, on-chip memories wherever the program wrote to them. They are read back by a second
    program, of which only the bits are compared.

    Args:
        reset: pull the reset pin first; without, the core is as earlier programs left it.
        hostile: the device's surroundings stall, so only bits are compared.
    """
    config = device.config
    schedule = simulate_timing(config, instructions, dram.at(_code_address(memory), 0))
    expected_memory = memory.copy()
    machine = FunctionalSimulator(config, expected_memory)
    written = WrittenWords(config)
    for instruction in instructions:
        machine.execute(instruction)
        written.mark(instruction)
    if reset:
        device.reset()
    device.set_dram(dram)
    patience = _HOSTILE_PATIENCE if hostile else 1
    device.max_cycles = patience * (4 * schedule.cycles + 10_000)
    begun = perf_counter()
    try:
        counters = _run(device, instructions, memory)
        seconds = perf_counter() - begun
        seen = device.instruction_cycles(instructions)
        actual_memory = device.read_memory(0, memory.size)
        reading = read_back(config, written, machine.acc)
        device.max_cycles = patience * (100 * reading.mask.size + 10_000)
        if isinstance(dram, DramModel):
            device.set_dram(_QUICK)
        _run(device, reading.instructions, reading.image)
        actual = device.read_memory(0, reading.image.size)
    except DeviceError as error:
        return Outcome(1, 1, schedule, {"what": "error", "message": str(error)}, expected_memory)
    machine.dram = reading.image.copy()
    for instruction in reading.instructions:
        machine.execute(instruction)

    first = None
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
    return Outcome(bits, cycles, schedule, first, expected_memory, seconds)
