"""A pytest plugin for `mutate.py`: the RTL of the configuration in the environment is the Verilog of a file there."""

import os
from pathlib import Path

from npukit.driver import rtl_device
from npukit.isa.config import PRESETS, NpuConfig

CONFIG, VERILOG = "NPUKIT_MUTATED_CONFIG", "NPUKIT_MUTATED_VERILOG"
_whole = rtl_device.core_verilog


def _mutated(config: NpuConfig) -> str:
    if config != PRESETS[os.environ[CONFIG]]:
        return _whole(config)
    return Path(os.environ[VERILOG]).read_text(encoding="utf-8")


def pytest_configure() -> None:
    """The module is a plugin of this run, and not what `mutate.py` takes the names from."""
    rtl_device.core_verilog = _mutated
