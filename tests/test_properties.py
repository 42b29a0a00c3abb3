"""A short version of `make properties`: one fixed and one fresh seed."""

import importlib.util
import secrets
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("npukit_properties", Path(__file__).with_name("properties.py"))
assert _spec is not None and _spec.loader is not None
properties = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = properties  # dataclasses look their module up
sys.path.insert(0, str(Path(__file__).parent))  # as when it runs as a script
_spec.loader.exec_module(properties)


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_random_convolutions_equal_onnx_runtime(kind: str) -> None:
    seed = 1 if kind == "fixed" else secrets.randbelow(1_000_000)
    print(f"repeat with: make properties SEED={seed} CASES=150")
    report = properties.run(seed, 150)
    assert not report.failures, f"seed {seed}: {report.failures[0]}"
    assert report.mismatches == 0
    assert report.share >= 0.95, f"seed {seed}: {report.share:.3f} of the MACs on the accelerator"
    if kind == "fixed":
        assert not report.missing_extremes()


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_random_graphs_equal_onnx_runtime(kind: str) -> None:
    from random_graphs import OPERATORS, run_graphs

    seed = 1 if kind == "fixed" else secrets.randbelow(1_000_000)
    print(f"repeat with: make properties SEED={seed} CASES=120")
    report = run_graphs(seed, 120, properties.CONFIGS, lambda _: None)
    assert not report.failures, f"seed {seed}: {report.failures[0]}"
    assert report.mismatches == 0 and report.cases == 120
    if kind == "fixed":
        assert set(OPERATORS) - set(report.accepted) <= {"table", "block", "again"}


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_integer_operators_equal_onnx_runtime(kind: str) -> None:
    """The same graphs in the QOperator form that ONNX Runtime makes of them."""
    from random_graphs import INTEGER_OPERATORS

    seed = 5 if kind == "fixed" else secrets.randbelow(1_000_000)
    print(f"repeat with: properties.run_integer({seed}, 80)")
    report = properties.run_integer(seed, 80)
    assert not report.failures, f"seed {seed}: {report.failures[0]}"
    assert report.mismatches == 0 and report.cases == 80
    if kind == "fixed":
        assert not INTEGER_OPERATORS - set(report.accepted)


@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_what_does_not_fit_equals_onnx_runtime(kind: str) -> None:
    """On machines so small that nodes stay which ONNX Runtime fuses: the cut must not change its roundings."""
    seed = 1 if kind == "fixed" else secrets.randbelow(1_000_000)
    print(f"repeat with: properties.run_staying({seed}, 80)")
    reports = properties.run_staying(seed, 80)
    for report in reports:
        assert not report.failures, f"seed {seed}: {report.failures[0]}"
        assert report.cases == 40 and report.share < 1
        assert report.parts > 0 or kind == "fresh"  # of some seeds, one of the kinds has no graph in several parts
    assert any(report.parts for report in reports)


@pytest.mark.parametrize("seed", [3, None], ids=["fixed", "fresh"])
def test_levels_of_optimisation_on_random_machines(seed: int | None) -> None:
    import levels

    drawn = secrets.randbelow(1 << 18) if seed is None else seed
    print(f"repeat with: python tests/levels.py --seed {drawn} --graphs 3 --configs 3")
    elements, failures = levels.run(drawn, 3, 3)
    assert not failures, failures[0]
    if seed is not None:  # three fresh graphs may all be small
        assert elements > 1000
