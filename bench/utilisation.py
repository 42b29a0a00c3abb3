"""How full the array is: networks and single layers at several sizes and bus widths: a part of `make bench`.

Cycles come from the timing simulator, which the RTL equals; nothing here is measured in seconds.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.sim.timing import simulate_timing
from sections import machine, write_section

from npukit import zoo
from npukit.profiling.layers import timing_profile
from npukit.profiling.roofline import ceiling

__all__ = ["main"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "utilisation.md"
_TITLE = "# Utilisation\n\n"
_NETWORKS = ("resnet18", "resnet50", "mobilenetv2")
_LAYERS = tuple(f"vta-c{number}" for number in range(2, 12))
_SIZES = ("8x8", "16x16", "32x32")
_BUSES = (4, 8, 16)
_NOTE = """Useful MACs (of the graph, unpadded) over array size times cycles from start to done; batch 1, 100 cycles of
DRAM latency, every layer counted, first convolution and classifier included. Behind the stroke: what the roofline
allows for the program's own DRAM traffic, the busier of the two data channels against the array.
"""


def _utilisation(model: bytes, config: NpuConfig, optimize: int = 1) -> tuple[float, float, int]:
    """(utilisation, ceiling, cycles)."""
    programs = compile_model(model, config, optimize=optimize).programs
    profile = timing_profile(config, [(one, simulate_timing(config, one.instructions)) for one in programs])
    read, written = (sum(getattr(layer, name) for layer in profile.layers) for name in ("read_bytes", "write_bytes"))
    return profile.utilization, ceiling(config, profile.macs, read, written) / config.array_macs, profile.cycles


def _table(names: Sequence[str], dtype: str, sizes: Sequence[str]) -> list[str]:
    columns = [(size, bus) for size in sizes for bus in _BUSES]
    rows = [
        "| | " + " | ".join(f"{size}, {bus} B" for size, bus in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for name in names:
        model = zoo.load(name, "int8" if dtype == "int8" else "fp32")
        cells = []
        for size, bus in columns:
            config = replace(PRESETS[f"{dtype}-{size}"], bus_bytes=bus)
            used, most, _ = _utilisation(model, config)
            cells.append(f"{100 * used:.1f} / {100 * most:.0f}")
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _levels() -> list[str]:
    rows = ["| | level 0 | level 1 | level 2 |", "|---|---|---|---|"]
    for name in _NETWORKS:
        found = [_utilisation(zoo.load(name), PRESETS["int8-16x16"], level) for level in (0, 1, 2)]
        rows.append(f"| {name} | " + " | ".join(f"{100 * used:.1f} %, {cycles}" for used, _, cycles in found) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute all tables and write docs/utilisation.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DOCUMENT)
    options = parser.parse_args(arguments)
    text = "\n".join(
        [
            f"Computed with {machine('npukit', 'numpy')}.\n",
            _NOTE,
            "## Networks, int8, %\n",
            "\n".join(_table(_NETWORKS, "int8", _SIZES)) + "\n",
            "## VTA's convolutions of ResNet-18, int8, %\n",
            "\n".join(_table(_LAYERS, "int8", _SIZES)) + "\n",
            "## Networks, bf16, %\n",
            "\n".join(_table(("resnet18", "mobilenetv2"), "bf16", _SIZES[:2])) + "\n",
            "## Levels of optimisation, `int8-16x16`: utilisation and cycles\n",
            "\n".join(_levels()) + "\n",
        ]
    )
    print(text)
    write_section(options.output, "bench/utilisation.py", _TITLE, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
