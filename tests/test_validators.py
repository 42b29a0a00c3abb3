"""A short version of `make validators`: one fixed and one fresh seed; and that it finds faults of either validator."""

import importlib.util
import secrets
import sys
from pathlib import Path
from random import Random

import pytest
from npukit.isa.program import Program
from npukit.sim import validator

_spec = importlib.util.spec_from_file_location("npukit_validators", Path(__file__).with_name("validators.py"))
assert _spec is not None and _spec.loader is not None
validators = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = validators  # dataclasses look their module up
_spec.loader.exec_module(validators)


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_the_validator_and_brute_force_agree(kind: str) -> None:
    seed = 1 if kind == "fixed" else secrets.randbelow(1_000_000)
    print(f"repeat with: make validators SEED={seed} CASES=150")
    report = validators.run(seed, 150)
    assert not report.failures, report.failures[0]
    if kind == "fixed":
        assert report.outcomes["accepted"] > 40
        assert all(report.outcomes[rule] for rule in ("mode", "bank", "order", "race", "unwritten", "overlap"))


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (validator._MemoryState, "_ordered", lambda *_: True),
        (validator._MemoryState, "read", lambda *_: None),
        (validator._MemoryState, "write", lambda *_: None),
        (validator._Validator, "_bounds", lambda *_: None),
        (validator._Validator, "_overlap", lambda *_: None),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_validator_that_looks_away_is_found(
    owner: type, name: str, planted: object, monkeypatch: pytest.MonkeyPatch, programs: list[Program]
) -> None:
    monkeypatch.setattr(owner, name, planted)
    # it differs from the other one, or stumbles over words that there are not
    with pytest.raises((AssertionError, IndexError, ValueError)):
        for program in programs:
            validators.compare(program, Random(1))


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    """Made by the generator with the validator as it is."""
    made = (validators.made(1, case) for case in range(250))
    return [program for program in made if program is not None]


def test_races_change_results(programs: list[Program]) -> None:
    """Played in other orders, what races gives other results: in programs that both validators took, it would show."""
    racing = changed = 0
    for program in programs:
        instructions = [*program.instructions]
        try:
            _, faults, results = validators.brute_validator(
                program.config, instructions, program.dram_bytes, len(program.constants)
            )
        except validators.TooLong:
            continue
        if faults and all(rule == "race" for rule, _ in faults):
            expected = validators.play_in_order(results)
            racing += 1
            changed += any(validators.play(instructions, results, Random(seed)) != expected for seed in range(30))
    assert racing >= 15 and changed >= 0.7 * racing, (racing, changed)
