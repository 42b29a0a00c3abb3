"""What the tests of several folders use; fixtures, because test folders are not packages."""

import importlib.util
import signal
import sys
from pathlib import Path
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
