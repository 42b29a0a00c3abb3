"""Faults put in from outside: the kit is killed at random moments, and what it leaves behind is looked at.

`make faults N=200 SEED=1`. Each fault begins a process of the kit and sends it SIGKILL, SIGTERM or SIGINT at a random
moment of what it does. Then nothing that it has started may still run, what it writes must be whole or as it was, no
temporary folder may be left, and after SIGTERM and SIGINT, where it can still act, it must say so in one line and with
its exit code, and leave nothing beside its output. What is run next must be right. Exit code 1 when something is not.
"""

import argparse
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from npukit.hw.verilog import MODULE, component_verilog
from npukit.isa.config import PRESETS
from npukit.sim.dram import DramModel

from npukit.cache import cache_path, is_whole, read_kept
from npukit.files import PARTIAL
from npukit.verify.generator import random_program
from npukit.verify.runner import save_case

__all__ = ["KINDS", "Fault", "main", "put_in"]

CLI = [sys.executable, "-m", "npukit"]
CONFIG = "int8-4x4"
CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
WORDS = {signal.SIGTERM: "npukit: terminated\n", signal.SIGINT: "npukit: interrupted\n"}
SIZE = 3_000_000
"""Bytes of a file that is written again and again."""
PATIENCE = 15.0
"""Seconds for what a killed process has started to end."""
LOOP = """
import sys
from itertools import count
from pathlib import Path
from npukit.cli import configs, main
def loop(options):
    from npukit.cache import keep
    from npukit.npufile import write_bytes
    for number in {numbers}:
        {function}(Path({path!r}), bytes([number % 256]) * {size})
        if number == 0:
            print("written", flush=True)
    return 0
configs._run = loop
sys.argv = ["npukit", "configs"]
sys.exit(main())
"""
"""A command that writes one version of a file after the other, each of one byte, and never ends."""

BUILD = f"""
import ctypes, sys
from npukit.cli import main
def build(options):
    from npukit.driver.rtl_build import build_library
    from npukit.isa.config import PRESETS
    path = build_library(PRESETS["{CONFIG}"], open("stand_in.v").read(), optimise=False)
    library = ctypes.CDLL(str(path))
    library.npu_create.restype = ctypes.c_void_p
    return 0 if library.npu_create() else 3
class Later:
    def find_spec(self, name, path=None, target=None):
        if name == "npukit.cli.commands":
            from npukit.cli import configs
            configs._run = build
sys.meta_path.insert(0, Later())
sys.argv = ["npukit", "configs"]
sys.exit(main())
"""
"""A command that builds the model of `stand_in.v` and loads it; it begins, as all do, with `main`."""


@dataclass
class Fault:
    """What came of one fault."""

    kind: str
    signal: str
    outcome: str
    problems: list[str] = field(default_factory=list)


class Kind:
    """What is killed.

    Attributes:
        folder: of its own, for everything.
        every: after how many faults the next run is let to its end; the others meet what the ones before have left.
        seconds: how long it takes when it is not disturbed.
    """

    every = 1

    def __init__(self, folder: Path, random: Random, seconds: float | None = None) -> None:
        self.folder, self.random = folder, random
        self.token = secrets.token_hex(16)
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True)
        self.errors = folder / "stderr"
        kept = folder / "cache" / "npukit"
        kept.mkdir(parents=True)
        for name in ("kernels", "verilog"):  # what is not under test
            place = cache_path(name)
            assert place is not None
            place.mkdir(parents=True, exist_ok=True)
            (kept / name).symlink_to(place)
        self.environment = os.environ | {
            "NPUKIT_FAULT": self.token, "TMPDIR": str(self.temporary), "XDG_CACHE_HOME": str(folder / "cache"),
        }  # fmt: skip
        self.prepare()
        if seconds is None:
            begin = time.monotonic()
            problems = self.next_run()
            if problems:
                raise RuntimeError(f"{type(self).__name__} is wrong without a fault: {'; '.join(problems)}")
            seconds = time.monotonic() - begin
        self.seconds = seconds

    def prepare(self) -> None:
        """Files that it needs."""

    def command(self) -> list[str]:
        """What to begin."""
        raise NotImplementedError

    def left(self) -> list[str]:
        """What is wrong with the files that a killed process has left."""
        raise NotImplementedError

    def next_run(self) -> list[str]:
        """Run it to its end; what is wrong with what it makes."""
        raise NotImplementedError

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Begin a process whose children can be told by their environment."""
        with open(self.errors, "w") as errors:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=self.environment, cwd=self.folder,
                # a shell has its background jobs ignore it
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    def run(self, command: Sequence[str]) -> list[str]:
        """Run a command that must go well; its problems."""
        with self.start(command) as process:
            process.communicate()
        err = self.errors.read_text()
        return [] if process.returncode == 0 else [f"{' '.join(command[2:5])}: exit code {process.returncode}: {err}"]

    def partials(self) -> list[Path]:
        """What is not finished anywhere in the folder, caches of others left out."""
        return [path for path in self.folder.rglob(f"*{PARTIAL}") if not path.is_symlink()]

    def running(self) -> list[str]:
        """Processes that it has started and that still run."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self.token.encode() in (place / "environ").read_bytes():
                    found.append((place / "comm").read_text().strip())
            except OSError:  # it has ended, or is somebody else's
                pass
        return found


