"""Options and output that commands share."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npukit import zoo
from npukit.compiler.frontends.onnx.importer import external_files
from npukit.compiler.search import Search
from npukit.errors import UsageError
from npukit.isa.config import ConfigError, NpuConfig, load_config
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.npufile import check_apart, check_writable
from npukit.sim.dram import AnyDram, DramModel, SdramDram

__all__ = [
    "add_clock",
    "add_config",
    "add_dram",
    "add_limits",
    "add_min_macs",
    "add_model",
    "add_optimize",
    "add_output",
    "add_partition",
    "add_shapes",
    "check_outputs",
    "chosen_config",
    "config_label",
    "dram_of",
    "limits_of",
    "min_macs_of",
    "model_files",
    "model_of",
    "print_json",
    "say",
    "say_config",
    "sdram_of",
    "search_of",
    "shapes_of",
]


def add_config(parser: argparse.ArgumentParser) -> None:
    """`--config` and `--set`."""
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "--config",
        metavar="NAME|FILE.toml",
        help="preset or TOML file (default: int8-16x16; see npukit configs)",
    )
    group.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], dest="fields",
        help="change one field of the configuration; may be repeated",
    )  # fmt: skip


def add_output(parser: argparse.ArgumentParser) -> None:
    """`--json` and `--quiet`."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    group.add_argument("--quiet", action="store_true", help="print no progress and no notes on stderr")


def add_optimize(parser: argparse.ArgumentParser) -> None:
    """`--optimize`."""
    parser.add_argument(
        "--optimize", type=int, default=1, choices=(0, 1, 2), metavar="0|1|2",
        help="0: compile fast; 1: the default; 2: search for minutes, measured by the timing simulator, and keep "
        "what it measured. Results are the same bit for bit",
    )  # fmt: skip


def search_of(options: argparse.Namespace) -> Search | None:
    """What `--optimize 2` needs: the user's cache, and progress on a terminal."""
    if options.optimize < 2:
        return None
    from npukit.compiled import cached_search  # brings ONNX Runtime along

    shown = sys.stderr.isatty() and not options.quiet
    return cached_search(lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True) if shown else None)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """`--input-shape`."""
    parser.add_argument(
        "--input-shape", metavar="NAME=D,D,...", action="append", default=[], dest="shapes",
        help="fix the shape of an input that the model leaves open; may be repeated",
    )  # fmt: skip


def add_partition(parser: argparse.ArgumentParser, fallbacks: Sequence[str]) -> None:
    """`--fallback` and `--min-macs`."""
    group = parser.add_argument_group("what stays off the accelerator")
    group.add_argument(
        "--fallback", choices=fallbacks, default="cpu",
        help="what runs the nodes that the accelerator cannot; none: fail, and list them (default: cpu)",
    )  # fmt: skip
    add_min_macs(group)


def add_min_macs(parser: argparse._ActionsContainer) -> None:
    """`--min-macs`."""
    parser.add_argument(
        "--min-macs", type=int, default=0, metavar="N",
        help="leave subgraphs of fewer multiply-accumulates to the fallback (default: 0)",
    )  # fmt: skip


def min_macs_of(options: argparse.Namespace) -> int:
    """What `--min-macs` gives.

    Raises:
        UsageError: when it is negative.
    """
    if options.min_macs < 0:
        raise UsageError(f"--min-macs must be 0 or above, not {options.min_macs}")
    return options.min_macs


def shapes_of(options: argparse.Namespace) -> dict[str, list[int]]:
    """The shapes given with `--input-shape`.

    Raises:
        UsageError: when one is not NAME=D,D,... with whole numbers above 0.
    """
    shapes = {}
    for text in options.shapes:
        name, separator, dims = text.rpartition("=")
        try:
            sizes = [int(dim) for dim in dims.split(",")]
        except ValueError:
            sizes = []
        if not separator or not name or not sizes or min(sizes) < 1:
            raise UsageError(f"--input-shape must be NAME=D,D,... with whole numbers above 0, not {text!r}")
        shapes[name] = sizes
    return shapes


_MODELS = frozenset({"MODEL", "--reference"})
"""What commands call inputs that are models, whose data may lie in files beside them."""


def check_outputs(
    options: argparse.Namespace, outputs: Mapping[str, str | None], inputs: Mapping[str, str | None]
) -> None:
    """Refuse before any work outputs that cannot be written, and those that would replace an input or each other.

    Args:
        options: of a command; the file of its `--config` is an input as well, and so are a model's files of data.
        outputs: paths by the options that give them; None for an option that is not there.
        inputs: the same of what the command reads.

    Raises:
        UsageError: which option, and why.
    """
    given = {name: path for name, path in outputs.items() if path is not None}
    read: dict[str, str | Path] = {name: path for name, path in inputs.items() if path is not None}
    for name in _MODELS & read.keys():
        read |= model_files(name, read[name])
    config = getattr(options, "config", None)
    if config is not None and config.endswith(".toml"):
        read["--config"] = config
    for path in given.values():
        check_writable(path)
    check_apart(given, read)


def model_files(name: str, path: str | Path) -> dict[str, str | Path]:
    """A model and the files in which its data lie, by what the user is to be told that they are."""
    return {name: path, **{f"data file {k} of {name},": one for k, one in enumerate(external_files(path), 1)}}


def add_model(parser: argparse.ArgumentParser, kinds: str = "ONNX file") -> None:
    """`MODEL`; `kinds`: of files that it may be."""
    metavar = "MODEL" if kinds == "ONNX file" else "MODEL|F"
    parser.add_argument(
        "model", metavar=metavar, help=f"{kinds}; or, where there is no such file, a model of npukit zoo"
    )


