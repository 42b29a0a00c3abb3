"""`npukit profile`: where the cycles of a model go, as a page, tables, a trace and a plot."""

import argparse
import csv
import io
import json
from dataclasses import replace
from pathlib import Path

from npukit.cli.common import add_clock, add_model, model_files, print_json, say
from npukit.cli.timing_session import add_session_options, timing_session
from npukit.errors import UsageError
from npukit.hw.toolchain import needs
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES
from npukit.isa.program import Program
from npukit.npufile import check_apart, check_folder, write_bytes
from npukit.profiling.advice import measured
from npukit.profiling.boundary import HostModel
from npukit.profiling.roofline import ceiling
from npukit.profiling.text import encodable, layer_table, shape_text, thousands
from npukit.profiling.timed import TimedModel
from npukit.profiling.trace import perfetto_trace
from npukit.session import Session
from npukit.sim.timing import Schedule

__all__ = ["add_parsers"]

_PAGE, _LAYERS, _TRACE, _ROOFLINE, _SUMMARY = (
    "report.html", "layers.csv", "trace.perfetto-trace", "roofline.svg", "summary.json"
)  # fmt: skip
_WAITS = ("token_wait", "port_wait", "dram_wait")


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "profile", help="write where a model's cycles go: a page, tables, trace, roofline",
        description="Simulate a model's timing, and write to a folder: report.html, one file for any browser, with "
        "layers, timeline, roofline, memory and what would help; layers.csv and summary.json, the same for programs; "
        "trace.perfetto-trace (open it at https://ui.perfetto.dev) and roofline.svg.",
    )  # fmt: skip
    add_model(parser, "ONNX model, compiled model, or program")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to write to")
    parser.add_argument(
        "--measure-advice", action="store_true",
        help="compile and simulate each change of the configuration that would help, instead of estimating it",
    )  # fmt: skip
    add_session_options(parser)
    add_clock(parser)
    group = parser.add_argument_group("host, assumed for what is not on the accelerator")
    default = HostModel()
    group.add_argument(
        "--host-bandwidth", type=float, metavar="MB", default=default.megabytes,
        help="10^6 bytes a second to and from the accelerator's memory (default: %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--host-gigamacs", type=float, metavar="N", default=default.gigamacs,
        help="10^9 multiply-accumulates a second (default: %(default)g)",
    )  # fmt: skip
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with needs("profile", "an HTML report"):
        from npukit.reports.charts import roofline, svg
        from npukit.reports.profile_page import profile_page
    folder = Path(options.output)
    check_folder(folder)
    read = model_files("MODEL", options.model)
    for name in (_PAGE, _LAYERS, _TRACE, _ROOFLINE, _SUMMARY):
        check_apart({"-o": folder / name}, read)
    host = HostModel(options.host_bandwidth, options.host_gigamacs)
    session, _ = timing_session(options, clock=options.clock)
    if not session.programs:
        raise UsageError(f"nothing of {options.model} runs on the accelerator: npukit check says why")
    timed = session.timed(encodable(options.model), options.clock, host)
    if options.measure_advice:
        timed = _measured(options, session, timed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
    summary = timed.to_json()
    files = {
        _LAYERS: _table(timed).encode(),
        _TRACE: perfetto_trace(timed.runs),
        _ROOFLINE: svg(roofline(timed.profile)).encode(),
        _PAGE: profile_page(timed).encode(),
        _SUMMARY: (json.dumps(summary, indent=1) + "\n").encode(),
    }
    for name, data in files.items():
        write_bytes(folder / name, data)
        say(options, f"wrote {folder / name}: {len(data)} bytes")
    if options.json:
        print_json(summary)
    else:
        print(layer_table(timed.profile))
        say(options, f"{thousands(timed.profile.cycles)} cycles, {timed.clock.text(timed.profile.cycles)}")
    return 0


def _measured(options: argparse.Namespace, session: Session, timed: TimedModel) -> TimedModel:
    """The same with the advice's changes simulated.

    Raises:
        UsageError: the model is compiled already.
    """
    if session.compilation is None:
        raise UsageError(
            f"--measure-advice compiles for other configurations, and {options.model} is compiled already: give the "
            "model that it was compiled from"
        )

    def cycles_of(config: NpuConfig) -> int:
        say(options, f"simulating {'; '.join(timed.config.difference(config))}")
        other, _ = timing_session(options, config)
        return sum(schedule.cycles for schedule in other.schedules().values())

    return replace(timed, measured=measured(timed.advice, timed.profile, cycles_of))


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


def _table(timed: TimedModel) -> str:
    text = io.StringIO()
    waits = [row for run in timed.runs for row in _waits(run)]
    causes = [name for name in _no_waits() if name != "matrix_dram_wait"]
    names = ["node", "operator", "inputs", "output", "macs", "cycles", "elapsed_cycles", "utilization", "bound"]
    names += [
        "array_cycles",
        "vector_cycles",
        "dram_cycles",
        "read_bytes",
        "write_bytes",
        "weight_bytes",
        "energy_picojoules",
        "ceiling_macs_per_cycle",
    ]
    names += causes
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for layer, energy, wait in zip(timed.profile.layers, timed.energies, waits, strict=True):
        most = ceiling(timed.config, layer.macs, layer.read_bytes, layer.write_bytes, timed.dram, layer.array > 0)
        writer.writerow(
            [
                layer.node, layer.op, " ".join(map(shape_text, layer.inputs)), shape_text(layer.output), layer.macs,
                layer.cycles, layer.elapsed, f"{layer.utilization:.4f}", layer.bound,
                layer.array, layer.vector, layer.dram, layer.read_bytes, layer.write_bytes, layer.weight_bytes,
                f"{energy.total:.0f}",
                f"{most:.1f}" if layer.macs else "",
                *(wait[name] for name in causes),
            ]
        )  # fmt: skip
    return text.getvalue()
