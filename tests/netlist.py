"""The core after synthesis for ECP5 against the simulator, and so against the RTL: random programs, bit for bit and
cycle for cycle.

`make netlist`: twice a quarter of an hour, most of it Verilator's on the netlist. Exit code 1 when anything differs.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from npukit.driver.rtl_device import RtlDevice
from npukit.fpga.netlist import core_netlist
from npukit.isa.config import PRESETS

from npukit.verify.runner import verify

__all__ = ["CONFIG", "main"]

CONFIG = replace(
    PRESETS["int8-4x4"], act_depth=512, act_banks=4, wgt_depth=1024, acc_depth=256, acc_banks=2, par_depth=256,
    vector_lanes=1, fma_lanes=1,
)  # fmt: skip
"""Every block and every cell; smaller memories, so that the netlist is smaller. Half the array is made of LUTs, or two
elements share a multiplier."""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Random programs on the netlist that synthesis makes of the core.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--double-rate", action="store_true", help="a multiplier at twice the clock for two elements")
    options = parser.parse_args()
    start = time.perf_counter()

    def speak(text: str) -> None:
        print(f"{time.perf_counter() - start:.0f} s: {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        speak("synthesis")
        most = None if options.double_rate else CONFIG.array**2 // 2
        text = core_netlist(CONFIG, Path(folder), byte_multipliers=most, double_rate=options.double_rate)
    with RtlDevice(CONFIG, verilog=text, optimise=False, progress=speak) as device:
        found = verify(device, options.seed, options.programs)
    print(
        f"seed {options.seed}: {found.programs} programs on the netlist of a 4x4 core, "
        f"{found.bit_mismatches} bits and {found.cycle_mismatches} cycles apart"
    )
    if found.first_divergence is not None:
        print(found.first_divergence)
    return 0 if not found.bit_mismatches and not found.cycle_mismatches else 1


if __name__ == "__main__":
    sys.exit(main())