class Model(Kind):
    """A model built by Verilator and the compiler, of a small stand-in for the core."""

    every = 4

    def prepare(self) -> None:
        spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).parent / "driver" / "rtl_stub.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        text = component_verilog(module.CopyEngine(PRESETS[CONFIG]), MODULE)
        (self.folder / "stand_in.v").write_text(text)

    def command(self) -> list[str]:
        return [sys.executable, "-c", BUILD]

    def left(self) -> list[str]:
        libraries = list((self.folder / "cache").rglob("npu.so"))
        problems = [f"{path.name} is not whole" for path in libraries if not is_whole(path)]
        if libraries and not problems:  # it came to its end
            self.forget()
        return problems

    def next_run(self) -> list[str]:
        problems = self.run(self.command())
        if not problems and not list((self.folder / "cache").rglob("npu.so")):
            problems = ["nothing is kept"]
        self.forget()
        return problems

    def forget(self) -> None:
        """The next run builds anew."""
        shutil.rmtree(self.folder / "cache" / "npukit" / "rtl", ignore_errors=True)


class Core(Model):
    """The core's model: the one that a waveform needs, which takes half the time. Then a program runs on it, and must
    do there what it does on the simulator."""

    every = 6

    def prepare(self) -> None:
        made = random_program(PRESETS[CONFIG], "faults", 20)
        self.case = save_case(self.folder, "faults", made, DramModel(latency=20))

    def command(self) -> list[str]:
        return [*CLI, "verify", "--replay", str(self.case), "--vcd", str(self.folder / "waves.vcd"), "--quiet"]


class Kernels(Kind):
    """Kernels, compiled by numba and kept one by one."""

    every = 4

    def prepare(self) -> None:
        (self.folder / "cache" / "npukit" / "kernels").unlink()
        assert not self.run([*CLI, "zoo", "digits", "-o", "digits.onnx"])

    def command(self) -> list[str]:
        return [*CLI, "run", "digits.onnx", "--timing-only", "--quiet"]

    def left(self) -> list[str]:
        kept = [path for path in (self.folder / "cache").rglob("*") if path.is_file() and path.suffix != PARTIAL]
        return [f"{path.name} is not whole" for path in kept if not is_whole(path)]

    def next_run(self) -> list[str]:
        problems = self.run(self.command())
        shutil.rmtree(self.folder / "cache" / "npukit" / "kernels", ignore_errors=True)
        return problems


class Written(Kind):
    """An output that is written again and again; the fault comes after the first time."""

    every = 4
    function = "write_bytes"

    def prepare(self) -> None:
        self.path = self.folder / "output"
        self.path.write_bytes(b"before")

    def command(self) -> list[str]:
        return self.writer("count()")

    def writer(self, numbers: str) -> list[str]:
        """A process that writes these versions."""
        code = LOOP.format(function=self.function, path=str(self.path), size=SIZE, numbers=numbers)
        return [sys.executable, "-c", code]

    def content(self) -> bytes | None:
        """What a reader finds."""
        return self.path.read_bytes()

    def left(self) -> list[str]:
        data = self.content()
        if data is None or (data != b"before" and (len(data) != SIZE or len(set(data)) > 1)):
            return [f"the file is of no one version: {'absent' if data is None else len(data)}"]
        return []

    def next_run(self) -> list[str]:
        problems = self.run(self.writer("(7,)"))
        return problems if self.content() == b"\7" * SIZE else [*problems, "the file is not what was written"]


class Kept(Written):
    """A file of the cache that is written again and again."""

    function = "keep"

    def prepare(self) -> None:
        self.path = self.folder / "cache" / "npukit" / "kind" / "name"

    def content(self) -> bytes | None:
        return read_kept(self.path) if self.path.exists() else b"before"


