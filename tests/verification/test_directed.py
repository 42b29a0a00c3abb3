"""Directed programs reach what they are directed at; a plan's programs are the same each time."""

from collections import Counter

import numpy as np
import pytest
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES, Engine
from npukit.sim.dram import DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing

from npukit.verify.coverage import cover, coverage_items, coverage_targets
from npukit.verify.generator import RandomProgram, Target, random_program
from npukit.verify.observed import Observer
from npukit.verify.plan import Plan

CONFIG = PRESETS["int8-4x4"]
QUICK = DramModel(latency=20, read_bursts=32, write_bursts=32)


def _covered(made: RandomProgram, dram: DramModel = QUICK) -> set[str]:
    machine, observer = FunctionalSimulator(made.config, made.memory.copy()), Observer(made.config)
    for one in made.instructions:
        observer.execute(machine, one)
    schedule = simulate_timing(made.config, made.instructions, dram)
    return cover(made, schedule, observer.found, machine.dram)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_token_counters_come_to_their_limit(engine: Engine) -> None:
    """All three counters of an engine hold 255 at a time; one more would be an error."""
    wanted = {f"tokens_{engine.name}_{other.name}=255" for other in ENGINES if other is not engine}
    found: set[str] = set()
    for attempt in range(4):
        found |= _covered(random_program(CONFIG, f"tokens/{attempt}", 0, [Target(tokens=engine)]))
    assert wanted <= found


@pytest.mark.parametrize(
    "name",
    [
        "queue_MATRIX=8", "queue_STORE filled anew", "in_flight_LOAD=8", "waiting_LOAD=8", "sum_SUM at -2147483648",
        "LOAD.words=8192 (WGT) beside VECTOR", "MATRIX.channels=1024 beside STORE", "STORE.dram=4294967295",
        "VECTOR.blocks=255 (REQUANTIZE) beside LOAD", "LOAD.dram_row_stride=-8388608 (PAR)", "STORE.words=65536",
        "REQUANTIZE_FIXED.shift=-128", "ADD.ra=nan", "MULTIPLY_FIXED.multiplier=-2147483648", "TABLE.entry=-128",
        "TABLE_DIVIDE of many results", "TABLE_SUM.entry=nan",
    ],
)  # fmt: skip
def test_a_target_is_reached(name: str) -> None:
    target = coverage_targets(CONFIG)[name]
    for attempt in range(25):
        if name in _covered(random_program(CONFIG, f"{name}/{attempt}", 0, [target])):
            return
    pytest.fail(f"{name} was not reached in 25 programs")


def test_a_plan_repeats_itself_and_covers() -> None:
    first, second = Plan(CONFIG, 5), Plan(CONFIG, 5)
    for index in range(14):
        one, other = first.program(index), second.program(index)
        assert one.instructions == other.instructions and one.placement == other.placement
        assert np.array_equal(one.memory, other.memory) and first.dram(index, one) == second.dram(index, other)
        for plan in (first, second):
            plan.count(_covered(one))
    assert first.counts == second.counts
    # cut off and taken up again
    again = Plan(CONFIG, 5, Counter(first.counts))
    assert again.program(15).instructions == first.program(15).instructions
    assert len(first.missing) < 0.75 * len(coverage_items(CONFIG))


def test_a_plan_has_random_programs_once_nothing_is_missing() -> None:
    plan = Plan(CONFIG, 5, Counter(dict.fromkeys(coverage_items(CONFIG), 20)))
    assert plan.missing == plan.rare == []
    assert plan.program(1).instructions == random_program(CONFIG, "5/1").instructions


def test_a_plan_goes_on_with_what_few_programs_have() -> None:
    """Several parameters of an operation at a time; each comes again and again."""
    rare = ["ADD.ra=nan", "ADD.rb=-0", "ADD.offset=least", "ADD.low=-512", "TABLE.entry=-128"]
    plan = Plan(CONFIG, 6, Counter({item: 1 if item in rare else 20 for item in coverage_items(CONFIG)}))
    assert sorted(plan.rare) == sorted(rare) and not plan.missing
    found = Counter(item for index in range(1, 25, 2) for item in _covered(plan.program(index)))
    assert all(found[item] >= 6 for item in rare), found
