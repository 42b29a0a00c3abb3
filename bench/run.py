"""Measure what docs/benchmarks.md states, and write it there: `make bench`.

Everything is measured in one run on one machine; where there are two sides, they take turns and the result is
their ratio, because absolute times drift.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

from npukit.compiler.pipeline import PASSES, compile_model
from npukit.driver.host import session_options
from npukit.driver.rtl_device import RtlDevice
from npukit.hw.core import Core
from npukit.hw.verilog import MODULE, component_verilog
from npukit.isa.config import PRESETS
from npukit.isa.instructions import End, Engine, Instruction
from npukit.isa.program import Program
from npukit.sim.timing import simulate_timing
from npukit.sim.validator import refuse, validate
from sections import machine, write_section

from npukit import NpuConfig, Session, zoo
from npukit.zoo.build import images

__all__ = ["Sizes", "main", "measure", "repeated"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
CYCLES = 2_000_000
"""Cycles that the repeated program takes at least."""
GOAL = 10.0
"""Mcycles/s that timing alone is to reach."""
_PACKAGES = ("npukit", "numpy", "numba", "onnxruntime")
_TITLE = "# Benchmarks\n\nMeasured by `make bench`. Medians; the range of all repetitions in brackets.\n\n"
_CHILD = "import sys; from npukit.cli import main; sys.exit(main())"


_RTL_NOTE = """The digits network, one image at a time, on the RTL in Verilator and on the simulator, in turns. The
simulator computes a program's timing once and keeps it, and its values for each image. Verilog and build: once.
"""


_NETWORKS_NOTE = """The zoo's networks, int8 on `int8-16x16` and fp32 on `bf16-16x16`, 8 B/cycle, 100 cycles of DRAM
latency, batch 1, first convolution and classifier included. Compile: `compile_model`, the best of two. Values and
cycles: `Session.run`, the best of three. Memory: the most that a process took which compiles a network and runs it
once, ONNX Runtime included. Cold: the first in a new process without compiled kernels.
"""


@dataclass(frozen=True)
class Sizes:
    """How much to measure: repetitions, whole processes of each kind (0: none), images per repetition, RTL presets,
    networks."""

    repetitions: int = 9
    processes: int = 5
    images: int = 60
    rtl: tuple[str, ...] = ("int8-4x4", "int8-8x8", "int8-16x16", "bf16-4x4", "bf16-8x8")
    networks: tuple[tuple[str, str], ...] = (
        *((name, "int8") for name in ("resnet18", "resnet50", "mobilenetv2")),
        *((name, "fp32") for name in ("resnet18", "mobilenetv2")),
    )


_FULL = Sizes()
_QUICK = Sizes(repetitions=3, processes=1, images=10, rtl=(), networks=())


def repeated(program: Program, copies: int) -> tuple[Instruction, ...]:
    """A program's instructions `copies` times with one END, each copy after all of the one before.

    The last instruction of a copy, a STORE on which all others bear, gives a token to the next copy's first
    LOAD, so that the copies neither race nor leave tokens behind.
    """
    body = program.instructions[:-1]
    first, last = body[0], body[-1]
    assert (first.engine, last.engine) == (Engine.LOAD, Engine.STORE), (first, last)
    after = replace(first, wait=first.wait | 1 << Engine.STORE)
    before = replace(last, signal=last.signal | 1 << Engine.LOAD)
    instructions: list[Instruction] = []
    for index in range(copies):
        instructions.append(after if index else first)
        instructions.extend(body[1:-1])
        instructions.append(before if index < copies - 1 else last)
    return (*instructions, End())


def _times(repetitions: int, run: Callable[[], object]) -> list[float]:
    """Seconds of each repetition, after one that does not count."""
    run()
    seconds = []
    for _ in range(repetitions):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return seconds


def _digits(number: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _spread(values: Sequence[float], unit: str) -> str:
    low, high = _digits(min(values)), _digits(max(values))
    return f"{_digits(median(values))} {unit}" + (f" ({low} to {high})" if len(values) > 1 else "")


def _timing(sizes: Sizes, program: Program) -> list[str]:
    alone = simulate_timing(program.config, program.instructions).cycles
    copies = -(-CYCLES // (alone - 150))  # only the first copy waits for its first instructions
    refuse(validate(program.config, repeated(program, 3), program.dram_bytes, [(0, program.dram_bytes)]))
    instructions = repeated(program, copies)
    cycles = simulate_timing(program.config, instructions).cycles
    assert cycles >= CYCLES, (cycles, copies)
    seconds = _times(sizes.repetitions, lambda: simulate_timing(program.config, instructions))
    speeds = [cycles / one / 1e6 for one in seconds]
    return [
        f"| speed, kernels compiled | {_spread(speeds, 'Mcycles/s')} |",
        f"| speed / goal of {GOAL:g} Mcycles/s | {_digits(median(speeds) / GOAL)} |",
        f"| program | {copies} copies of digits, {len(instructions)} instructions, {cycles} cycles |",
    ]


def _process(cache: Path, model: Path) -> tuple[float, float]:
    """Seconds of a whole `npukit run --timing-only`, and of the simulation within."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, "-c", _CHILD, "run", str(model), "--timing-only", "--json", "--quiet"]
    start = perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return perf_counter() - start, json.loads(done.stdout)["seconds"]["simulate"]


