"""One program on simulator and RTL: memories, counters, and the cycles of every instruction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.driver.device import ALIGNMENT, DeviceError, error_text, read_counters, write_wide
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.assembly import format_instruction
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import encode_descriptor
from npukit.isa.instructions import End, Instruction, Load, Memory, Operation, Store, Vector, encode
from npukit.isa.registers import address_of
from npukit.sim.addressing import bank_depth, operands
from npukit.sim.dram import DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import Schedule, simulate_timing
from npukit.verify.generator import order_instructions

__all__ = ["Outcome", "compare_program"]

_EVENTS = ("queue", "issue", "start", "end")


@dataclass(frozen=True)
class Outcome:
    """What differed; `first` describes the earliest difference, None where all is equal."""

    bits: int
    cycles: int
    schedule: Schedule
    first: dict[str, Any] | None
    rtl_seconds: float = 0.0


@dataclass(frozen=True)
class _ReadBack:
    """A program that reads on-chip memories back, its DRAM image, and which words of that it is about.

    The image has ACT's words, then the four bytes of ACC's, the highest first, then parameters.
    """

    instructions: tuple[Instruction, ...]
    image: NDArray[np.uint8]
    mask: NDArray[np.bool_]


def _run(device: RtlDevice, instructions: Sequence[Instruction], memory: NDArray[np.uint8]) -> dict[str, int]:
    """Run a program whose DRAM image is `memory`, base 0, code behind it."""
    code = np.frombuffer(b"".join(encode(one) for one in instructions), np.uint8)
    limit = -(-memory.size // ALIGNMENT) * ALIGNMENT
    device.write_memory(0, memory)
    device.write_memory(limit, code)
    write_wide(device, "PROGRAM_HASH", device.config.hash)
    write_wide(device, "PROGRAM", limit)
    device.write_register(address_of("PROGRAM_LENGTH"), len(instructions))
    write_wide(device, "BASE", 0)
    write_wide(device, "LIMIT", limit)
    device.write_register(address_of("CONTROL"), 1)
    device.wait(60.0)
    problem = error_text(device)
    if problem is not None:
        raise DeviceError(problem)
    return read_counters(device)


def _read_program(config: NpuConfig, written: dict[Memory, NDArray[np.bool_]]) -> _ReadBack:
    """A program that stores what `written` [banks, words] asks for."""
    act, acc = written[Memory.ACT], written[Memory.ACC]
    units = config.wide_word_units
    head = encode_descriptor(config, Operation.REQUANTIZE_FIXED, {"zero_point": 0, "low": -128, "high": 127})
    # acc << 8 k, of which a multiplier of 2**7 leaves the highest byte, rounded
    words = []
    for byte in range(4):
        words += [head, *(np.full((1, config.array), value, np.uint32) for value in (0, 1 << 7, 8 * byte))]
    parameters = np.concatenate(words)
    each = len(parameters) // 4
    mask = np.concatenate([act.reshape(-1), np.tile(acc, (4, 1, 1)).reshape(-1)])
    size = mask.size + len(parameters) * units
    image = np.zeros(size * config.word_bytes, np.uint8)
    image[mask.size * config.word_bytes :] = parameters.view(np.uint8).reshape(-1)

    instructions: list[Instruction] = []
    for bank, low, count in _runs(act, config.act_depth):
        dram = bank * act.shape[1] + low
        instructions.append(Store(bank=bank, offset=low, words=count, word_stride=1, dram=dram))
    instructions.append(Load(memory=Memory.PAR, dram=mask.size, words=len(parameters), word_stride=1))
    for bank, low, count in _runs(acc, config.act_depth):
        for byte in range(4):
            instructions += [
                Vector(
                    operation=Operation.REQUANTIZE_FIXED, parameters=each * byte, width=count, a_memory=Memory.ACC,
                    a_bank=bank, a_offset=low, a_stride_x=1, out_memory=Memory.ACT, out_stride_x=1,
                ),
                Store(words=count, word_stride=1, dram=act.size + byte * acc.size + bank * acc.shape[1] + low),
            ]  # fmt: skip
    return _ReadBack((*order_instructions(config, instructions), End()), image, mask)


def _runs(written: NDArray[np.bool_], most: int) -> Iterator[tuple[int, int, int]]:
    """(bank, first word, words) around what was written, `most` words or fewer each."""
    for bank, row in enumerate(written):
        words = np.nonzero(row)[0]
        if len(words):
            end = int(words[-1]) + 1
            for low in range(int(words[0]), end, most):
                yield bank, low, min(most, end - low)


def compare_program(
    device: RtlDevice, instructions: Sequence[Instruction], memory: NDArray[np.uint8], dram: DramModel
) -> Outcome:
    """Run a program, END included, on both sides.

    DRAM, ACT and ACC are compared whole; WGT and PAR through what they did to them. ACT and ACC are read back by
    a second program, of which only the bits are compared; words that the first did not write are left out.
    """
    config = device.config
    schedule = simulate_timing(config, instructions, dram)
    expected_memory = memory.copy()
    machine = FunctionalSimulator(config, expected_memory)
    written = {memory: np.zeros(bank_depth(config, memory), bool) for memory in (Memory.ACT, Memory.ACC)}
    for instruction in instructions:
        machine.execute(instruction)
        _mark(config, instruction, written)
    device.reset()
    device.set_dram(dram)
    device.max_cycles = 4 * schedule.cycles + 10_000
    begun = perf_counter()
    try:
        counters = _run(device, instructions, memory)
        seconds = perf_counter() - begun
        seen = device.instruction_cycles(instructions)
        actual_memory = device.read_memory(0, memory.size)
        reading = _read_program(config, written)
        device.max_cycles = 100 * reading.mask.size + 10_000
        _run(device, reading.instructions, reading.image)
        actual = device.read_memory(0, reading.image.size)
    except DeviceError as error:
        return Outcome(1, 1, schedule, {"what": "error", "message": str(error)})
    machine.dram = reading.image.copy()
    for instruction in reading.instructions:
        machine.execute(instruction)

    first = None
    wrong = {name: seen[name] != getattr(schedule, name) for name in _EVENTS}
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
        if counters[name] != value:
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
        image.view(np.int8).reshape(-1, config.array)[: len(reading.mask)] for image in (machine.dram, actual)
    )
    words = (mine != theirs).any(axis=1) & reading.mask
    bits += int(words.sum())
    if words.any() and first is None:
        at = int(np.nonzero(words)[0][0])
        first = {"simulator": mine[at].tolist(), "rtl": theirs[at].tolist()}
        if at < written[Memory.ACT].size:
            bank, word = divmod(at, written[Memory.ACT].shape[1])
            first = {"what": "ACT", "bank": bank, "word": word, **first}
        else:
            byte, at = divmod(at - written[Memory.ACT].size, written[Memory.ACC].size)
            bank, word = divmod(at, written[Memory.ACC].shape[1])
            first = {"what": "ACC", "bank": bank, "word": word, "byte": 3 - byte, **first}
    return Outcome(bits, cycles, schedule, first, seconds)


def _mark(config: NpuConfig, instruction: Instruction, written: dict[Memory, NDArray[np.bool_]]) -> None:
    """Note the words of ACT and ACC that an instruction writes."""
    for operand in operands(config, instruction):
        if operand.write and operand.memory is not None and operand.memory in written:
            written[operand.memory][operand.bank, operand.words()] = True
