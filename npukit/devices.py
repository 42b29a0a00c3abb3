"""Devices by their names: those of the kit, and those of other packages.

A package adds one by an entry point of the group `npukit.devices`, whose name is the device's, and which loads a
function like `make_simulator`. It is loaded when its device is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from npukit.driver.device import Device
from npukit.driver.sim_device import SimDevice
from npukit.errors import UsageError
from npukit.isa.config import NpuConfig
from npukit.sim.dram import AnyDram, SdramDram

__all__ = ["DeviceOptions", "device_names", "make_device", "make_simulator"]

GROUP = "npukit.devices"
"""Of entry points."""


@dataclass(frozen=True)
class DeviceOptions:
    """What a user may ask of a device.

    Attributes:
        dram: what lies behind the accelerator, or None for what the device has by default.
        compute: False for timing alone, where a device can.
        vcd: a file for waveforms, where a device has them.
        vcd_cycles: the first and last cycle in it.
    """

    dram: AnyDram | None = None
    compute: bool = True
    vcd: str | Path | None = None
    vcd_cycles: tuple[int, int] | None = None

    @property
    def size(self) -> dict[str, int]:
        """Bytes of memory, where it is a board's."""
        return {"memory_bytes": self.dram.chip.bytes} if isinstance(self.dram, SdramDram) else {}


def make_simulator(config: NpuConfig, options: DeviceOptions) -> Device:
    """The simulated device."""
    return SimDevice(config, options.dram, compute=options.compute, **options.size)


def make_rtl(config: NpuConfig, options: DeviceOptions) -> Device:
    """The hardware in Verilator."""
    # heavy, and not needed by the simulator
    from npukit.driver.rtl_device import RtlDevice
    from npukit.verify.sdram import SdramRtlDevice

    if isinstance(options.dram, SdramDram):
        return SdramRtlDevice(
            config, options.dram, vcd=options.vcd, vcd_cycles=options.vcd_cycles, **options.size
        )  # fmt: skip
    return RtlDevice(config, options.dram, vcd=options.vcd, vcd_cycles=options.vcd_cycles)


_OWN: dict[str, Callable[[NpuConfig, DeviceOptions], Device]] = {"sim": make_simulator, "rtl": make_rtl}


def _others() -> dict[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=GROUP) if one.name not in _OWN}


def device_names() -> tuple[str, ...]:
    """Names of all devices, the kit's own first."""
    return (*_OWN, *sorted(_others()))


def make_device(name: str, config: NpuConfig, options: DeviceOptions) -> Device:
    """A device of a configuration.

    Raises:
        UsageError: there is none of that name, or the package that has it cannot be loaded.
    """
    if name in _OWN:
        return _OWN[name](config, options)
    others = _others()
    if name not in others:
        raise UsageError(f"the devices are {', '.join((*_OWN, *sorted(others)))}, not {name!r}")
    try:
        make = others[name].load()
    except Exception as error:  # whatever another package's module raises
        raise UsageError(f"the device {name} of {others[name].value} cannot be loaded: {error}") from error
    return make(config, options)
