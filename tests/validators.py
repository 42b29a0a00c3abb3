"""The validator against one that works by brute force, on small random programs and on mutated ones.

`make validators`: minutes. Both must refuse the same programs at the same stage, and the fault that the validator names
first must be one of those that brute force finds. What both accept must give the same results in whatever order single
accesses happen. Exit code 1 when they differ.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from brute_validator import TooLong, brute_validator, play, play_in_order
from fuzz_programs import mutate_code
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import ENGINES, Engine
from npukit.isa.program import Program, ProgramError
from npukit.sim.validator import validate_program

from npukit.verify.generator import random_program

__all__ = ["CONFIGS", "Report", "compare", "made", "run"]

_SMALL = {"act_depth": 128, "act_banks": 2, "wgt_depth": 64, "acc_depth": 64, "acc_banks": 2, "par_depth": 64}
CONFIGS: tuple[NpuConfig, ...] = (
    replace(PRESETS["int8-4x4"], **_SMALL),
    replace(PRESETS["bf16-4x4"], **_SMALL),
)
"""So small that operands meet, and that rings reach over a bank's end."""
_STAGES = {
    "end": "static", "encoding": "static", "mode": "static", "bank": "static", "dram address": "static",
    "order": "tokens", "token overflow": "tokens", "race": "memory", "unwritten": "memory", "overlap": "memory",
}  # fmt: skip
_ORDERS = 3


@dataclass
class Report:
    """What a run showed: programs by what became of them, and what differed."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def _with_less_order(random: Random, program: Program) -> Program:
    """Without a drain, or a token at both of its ends."""
    instructions: list[Any] = [*program.instructions]
    given: dict[tuple[Engine, Engine], list[int]] = {}
    taken: dict[tuple[Engine, Engine], int] = {}
    found: list[tuple[int, ...]] = []
    for index, one in enumerate(program.instructions):
        engine = one.engine
        for other in ENGINES if engine is not None else ():
            assert engine is not None
            if one.wait >> other & 1:
                number = taken.get((other, engine), 0)
                taken[other, engine] = number + 1
                found.append((given[other, engine][number], index))
            if one.signal >> other & 1:
                given.setdefault((engine, other), []).append(index)
        if one.drain:
            found.append((index,))
    for places in random.sample(found, min(len(found), random.choice([1, 1, 2, 4]))):
        first, last = instructions[places[0]], instructions[places[-1]]
        if len(places) == 1:
            instructions[places[0]] = replace(first, drain=0)
        else:
            instructions[places[0]] = replace(first, signal=first.signal & ~(1 << last.engine))
            instructions[places[1]] = replace(last, wait=last.wait & ~(1 << first.engine))
    return replace(program, instructions=tuple(instructions))


def compare(program: Program, random: Random) -> str:
    """What became of a program: `accepted`, the rule that it breaks, or `long`.

    Raises:
        AssertionError: the validators differ, or what they accept depends on the order of accesses.
    """
    instructions = [*program.instructions]
    try:
        stage, faults, results = brute_validator(
            program.config, instructions, program.dram_bytes, len(program.constants)
        )  # fmt: skip
    except TooLong:
        validate_program(program)
        return "long"
    findings = validate_program(program)
    if not findings:
        assert not stage, f"accepted, and by brute force it breaks {faults[:3]}"
        expected = play_in_order(results)
        for _ in range(_ORDERS):
            assert play(instructions, results, random) == expected, "accepted, and its results depend on the order"
        return "accepted"
    first = findings[0]
    assert stage, f"refused, and by brute force it is sound: {first}"
    assert _STAGES[first.rule] == stage, f"refused for {first}, and by brute force for {faults[:3]}"
    # an instruction may break several rules of its stage; which comes first is of no interest
    rules = [first.rule] if stage == "memory" else [rule for rule, of in _STAGES.items() if of == stage]
    assert any((rule, first.instructions) in faults for rule in rules), f"{first} is none of {faults}"
    return first.rule


def made(seed: int, case: int) -> Program | None:
    """The program of a seed, small, mostly with a fault or two; None if it holds what is no instruction."""
    random = Random(f"validators/{seed}/{case}")
    sound = random_program(random.choice(CONFIGS), f"{seed}/{case}", random.choice([1, 2, 4, 8]))
    constants = sound.memory.tobytes()
    if random.random() < 0.1:  # some of what is read is not there
        constants = constants[: random.randrange(len(constants))]
    program = Program(sound.config, sound.instructions, constants, sound.memory.size)
    if random.random() < 0.4:
        program = _with_less_order(random, program)
    data = program.to_bytes()
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        data = mutate_code(random, data)
        try:
            program = Program.from_bytes(data)
        except ProgramError:
            return None
    return program


def run(seed: int, cases: int) -> Report:
    """Compare on `cases` programs."""
    report = Report()
    for case in range(cases):
        program = made(seed, case)
        if program is None:
            report.outcomes["no instruction"] += 1
            continue
        try:
            report.outcomes[compare(program, Random(f"orders/{seed}/{case}"))] += 1
        except AssertionError as error:
            report.failures.append(f"seed {seed}, case {case}: {error}")
    return report


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2000, help="(default: 2000)")
    options = parser.parse_args()
    report = run(options.seed, options.cases)
    for failure in report.failures[:10]:
        print(failure)
    outcomes = ", ".join(f"{count} {name}" for name, count in report.outcomes.most_common())
    print(f"seed {options.seed}: {options.cases} programs: {outcomes}; the validators differ on {len(report.failures)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
