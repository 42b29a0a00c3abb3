"""What the tests of several folders use; fixtures, because test folders are not packages."""

import importlib.util
import os
import secrets
import signal
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

import npukit  # noqa: F401  # before the tests load ONNX Runtime, whose telemetry it turns off

# a background job ignores interrupts, and so do all that it starts, unless it catches them
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def graphs() -> ModuleType:
    """The module `graphs.py`: small QDQ graphs, and their comparison with ONNX Runtime."""
    name = "npukit_tests_graphs"
    if name not in sys.modules:
        path = Path(__file__).parent / "graphs.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look it up
        spec.loader.exec_module(module)
    return sys.modules[name]


_SEED = "NPUKIT_SAMPLE_SEED"
"""Environment variable: of the samples, for this process and the workers that it starts."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of the samples that `make test` takes of the cases of long tests."""
    group = parser.getgroup("samples of tests with many long cases")
    group.addoption("--all-cases", action="store_true", help="every case of these tests; without, some of them")
    group.addoption("--sample-seed", type=int, metavar="SEED", help="the cases that another run has drawn")


def pytest_configure(config: pytest.Config) -> None:
    """Workers draw what this process draws."""
    seed = config.getoption("--sample-seed")
    if seed is not None or _SEED not in os.environ:
        os.environ[_SEED] = str(secrets.randbelow(1_000_000) if seed is None else seed)


def pytest_report_header(config: pytest.Config) -> str:
    """How to repeat them."""
    if config.getoption("--all-cases"):
        return "every case of every test"
    return f"samples of tests with many long cases: --sample-seed {os.environ[_SEED]} draws these again"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is marked `sample(count)`, its first case, which is always the same, and others, to that many."""
    if config.getoption("--all-cases"):
        return
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left = set()
    for name, found in cases.items():
        marker = found[0].get_closest_marker("sample")
        assert marker is not None
        drawn = Random(f"{os.environ[_SEED]}/{name}").sample(found[1:], min(marker.args[0], len(found)) - 1)
        left.update(item for item in found[1:] if item not in drawn)
    # a case that is asked for by its name is run
    named = [argument for argument in config.args if "::" in argument]
    left = {item for item in left if not any(argument.endswith(item.nodeid) for argument in named)}
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]
