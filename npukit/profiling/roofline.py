"""What array and DRAM allow."""

from npukit.isa.config import NpuConfig
from npukit.profiling.layers import peak_macs
from npukit.sim.dram import AnyDram, DramModel

__all__ = ["ceiling"]


def ceiling(
    config: NpuConfig, macs: int, read_bytes: int, write_bytes: int, dram: AnyDram | None = None, on_array: bool = True
) -> float:
    """The most MACs a cycle for that traffic: the array's, or VECTOR's where it computes the layer and has more, or
    what the DRAM, by default the reference one, lets through."""
    dram = dram or DramModel()
    traffic, peak = dram.traffic(read_bytes, write_bytes), float(peak_macs(config, on_array=on_array))
    return min(peak, macs * dram.bytes_per_cycle(config) / traffic) if traffic else peak
