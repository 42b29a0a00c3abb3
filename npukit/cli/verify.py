"""`npukit verify`: random programs on simulator and RTL, bit for bit and cycle for cycle."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npukit.cli.common import (
    add_config,
    add_limits,
    add_output,
    check_outputs,
    chosen_config,
    limits_of,
    print_json,
    say,
    say_config,
    sdram_of,
)
from npukit.errors import UsageError
from npukit.isa.config import NpuConfig
from npukit.isa.program import Program
from npukit.isa.sdram import SdramChip
from npukit.npufile import check_folder
from npukit.sim.dram import AnyDram, DramModel, SdramDram
from npukit.sim.validator import refuse, validate_program

if TYPE_CHECKING:
    from npukit.driver.rtl_device import RtlDevice

__all__ = ["add_parsers"]


_SHOWN = 8
"""Names of coverage items that were not hit, at most."""
_PROGRAMS, _SEED, _FOLDER = 100, 1, "."
_NOT_REPLAYED = {
    "programs": "--programs", "seed": "--seed", "first": "--first", "output": "-o", "config": "--config",
    "fields": "--set",
}  # fmt: skip
"""Options by their names in the namespace that say which programs are drawn, and where to save them."""
_REPLAY_DRAM = {"latency": 20, "read_bursts": 16, "write_bursts": 16}
"""Of a saved program beside which nothing says in what it ran."""


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verify", help="compare random programs on simulator and RTL",
        description="Run random legal programs on the simulator and on the hardware in Verilator, each with a random "
        "DRAM or with a board's memory, and compare DRAM, every on-chip memory, every counter, and when each "
        "instruction was queued, issued, started and ended. Every third is followed by a run in hostile surroundings: "
        "a bus that stalls, answers late or with errors, resets in the middle of a program. A program that differs is "
        "shrunk and saved, with its waveform; exit code 1.",
    )  # fmt: skip
    # without defaults here: with --replay the first of them and -o are refused when they are given
    parser.add_argument("--programs", type=int, metavar="N", help=f"how many (default: {_PROGRAMS})")
    parser.add_argument("--seed", type=int, metavar="S", help=f"seed of the first (default: {_SEED})")
    parser.add_argument("--first", type=int, metavar="N", help="number of the first (default: 0)")
    parser.add_argument("--replay", metavar="F", help="run a saved program again instead")
    parser.add_argument(
        "--dram", choices=("random", "sdram"),
        help="the reference DRAM, random each time, or a board's SDRAM with its controller (default: random; with "
        "--replay as it was)",
    )  # fmt: skip
    parser.add_argument("--dram-megahertz", type=float, metavar="M", help="sdram: its clock (default: the board's)")
    parser.add_argument("--dram-latency", type=int, metavar="N", help="for --replay (default: as it was, or 20)")
    for name in ("read", "write"):
        parser.add_argument(
            f"--{name}-bursts",
            type=int,
            metavar="N",
            help=f"for --replay: {name} bursts in flight (default: as it was, or 16)",
        )
    parser.add_argument("--vcd", metavar="F", help="for --replay: write a waveform")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for programs that differ (default: here)")
    add_limits(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.replay is not None:
        return _replay(options)
    if options.vcd is not None:
        raise UsageError("--vcd goes with --replay")
    programs = _PROGRAMS if options.programs is None else options.programs
    first = options.first or 0
    seed = _SEED if options.seed is None else options.seed
    folder = Path(_FOLDER if options.output is None else options.output)
    if programs < 1:
        raise UsageError(f"--programs must be at least 1, not {programs}")
    if first < 0:
        raise UsageError(f"--first must be 0 or more, not {first}")
    check_folder(folder)
    config = chosen_config(options, NpuConfig())
    assert config is not None
    say_config(options, config)
    from npukit.verify.runner import verify

    def progress(done: int) -> None:
        if not options.quiet and sys.stderr.isatty() and done % 10 == 0:
            print(f"\r{done}/{programs} programs", end="", file=sys.stderr, flush=True)

    def speak(text: str) -> None:
        say(options, text)

    dram = _sdram(options, config)
    make = _device_maker(config, dram, speak)

    def traced(path: Path) -> "RtlDevice":
        return make(vcd=path, optimise=False)

    with make() as device:
        result = verify(device, seed, programs, folder, progress, traced, dram, first)
    found = result.to_json()
    if options.json:
        print_json(found)
    else:
        missed = [item for item, count in found["coverage"].items() if not count]
        some = ", ".join(missed[:_SHOWN]) + (f" and {len(missed) - _SHOWN} more" if len(missed) > _SHOWN else "")
        print(
            f"seed {result.seed}: {result.programs} programs, {result.cycles} cycles: {result.bit_mismatches} bits and "
            f"{result.cycle_mismatches} cycles apart; {len(found['coverage']) - len(missed)} of "
            f"{len(found['coverage'])} coverage items hit"
        )
        if result.hostile:
            outcomes = ", ".join(f"{count} {what}" for what, count in sorted(result.hostile.items()))
            print(f"hostile runs: {outcomes}")
        if missed:
            print(f"not hit: {some}")
        if result.first_divergence is not None:
            print(_describe(result.first_divergence))
    return 1 if result.first_divergence is not None else 0


def _sdram(options: argparse.Namespace, config: NpuConfig) -> SdramDram | None:
    if options.dram != "sdram":
        if options.dram_megahertz is not None:
            raise UsageError("--dram-megahertz goes with --dram sdram")
        return None
    _refuse_reference_options(options, "--dram sdram")
    return sdram_of(config, options.dram_megahertz)


def _refuse_reference_options(options: argparse.Namespace, what: str) -> None:
    """Those of the reference DRAM, where `what` asks for another memory."""
    for name in ("dram_latency", "read_bursts", "write_bursts"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} does not go with {what}")


def _device_maker(
    config: NpuConfig, dram: SdramDram | None, progress: Callable[[str], None]
) -> Callable[..., "RtlDevice"]:
    from npukit.driver.rtl_device import RtlDevice
    from npukit.verify.sdram import SdramRtlDevice

    if dram is not None:
        return partial(SdramRtlDevice, config, dram, progress=progress)
    return partial(RtlDevice, config, progress=progress)


def _describe(first: dict) -> str:
    text = "first difference: " + ", ".join(f"{key} {value}" for key, value in first.items())
    if "file" in first:
        text += f"\nrepeat with: npukit verify --replay {shlex.quote(first['file'])}"  # its memory is beside it
    elif "hostile" in first:
        seed, index = first["program"].split("/")
        text += f"\nrepeat with: npukit verify --seed {seed} --first {index} --programs 1, and the same configuration"
    return text


def _memory(options: argparse.Namespace, config: NpuConfig, known: dict[str, Any]) -> AnyDram:
    """The memory of a saved case: what it was found with, as far as the options ask for nothing else.

    Raises:
        UsageError: options that do not go together, or with that memory; or a memory that cannot be.
    """
    sdram = _sdram(options, config)
    if "chip" in known and options.dram != "random":
        found = f"{options.replay}, which was found with an SDRAM"
        _refuse_reference_options(options, f"{found}: add --dram random for the reference DRAM")
        if options.dram_megahertz is None:
            return _saved_sdram(options, config, known)
    if sdram is not None:
        return sdram
    values = {name: known.get(name, default) for name, default in _REPLAY_DRAM.items()}
    given = {"latency": options.dram_latency, "read_bursts": options.read_bursts, "write_bursts": options.write_bursts}
    values |= {name: value for name, value in given.items() if value is not None}
    try:
        return DramModel(**values)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _saved_sdram(options: argparse.Namespace, config: NpuConfig, known: dict[str, Any]) -> SdramDram:
    try:
        chip: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in known["chip"].items()
        }
        dram = SdramDram(chip=SdramChip(**chip), **{name: value for name, value in known.items() if name != "chip"})
        dram.check(config)
        return dram
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{options.replay} was found with an SDRAM that cannot be made again ({error}): name one with --dram sdram "
            "--dram-megahertz M"
        ) from None


def _replay(options: argparse.Namespace) -> int:
    for name, option in _NOT_REPLAYED.items():
        if getattr(options, name) not in (None, []):
            raise UsageError(f"{option} does not go with --replay: the saved program says what runs")
    beside = os.path.splitext(options.replay)[0] + ".json"
    check_outputs(
        options, {"--vcd": options.vcd}, {"--replay": options.replay, "the description beside --replay": beside}
    )
    try:
        program = Program.from_bytes(Path(options.replay).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {options.replay}: {error.strerror}") from None
    say_config(options, program.config)
    from npukit.verify.runner import case_surroundings, replay

    try:
        known, placement = case_surroundings(Path(options.replay))
    except ValueError as error:
        raise UsageError(str(error)) from None
    dram = _memory(options, program.config, known)
    refuse(validate_program(program, limits_of(options)))

    def speak(text: str) -> None:
        say(options, text)

    make = _device_maker(program.config, dram if isinstance(dram, SdramDram) else None, speak)
    try:
        device = make(vcd=options.vcd, optimise=options.vcd is None)
    except ValueError as error:  # an SDRAM that the hardware does not have
        raise UsageError(f"{options.replay} cannot run in its memory: {error}") from None
    with device:
        outcome = replay(device, program, dram, placement)
    if options.json:
        print_json(
            {
                "schema": 1,
                "bit_mismatches": outcome.bits,
                "cycle_mismatches": outcome.cycles,
                "first_divergence": outcome.first,
            }
        )
    elif outcome.first is None:
        print("no difference")
    else:
        print(_describe(outcome.first))
    say(options, f"{outcome.schedule.cycles} cycles")
    return 1 if outcome.first is not None else 0
