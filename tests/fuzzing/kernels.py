"""The simulator's compiled kernels with every index checked, on mutated programs, accepted by the validator or not."""

import hashlib
from pathlib import Path
from random import Random

import numpy as np
from npukit.isa.program import Program, ProgramError
from npukit.sim.compiled import njit
from npukit.sim.dram import AnyDram, SdramDram
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import Deadlock, least_cycles, simulate_timing

from npukit.cache import cache_path
from npukit.verify.plan import random_dram

from .case import Outcome, Result
from .mutated import accepted_program, mutated_program

__all__ = ["Kernels", "environment", "make"]

_CYCLES = 300_000
"""Programs that keep an engine at work for longer are left out: they would do the same over and over."""


def environment() -> dict[str, str]:
    """Index checks, and a folder of their own for kernels that have them."""
    return {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache_path("kernels-checked"))}


@njit
def _element(array: np.ndarray, index: int) -> int:
    return array[index]


class Kernels:
    """See the module."""

    seconds = 120.0
    megabytes = 1024
    suffix = ".npu"

    def __init__(self) -> None:
        try:
            _element(np.zeros(4, np.int64), 4)
        except IndexError:
            return
        raise RuntimeError("kernels are compiled without index checks: this needs NUMBA_BOUNDSCHECK=1")

    def input(self, random: Random) -> bytes:
        """A program file."""
        return mutated_program(random)

    def run(self, data: bytes) -> Result:
        """The timing half of any program; the functional half, whose sums are a kernel in bf16, of accepted ones."""
        try:
            program = Program.from_bytes(data)
        except ProgramError as error:
            return Result(Outcome.REFUSED, str(error))
        config = program.config
        if sum(least_cycles(config, one) for one in program.instructions) > _CYCLES:
            return Result(Outcome.REFUSED, "it would take too long")
        try:
            simulate_timing(config, program.instructions, _dram(data))
        except (Deadlock, ValueError) as error:
            return Result(Outcome.REFUSED, str(error))
        if isinstance(accepted_program(data), str):
            return Result(Outcome.REFUSED, "by the validator; its timing was simulated")
        machine = FunctionalSimulator(config, np.frombuffer(program.constants, np.uint8).copy())
        for instruction in program.instructions:
            machine.execute(instruction)
        return Result(Outcome.ACCEPTED)


def _dram(data: bytes) -> AnyDram:
    """The reference DRAM or an SDRAM, anywhere in it and in its refreshes, by a file's digest."""
    digest = hashlib.sha256(data).digest()
    if digest[0] % 2:
        return random_dram(digest.hex())
    dram = SdramDram(megahertz=[25.0, 40.0, 60.0, 133.0][digest[1] % 4], io_cycles=digest[2] % 9, phase=digest[3])
    return dram.at(int.from_bytes(digest[4:10], "little") & ~4095, int.from_bytes(digest[10:16], "little") & ~4095)


def make(folder: Path) -> Kernels:
    """The kind."""
    return Kernels()
