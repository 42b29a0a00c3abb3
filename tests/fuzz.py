"""Fuzzing: inputs that are nearly right, and what the kit does with them. `make fuzz N=20000 SEED=1`.

Every case is made from (seed, kind, number) and runs in a process that is watched. It may be accepted, and is then
right, or be refused with one line and exit code 2 or 3; a traceback, a hang, too much memory, a wrong result or a
crash is a fault, whose input is saved together with the command that repeats it. A run that is interrupted goes on
where it was when the same command is given again.
"""

import argparse
import sys
import time
from pathlib import Path

from fuzzing import KINDS
from fuzzing.case import GOOD
from fuzzing.watch import Report, replay, run_kind, state_of

__all__ = ["main"]


def main() -> int:
    """Command line; 1 when something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20000, metavar="N", help="of all kinds together (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    parser.add_argument("--only", metavar="KIND", choices=KINDS, action="append", help="one kind; may be repeated")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after that time, and go on the next time")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="run a saved input again; needs --only")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/fuzz"), metavar="DIR", help="for inputs")
    options = parser.parse_args()
    if options.replay is not None:
        if len(options.only or []) != 1:
            parser.error("--replay needs --only KIND")
        result = replay(options.only[0], options.replay.read_bytes(), options.output)
        print(f"{result.outcome}\n{result.message}")
        return 0 if result.outcome in GOOD else 1
    try:
        return 0 if _run_all(options) else 1
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130


def shares(kinds: list[str], cases: int) -> dict[str, int]:
    """Cases of each kind, by its share, at least one."""
    parts = {name: KINDS[name][1] for name in kinds}
    whole = sum(parts.values()) or 1
    return {name: max(1, round(cases * (part or 1) / whole)) for name, part in parts.items()}


def _run_all(options: argparse.Namespace) -> bool:
    good = True
    total = 0
    until = time.monotonic() + 60 * options.minutes if options.minutes is not None else float("inf")
    wanted = shares(options.only or [name for name, (_, share) in KINDS.items() if share], options.cases)
    for name, cases in wanted.items():
        begun = time.monotonic()

        def progress(report: Report, name: str = name, cases: int = cases) -> None:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{name}: {report.cases}/{cases}", end="", file=sys.stderr, flush=True)

        report = run_kind(name, options.seed, cases, options.output, options.workers, progress, until)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        print(describe(report, time.monotonic() - begun), flush=True)
        good &= report.good
        total += report.cases
        if report.cases < cases:
            print("time is over; the same command goes on from here")
            break
    else:  # the next time it begins anew
        for name, cases in wanted.items():
            state_of(name, options.seed, cases, options.output).unlink(missing_ok=True)
    print(f"seed {options.seed}: {total} cases, {'nothing went wrong' if good else 'FAULTS FOUND'}")
    return good


def describe(report: Report, seconds: float) -> str:
    """Counts of one kind, and how to repeat what went wrong."""
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()) if count)
    rate = report.cases / max(report.seconds, 1e-9)
    lines = [f"{report.kind}: {report.cases} cases in {seconds:.0f} s ({rate:.0f} a second and process): {counts}"]
    if report.notes:
        lines.append("  " + ", ".join(f"{count} {name}" for name, count in sorted(report.notes.items())))
    for finding in report.findings:
        if finding.path is not None:
            last = finding.result.message.strip().splitlines()[-1:] or [""]
            lines.append(f"  {finding.result.outcome}: {last[0]}")
            lines.append(f"    repeat with: python tests/fuzz.py --only {report.kind} --replay {finding.path}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
