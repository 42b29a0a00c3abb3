"""The hardware behind a board's SDRAM controller, as a device."""

from typing import Any

from npukit.driver.rtl_device import RtlDevice
from npukit.errors import UsageError
from npukit.hw.toolchain import needs
from npukit.hw.verilog import MODULE, component_verilog
from npukit.isa.config import NpuConfig
from npukit.sim.dram import AnyDram, DramModel, SdramDram

__all__ = ["SdramRtlDevice"]

_FAST = DramModel(latency=1, read_bursts=32, write_bursts=32)
"""Where the data are: ahead of the controller, which alone decides when."""


class SdramRtlDevice(RtlDevice):
    """`RtlDevice` with the SDRAM controller between the core and its memory.

    Raises:
        ValueError: a bus that the controller does not have.
        UsageError: a phase in which rows may not be closed yet; at twice the rate a refresh interval of an even
            number of cycles.
        ToolError: a tool is missing or fails.
    """

    def __init__(self, config: NpuConfig, dram: SdramDram, **options: Any) -> None:
        dram.check(config)
        with needs("rtl", "the hardware"):
            from npukit.fpga.timed import SdramTimedCore, least_phase

        least = least_phase(dram.times, dram.rate)
        assert dram.phase is not None and dram.io_cycles is not None
        if dram.phase < least:
            raise UsageError(f"in hardware the refresh phase must be at least {least}, not {dram.phase}")
        interval = dram.times.refresh_interval
        if dram.rate > 1 and interval % 2 == 0:  # a cycle of the core may never begin `phase` cycles into it
            raise UsageError(
                f"in hardware at twice the rate the refresh interval must be an odd number of cycles, not {interval}: "
                "give another clock"
            )
        core = SdramTimedCore(
            config, dram.chip, dram.megahertz, io_cycles=dram.io_cycles, phase=dram.phase, rate=dram.rate
        )
        self._behind = dram
        super().__init__(config, _FAST, verilog=component_verilog(core, MODULE), **options)

    @property
    def dram(self) -> AnyDram:
        """The memory behind the controller."""
        return self._behind

    def set_dram(self, dram: AnyDram) -> None:
        """Only the one that it was made with.

        Raises:
            ValueError: another one.
        """
        if dram not in (_FAST, self._behind):
            raise ValueError("a device with an SDRAM controller has no other memory")
        super().set_dram(_FAST)
