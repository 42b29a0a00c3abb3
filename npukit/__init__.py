"""npukit: an NPU co-design kit. Hardware, simulator, compiler and driver that agree bit for bit."""

from npukit.isa.config import PRESETS, ConfigError, NpuConfig
from npukit.session import Session

__all__ = ["PRESETS", "ConfigError", "NpuConfig", "Session", "__version__"]

__version__ = "0.1.0"
