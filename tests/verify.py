"""Random programs on simulator and RTL over a table of configurations: `make verify`, `make verify-long`.

Passes when not one bit and not one cycle differs, and, over all configurations of a data type together, every
coverage item was hit 20 times or more.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS, NpuConfig

from npukit.verify.coverage import coverage_items
from npukit.verify.runner import verify

BASE = PRESETS["int8-4x4"]
FLOATS = PRESETS["bf16-4x4"]
TABLE: dict[str, tuple[NpuConfig, int]] = {
    "int8-4x4": (BASE, 1000),
    "int8-8x8": (PRESETS["int8-8x8"], 1000),
    "int8-16x16": (PRESETS["int8-16x16"], 1000),
    "4x4, bus 4, bursts of 9": (replace(BASE, bus_bytes=4, max_burst=9), 200),
    "4x4, bus 16": (replace(BASE, bus_bytes=16, max_burst=64), 200),
    "4x4, bus 64, queue 1": (replace(BASE, bus_bytes=64, queue_depth=1), 200),
    "8x8, few lanes and banks": (
        replace(
            PRESETS["int8-8x8"], vector_lanes=2, fma_lanes=1, act_banks=2, acc_banks=2, vector_taps=2, max_window=4
        ),
        200,
    ),
    "4x4, one lane, one bank, odd depths": (
        replace(
            BASE, vector_lanes=1, fma_lanes=2, act_banks=1, acc_banks=1, act_depth=997, acc_depth=61, vector_taps=1
        ),
        200,
    ),
    "4x4 of a board": (PRESETS["ulx3s-int8-4x4"], 200),
    "bf16-4x4": (FLOATS, 1000),
    "bf16-8x8": (PRESETS["bf16-8x8"], 1000),
    "bf16 4x4, one lane, one tap, bus 4": (
        replace(FLOATS, vector_lanes=1, fma_lanes=2, vector_taps=1, bus_bytes=4, act_banks=2, acc_depth=61), 200,
    ),
    "bf16 8x8, five taps, few lanes, queue 1": (
        replace(PRESETS["bf16-8x8"], vector_lanes=2, fma_lanes=1, vector_taps=5, queue_depth=1, bus_bytes=16), 200,
    ),
}  # fmt: skip
"""Name -> configuration and programs. Each program has a DRAM of its own, with latencies from 1 to 100."""
LEAST_HITS = 20


def main() -> int:
    """Run the table; 1 when anything differs or an item was hit too rarely."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first program (default: 1)")
    parser.add_argument("--factor", type=int, default=1, help="times as many programs (default: 1)")
    parser.add_argument("--only", metavar="NAME", choices=TABLE, help="one configuration of the table")
    parser.add_argument("-o", "--output", default="build/verify", help="folder for programs that differ")
    options = parser.parse_args()
    totals: dict[str, Counter[str]] = {"int8": Counter(), "bf16": Counter()}
    wrong = 0
    for name, (config, count) in TABLE.items():
        if options.only not in (None, name):
            continue
        start = time.perf_counter()
        with RtlDevice(config) as device:
            built = time.perf_counter()
            result = verify(device, options.seed, count * options.factor, Path(options.output))
        totals[config.dtype].update(result.coverage)
        found = result.to_json()
        print(
            f"{name}: {result.programs} programs, {result.cycles} cycles, {result.bit_mismatches} bits and "
            f"{result.cycle_mismatches} cycles apart; build {built - start:.0f} s, "
            f"run {time.perf_counter() - built:.0f} s, RTL {found['rtl_mcycles_per_second']:.3f} and "
            f"simulator {found['sim_mcycles_per_second']:.1f} Mcycles/s",
            flush=True,
        )
        if result.first_divergence is not None:
            wrong += 1
            print(f"  {result.first_divergence}")
    rare = {
        f"{config.dtype} {item}": totals[config.dtype][item]
        for config in (BASE, FLOATS)
        for item in coverage_items(config)
        if totals[config.dtype][item] < LEAST_HITS
    }
    if rare and options.only is None:
        print(f"hit fewer than {LEAST_HITS} times: {rare}")
        wrong += 1
    print(f"seed {options.seed}: {'differences found' if wrong else '0 bits and 0 cycles apart'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
