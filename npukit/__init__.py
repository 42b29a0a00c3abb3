"""npukit: an NPU co-design kit. Hardware, simulator, compiler and driver that agree bit for bit."""

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # to type checkers True; typing itself takes longer to load than all that is here
if TYPE_CHECKING:
    from npukit.compiled import CompiledModel
    from npukit.frameworks import compile, profile, quantize, report
    from npukit.isa.config import PRESETS, ConfigError, NpuConfig
    from npukit.loaded import LoadedModel, load
    from npukit.session import Session

__all__ = [
    "PRESETS",
    "CompiledModel",
    "ConfigError",
    "LoadedModel",
    "NpuConfig",
    "Session",
    "__version__",
    "compile",
    "load",
    "profile",
    "quantize",
    "report",
]

__version__ = "0.1.0"

_MODULES = {
    "PRESETS": "npukit.isa.config",
    "ConfigError": "npukit.isa.config",
    "NpuConfig": "npukit.isa.config",
    "CompiledModel": "npukit.compiled",
    "compile": "npukit.frameworks",
    "LoadedModel": "npukit.loaded",
    "load": "npukit.loaded",
    "profile": "npukit.frameworks",
    "quantize": "npukit.frameworks",
    "report": "npukit.frameworks",
    "Session": "npukit.session",
}

# ONNX Runtime reports its use to Microsoft, and keeps an identity of the device in the user's cache folder for that.
# It looks at this variable when it is loaded, which every module of the kit that uses it does after this one; child
# processes inherit it. Where somebody else has loaded it before, what it has written stays, and nothing more is sent.
if not os.environ.get("ORT_DISABLE_TELEMETRY"):
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    if "onnxruntime" in sys.modules:
        sys.modules["onnxruntime"].disable_telemetry_events()


def __getattr__(name: str) -> object:
    """The public names, from modules that are loaded when they are asked for: they take a second, in which the command
    line must already be able to say that it was interrupted."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
