"""`npukit compile`: a model as one ONNX file that holds the accelerator's programs, or as C for firmware."""

import argparse
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from npukit.cli.common import (
    add_config,
    add_dram,
    add_model,
    add_optimize,
    add_output,
    add_partition,
    add_shapes,
    check_outputs,
    chosen_config,
    config_label,
    dram_of,
    min_macs_of,
    model_of,
    print_json,
    say,
    say_config,
    search_of,
    shapes_of,
)
from npukit.compiler.pipeline import PASSES, Compilation, compile_model
from npukit.compiler.text import describe
from npukit.errors import UsageError
from npukit.firmware.guide import sizes_text
from npukit.firmware.kit import Kit, check_targets, write_kit
from npukit.npufile import check_folder, write_artifact
from npukit.profiling.annotate import annotate
from npukit.profiling.text import offload_json, offload_text
from npukit.sim.dram import dram_json

__all__ = ["add_parsers"]


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compile", help="compile a model to accelerator instructions",
        description="Compile an ONNX model. The result is an ONNX file in which each accelerated subgraph is one "
        "EPContext node that holds its program; every other node stays as it was. With --emit c: a folder of C sources "
        "that run the model in firmware, for models that run on the accelerator whole.",
    )  # fmt: skip
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="F|DIR", help="file to write; with --emit c a folder")
    parser.add_argument(
        "--emit", choices=("onnx", "c"), default="onnx",
        help="onnx: a compiled model, for npukit run; c: C99 sources, with a runtime that needs no operating system "
        "(default: onnx)",
    )  # fmt: skip
    parser.add_argument(
        "--name", help="with --emit c: what files and functions are called (default: from MODEL's name)"
    )
    parser.add_argument(
        "--stop-after", metavar="PASS", choices=PASSES,
        help=f"stop after a pass and print what it made as text: {', '.join(PASSES)}",
    )  # fmt: skip
    add_optimize(parser)
    add_dram(parser)
    add_shapes(parser)
    add_partition(parser, ("cpu", "none"))
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if (options.output is None) == (options.stop_after is None):
        raise UsageError("compile needs -o F, or --stop-after PASS, and not both")
    if options.stop_after is not None and options.json:
        raise UsageError("--stop-after prints text; leave out --json")
    if options.emit == "c" and options.stop_after is not None:
        raise UsageError("--emit c writes files; leave out --stop-after")
    if options.name is not None and (options.emit != "c" or not options.name):
        raise UsageError("--name goes with --emit c, and is not empty")
    config = chosen_config(options)
    dram = dram_of(options, config)
    say_config(options, config)
    if options.emit == "c":
        check_folder(options.output)
        check_targets(Path(options.output), _name(options))
    else:
        check_outputs(options, {"-o": options.output}, {"MODEL": options.model})
    start = perf_counter()
    result = compile_model(
        model_of(options), config, shapes_of(options), options.stop_after, min_macs=min_macs_of(options),
        all_nodes=options.fallback == "none", optimize=options.optimize, search=search_of(options), dram=dram,
    )  # fmt: skip
    seconds = perf_counter() - start
    if options.stop_after is not None:
        print(describe(result.stages[options.stop_after]))
        return 0
    assert result.artifact is not None and options.output is not None
    kit = None
    if options.emit == "c":
        kit = _emit_c(options, result)
    else:
        annotate(result.artifact, result.programs, dram)
        write_artifact(options.output, result.artifact)
    count = sum(len(program.instructions) for program in result.programs)
    if options.json:
        print_json(
            {
                "schema": 1,
                "model": options.model,
                "config": config.to_dict(),
                "memory": dram_json(dram),
                "output": options.output,
                "subgraphs": len(result.programs),
                "instructions": count,
                "dram_bytes": sum(program.dram_bytes for program in result.programs),
                "seconds": {"total": seconds, **result.seconds},
                "offload": offload_json(result.partition),
                **({} if kit is None else {"firmware": _kit_json(kit)}),
            }
        )
        return 0
    print(offload_text(result.partition))
    for line in () if kit is None else sizes_text(kit.model, kit.sizes):
        print(line)
    say(
        options,
        f"wrote {options.output}: {len(result.programs)} subgraph(s), {count} instructions, {seconds:.2f} s",
    )
    return 0


def _name(options: argparse.Namespace) -> str:
    """What the model is called in C, before that is made a name in C."""
    return options.name or Path(options.model).stem


def _emit_c(options: argparse.Namespace, result: Compilation) -> Kit:
    """Write C sources into the folder that `-o` names."""
    assert result.artifact is not None
    programs = {program.name: program for program in result.programs}
    return write_kit(Path(options.output), _name(options), result.artifact, programs, config_label(result.config))


def _kit_json(kit: Kit) -> dict[str, Any]:
    """Files, names and bytes."""
    return {
        "name": kit.model.name,
        "files": [str(path) for path in kit.files],
        "memory_bytes": kit.model.place.end,
        "memory_bytes_in_place": kit.model.place.limit,
        "constants_bytes": len(kit.model.constants),
        "code_bytes": len(kit.model.code),
        "objects": {source: asdict(section) for source, section in kit.sizes.objects.items()},
        "measured_with": kit.sizes.compiler,
        "not_measured": kit.sizes.reason,
    }
