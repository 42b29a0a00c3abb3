"""What modules are compiled for, and where they run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from npukit.devices import check_device
from npukit.driver.device import Device
from npukit.errors import UsageError
from npukit.isa.config import PRESETS, NpuConfig, load_config
from npukit.sim.dram import AnyDram

__all__ = ["Target", "target_of"]

_FLOAT, _INTEGER = "bf16-16x16", "int8-16x16"


@dataclass(frozen=True)
class Target:
    """A configuration and a device.

    Attributes:
        config: preset name, TOML file or `NpuConfig`; by default `bf16-16x16`, or `int8-16x16` for a quantised module.
        device: `sim`, `rtl`, another device's name, or an object with the device protocol.
        dram: what lies behind the accelerator, and what is compiled for; by default the reference DRAM.
        optimize: how much the compiler tries: 0, 1 or 2; results are the same.
        min_macs: parts of fewer multiply-accumulates are left to PyTorch; by default those without any.
        capture: show every tensor of a run, for comparisons.

    Raises:
        ConfigError, UsageError: when it is made, of what is not among the choices.
    """

    config: str | NpuConfig | None = None
    device: str | Device = "sim"
    dram: AnyDram | None = None
    optimize: int = 1
    min_macs: int = 1
    capture: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.config, str):
            object.__setattr__(self, "config", load_config(self.config))
        if self.config is not None and not isinstance(self.config, NpuConfig):
            raise UsageError(f"config must be a preset's name, a TOML file or an NpuConfig, not {self.config!r}")
        if isinstance(self.device, str):
            check_device(self.device)
        if isinstance(self.optimize, bool) or self.optimize not in (0, 1, 2):
            raise UsageError(f"optimize must be 0, 1 or 2, not {self.optimize!r}")
        if isinstance(self.min_macs, bool) or not isinstance(self.min_macs, int) or self.min_macs < 0:
            raise UsageError(f"min_macs must be a whole number, 0 or above, not {self.min_macs!r}")

    def config_for(self, quantised: bool) -> NpuConfig:
        """The configuration for a module that is quantised, or not."""
        if isinstance(self.config, NpuConfig):
            return self.config
        return PRESETS[_INTEGER if quantised else _FLOAT]


def target_of(options: Mapping[str, Any]) -> Target:
    """A target of options by their names.

    Raises:
        ConfigError, UsageError: an unknown option, or a value that is not among the choices.
    """
    known = [field.name for field in fields(Target)]
    for name in options:
        if name not in known:
            raise UsageError(f"the options are {', '.join(known)}, not {name!r}")
    return Target(**options)
