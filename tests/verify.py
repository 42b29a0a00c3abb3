"""Random programs on simulator and RTL over a table of configurations: `make verify`, `make verify-long`.

Passes when not one bit and not one cycle differs, when each configuration's programs reached everything that its table
of coverage does not prove to be out of reach, and when common items were hit 20 times or more over all configurations
of a data type.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from npukit.driver.rtl_device import RtlDevice
from npukit.hw.process import run_command
from npukit.isa.config import PRESETS, NpuConfig
from sources import MACHINE, sources_digest

from npukit.files import write_file
from npukit.verify.coverage import common_items, coverage_items, coverage_unreachable
from npukit.verify.runner import Verification, verify

BASE = PRESETS["int8-4x4"]
FLOATS = PRESETS["bf16-4x4"]
TABLE: dict[str, tuple[NpuConfig, int]] = {
    "int8-4x4": (BASE, 1000),
    "int8-8x8": (PRESETS["int8-8x8"], 1000),
    "int8-16x16": (PRESETS["int8-16x16"], 1000),
    "4x4, bus 4, bursts of 9": (replace(BASE, bus_bytes=4, max_burst=9), 400),
    "4x4, bus 16": (replace(BASE, bus_bytes=16, max_burst=64), 400),
    "4x4, bus 64, queue 1": (replace(BASE, bus_bytes=64, queue_depth=1), 400),
    "8x8, few lanes and banks": (
        replace(
            PRESETS["int8-8x8"], vector_lanes=2, fma_lanes=1, act_banks=2, acc_banks=2, vector_taps=2, max_window=4
        ),
        400,
    ),
    "4x4, one lane, one bank, odd depths": (
        replace(
            BASE, vector_lanes=1, fma_lanes=2, act_banks=1, acc_banks=1, act_depth=997, acc_depth=61, vector_taps=1
        ),
        400,
    ),
    "4x4 of a board": (PRESETS["ulx3s-int8-4x4"], 400),
    "4x12, bus 4": (
        replace(BASE, array=12, array_rows=4, bus_bytes=4, vector_lanes=6, fma_lanes=3, normalize_cycles=3), 400,
    ),
    "8x16": (replace(PRESETS["int8-16x16"], array_rows=8), 400),
    "bf16-4x4": (FLOATS, 1000),
    "bf16-8x8": (PRESETS["bf16-8x8"], 1000),
    "bf16 4x4, one lane, one tap, bus 4": (
        replace(FLOATS, vector_lanes=1, fma_lanes=2, vector_taps=1, bus_bytes=4, act_banks=2, acc_depth=61), 400,
    ),
    "bf16 4x12": (replace(FLOATS, array=12, array_rows=4, vector_lanes=3, fma_lanes=6, softmax_cycles=6), 400),
    "bf16 8x8, five taps, few lanes, queue 1": (
        replace(PRESETS["bf16-8x8"], vector_lanes=2, fma_lanes=1, vector_taps=5, queue_depth=1, bus_bytes=16), 400,
    ),
}  # fmt: skip
"""Name -> configuration and programs. Each program has a DRAM of its own, with latencies from 1 to 100."""
LEAST_HITS = 20
"""Of each common item, over all configurations of a data type."""
MOST = 2
"""Times as many programs as the table says, at most, while something has not been reached."""
BLOCK = 100
"""Programs after which the state is written."""


@dataclass
class State:
    """How far a configuration has come; kept in a file, so that a run can go on where it was cut off."""

    sources: str
    config: str
    programs: int = 0
    cycles: int = 0
    seconds: float = 0.0
    bit_mismatches: int = 0
    cycle_mismatches: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    complete_after: int | None = None
    """Programs by which everything that can be reached had been."""
    first_divergence: dict[str, Any] | None = None

    def count(self, found: Verification, seconds: float) -> None:
        """Add a block of programs. Their coverage was counted on in `coverage` itself."""
        self.programs += found.programs
        self.cycles += found.cycles
        self.seconds += seconds
        self.bit_mismatches += found.bit_mismatches
        self.cycle_mismatches += found.cycle_mismatches
        self.hostile.update(found.hostile)
        self.first_divergence = found.first_divergence

    def to_json(self) -> dict[str, Any]:
        """The state as one JSON object."""
        return {**asdict(self), "coverage": dict(self.coverage), "hostile": dict(self.hostile)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "State":
        """The inverse of `to_json`."""
        return cls(**{**values, "coverage": Counter(values["coverage"]), "hostile": Counter(values["hostile"])})


def begin(record: Path, name: str) -> State:
    """Where a run of the same sources and configuration was cut off, or the beginning."""
    state = State(sources_digest(MACHINE), f"{TABLE[name][0].hash:016x}")
    if record.exists():
        kept = State.from_json(json.loads(record.read_text(encoding="utf-8")))
        if (kept.sources, kept.config) == (state.sources, state.config):
            return kept
    return state


def save(record: Path, state: State) -> None:
    """Write a state to its file."""
    record.parent.mkdir(parents=True, exist_ok=True)
    write_file(record, json.dumps(state.to_json(), indent=1).encode())


def missing(config: NpuConfig, state: State) -> list[str]:
    """Items that no program has hit."""
    return [item for item in coverage_items(config) if not state.coverage[item]]


def run(config: NpuConfig, seed: int, programs: int, state: State, folder: Path, save: Callable[[], None]) -> None:
    """Run a configuration's programs from where it is, and more while items are missing."""
    with RtlDevice(config) as device:
        while state.first_divergence is None:
            left = programs - state.programs
            if left <= 0 and (not missing(config, state) or state.programs >= MOST * programs):
                return
            begun = time.perf_counter()
            block = min(BLOCK, left if left > 0 else BLOCK)
            state.count(
                verify(device, seed, block, folder, first=state.programs, coverage=state.coverage),
                time.perf_counter() - begun,
            )
            if state.complete_after is None and not missing(config, state):
                state.complete_after = state.programs
            save()


