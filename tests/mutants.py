"""Small faults, put in one at a time, that the project's own checks must find.

Faults in `hw/` are for `npukit verify`'s random programs, on a Verilator model of `int8-4x4` or, for what is of
floating point, `bf16-4x4`, and of 4x8 arrays; faults in the functional simulator for random convolutions and a small
network against ONNX Runtime, or, in bf16, for the RTL. The tree is never touched:
the packages are copied to a temporary folder, changed there, and run from there.

A mutant of its own takes the better part of a minute to build. Most are therefore built together: each block that
has some stands there as it is and once for each of its mutants, all with the same inputs, and a register that is
read from a file when the model is made selects whose outputs count. With `--only`, a mutant is built alone.

`make mutants`; exit code 1 when a fault is not found, or when the table does not fit the sources any more.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutant_models import UNCHANGED, run_on_rtl, run_on_simulator, run_together
from mutant_table import CONFIG, MUTANTS, TOGETHER, Mutant, patched

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("isa", "sim", "driver", "compiler", "hw", "fpga")
TESTS = ("mutants.py", "mutant_table.py", "mutant_models.py", "properties.py")


def _child(options: argparse.Namespace) -> None:
    """Print a line of JSON for each mutant."""
    if options.child == "together":
        run_together(options.seed, options.programs, options.only)
    else:
        run = run_on_simulator if options.child == "sim" else run_on_rtl
        print(json.dumps(run(options.config, options.seed, options.programs)))


class _Workspace:
    """A copy of the packages in which one mutant at a time is put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "npukit", folder / "npukit", ignore=ignore)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, folder / "npukit" / name, ignore=ignore)
        for name in TESTS:
            shutil.copy(ROOT / "tests" / name, folder)

    def run(self, mutant: Mutant | None, check: str, config: str, options: argparse.Namespace) -> dict:
        """Put the fault in, run the check, take it out."""
        path = self.folder / "npukit" / mutant.file if mutant else None
        original = path.read_bytes() if path else b""
        try:
            if mutant and path:
                path.write_text(patched(mutant, original.decode()))
            lines, problem = self._start(check, options, ["--config", config])
            return {"problem": problem} if problem else json.loads(lines[-1])
        finally:
            if path:
                path.write_bytes(original)
            for name in ("rtl", "verilog"):
                shutil.rmtree(self.folder / "cache" / "npukit" / name, ignore_errors=True)

    def run_together(self, mutants: list[Mutant], options: argparse.Namespace, report: Callable[[dict], None]) -> str:
        """Check mutants in one model; what went wrong, if something did."""
        only = [part for mutant in mutants for part in ("--only", mutant.name)]
        return self._start("together", options, only, lambda line: report(json.loads(line)))[1]

    def _start(
        self,
        check: str,
        options: argparse.Namespace,
        more: list[str],
        report: Callable[[str], None] = lambda line: None,
    ) -> tuple[list[str], str]:
        cases = options.cases if check == "sim" else options.programs
        # no bytecode: it is told from its source by second and size, which a fault may keep
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        # but Yosys, which is translated once for a minute or more, from where it is
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        environment.setdefault("YOWASP_CACHE_DIR", str(cache / "YoWASP"))
        command = [sys.executable, str(self.folder / "mutants.py"), "--child", check]
        command += ["--seed", str(options.seed), "--programs", str(cases), *more]
        lines = []
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                report(line)
            if process.wait() == 0:
                return lines, ""
            errors.seek(0)
            return lines, "\n".join(errors.read().strip().splitlines()[-8:]) or f"exit code {process.returncode}"


def _verdict(name: str, found: dict, unit: str) -> tuple[str, bool]:
    """A line for the mutant, and whether all is well."""
    if "problem" in found:
        return f"does not build or run:\n{found['problem']}", False
    if name.startswith(UNCHANGED):
        same = found["by"] is None
        return f"no difference in {found['after']} {unit}" if same else f"DIFFERS: {found['first']}", same
    if found["by"] is None:
        return f"SURVIVED {found['after']} {unit}", False
    first = found["first"]
    detail = first if isinstance(first, str) else first.get("message") or first["what"]
    return f"caught by {found['by']} after {found['after']} {unit} ({str(detail).splitlines()[0][:90]})", True


