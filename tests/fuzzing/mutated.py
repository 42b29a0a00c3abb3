"""Random legal programs with changes: whatever the validator accepts runs without an error on both halves of the
simulator, and a part of it on the RTL with equal bits and cycles."""

import hashlib
from collections import Counter
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
from fuzz_programs import join_program, mutate_code, split_program
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Load, Memory
from npukit.isa.program import Program, ProgramError
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing
from npukit.sim.validator import validate
from sources import MACHINE

from npukit.verify.compare import compare_program
from npukit.verify.generator import random_program
from npukit.verify.plan import random_dram
from npukit.verify.values import SPECIAL

from .case import Outcome, Result, WrongResult

__all__ = ["SOURCES", "Mutated", "accepted_program", "make", "mutated_program"]

SOURCES = MACHINE
"""What its outcomes depend on, besides the fuzzer itself."""

_CONFIGS = ("int8-4x4", "bf16-4x4")
_BASES = 300
"""Programs of each configuration that are changed, over and over."""
_RTL_SHARE = 4
"""Every fourth program that the validator accepts runs on the RTL as well."""
_CYCLES = 200_000
"""A program that keeps an engine at work for longer is refused: it would take the time of a hundred others."""
_WORDS = (1, 0x7FFFFFFF, 31, 32, 62, 63, 64, 0xFFFFFFE1, 0xFFFFFFE0, 0xFFFFFFC0, 0x40000000, *SPECIAL)


@lru_cache(None)
def _base(name: str, number: int) -> tuple[bytes, bytes, bytes, tuple[tuple[int, int], ...]]:
    """Head, code and constants, which are its memory, of a random legal program; and (first byte, bytes) of what it
    loads to PAR."""
    made = random_program(PRESETS[name], f"mutated/{number}")
    program = Program(made.config, made.instructions, constants=made.memory.tobytes(), dram_bytes=made.memory.size)
    loads = [one for one in made.instructions if isinstance(one, Load) and one.memory is Memory.PAR]
    places = [(one.dram * made.config.word_bytes, one.words * made.config.wide_word_bytes) for one in loads]
    return *split_program(program.to_bytes()), tuple(places)


def mutated_program(random: Random) -> bytes:
    """A program file: a random program of which instructions or parameters have changed, or both."""
    head, code, constants, places = _base(random.choice(_CONFIGS), random.randrange(_BASES))
    kind = random.random()
    if kind < 0.4 and places:
        constants = _other_parameters(random, constants, random.choice(places))
    data = join_program(head, code, constants)
    return mutate_code(random, data) if kind > 0.2 or not places else data


def _other_parameters(random: Random, constants: bytes, place: tuple[int, int]) -> bytes:
    """Any bits in a few of the 32-bit words of a descriptor and its parameters, or in all of them."""
    changed = bytearray(constants)
    first, size = place
    words = range(first, first + size, 4)
    chosen = words if random.random() < 0.2 else random.sample(words, min(len(words), random.choice([1, 2, 8])))
    for at in chosen:
        word = random.choice(_WORDS) if random.random() < 0.4 else random.getrandbits(32)
        changed[at : at + 4] = word.to_bytes(4, "little")
    return bytes(changed)


def accepted_program(data: bytes) -> Program | str:
    """The program of a file if the validator accepts it, or why not."""
    try:
        program = Program.from_bytes(data)
    except ProgramError as error:
        return str(error)
    size = program.dram_bytes
    findings = validate(program.config, program.instructions, size, [(0, size)], cycles=_CYCLES)
    return str(findings[0]) if findings else program


class Mutated:
    """See the module."""

    seconds = 120.0
    megabytes = None
    suffix = ".npu"

    def __init__(self, devices: dict[str, RtlDevice]) -> None:
        self.devices = devices
        self.notes: Counter[str] = Counter()

    def input(self, random: Random) -> bytes:
        """A program file, which `npukit verify --replay` runs as well."""
        return mutated_program(random)

    def run(self, data: bytes) -> Result:
        """Validator it, and run what is accepted."""
        program = accepted_program(data)
        if isinstance(program, str):
            return Result(Outcome.REFUSED, program)
        config, instructions = program.config, program.instructions
        memory = np.frombuffer(program.constants, np.uint8).copy()
        digest = hashlib.sha256(data).hexdigest()
        dram = random_dram(digest)
        device = next((one for one in self.devices.values() if one.config == config), None)
        if device is not None and int(digest, 16) % _RTL_SHARE == 0:
            self.notes["on the RTL"] += 1
            outcome = compare_program(device, instructions, memory, dram)
            if outcome.first is not None:
                raise WrongResult(f"{dram}: {outcome.first}")
            return Result(Outcome.ACCEPTED)
        simulate_timing(config, instructions, dram)
        machine = FunctionalSimulator(config, memory)
        for instruction in instructions:
            machine.execute(instruction)
        return Result(Outcome.ACCEPTED)


def make(folder: Path) -> Mutated:
    """The kind, with the cores, which are built on first use."""
    return Mutated({name: RtlDevice(PRESETS[name], memory_bytes=1 << 20) for name in _CONFIGS})
