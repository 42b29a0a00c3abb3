"""`npukit run`: a model on a device, with its cycles, and compared with ONNX Runtime if asked."""

import argparse
import resource
from dataclasses import asdict

from npukit import __version__
from npukit.cli.common import (
    add_clock,
    add_config,
    add_dram,
    add_limits,
    add_model,
    add_optimize,
    add_output,
    add_partition,
    add_shapes,
    check_outputs,
    chosen_config,
    dram_of,
    limits_of,
    min_macs_of,
    model_of,
    print_json,
    say,
    say_config,
    search_of,
    shapes_of,
)
from npukit.compare import Comparison, compare, oracle_of
from npukit.compare_floats import FloatComparison, compare_floats
from npukit.devices import check_device, device_names
from npukit.driver.executor import programs_of
from npukit.errors import UsageError
from npukit.hw.toolchain import needs
from npukit.loaded import FALLBACKS
from npukit.npufile import read_model, write_bytes
from npukit.npzfile import read_arrays, write_arrays
from npukit.profiling.clock import Clock, clock_of
from npukit.profiling.text import boundary_text, encodable, layer_table, offload_json, offload_text, thousands
from npukit.sample_inputs import random_inputs
from npukit.serial_line import board_behind
from npukit.session import Session
from npukit.sim.dram import dram_json

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run", help="run a model and show where the cycles went",
        description="Run a model of ONNX, TFLite or torch.export, or a file that npukit compiled, on a device.",
    )  # fmt: skip
    add_model(parser, "model of ONNX, TFLite or torch.export (.pt2), compiled model, or program")
    parser.add_argument(
        "--device", default="sim", metavar="NAME[:ADDRESS]",
        help=f"where to run: {', '.join(device_names())}; a board is serial:PORT or serial:PORT@BAUD, as in "
        "serial:/dev/ttyUSB0, whose configuration and memory are the defaults (default: sim)",
    )  # fmt: skip
    parser.add_argument("--input", metavar="F.npz", help="inputs, an array by each input's name")
    parser.add_argument("--seed", type=int, metavar="N", help="random inputs of that seed (default: 0)")
    parser.add_argument("--output", metavar="F.npz", help="write the outputs")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="compare every quantised tensor with ONNX Runtime, those of a TFLite model with TensorFlow Lite Micro, or "
        "every bf16 layer with ordered sums; exit 1 on a difference, and where nothing runs on the accelerator",
    )
    parser.add_argument(
        "--compare-report", metavar="F.html",
        help="with --compare: write a page with the first tensor that differs, its tile, the instructions that made "
        "it, and whether the cause lies on the host",
    )  # fmt: skip
    parser.add_argument("--reference", metavar="MODEL", help="what a compiled model was compiled from, for --compare")
    parser.add_argument("--vcd", metavar="F", help="with --device rtl: write a waveform")
    parser.add_argument("--vcd-cycles", metavar="A:B", help="with --vcd: first and last cycle in it (default: all)")
    parser.add_argument("--timing-only", action="store_true", help="cycles without values")
    add_optimize(parser)
    add_shapes(parser)
    add_partition(parser, FALLBACKS)
    add_dram(parser)
    add_clock(parser)
    add_limits(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _check_options(options: argparse.Namespace) -> None:
    if options.compare and options.timing_only:
        raise UsageError("--compare needs values, which --timing-only leaves out: use one of them")
    if options.output and options.timing_only:
        raise UsageError("--output needs values, which --timing-only leaves out: use one of them")
    if options.input is not None and options.seed is not None:
        raise UsageError("--input and --seed both give the inputs: use one of them")
    if options.reference is not None and not options.compare:
        raise UsageError("--reference goes with --compare")
    if options.compare_report is not None and not options.compare:
        raise UsageError("--compare-report goes with --compare")
    check_device(options.device)
    if options.device.startswith("serial:"):
        given = {
            "--dram": options.dram != "reference", "--dram-latency": options.dram_latency is not None,
            "--dram-megahertz": options.dram_megahertz is not None, "--timing-only": options.timing_only,
        }  # fmt: skip
        if wrong := [name for name, there in given.items() if there]:
            raise UsageError(f"{wrong[0]} does not go with a board, which has a memory and values of its own")
    if options.seed is not None and options.seed < 0:
        raise UsageError(f"--seed must be 0 or above, not {options.seed}")
    check_outputs(
        options,
        {"--output": options.output, "--vcd": options.vcd, "--compare-report": options.compare_report},
        {"MODEL": options.model, "--input": options.input, "--reference": options.reference},
    )


def _check_reference(options: argparse.Namespace, compiled: bool) -> None:
    if options.reference is not None and not compiled:
        raise UsageError("--reference goes with a compiled model; an ONNX model is its own reference")
    if options.compare and compiled and options.reference is None:
        raise UsageError("a compiled model has nothing to compare with: give its source with --reference MODEL")


def _vcd_cycles(options: argparse.Namespace) -> tuple[int, int] | None:
    if options.vcd is not None and options.device != "rtl":
        raise UsageError("--vcd needs --device rtl: the simulator has no waveforms")
    if options.vcd_cycles is None:
        return None
    if options.vcd is None:
        raise UsageError("--vcd-cycles goes with --vcd")
    try:
        first, last = (int(part) for part in options.vcd_cycles.split(":"))
    except ValueError:
        raise UsageError(f"--vcd-cycles must be A:B, two cycles, not {options.vcd_cycles!r}") from None
    if not 0 <= first <= last:
        raise UsageError(f"--vcd-cycles must be a first and a later cycle, not {options.vcd_cycles}")
    return first, last


def _run(options: argparse.Namespace) -> int:
    _check_options(options)
    model = read_model(model_of(options), shapes_of(options))
    compiled = programs_of(model)
    board = board_behind(options.device)
    config = chosen_config(
        options, next(iter(compiled.values())).config if compiled else None if board is None else board.config
    )
    dram = dram_of(options, config) if board is None else board.dram
    clock_of(config, options.clock, dram)  # which refuses one before any work
    say_config(options, config)
    _check_reference(options, bool(compiled))
    reference = read_model(options.reference, shapes_of(options)) if options.reference else None
    session = Session(
        model,
        config,
        options.device,
        dram=dram,
        shapes=shapes_of(options),
        compute=not options.timing_only,
        capture=options.compare,
        vcd=options.vcd,
        vcd_cycles=_vcd_cycles(options),
        fallback=options.fallback,
        min_macs=min_macs_of(options),
        optimize=options.optimize,
        search=search_of(options),
        limits=limits_of(options),
    )
    with session:  # which finishes the waveform
        seed = options.seed or 0
        inputs = (
            read_arrays(options.input, session.check_input)
            if options.input
            else random_inputs(session.artifact, session.inputs, seed)
        )
        outputs = session.run(inputs)
        comparison = None
        if options.compare:
            if session.compilation is not None:
                reference = session.compilation.source
            assert reference is not None
            if session.config.activation.floating and session.programs:
                comparison = compare_floats(session, inputs, outputs)
            else:
                comparison = compare(session, oracle_of(reference), inputs, outputs)
        if options.output:
            write_arrays(options.output, outputs)
        if options.compare_report:
            with needs("profile", "an HTML report"):
                from npukit.reports.divergence_page import divergence_page
            assert comparison is not None
            page = divergence_page(encodable(options.model), comparison, session.programs).encode()
            write_bytes(options.compare_report, page)
            say(options, f"wrote {options.compare_report}: {len(page)} bytes")
        if options.json:
            print_json(_json(options, session, comparison, None if options.input else seed))
        else:
            _print(options, session, comparison)
        if comparison is None:
            return 0
        return 1 if comparison.mismatches or not session.programs else 0  # ONNX Runtime alone is equal to itself


def _json(options: argparse.Namespace, session: Session, comparison: Comparison | None, seed: int | None) -> dict:
    profile = session.profile
    result = {
        "schema": 1,
        "version": __version__,
        "model": encodable(options.model),
        "config": session.config.to_dict(),
        "optimize": session.compiled.optimize,
        "device": options.device,
        "dram": dram_json(session.dram)["kind"],
        "dram_latency": getattr(session.dram, "latency", None),
        "memory": dram_json(session.dram),
        "seed": seed,
        "cycles": profile.cycles,
        "clock": _clock(options, session).to_json(profile.cycles),
        "macs": profile.macs,
        "utilization": profile.utilization,
        "seconds": profile.seconds,
        "memory_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "offload": offload_json(session.offload, profile),
        "counters": profile.counters,
        "layers": [asdict(layer) for layer in profile.layers],
    }
    if comparison is not None:
        result["compare"] = comparison.to_json()
    return result


def _clock(options: argparse.Namespace, session: Session) -> Clock:
    return clock_of(session.config, options.clock, session.dram)


def _print(options: argparse.Namespace, session: Session, comparison: Comparison | None) -> None:
    profile, clock = session.profile, _clock(options, session)
    print(offload_text(session.offload))
    if profile.layers:
        print(layer_table(profile))
    say(
        options,
        f"{thousands(profile.cycles)} cycles, {100 * profile.utilization:.1f} % of {session.config.size} "
        f"MACs; compiled in {profile.seconds['compile']:.2f} s, "
        f"{'on the board' if options.device.startswith('serial:') else 'simulated'} in "
        f"{profile.seconds['simulate']:.2f} s",
    )
    if profile.cycles:
        say(options, clock.text(profile.cycles))
    if session.offload.fallback and session.programs:
        say(options, boundary_text(profile))
    if comparison is not None:
        print(comparison_text(comparison))
        if not session.programs:
            print("nothing ran on the accelerator, so this compares the host with itself: exit code 1")


_SHOWN = 4
"""Nodes that are named where a difference begins on the host."""


def comparison_text(comparison: Comparison) -> str:
    """What the comparison found, in a line or two."""
    text = (
        f"compared with {comparison.reference} ({comparison.host}): {comparison.mismatches} mismatches in "
        f"{thousands(comparison.elements)} elements of {comparison.tensors} of {comparison.tensors_total} "
        f"{'layers' if isinstance(comparison, FloatComparison) else 'quantised tensors'}"
    )
    if isinstance(comparison, FloatComparison):
        name, error = comparison.worst
        text += f"\nlargest difference from {comparison.exact}'s fp32: {100 * error:.2f} % of the range, in {name}"
    if comparison.by_itself:
        text += f"\nnot compared: {comparison.by_itself} that {comparison.reference} itself computed on the host"
    if comparison.defined:
        text += f"\n{len(comparison.defined)} of these are normalisations, held to their definition in docs/numerics.md"
        if not comparison.mismatches:
            near = sum(comparison.defined.values())
            text += f"; in ONNX Runtime's float, {near} of their elements are one step apart, and none is more"
    first = comparison.first_mismatch
    if first is not None:
        text += (
            f"\nfirst difference: tensor {first['tensor']} at {first['index']}: expected {first['expected']}, "
            f"got {first['actual']} ({first['mismatches']} elements differ)"
        )
        if "node" in first:
            text += (
                f"; made by {first['op']} {first['node']}, instructions {first['instructions'][0]} to "
                f"{first['instructions'][1]}, written by {first['instruction']} of {first['subgraph']}"
            )
        elif "host" in first:
            nodes = first["host"]
            shown = ", ".join(nodes[-_SHOWN:])
            more = f" and {len(nodes) - _SHOWN} before" if len(nodes) > _SHOWN else ""
            text += (
                f"; it begins in ONNX Runtime on the host, not on the accelerator, in {shown}{more}: what they read is "
                "equal"
            )
    return text
