"""`make internals`: a core with probes under random programs; each queue at its ends, each handshake in each state.

Passes when everything that can happen inside of the core did happen, and nothing differed.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS

from npukit.verify.internals import probed_core
from npukit.verify.runner import verify

BLOCK = 100
"""Programs between two looks at what is still missing."""


def main() -> int:
    """Command line; exit code 1 when something differed or did not happen."""
    parser = argparse.ArgumentParser(description="Random programs on a core with probes.")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the first program (default: 1)")
    parser.add_argument("--programs", type=int, default=4000, metavar="N", help="at most (default: 4000)")
    parser.add_argument("--config", action="append", metavar="C", help="preset; repeatable (default: the 4x4 ones)")
    options = parser.parse_args()
    wrong = 0
    for name in options.config or ["int8-4x4", "bf16-4x4"]:
        config = PRESETS[name]
        with tempfile.TemporaryDirectory(prefix="npukit-internals-") as folder:
            core = probed_core(config, Path(folder, "seen"))
            with RtlDevice(config, verilog=core.verilog) as device:
                done, coverage = 0, Counter[str]()
                while done < options.programs and (core.missing() or not done):
                    found = verify(
                        device, options.seed, min(BLOCK, options.programs - done), first=done, coverage=coverage
                    )
                    done += found.programs
                    if found.first_divergence is not None:
                        wrong += 1
                        print(f"{name}: {found.first_divergence}")
                        break
            missing = core.missing()
            wrong += bool(missing)
            print(
                f"{name}: {len(core.points) - len(missing)} of {len(core.points)} points seen in {done} programs, "
                f"{len(core.unreachable)} proven out of reach",
                flush=True,
            )
            if missing:
                print(f"  not seen: {', '.join(missing)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
