"""What several files use; fixtures, because test folders are not packages."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def streaming() -> ModuleType:
    """The module `streaming.py` beside this file."""
    spec = importlib.util.spec_from_file_location("npukit_tests_hw_streaming", Path(__file__).with_name("streaming.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
