"""Short runs of `make fuzz`, each kind with one fixed and one fresh seed; and what watches over the long ones."""

import secrets
import sys
import time
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # as when it runs as a script

from fuzzing import KINDS, module_of
from fuzzing.case import GOOD, Kind, Outcome
from fuzzing.watch import replay, run_kind, state_of

CASES = {
    "toml": 25, "assembly": 15, "npz": 15, "programs": 25, "compiled": 10, "models": 10, "tflite": 40, "link": 2,
    "mutated": 40,
}  # fmt: skip
"""Kinds that need no process of their own, and cases of each seed."""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    """Those that were made already."""
    return {}


@pytest.mark.parametrize("seed", ["fixed", "fresh"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_goes_wrong(kinds: dict[str, Kind], name: str, seed: str, tmp_path_factory) -> None:
    if name not in kinds:
        module = module_of(name)
        # without the RTL: to build it takes minutes
        kinds[name] = module.Mutated({}) if name == "mutated" else module.make(tmp_path_factory.mktemp(name))
    drawn = 1 if seed == "fixed" else secrets.randbelow(1_000_000)
    print(f"repeat with: python tests/fuzz.py --only {name} --seed {drawn} --cases {CASES[name]}")
    outcomes = set()
    for index in range(CASES[name]):
        kind = kinds[name]
        result = kind.run(kind.input(Random(f"{drawn}/{name}/{index}")))
        assert result.outcome in GOOD, f"seed {drawn}, case {index}: {result.outcome}: {result.message}"
        outcomes.add(result.outcome)
    assert Outcome.ACCEPTED in outcomes or seed == "fresh"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kernels", "harness"])
def test_with_checks_that_are_compiled_in(name: str, tmp_path: Path) -> None:
    """Indices of kernels; addresses and undefined behaviour in C++. Both need a process with variables of its own."""
    seed = secrets.randbelow(1_000_000)
    print(f"repeat with: python tests/fuzz.py --only {name} --seed {seed} --cases 40")
    report = run_kind(name, seed, 40, tmp_path, workers=1)
    assert report.good and report.cases == 40, report.findings
    assert report.counts[Outcome.ACCEPTED] > 4


def test_every_kind_is_tested() -> None:
    """That of PyTorch, which is an extra, in `pytorch/test_archive.py`."""
    assert {*CASES, "kernels", "harness", "torch"} == set(KINDS)


# ---- the watcher


def test_what_can_go_wrong_is_found_and_can_be_repeated(tmp_path: Path) -> None:
    """A kind that does everything that it should not, in an order that its seed gives."""
    report = run_kind("bad", 49, 120, tmp_path, workers=2)
    assert report.cases == 120 and not report.good
    assert set(report.counts) == set(Outcome)
    assert sum(report.counts[one] for one in Outcome if one not in GOOD) == len(report.findings)
    saved = [finding for finding in report.findings if finding.path is not None]
    assert {finding.result.outcome for finding in saved} == set(Outcome) - set(GOOD)
    for finding in {finding.result.outcome: finding for finding in saved}.values():
        assert finding.path is not None and finding.path.parent == tmp_path
        assert replay("bad", finding.path.read_bytes(), tmp_path).outcome == finding.result.outcome
    state_of("bad", 49, 120, tmp_path).unlink()
    assert {path.suffix for path in tmp_path.iterdir()} == {".bad"}  # and nothing else is left


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = run_kind("bad", 1, 200, tmp_path / "whole", workers=1)
    cases = [0]
    for _ in range(50):
        report = run_kind("bad", 1, 200, tmp_path, workers=1, until=time.monotonic() + 1)
        cases.append(report.cases)
        if report.cases == 200:
            break
    assert cases == sorted(cases) and len(cases) > 2, cases
    assert report.counts == whole.counts
    assert sorted(one.index for one in report.findings) == sorted(one.index for one in whole.findings)