class Command(Kind):
    """Commands that write a file, each from its start to its end."""

    every = 3

    def prepare(self) -> None:
        self.number = 0
        self.commands = [
            ["zoo", "digits", "--quiet", "-o"],
            ["compile", "digits.onnx", "--quiet", "-o"],
            ["disasm", "digits.npu.onnx", "--quiet", "-o"],
            ["asm", "digits.asm", "--like", "digits.npu.onnx", "--quiet", "-o"],
            ["run", "digits.onnx", "--quiet", "--output"],
        ]
        self.wanted: dict[str, bytes] = {}
        for words, name in zip(self.commands, ("digits.onnx", "digits.npu.onnx", "digits.asm", "p", "o"), strict=True):
            assert not self.run([*CLI, *words, name])
            self.wanted[words[0]] = (self.folder / name).read_bytes()
        self.path = self.folder / "output"

    def command(self) -> list[str]:
        self.words = self.random.choice(self.commands)
        self.path.write_bytes(b"before")
        return [*CLI, *self.words, str(self.path)]

    def left(self) -> list[str]:
        data = self.path.read_bytes()
        return [] if data in (b"before", self.wanted[self.words[0]]) else [f"{self.words[0]}: {len(data)} bytes"]

    def next_run(self) -> list[str]:
        problems = self.run(self.command())
        return problems if self.path.read_bytes() == self.wanted[self.words[0]] else [*problems, "another output"]


KINDS: dict[str, tuple[type[Kind], int]] = {
    "core": (Core, 5), "model": (Model, 30), "kernels": (Kernels, 5), "command": (Command, 30), "output": (Written, 15),
    "cache": (Kept, 15),
}  # fmt: skip
"""What is killed, and its share in per cent."""


def put_in(kind: Kind, name: str, number: signal.Signals, last: bool) -> Fault:
    """One fault, and what came of it."""
    endless = isinstance(kind, Written)
    with kind.start(kind.command()) as process:
        if endless:
            assert process.stdout is not None and process.stdout.readline() == "written\n"
        time.sleep(kind.random.uniform(0, 0.5 if endless else kind.seconds))
        process.send_signal(number)
        process.wait()  # not for the end of its output, which its children would have as well
    err = kind.errors.read_text()
    fault = Fault(name, number.name, "ended by it")
    code = process.returncode
    if code == 0 and not endless:
        fault.outcome = "done before it came"
    elif (
        not endless  # such a process has long been past its start
        and number != signal.SIGKILL
        and (code == -number or (err.endswith("KeyboardInterrupt\n") and "npukit/" not in err))
    ):
        fault.outcome = "in Python's own start"
    elif code != CODES[number]:
        fault.problems.append(f"exit code {code}: {err}")
    elif err != WORDS.get(number, err):
        fault.problems.append(f"more than a line: {err}")
    end = time.monotonic() + PATIENCE
    while kind.running() and time.monotonic() < end:
        time.sleep(0.05)
    fault.problems += [f"{name} still runs" for name in kind.running()]
    end = time.monotonic() + PATIENCE
    while list(kind.temporary.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    fault.problems += [f"{path.name} is left" for path in kind.temporary.iterdir()]
    fault.problems += kind.left()
    partials = kind.partials()
    if partials and number == signal.SIGKILL:
        fault.outcome += ", an unfinished file under a name of its own left"
    elif partials:
        fault.problems.append(f"{len(partials)} unfinished files are left")
    for path in partials:
        path.unlink()
    if last or kind.random.randrange(kind.every) == 0:
        fault.problems += kind.next_run()
    return fault


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Put faults in; 0 if all went as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many faults (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which kinds (default: all)")
    parser.add_argument("--seconds", type=float, help="how long one takes undisturbed (default: it is measured)")
    parser.add_argument("--json", type=Path, help="file for the counts")
    options = parser.parse_args(arguments)
    names = options.kinds.split(",")
    shares = sum(KINDS[name][1] for name in names)
    faults: list[Fault] = []
    for name in names:
        kind_of, share = KINDS[name]
        count = max(1, round(options.count * share / shares))
        with tempfile.TemporaryDirectory(prefix="npukit-faults-") as folder:
            kind = kind_of(Path(folder) / name, Random(f"{options.seed}/{name}"), options.seconds)
            say(f"{name}: {count} faults, {kind.seconds:.1f} s undisturbed")
            for index in range(count):
                number = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[index % 3]
                fault = put_in(kind, name, number, index == count - 1)
                faults.append(fault)
                for problem in fault.problems:
                    say(f"  {index} {fault.signal}: {' '.join(problem.split())}")
    counts = Counter((fault.kind, fault.signal, fault.outcome) for fault in faults)
    for (name, number, outcome), count in sorted(counts.items()):
        say(f"{name:<8} {number:<8} {count:>4} {outcome}")
    wrong = sum(1 for fault in faults if fault.problems)
    say(f"{len(faults)} faults, {wrong} after which something was wrong")
    if options.json is not None:
        rows = [[*key, count] for key, count in sorted(counts.items())]
        options.json.write_text(json.dumps({"faults": len(faults), "wrong": wrong, "counts": rows}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
