"""What several files use; fixtures, because test folders are not packages."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings
from npukit.isa.config import PRESETS, NpuConfig

settings.register_profile("npukit", deadline=None)  # the machine may be busy
settings.load_profile("npukit")


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"npukit_tests_sim_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def oracles() -> ModuleType:
    """The module `oracles.py` beside this file."""
    return _load("oracles")


@pytest.fixture(scope="session")
def programs() -> ModuleType:
    """The module `programs.py` beside this file."""
    return _load("programs")


@pytest.fixture(scope="session")
def tiny() -> NpuConfig:
    """A machine so small that random operands meet: two banks of 64 ACT words, two of 32 ACC words."""
    return replace(
        PRESETS["int8-4x4"], act_depth=64, act_banks=2, wgt_depth=64, acc_depth=32, acc_banks=2, par_depth=72
    )