def model_of(options: argparse.Namespace) -> str | bytes:
    """What `MODEL` names: a file, or a model of the zoo, in fp32 where the configuration computes floats."""
    return named_model(options, options.model, chosen_config(options))


def named_model(options: argparse.Namespace, name: str, config: NpuConfig) -> str | bytes:
    """The same of one name, for one configuration."""
    entry = None if Path(name).exists() else zoo.ZOO.get(name)
    precision = "fp32" if entry is not None and config.activation.floating else "int8"
    if entry is None or precision not in entry.precisions:
        return name
    return zoo.load(name, precision, progress=lambda text: say(options, text))


def chosen_config(options: argparse.Namespace, default: NpuConfig | None = None) -> NpuConfig:
    """The configuration that `--config` and `--set` ask for, over `default`, or the default preset.

    Raises:
        ConfigError: unknown name or field, or a value that breaks a rule.
    """
    base = load_config(options.config) if options.config is not None else default or NpuConfig()
    values: dict[str, Any] = {}
    for text in options.fields:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--set must be FIELD=VALUE, not {text!r}")
        try:
            values[name] = int(value, 0)
        except ValueError:
            values[name] = value
    return NpuConfig.from_dict(values, base=base)


def add_dram(parser: argparse.ArgumentParser) -> None:
    """Options for the memory behind the accelerator, for which a model is compiled as well."""
    group = parser.add_argument_group("memory")
    group.add_argument(
        "--dram", choices=("reference", "sdram"), default="reference",
        help="of fixed latency, or a board's SDRAM with its controller; a model that is not compiled yet is "
        "compiled for it (default: reference)",
    )  # fmt: skip
    group.add_argument(
        "--dram-latency", type=int, metavar="N",
        help="reference: cycles from an address to its data (default: 100)",
    )  # fmt: skip
    group.add_argument(
        "--dram-megahertz",
        type=float,
        metavar="M",
        help="sdram: the accelerator's clock, of which the memory's is a multiple (default: the board's)",
    )


def add_clock(parser: argparse.ArgumentParser) -> None:
    """`--clock`."""
    parser.add_argument(
        "--clock", type=float, metavar="MHZ",
        help="at which cycles are told as milliseconds (default: the SDRAM's, the configuration's board's, or the "
        "ULX3S's)",
    )  # fmt: skip


def add_limits(parser: argparse.ArgumentParser) -> None:
    """`--max-memory` and `--max-cycles`."""
    group = parser.add_argument_group("limits of what a program from a file may ask for")
    group.add_argument(
        "--max-memory", type=int, default=DEFAULT_LIMITS.memory >> 20, metavar="MIB",
        help="host memory, in MiB (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--max-cycles", type=int, default=DEFAULT_LIMITS.cycles, metavar="N",
        help="cycles for which an engine is at work (default: %(default)s)",
    )  # fmt: skip


def limits_of(options: argparse.Namespace) -> Limits:
    """What `add_limits`'s options ask for.

    Raises:
        UsageError: when one is out of range.
    """
    try:
        return Limits(memory=options.max_memory << 20, cycles=options.max_cycles)
    except ValueError:
        name, value, most = "--max-cycles", options.max_cycles, (1 << 60) - 1
        if not 0 < options.max_memory << 20 < 1 << 60:
            name, value, most = "--max-memory", options.max_memory, (1 << 40) - 1
        raise UsageError(f"{name} must be from 1 to {most}, not {value}") from None


def dram_of(options: argparse.Namespace, config: NpuConfig) -> AnyDram:
    """The memory that `add_dram`'s options ask for.

    Raises:
        UsageError: options that do not go together, or with the configuration.
    """
    if options.dram == "reference":
        if options.dram_megahertz is not None:
            raise UsageError("--dram-megahertz goes with --dram sdram")
        try:
            return DramModel(latency=100 if options.dram_latency is None else options.dram_latency)
        except ValueError as error:
            raise UsageError(f"--dram-latency: {error}") from None
    if options.dram_latency is not None:
        raise UsageError("--dram-latency goes with --dram reference; an SDRAM has its data sheet's times")
    return sdram_of(config, options.dram_megahertz)


def sdram_of(config: NpuConfig, megahertz: float | None) -> SdramDram:
    """The SDRAM of a configuration's board, or of the first, at its clock or another.

    Raises:
        UsageError: a clock or a bus that it does not have.
    """
    from npukit.fpga.boards import BOARDS, board_with

    board = (board_with(config) or next(iter(BOARDS.values()))).clocked_for(config)
    clock = board.megahertz if megahertz is None else megahertz
    try:
        dram = SdramDram(chip=board.sdram, megahertz=clock, rate=board.memory_rate, io_cycles=board.io_cycles)
        dram.check(config)
    except ValueError as error:
        raise UsageError(f"--dram sdram: {error}") from None
    return dram


def config_label(config: NpuConfig) -> str:
    """The preset's name, or `custom`."""
    from npukit.isa.config import PRESETS

    return next((name for name, preset in PRESETS.items() if preset == config), "custom")


def say(options: argparse.Namespace, text: str) -> None:
    """A note on stderr, unless `--quiet`."""
    if not options.quiet:
        print(text, file=sys.stderr)


def say_config(options: argparse.Namespace, config: NpuConfig) -> None:
    """Name the configuration in use: there is no silent default."""
    say(
        options,
        f"config: {config_label(config)} ({config.size} {config.dtype}, "
        f"{config.on_chip_bytes / 1024:g} KiB on chip, {config.bus_bytes} B/cycle, hash {config.hash:016x})",
    )


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    print(json.dumps(value, indent=1))
