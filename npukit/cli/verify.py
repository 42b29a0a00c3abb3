"""`npukit verify`: random programs on simulator and RTL, bit for bit and cycle for cycle."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from npukit.cli.common import (
    add_config,
    add_limits,
    add_output,
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
from npukit.npufile import check_folder, check_writable
from npukit.sim.dram import DramModel, SdramDram
from npukit.sim.judge import judge_program, refuse

if TYPE_CHECKING:
    from npukit.driver.rtl_device import RtlDevice

__all__ = ["add_parsers"]


_SHOWN = 8
"""Names of coverage items that were not hit, at most."""
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
    parser.add_argument("--programs", type=int, default=100, metavar="N", help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the first (default: 1)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first (default: 0)")
    parser.add_argument("--replay", metavar="F", help="run a saved program again instead")
    parser.add_argument(
        "--dram", choices=("random", "sdram"), default="random",
        help="the reference DRAM, random each time, or a board's SDRAM with its controller (default: random)",
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
    parser.add_argument("-o", "--output", metavar="DIR", default=".", help="folder for programs that differ")
    add_limits(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.replay is not None:
        return _replay(options)
    if options.vcd is not None:
        raise UsageError("--vcd goes with --replay")
    if options.programs < 1:
        raise UsageError(f"--programs must be at least 1, not {options.programs}")
    if options.first < 0:
        raise UsageError(f"--first must be 0 or more, not {options.first}")
    check_folder(options.output)
    config = chosen_config(options, NpuConfig())
    assert config is not None
    say_config(options, config)
    from npukit.verify.runner import verify

    def progress(done: int) -> None:
        if not options.quiet and sys.stderr.isatty() and done % 10 == 0:
            print(f"\r{done}/{options.programs} programs", end="", file=sys.stderr, flush=True)

    def speak(text: str) -> None:
        say(options, text)

    dram = _sdram(options, config)
    make = _device_maker(config, dram, speak)

    def traced(path: Path) -> "RtlDevice":
        return make(vcd=path, optimise=False)

    with make() as device:
        result = verify(
            device, options.seed, options.programs, Path(options.output), progress, traced, dram, options.first
        )
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
    if options.dram == "random":
        if options.dram_megahertz is not None:
            raise UsageError("--dram-megahertz goes with --dram sdram")
        return None
    for name in ("dram_latency", "read_bursts", "write_bursts"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} does not go with --dram sdram")
    return sdram_of(config, options.dram_megahertz)


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
        dram = first["dram"]
        memory = f"--dram sdram --dram-megahertz {dram.get('megahertz', 0):g}"
        if "latency" in dram:
            memory = f"--dram-latency {dram['latency']} --read-bursts {dram['read_bursts']} "
            memory += f"--write-bursts {dram['write_bursts']}"
        text += f"\nrepeat with: npukit verify --replay {first['file']} {memory}"
    elif "hostile" in first:
        seed, index = first["program"].split("/")
        text += f"\nrepeat with: npukit verify --seed {seed} --first {index} --programs 1, and the same configuration"
    return text


def _replay(options: argparse.Namespace) -> int:
    if options.vcd is not None:
        check_writable(options.vcd)
    try:
        program = Program.from_bytes(Path(options.replay).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {options.replay}: {error.strerror}") from None
    say_config(options, program.config)
    sdram = _sdram(options, program.config)
    from npukit.verify.runner import case_surroundings, replay

    given = {"latency": options.dram_latency, "read_bursts": options.read_bursts, "write_bursts": options.write_bursts}
    try:
        known, placement = case_surroundings(Path(options.replay))
        values = {name: known.get(name, default) for name, default in _REPLAY_DRAM.items()}
        values |= {name: value for name, value in given.items() if value is not None}
        dram = sdram or DramModel(**values)
    except ValueError as error:
        raise UsageError(str(error)) from None
    refuse(judge_program(program, limits_of(options)))

    def speak(text: str) -> None:
        say(options, text)

    make = _device_maker(program.config, sdram, speak)
    with make(vcd=options.vcd, optimise=options.vcd is None) as device:
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