def _processes(sizes: Sizes) -> list[str]:
    cold, warm = [], []
    with tempfile.TemporaryDirectory() as folder:
        model = zoo.write("digits", Path(folder) / "digits.onnx")
        for index in range(sizes.processes):
            cache = Path(folder) / f"cache{index}"
            cold.append(_process(cache, model))
            warm.append(_process(cache, model))
    rows = []
    for name, found in (("cold: empty cache, kernels compiled", cold), ("warm: cache filled", warm)):
        rows.append(f"| {name} | {_spread([whole for whole, _ in found], 's')} |")
        rows.append(f"| ... of which the simulation | {_spread([part for _, part in found], 's')} |")
    return rows


def _values(sizes: Sizes) -> list[str]:
    inputs = [{"image": image} for image in zoo.digits_heldout()[0][: sizes.images]]
    model = zoo.load("digits")
    session = Session(model)
    options = session_options()
    options.intra_op_num_threads = 1  # so small a network gains nothing from more
    import onnxruntime  # after the kit, which turns its telemetry off

    runtime = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sides: dict[str, Callable[[], object]] = {
        "simulator": lambda: [session.run(image) for image in inputs],
        "runtime": lambda: [runtime.run(None, image) for image in inputs],
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(sizes.repetitions):
        for name, run in sides.items():
            rates[name] += [len(inputs) / seconds for seconds in _times(1, run)]
    ratios = [theirs / ours for ours, theirs in zip(rates["simulator"], rates["runtime"], strict=True)]
    speed = median(rates["simulator"]) * session.profile.cycles / 1e6
    return [
        f"| simulator, values and cycles | {_spread(rates['simulator'], 'images/s')} |",
        f"| ONNX Runtime, batch 1, one thread | {_spread(rates['runtime'], 'images/s')} |",
        f"| ONNX Runtime / simulator | {_spread(ratios, 'times')} |",
        f"| simulated cycles | {session.profile.cycles} per image, {_digits(speed)} Mcycles/s |",
    ]


def _rtl(sizes: Sizes) -> list[str]:
    """The digits network, an image at a time, on the RTL in Verilator and on both halves of the simulator."""
    digits, _, _ = zoo.digits_heldout()
    lines = [
        "| configuration | cycles | RTL | simulator, values and cycles | simulator / RTL | Verilog | Verilator build |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name in sizes.rtl:
        config = PRESETS[name]
        start = perf_counter()
        text = component_verilog(Core(config), MODULE)
        elaborated = perf_counter() - start
        # a comment of its own, so that it is built although the same core may be in the cache
        device = RtlDevice(config, verilog=f"{text}\n// {start}\n", progress=lambda _: None)
        built = perf_counter() - start - elaborated
        model = zoo.load("digits", "fp32" if config.activation.floating else "int8")
        sides = [Session(model, config, device), Session(model, config)]
        speeds: list[list[float]] = [[], []]
        for index in range(sizes.repetitions + 1):
            for side, session in enumerate(sides):
                session.run({"image": digits[index]})
                if index:  # the first one warms up
                    profile = session.profile
                    speeds[side].append(profile.cycles / profile.seconds["simulate"] / 1e6)
        assert sides[0].profile.cycles == sides[1].profile.cycles
        ratio = median(simulated / rtl for rtl, simulated in zip(*speeds, strict=True))
        lines.append(
            f"| `{name}` | {sides[0].profile.cycles} | {_spread(speeds[0], 'Mcycles/s')} | "
            f"{_spread(speeds[1], 'Mcycles/s')} | {_digits(ratio)} | {elaborated:.0f} s | {built:.0f} s |"
        )
        device.close()
    return lines


def _compile(sizes: Sizes) -> list[str]:
    model, config = zoo.load("digits"), NpuConfig()
    passes: dict[str, list[float]] = {name: [] for name in PASSES}

    def run() -> None:
        for name, seconds in compile_model(model, config).seconds.items():
            passes[name].append(1e3 * seconds)

    seconds = _times(sizes.repetitions, run)
    parts = ", ".join(f"{name} {_digits(median(found))}" for name, found in passes.items())
    return [
        f"| compile | {_spread([1e3 * one for one in seconds], 'ms')} |",
        f"| passes, ms | {parts} |",
    ]


def _peak() -> int:
    """Bytes of memory that this process has had at most."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        # this one may count the process that started it
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _network(name: str, precision: str) -> dict[str, float]:
    """One network in this process: seconds to compile and to run, and the most memory it took, in GB."""
    model, config = zoo.load(name, precision), PRESETS["int8-16x16" if precision == "int8" else "bf16-16x16"]
    inputs = {"image": images(1, (3, 224, 224), 1)}
    found: dict[str, float] = {}
    start = perf_counter()
    session = Session(model, config)
    found["first compile"] = perf_counter() - start
    start = perf_counter()
    session.run(inputs)
    found["first run"] = perf_counter() - start
    found["memory"] = _peak() / 1e9
    found["compile"] = min(_times(2, lambda: compile_model(model, config)))
    found["run"] = min(_times(3, lambda: session.run(inputs)))
    (program,) = session.programs.values()
    found["timing"] = min(_times(2, lambda: simulate_timing(config, program.instructions)))
    found |= {"cycles": session.profile.cycles, "utilization": session.profile.utilization}
    return found


def _networks(sizes: Sizes) -> list[str]:
    """Each network in processes of its own: the first with an empty cache of compiled kernels."""
    lines = [
        "| network | cycles | of the MACs | compile | cold | values and cycles | cold | timing alone | memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, precision in sizes.networks:
        zoo.load(name, precision)  # made before anything is measured
        with tempfile.TemporaryDirectory() as cache:
            kernels = {"NUMBA_CACHE_DIR": cache}
            command = [sys.executable, __file__, "--network", name, "--precision", precision]
            cold, warm = (
                json.loads(
                    subprocess.run(command, env={**os.environ, **kernels}, check=True, capture_output=True).stdout
                )
                for _ in range(2)
            )
        lines.append(
            f"| {name} {precision} | {warm['cycles']:.0f} | {100 * warm['utilization']:.1f} % | "
            f"{_digits(warm['compile'])} s | {_digits(cold['first compile'])} s | "
            f"{_digits(warm['run'])} s | {_digits(cold['first run'])} s | "
            f"{_digits(warm['cycles'] / warm['timing'] / 1e6)} Mcycles/s | {_digits(warm['memory'])} GB |"
        )
    return lines


def measure(sizes: Sizes) -> str:
    """The measured part of docs/benchmarks.md, as Markdown."""
    program = compile_model(zoo.load("digits"), NpuConfig()).programs[0]
    head = "| | |\n|---|---|\n"
    parts = [
        f"Machine: {machine(*_PACKAGES)}\n",
        f"{sizes.repetitions} repetitions of {sizes.images} images; {sizes.processes} of whole processes.\n",
        "## Simulator, timing alone\n",
        "`simulate_timing` on `digits` repeated, each copy after the one before, on one core.\n",
        head + "\n".join(_timing(sizes, program)) + "\n",
        "A whole process, `npukit run digits.onnx --timing-only`, imports and compiler included:\n",
        head + "\n".join(_processes(sizes) if sizes.processes else []) + "\n",
        "## Simulator, with values\n",
        "`Session.run` and ONNX Runtime's `InferenceSession.run` in turns, one held-out image at a time.\n",
        head + "\n".join(_values(sizes)) + "\n",
        "## Networks\n",
        _NETWORKS_NOTE,
        "\n".join(_networks(sizes)) + "\n",
        "## RTL\n",
        _RTL_NOTE,
        "\n".join(_rtl(sizes)) + "\n",
        "## Compiler\n",
        "`compile_model` on `digits`, from the bytes of the model to the artifact, for `int8-16x16`.\n",
        head + "\n".join(_compile(sizes)) + "\n",
    ]
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write docs/benchmarks.md unless `--quick`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions; print only")
    parser.add_argument("--output", type=Path, metavar="F.md", help="document (default: docs/benchmarks.md)")
    parser.add_argument("--network", metavar="NAME", help=argparse.SUPPRESS)  # for a process of its own
    parser.add_argument("--precision", default="int8", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.network is not None:
        print(json.dumps(_network(options.network, options.precision)))
        return 0
    text = measure(_QUICK if options.quick else _FULL)
    print(text)
    if options.output is not None or not options.quick:
        write_section(options.output or DOCUMENT, "bench/run.py", _TITLE, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
