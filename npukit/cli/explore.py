"""`npukit explore`: which machine for some models."""

import argparse
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from npukit.cli.common import (
    add_config,
    add_output,
    chosen_config,
    config_label,
    named_model,
    print_json,
    say,
    say_config,
)
from npukit.errors import UsageError
from npukit.exploration.evaluate import Candidate, Model, evaluate
from npukit.exploration.outcome import files, label, to_json
from npukit.exploration.space import Space, read_space
from npukit.exploration.study import OBJECTIVES, SAMPLERS, Explored, explore
from npukit.exploration.workers import workers
from npukit.hw.toolchain import needs
from npukit.npufile import check_apart, check_folder, check_writable, read_model, write_bytes
from npukit.profiling.text import aligned, encodable, thousands

__all__ = ["add_parsers"]

_JOURNAL = "study.journal"


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explore", help="search the design space for machines for some models",
        description="Compile models for many machines, simulate them, and keep those that no other one beats in every "
        "objective. The folder keeps what was tried: the same command goes on where a run was stopped, and does more "
        "trials when it is asked for more. What is found does not depend on how many workers there are.",
    )  # fmt: skip
    parser.add_argument("models", metavar="MODEL", nargs="+", help="ONNX or TFLite models, or names of the zoo")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder of the study and its results")
    parser.add_argument("--trials", type=int, default=100, metavar="N", help="machines to try (default: 100)")
    parser.add_argument(
        "--objectives", default="cycles,area,energy", metavar="A,B,...",
        help=f"what is to be small, of {', '.join(OBJECTIVES)}: area in LUT4 and energy by models, memory on chip "
        "(default: cycles,area,energy)",
    )  # fmt: skip
    parser.add_argument(
        "--space", metavar="F.toml",
        help="what is varied: a table `fields` with a list of values for each field, `dram_latency` and `optimize`, "
        "lists, and a table `limits` with `on_chip_kib` and `lut4` (default: sizes, banks, lanes, taps and bus)",
    )  # fmt: skip
    parser.add_argument("--sampler", choices=SAMPLERS, default="tpe", help="of Optuna's (default: tpe)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the sampler (default: 0)")
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: the processor's cores)")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="a running cluster's scheduler of dask, as tcp://host:8786"
    )
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    objectives = _objectives(options.objectives)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = cores if options.jobs is None else options.jobs
    for name, value, least in (("--trials", options.trials, 1), ("--jobs", jobs, 1), ("--seed", options.seed, 0)):
        if not least <= value < 1 << 31:
            raise UsageError(f"{name} must be {least} or more, not {value}")
    folder = Path(options.output)
    check_folder(folder)
    space = read_space(options.space, chosen_config(options), chosen=bool(options.config or options.fields))
    with needs("explore", "an HTML report"):
        from npukit.reports.exploration_page import exploration_page
    say_config(options, space.base)
    if len(set(map(encodable, options.models))) < len(options.models):
        raise UsageError(f"each model counts once: {' '.join(options.models)} has one twice")
    inputs = {name: name for name in (*options.models, options.space, options.config) if name}
    names = (_JOURNAL, "pareto.csv", "pareto.json", "pareto.html")
    check_apart({f"{options.output}: {name}": folder / name for name in names}, inputs)
    if folder.is_dir():
        for name in names:
            check_writable(folder / name)
    models = [_model(options, name, space) for name in options.models]
    try:
        (folder / "configs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder / 'configs'}: {error.strerror}") from None
    begin = time.perf_counter()
    first: list[int] = []

    def progress(found: Explored) -> None:
        first.append(len(found.points))
        new, minutes = len(found.points) - first[0], (time.perf_counter() - begin) / 60
        say(options, f"{len(found.points)} of {options.trials} machines, {len(found.front)} on the front"
            + (f", {new / minutes:.1f} a minute" if new else ""))  # fmt: skip

    with workers(models, jobs, options.scheduler) as run:
        found = explore(
            space, models, objectives, options.trials, run, journal=folder / _JOURNAL, sampler=options.sampler,
            seed=options.seed, progress=progress,
        )  # fmt: skip
    _forget(folder / "configs")
    texts = dict(files(found))
    texts["pareto.json"] = json.dumps(to_json(found, str(folder)), indent=1) + "\n"
    texts["pareto.html"] = exploration_page(found, str(folder))
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    say(options, f"wrote {folder / 'pareto.html'}, pareto.csv, pareto.json, and {len(found.front)} configurations")
    if options.json:
        print_json(to_json(found, str(folder)))
    else:
        print(_text(found))
    return 0


def _objectives(text: str) -> list[str]:
    found = text.split(",")
    for name in found:
        if name not in OBJECTIVES:
            raise UsageError(f"--objectives are of {', '.join(OBJECTIVES)}, not {name!r}")
    if len(set(found)) != len(found):
        raise UsageError(f"--objectives has one twice: {text}")
    return found


def _forget(folder: Path) -> None:
    """Configurations of machines that may have left the front: of files, those that this command wrote."""
    for old in folder.glob("[0-9]*.toml"):
        with suppress(OSError, ValueError):
            if old.read_text(encoding="utf-8").startswith(f"# trial {int(old.stem)}\n"):
                old.unlink()


def _model(options: argparse.Namespace, source: str, space: Space) -> Model:
    """A model with what stays on the host with the space's base, where no machine may be worse.

    Raises:
        UsageError: nothing of it runs there.
    """
    named = named_model(options, source, space.base)
    data = named if isinstance(named, bytes) else read_model(named).SerializeToString()
    name = encodable(source)  # as the results are
    first = Candidate(space.base, space.latencies[0], space.levels[0])
    (found,) = evaluate([Model(name, data)], first)
    if found.refused and found.staying:
        (found,) = evaluate([Model(name, data, frozenset(found.staying))], first)
    if found.refused:
        raise UsageError(f"{found.refused}, with {config_label(space.base)}, of which the space is made: npukit check")
    return Model(name, data, frozenset(found.staying), found.macs)


def _text(found: Explored) -> str:
    heads = ("trial", "machine", "preset", *found.objectives)
    rows = [
        (str(one.number), label(one), one.origin, *(_value(name, one.values[name]) for name in found.objectives))
        for one in found.front
    ]
    return "\n".join(aligned([heads, *rows], set(range(3, 3 + len(found.objectives)))))


def _value(name: str, value: float) -> str:
    return {"energy": f"{value / 1e6:.4g} uJ", "memory": f"{value / 1024:g} KiB"}.get(name, thousands(round(value)))
