"""`make hostile`: programs ended by resets and bus errors at random cycles, each followed by one that must be right."""

import argparse
import sys
from collections import Counter

from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS

from npukit.verify.hostile import Interruption, hostile_run


def main() -> int:
    """Command line; exit code 1 if a program after an interruption was wrong."""
    parser = argparse.ArgumentParser(description="End programs by resets and bus errors; the next one must be right.")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed (default: 1)")
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="of each kind (default: 200)")
    parser.add_argument("--config", action="append", metavar="C", help="preset; repeatable (default: the 4x4 ones)")
    options = parser.parse_args()
    wrong = 0
    for name in options.config or ["int8-4x4", "bf16-4x4"]:
        outcomes: Counter[str] = Counter()
        with RtlDevice(PRESETS[name]) as device:
            for how in (None, *Interruption):
                for index in range(options.runs):
                    seed = f"{options.seed}/{index}/{how.name if how else 'NONE'}"
                    found = hostile_run(device, seed, how)
                    outcomes[found.happened] += 1
                    if found.first is not None:
                        wrong += 1
                        print(f"{name}, {seed}, {found.happened}: {found.first}", flush=True)
                        device.reset()
        counts = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
        print(f"{name}, seed {options.seed}: {counts}; wrong afterwards: {wrong}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