def record_of(folder: Path, seed: int, name: str) -> Path:
    """Where the state of a configuration is kept, for each version of the sources in a file of its own."""
    return folder / f"state-{seed}-{re.sub('[^a-z0-9]+', '-', name)}-{sources_digest(MACHINE)}.json"


def run_here(name: str, record: Path, options: argparse.Namespace) -> None:
    """Run a configuration's programs in this process, from where the record says on."""
    state = begin(record, name)
    save(record, state)
    run(TABLE[name][0], options.seed, wanted(name, options), state, options.output, partial(save, record, state))


def run_apart(name: str, record: Path, options: argparse.Namespace) -> State:
    """The same in a process of its own, which ends when this one ends.

    Raises:
        RuntimeError: with its last words, when it ends otherwise.
    """
    command = [sys.executable, __file__, "--child", name, "--record", str(record), "--seed", str(options.seed)]
    command += ["--programs", str(options.programs)] if options.programs else []
    code, output = run_command([*command, "-o", str(options.output)])
    if code:
        raise RuntimeError(f"ended with exit code {code}: {output.strip()[-2000:]}")
    return State.from_json(json.loads(record.read_text(encoding="utf-8")))


def wanted(name: str, options: argparse.Namespace) -> int:
    """How many programs of a configuration to run."""
    return options.programs or TABLE[name][1]


def show_progress(running: Mapping[str, Path], options: argparse.Namespace) -> None:
    """On a terminal, a line of how far those have come that have begun."""
    if not sys.stderr.isatty():
        return
    parts = []
    for name, record in running.items():
        with suppress(OSError, ValueError):  # not begun
            done = json.loads(record.read_text(encoding="utf-8"))["programs"]
            if 0 < done < wanted(name, options):
                parts.append(f"{name} {done}/{wanted(name, options)}")
    print(f"\r\x1b[K{'; '.join(parts)[:110]}", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Run the table; 1 when anything differs, or something that can be reached was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first program (default: 1)")
    parser.add_argument("--programs", type=int, metavar="N", help="of each configuration (default: the table's)")
    parser.add_argument("--only", metavar="NAME", choices=TABLE, action="append", help="a configuration; repeatable")
    parser.add_argument("--resume", action="store_true", help="go on where a run with the same seed was cut off")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="configurations at once (default: 2)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/verify"), help="folder for programs that differ, and the state"
    )
    parser.add_argument("--child", choices=TABLE, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_here(options.child, options.record, options)
        return 0
    names = options.only or list(TABLE)
    states: dict[str, State] = {}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="npukit-verify-") as folder, ThreadPoolExecutor(options.workers) as pool:
        # what is not to be gone on with later does not replace what is
        kept = options.output if options.resume else Path(folder)
        records = {name: record_of(kept, options.seed, name) for name in names}
        found = {name: pool.submit(run_apart, name, record, options) for name, record in records.items()}
        try:
            for name, future in found.items():
                while not wait([future], timeout=5).done:
                    show_progress({one: records[one] for one, other in found.items() if not other.done()}, options)
                try:
                    states[name] = future.result()
                except RuntimeError as error:
                    print(f"{name}: {error}", flush=True)
                    wrong += 1
                    continue
                wrong += report(name, TABLE[name][0], states[name])
        except KeyboardInterrupt:
            print("\ninterrupted; with --resume it goes on from here", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(130)  # the threads would wait for their processes, which end with this one
    if options.only is None and options.programs is None:
        wrong += report_rare(states)
    print(f"seed {options.seed}: {'not as it should be' if wrong else '0 bits and 0 cycles apart, nothing missed'}")
    return 1 if wrong else 0


def report(name: str, config: NpuConfig, state: State) -> int:
    """Print how a configuration fared; what is wrong with it, counted."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    lacking = missing(config, state)
    items = len(coverage_items(config))
    completed = f" after {state.complete_after} programs" if state.complete_after else ""
    hostile = sum(state.hostile.values())
    print(
        f"{name}: {state.programs} programs, {state.cycles} cycles, {state.bit_mismatches} bits and "
        f"{state.cycle_mismatches} cycles apart; {items - len(lacking)} of {items} items hit{completed}, "
        f"{len(coverage_unreachable(config))} proven out of reach; {hostile} hostile runs; {state.seconds:.0f} s",
        flush=True,
    )
    wrong = 0
    if lacking:
        wrong += 1
        print(f"  not hit: {', '.join(lacking)}")
    if state.first_divergence is not None:
        wrong += 1
        print(f"  {state.first_divergence}")
    return wrong


def report_rare(states: dict[str, State]) -> int:
    """Print which common items a data type's programs hit too rarely; 1 if there are any."""
    totals: dict[str, Counter[str]] = {"int8": Counter(), "bf16": Counter()}
    for name, state in states.items():
        totals[TABLE[name][0].dtype].update(state.coverage)
    rare = {
        f"{config.dtype} {item}": totals[config.dtype][item]
        for config in (BASE, FLOATS)
        for item in common_items(config)
        if totals[config.dtype][item] < LEAST_HITS
    }
    if rare:
        print(f"hit fewer than {LEAST_HITS} times: {rare}")
    return int(bool(rare))


if __name__ == "__main__":
    sys.exit(main())