class _Run:
    """Runs mutants and prints how each fared."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.outcomes: Counter[str] = Counter()
        self.bad: list[str] = []

    def note(self, name: str, found: dict, seconds: float, unit: str) -> None:
        """Print and count an outcome."""
        text, good = _verdict(name, found, unit)
        if not good:
            self.bad.append(name)
        elif not name.startswith(UNCHANGED):
            self.outcomes[found["by"]] += 1
        print(f"{name}: {text}, {seconds:.0f} s", flush=True)

    def together(self, folder: Path, mutants: list[Mutant]) -> None:
        """All in one model."""
        print(f"{len(mutants)} mutants in one model, which takes some minutes to build", flush=True)
        missing = [mutant.name for mutant in mutants]

        def report(found: dict) -> None:
            if found["name"] in missing:
                missing.remove(found["name"])
            self.note(found["name"], found, found["seconds"], "programs")

        problem = _Workspace(folder).run_together(mutants, self.options, report)
        for name in missing:
            self.note(name, {"problem": problem}, 0, "programs")

    def alone(self, folder: Path, chosen: list[tuple[str, Mutant | None, str, str]]) -> None:
        """One after the other, or as many at once as asked for."""
        jobs = self.options.jobs
        free = [_Workspace(folder / str(job)) for job in range(jobs)]

        def work(one: tuple[str, Mutant | None, str, str]) -> None:
            name, mutant, check, config = one
            begun = time.perf_counter()
            workspace = free.pop()
            try:
                found = workspace.run(mutant, check, config, self.options)
            finally:
                free.append(workspace)
            self.note(name, found, time.perf_counter() - begun, "programs" if check == "rtl" else "convolutions")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, chosen))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Put small faults in, one at a time; each must be found.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this mutant alone; repeatable")
    parser.add_argument("--list", action="store_true", help="name the mutants and leave")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at once (default: 1)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the first program (default: 1)")
    parser.add_argument("--programs", type=int, default=300, metavar="N", help="random programs (default: 300)")
    parser.add_argument("--cases", type=int, default=100, metavar="N", help="random convolutions (default: 100)")
    parser.add_argument("--config", default=CONFIG, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=("rtl", "sim", "together"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options)
        return 0
    for mutant in MUTANTS:
        patched(mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
    if options.list:
        for mutant in MUTANTS:
            print(f"{mutant.name:32} {mutant.file}: {mutant.old}  ->  {mutant.new or '(nothing)'}")
        return 0
    unknown = set(options.only) - {mutant.name for mutant in MUTANTS}
    if unknown:
        raise SystemExit(f"mutants: no mutant is called {min(unknown)} (see --list)")
    mutants = [mutant for mutant in MUTANTS if mutant.name in options.only or not options.only]
    run = _Run(options)
    with tempfile.TemporaryDirectory(prefix="npukit-mutants-") as name:
        alone: list[tuple[str, Mutant | None, str, str]] = [(one.name, one, one.check, one.config) for one in mutants]
        if not options.only:
            together = [one for one in mutants if one.file in TOGETHER and one.config == CONFIG]
            run.together(Path(name, "together"), together)
            rest = [one for one in alone if one[1] not in together]
            checks = sorted({(one.check, one.config) for one in mutants})
            alone = [(f"{UNCHANGED}_{check}_{config}", None, check, config) for check, config in checks] + rest
        run.alone(Path(name), alone)
    caught = ", ".join(f"{count} by {by}" for by, count in sorted(run.outcomes.items()))
    print(f"{sum(run.outcomes.values())} of {len(mutants)} mutants caught ({caught})")
    if run.bad:
        print(f"not as it should be: {', '.join(run.bad)}")
    return 1 if run.bad else 0


if __name__ == "__main__":
    sys.exit(main())
