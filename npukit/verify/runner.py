"""Many random programs; on a difference, a shrunk program and a waveform that show it."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from npukit.driver.rtl_device import RtlDevice
from npukit.files import write_file
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import End, Instruction
from npukit.isa.program import Program
from npukit.sim.dram import AnyDram
from npukit.sim.validator import validate
from npukit.verify.compare import Outcome, compare_program
from npukit.verify.coverage import cover, coverage_items, coverage_unreachable
from npukit.verify.generator import RandomProgram
from npukit.verify.hostile import hostile_share
from npukit.verify.order import order_instructions
from npukit.verify.placement import Placement
from npukit.verify.plan import Plan

__all__ = ["Verification", "case_surroundings", "replay", "save_case", "shrink", "verify"]

_HASH_DIGITS = 8
"""Of a configuration's hash in a file's name."""


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
            "out_of_reach": coverage_unreachable(self.config),
            "hostile": dict(self.hostile),
            "first_divergence": self.first_divergence,
            "rtl_mcycles_per_second": self.cycles / 1e6 / self.rtl_seconds if self.rtl_seconds else 0.0,
            "sim_mcycles_per_second": self.cycles / 1e6 / self.sim_seconds if self.sim_seconds else 0.0,
        }


def verify(
    device: RtlDevice,
    seed: int,
    programs: int,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
    traced: Callable[[Path], RtlDevice] | None = None,
    dram: AnyDram | None = None,
    first: int = 0,
    coverage: Counter[str] | None = None,
) -> Verification:
    """Compare random programs, `programs` of them from number `first` on, each with a DRAM of its own unless one is
    given; stops at the first that differs, which it shrinks and saves in `folder`, with the waveform if `traced` makes
    a device that writes one. With the reference DRAM some are followed by hostile runs. `coverage`, what the programs
    before number `first` hit, is counted on in."""
    result = Verification(device.config, seed, coverage=Counter() if coverage is None else coverage)
    plan = Plan(device.config, seed, result.coverage)
    for index in range(first, first + programs):
        made = plan.program(index)
        behind = dram or plan.dram(index, made)
        outcome = compare_program(device, made.instructions, made.memory, behind, placement=made.placement)
        result.sim_seconds += outcome.sim_seconds
        result.rtl_seconds += outcome.rtl_seconds
        result.programs += 1
        result.cycles += outcome.schedule.cycles
        result.bit_mismatches += outcome.bits
        result.cycle_mismatches += outcome.cycles
        plan.count(cover(made, outcome.schedule, outcome.observed, outcome.memory))
        progress(result.programs)
        if outcome.first is not None:
            instructions, outcome = shrink(device, made, behind, outcome)
            assert outcome.first is not None
            result.first_divergence = {
                "program": f"{seed}/{index}",
                "length": len(instructions),
                "dram": asdict(behind),
                "placement": asdict(made.placement),
                **outcome.first,
            }
            if folder is not None:
                case = replace(made, instructions=instructions)
                path = save_case(folder, f"{seed}-{index}", case, behind)
                result.first_divergence["file"] = str(path)
                if traced is not None:
                    waveform = path.with_suffix(".vcd")
                    with traced(waveform) as tracing:
                        compare_program(tracing, instructions, made.memory, behind, placement=made.placement)
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
    device: RtlDevice, made: RandomProgram, dram: AnyDram, outcome: Outcome
) -> tuple[tuple[Instruction, ...], Outcome]:
    """Leave out instructions, tokens made anew, as long as a difference remains."""
    best, memory = made.instructions, made.memory
    position = len(best) - 2
    while position >= 0:
        rest = [replace(one, wait=0, signal=0, drain=0) for i, one in enumerate(best[:-1]) if i != position]
        candidate = (*order_instructions(device.config, rest, memory.size // device.config.word_bytes), End())
        # what is read must be written: the RTL's memories hold what earlier programs left
        if rest and not validate(device.config, candidate, memory.size, [(0, memory.size)]):
            tried = compare_program(device, candidate, memory, dram, placement=made.placement)
            if tried.first is not None:
                best, outcome = candidate, tried
        position -= 1
    return best, outcome


def save_case(folder: Path, name: str, made: RandomProgram, dram: AnyDram) -> Path:
    """A program with its memory as its constants, and beside it, as JSON, what it ran in.

    `npukit verify --replay` runs it again.
    """
    program = Program(
        made.config, made.instructions, constants=made.memory.tobytes(), dram_bytes=made.memory.size,
        name=f"verify {name}",
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    # with the configuration: the same seed and number may differ in several, and each is evidence of its own
    path = folder / f"difference-{name}-{f'{made.config.hash:016x}'[:_HASH_DIGITS]}.npu"
    write_file(path, program.to_bytes())
    around = {"schema": 1, "dram": asdict(dram), "placement": asdict(made.placement)}
    write_file(path.with_suffix(".json"), (json.dumps(around, indent=1) + "\n").encode())
    return path


def case_surroundings(path: Path) -> tuple[dict[str, Any], Placement]:
    """What a saved case ran in: its DRAM's values and the placement; nothing and the default where that is not known.

    Raises:
        ValueError: a JSON file beside the program that is no such description.
    """
    beside = path.with_suffix(".json")
    if not beside.exists():
        return {}, Placement()
    try:
        around = json.loads(beside.read_text(encoding="utf-8"))
        return dict(around["dram"]), Placement(**around["placement"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{beside} does not say in what a program ran: {error}") from None


def replay(device: RtlDevice, program: Program, dram: AnyDram, placement: Placement) -> Outcome:
    """Run a saved case; what its constants leave of DRAM, inputs among it, is 0."""
    memory = np.zeros(program.dram_bytes, np.uint8)
    memory[: len(program.constants)] = np.frombuffer(program.constants, np.uint8)
    return compare_program(device, program.instructions, memory, dram, placement=placement)
