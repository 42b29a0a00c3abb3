"""Many random programs; on a difference, a shrunk program and a waveform that show it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.driver.rtl_device import RtlDevice
from npukit.files import write_file
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import End, Instruction
from npukit.isa.program import Program
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.judge import judge
from npukit.sim.timing import simulate_timing
from npukit.verify.compare import Outcome, compare_program
from npukit.verify.coverage import cover, cover_values, coverage_items
from npukit.verify.generator import random_program
from npukit.verify.hostile import hostile_share
from npukit.verify.order import order_instructions

__all__ = ["Verification", "random_dram", "replay", "save_case", "shrink", "verify"]


@dataclass
class Verification:
    """What a run found; `to_json` has the names of `npukit verify --json`."""

    config: NpuConfig
    seed: int
    programs: int = 0
    bit_mismatches: int = 0
    cycle_mismatches: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    """Runs in hostile surroundings, by what became of the program that was interrupted."""
    first_divergence: dict[str, Any] | None = None
    cycles: int = 0
    rtl_seconds: float = 0.0
    sim_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The run as one JSON object."""
        return {
            "schema": 1,
            "config": self.config.to_dict(),
            "seed": self.seed,
            "programs": self.programs,
            "bit_mismatches": self.bit_mismatches,
            "cycle_mismatches": self.cycle_mismatches,
            "coverage": {item: self.coverage[item] for item in coverage_items(self.config)},
            "hostile": dict(self.hostile),
            "first_divergence": self.first_divergence,
            "rtl_mcycles_per_second": self.cycles / 1e6 / self.rtl_seconds if self.rtl_seconds else 0.0,
            "sim_mcycles_per_second": self.cycles / 1e6 / self.sim_seconds if self.sim_seconds else 0.0,
        }


def random_dram(seed: str) -> DramModel:
    """A DRAM of that seed: short and long latencies, few and many bursts in flight."""
    random = Random(f"{seed}/dram")
    return DramModel(
        latency=random.choice([1, 20, 100, random.randint(2, 40)]),
        read_bursts=random.choice([1, 2, 4, 16, 32]),
        write_bursts=random.choice([1, 2, 4, 16, 32]),
    )


def verify(
    device: RtlDevice,
    seed: int,
    programs: int,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
    traced: Callable[[Path], RtlDevice] | None = None,
    dram: AnyDram | None = None,
    first: int = 0,
) -> Verification:
    """Compare random programs, `programs` of them from number `first` on, each with a DRAM of its own unless one is
    given; stops at the first that differs, which it shrinks and saves in `folder`, with the waveform if `traced` makes
    a device that writes one. With the reference DRAM some are followed by hostile runs."""
    result = Verification(device.config, seed)
    for index in range(first, first + programs):
        made = random_program(device.config, f"{seed}/{index}")
        behind = dram or random_dram(f"{seed}/{index}")
        start = perf_counter()
        simulate_timing(device.config, made.instructions, behind)
        timed = perf_counter()
        outcome = compare_program(device, made.instructions, made.memory, behind)
        result.sim_seconds += timed - start
        result.rtl_seconds += outcome.rtl_seconds
        result.programs += 1
        result.cycles += outcome.schedule.cycles
        result.bit_mismatches += outcome.bits
        result.cycle_mismatches += outcome.cycles
        cover(device.config, made.instructions, outcome.schedule, result.coverage)
        if device.config.dtype == "bf16":
            before, after = made.memory.view(np.uint16), outcome.memory.view(np.uint16)
            cover_values("read", before, result.coverage)
            cover_values("stored", after[after != before], result.coverage)
        progress(result.programs)
        if outcome.first is not None:
            instructions, outcome = shrink(device, made.instructions, made.memory, behind, outcome)
            assert outcome.first is not None
            result.first_divergence = {
                "program": f"{seed}/{index}",
                "length": len(instructions),
                "dram": asdict(behind),
                **outcome.first,
            }
            if folder is not None:
                path = save_case(folder, f"{seed}-{index}", device.config, instructions, made.memory)
                result.first_divergence["file"] = str(path)
                if traced is not None:
                    waveform = path.with_suffix(".vcd")
                    with traced(waveform) as tracing:
                        compare_program(tracing, instructions, made.memory, behind)
                    result.first_divergence["waveform"] = str(waveform)
            break
        share = None if dram is not None else hostile_share(device, seed, index)
        if share is not None:
            result.hostile[share.happened] += 1
            result.bit_mismatches += share.bits
            if share.first is not None:
                result.first_divergence = {"program": f"{seed}/{index}", "hostile": share.happened, **share.first}
                break
    return result


def shrink(
    device: RtlDevice,
    instructions: Sequence[Instruction],
    memory: NDArray[np.uint8],
    dram: AnyDram,
    outcome: Outcome,
) -> tuple[tuple[Instruction, ...], Outcome]:
    """Leave out instructions, tokens made anew, as long as a difference remains."""
    best = tuple(instructions)
    position = len(best) - 2
    while position >= 0:
        rest = [replace(one, wait=0, signal=0, drain=0) for i, one in enumerate(best[:-1]) if i != position]
        candidate = (*order_instructions(device.config, rest, memory.size // device.config.word_bytes), End())
        # what is read must be written: the RTL's memories hold what earlier programs left
        if rest and not judge(device.config, candidate, memory.size, [(0, memory.size)]):
            tried = compare_program(device, candidate, memory, dram)
            if tried.first is not None:
                best, outcome = candidate, tried
        position -= 1
    return best, outcome


def save_case(
    folder: Path, name: str, config: NpuConfig, instructions: Sequence[Instruction], memory: NDArray[np.uint8]
) -> Path:
    """A program with its memory as its constants: `npukit verify --replay` runs it again."""
    program = Program(
        config, tuple(instructions), constants=memory.tobytes(), dram_bytes=memory.size, name=f"verify {name}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"difference-{name}.npu"
    write_file(path, program.to_bytes())
    return path


def replay(device: RtlDevice, program: Program, dram: AnyDram) -> Outcome:
    """Run a saved case; what its constants leave of DRAM, inputs among it, is 0."""
    memory = np.zeros(program.dram_bytes, np.uint8)
    memory[: len(program.constants)] = np.frombuffer(program.constants, np.uint8)
    return compare_program(device, program.instructions, memory, dram)
