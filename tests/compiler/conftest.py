"""What several files use; fixtures, because test folders are not packages."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

settings.register_profile("npukit", deadline=None)  # the machine may be busy
settings.load_profile("npukit")


@pytest.fixture(scope="session")
def graphs() -> ModuleType:
    """The module `graphs.py` beside this file."""
    name = "npukit_tests_graphs"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("graphs.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look it up
        spec.loader.exec_module(module)
    return sys.modules[name]
