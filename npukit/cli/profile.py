"""`npukit profile`: where the cycles of a model go, as tables, a trace and a plot."""

import argparse
import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from npukit.cli.common import add_clock, add_model, dram_json, model_files, print_json, say
from npukit.cli.timing_session import add_session_options, timing_session
from npukit.errors import UsageError
from npukit.isa.instructions import ENGINES
from npukit.isa.program import Program
from npukit.npufile import check_apart, check_folder, write_bytes
from npukit.profiling.clock import Clock, clock_of
from npukit.profiling.layers import LayerProfile, Profile, timing_profile
from npukit.profiling.occupancy import occupancy
from npukit.profiling.roofline import ceiling, roofline_svg
from npukit.profiling.text import layer_table, shape_text, thousands
from npukit.profiling.trace import perfetto_trace
from npukit.sim.dram import AnyDram
from npukit.sim.timing import Schedule

__all__ = ["add_parsers"]

_FILES = ("layers.csv", "trace.perfetto-trace", "roofline.svg", "summary.json")
_WAITS = ("token_wait", "port_wait", "dram_wait")


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "profile", help="write where a model's cycles go: tables, trace, roofline",
        description="Simulate a model's timing, and write layers.csv, summary.json, trace.perfetto-trace (open it at "
        "https://ui.perfetto.dev) and roofline.svg to a folder.",
    )  # fmt: skip
    add_model(parser, "ONNX model, compiled model, or program")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to write to")
    add_session_options(parser)
    add_clock(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    folder = Path(options.output)
    check_folder(folder)
    read = model_files("MODEL", options.model)
    for name in _FILES:
        check_apart({"-o": folder / name}, read)
    session, config = timing_session(options)
    if not session.programs:
        raise UsageError(f"nothing of {options.model} runs on the accelerator: npukit check says why")
    schedules = session.schedules()
    runs = [(program, schedules[name]) for name, program in session.programs.items()]
    profile = timing_profile(config, runs, session.dram)
    clock = clock_of(config, options.clock, session.dram)
    summary = _summary(options.model, profile, runs, session.dram, clock)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
    table, trace, plot, overview = _FILES
    files = {
        table: _table(profile.layers, runs, session.dram).encode(),
        trace: perfetto_trace(runs),
        plot: roofline_svg(config, profile.layers, session.dram).encode(),
    }
    for name, data in files.items():
        write_bytes(folder / name, data)
        say(options, f"wrote {folder / name}: {len(data)} bytes")
    write_bytes(folder / overview, (json.dumps(summary, indent=1) + "\n").encode())
    say(options, f"wrote {folder / overview}")
    if options.json:
        print_json(summary)
    else:
        print(layer_table(profile))
        say(options, f"{thousands(profile.cycles)} cycles, {clock.text(profile.cycles)}")
    return 0


def _waits(run: tuple[Program, Schedule]) -> list[dict[str, int]]:
    """Cycles for which each node's instructions waited, by engine and cause."""
    program, schedule = run
    found = []
    for node in program.nodes:
        waits = _no_waits()
        for index in node.indices():
            engine = program.instructions[index].engine
            assert engine is not None
            for cause in _WAITS:
                waits[f"{engine.name.lower()}_{cause}"] += int(getattr(schedule, cause)[index])
        found.append(waits)
    return found


def _no_waits() -> dict[str, int]:
    return {f"{engine.name.lower()}_{cause}": 0 for engine in ENGINES for cause in _WAITS}


def _table(layers: list[LayerProfile], runs: list[tuple[Program, Schedule]], dram: AnyDram) -> str:
    text = io.StringIO()
    waits = [row for run in runs for row in _waits(run)]
    causes = [name for name in _no_waits() if name != "matrix_dram_wait"]
    names = ["node", "operator", "inputs", "output", "macs", "cycles", "elapsed_cycles", "utilization", "bound"]
    names += ["array_cycles", "vector_cycles", "dram_cycles", "read_bytes", "write_bytes", "ceiling_macs_per_cycle"]
    names += causes
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    config = runs[0][0].config
    for layer, wait in zip(layers, waits, strict=True):
        writer.writerow(
            [
                layer.node, layer.op, " ".join(map(shape_text, layer.inputs)), shape_text(layer.output), layer.macs,
                layer.cycles, layer.elapsed, f"{layer.utilization:.4f}", layer.bound,
                layer.array, layer.vector, layer.dram, layer.read_bytes, layer.write_bytes,
                f"{ceiling(config, layer.macs, layer.read_bytes, layer.write_bytes, dram):.1f}" if layer.macs else "",
                *(wait[name] for name in causes),
            ]
        )  # fmt: skip
    return text.getvalue()


def _summary(
    model: str, profile: Profile, runs: list[tuple[Program, Schedule]], dram: AnyDram, clock: Clock
) -> dict[str, Any]:
    config = profile.config
    peaks: dict[str, int] = {}
    for program, schedule in runs:
        for memory, (_, words) in occupancy(program, schedule).items():
            peaks[memory.name] = max(peaks.get(memory.name, 0), int(words.max(initial=0)))
    read, written = (sum(getattr(layer, name) for layer in profile.layers) for name in ("read_bytes", "write_bytes"))
    vector = config.array * config.vector_taps
    depthwise = sum(layer.macs for layer in profile.layers if layer.macs and not layer.array)
    return {
        "schema": 1,
        "model": model,
        "config": config.to_dict(),
        "cycles": profile.cycles,
        "clock": clock.to_json(profile.cycles),
        "macs": profile.macs,
        "utilization": profile.utilization,
        "peaks": {"array_macs_per_cycle": config.array**2, "vector_macs_per_cycle": vector},
        "macs_on_vector": depthwise,
        "roofline_utilization": ceiling(config, profile.macs, read, written, dram) / config.array**2,
        "counters": profile.counters,
        "dram": {
            "read_bytes": read,
            "write_bytes": written,
            "peak_bytes": max(program.dram_bytes for program, _ in runs),
        },
        "memory": dram_json(dram),
        "peak_words_in_use": peaks,
        "instructions": sum(len(program.instructions) for program, _ in runs),
        "layers": [asdict(layer) for layer in profile.layers],
    }
