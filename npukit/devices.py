"""Devices by their names: those of the kit, and those of other packages. Some have an address: `serial:/dev/ttyUSB0`.

A package adds one by an entry point of the group `npukit.devices`, whose name is the device's, and which loads a
function like `make_simulator`. It is loaded when its device is asked for.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from npukit.driver.device import Device
from npukit.driver.serial_device import SerialDevice
from npukit.driver.sim_device import SimDevice
from npukit.errors import UsageError
from npukit.isa.config import NpuConfig
from npukit.serial_line import line_of, show_transfer
from npukit.sim.dram import AnyDram, SdramDram

__all__ = [
    "DeviceOptions",
    "check_device",
    "device_names",
    "make_device",
    "make_simulator",
]

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
        address: where the device is, what stands behind its name and a colon.
    """

    dram: AnyDram | None = None
    compute: bool = True
    vcd: str | Path | None = None
    vcd_cycles: tuple[int, int] | None = None
    address: str = ""

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


def make_serial(config: NpuConfig, options: DeviceOptions) -> Device:
    """A board on a serial line."""
    if options.vcd is not None or not options.compute:
        raise UsageError("a board has no waveforms, and no timing without values: leave these options out")
    port, baud = line_of(options.address)
    shown = sys.stderr.isatty() and logging.getLogger("npukit").isEnabledFor(logging.WARNING)  # not with --quiet
    return SerialDevice(config, port, baud, show_transfer if shown else lambda *_: None)


_OWN: dict[str, Callable[[NpuConfig, DeviceOptions], Device]] = {
    "sim": make_simulator, "rtl": make_rtl, "serial": make_serial,
}  # fmt: skip
_ADDRESSED = {"serial": "serial:PORT, as in serial:/dev/ttyUSB0"}
"""Devices that have an address, and how it is written. One of another package may have one."""


def _others() -> dict[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=GROUP) if one.name not in _OWN}


def device_names() -> tuple[str, ...]:
    """Names of all devices, the kit's own first."""
    return (*_OWN, *sorted(_others()))


def check_device(text: str) -> None:
    """Look at a device's name, and whether it has an address where it needs one, before other work is done for it.

    Raises:
        UsageError: there is none of that name, or its address is missing, or one too many.
    """
    name, _, address = text.partition(":")
    if name not in device_names():
        raise UsageError(f"the devices are {', '.join(device_names())}, not {text!r}")
    if name in _ADDRESSED and not address:
        raise UsageError(f"the device {name} needs an address: {_ADDRESSED[name]}")
    if name in _OWN and name not in _ADDRESSED and text != name:
        raise UsageError(f"the device {name} has no address, so it is not {text!r}")


def make_device(text: str, config: NpuConfig, options: DeviceOptions) -> Device:
    """A device of a configuration, by its name, with its address behind a colon where it has one.

    Raises:
        UsageError: there is none of that name, or the package that has it cannot be loaded.
    """
    check_device(text)
    name, _, address = text.partition(":")
    options = replace(options, address=address)
    if name in _OWN:
        return _OWN[name](config, options)
    others = _others()
    try:
        make = others[name].load()
    except Exception as error:  # whatever another package's module raises
        raise UsageError(f"the device {name} of {others[name].value} cannot be loaded: {error}") from error
    return make(config, options)
