"""SCALE-Sim and this kit on the same convolutions of ResNet-18: cycles and time side by side.

    python bench/scalesim.py --install      # SCALE-Sim, once, in an environment of its own: it needs numpy 1.26
    python bench/scalesim.py                # about a quarter of an hour; --layers 3 for a part

Both have a 16x16 weight-stationary array of int8, 384 KiB on chip and 8 bytes a cycle; this kit also requantises,
pools and adds. SCALE-Sim computes no values. Writes docs/scalesim.md.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from npukit.compiler.ir.operations import Convolution
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS
from npukit.sim.timing import simulate_timing
from sections import machine, write_section

from npukit import zoo
from npukit.cache import cache_folder
from npukit.profiling.layers import timing_profile

__all__ = ["main"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "scalesim.md"
_TITLE = "# Beside SCALE-Sim\n\n"
_PACKAGES = ("scalesim==3.0.0", "numpy<2")
_CONFIG = """[general]
run_name = npukit

[architecture_presets]
ArrayHeight = 16
ArrayWidth = 16
IfmapSramSzkB = 192
FilterSramSzkB = 112
OfmapSramSzkB = 64
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = ws
Bandwidth = 8
ReadRequestBuffer = 32
WriteRequestBuffer = 32

[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2

[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40

[run_presets]
InterfaceBandwidth = USER
UseRamulatorTrace = False
"""


_RUN = """from scalesim.scale_sim import scalesim

run = scalesim(
    save_disk_space=True, verbose=False, config="scale.cfg", topology="layer.csv", layout="layer.csv",
    input_type_gemm=False,
)
run.run_scale(top_path="out")
"""


@dataclass(frozen=True)
class _Layer:
    name: str
    row: str
    """SCALE-Sim's: padded input, kernel, channels, filters, stride."""
    macs: int


def _python() -> Path:
    return cache_folder("scalesim") / "venv" / "bin" / "python"


def _install() -> None:
    folder = _python().parent.parent
    print(f"making {folder}", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run([_python(), "-m", "pip", "install", "-q", *_PACKAGES], check=True)


def _layers() -> list[_Layer]:
    """The convolutions and the classifier of ResNet-18, before anything is folded."""
    (graph,) = compile_model(zoo.load("resnet18"), PRESETS["int8-16x16"], stop_after="legalise").graphs
    found = []
    for layer in graph.operations:
        if not isinstance(layer, Convolution):
            continue
        _, inner, height, width = graph.tensors[layer.input].view
        outer, _, tall, wide = graph.tensor(layer.weights).shape
        top, left, bottom, right = layer.pads
        sizes = (height + top + bottom, width + left + right, tall, wide, inner, outer, layer.strides[0])
        found.append(_Layer(layer.node, ",".join(map(str, sizes)), graph.macs(layer)))
    return found


def _scalesim(row: str) -> tuple[int, int, float]:
    """Cycles of a layer, how many of them are stalls, and seconds; in a process of its own, for its memory grows."""
    header = "Layer name,IFMAP Height,IFMAP Width,Filter Height,Filter Width,Channels,Num Filter,Strides,\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "layer.csv").write_text(f"{header}layer,{row},\n", encoding="utf-8")
        (folder / "scale.cfg").write_text(_CONFIG, encoding="utf-8")
        # its own command writes gigabytes of traces whatever it is told
        (folder / "run.py").write_text(_RUN, encoding="utf-8")
        start = perf_counter()
        done = subprocess.run(
            [_python(), "run.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        seconds = perf_counter() - start
        reports = list(folder.glob("out/**/COMPUTE_REPORT.csv"))
        if done.returncode or not reports:
            raise SystemExit("SCALE-Sim failed:\n" + "\n".join(done.stdout.splitlines()[-12:]))
        with open(reports[0], encoding="utf-8") as file:
            (found,) = csv.DictReader(file, skipinitialspace=True)
    return int(float(found["Total Cycles"])), int(float(found["Stall Cycles"])), seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both and write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install SCALE-Sim, and nothing else")
    parser.add_argument("--layers", type=int, help="the last so many layers alone; print only")
    options = parser.parse_args(arguments)
    if options.install:
        _install()
        return 0
    if not _python().exists():
        raise SystemExit("SCALE-Sim is not installed: python bench/scalesim.py --install")
    layers = _layers()[-(options.layers or 0) :]
    config = PRESETS["int8-16x16"]
    start = perf_counter()
    (program,) = compile_model(zoo.load("resnet18"), config).programs
    profile = timing_profile(config, [(program, simulate_timing(config, program.instructions))])
    seconds = perf_counter() - start
    mine = {layer.node: layer.cycles for layer in profile.layers}
    shapes: dict[str, tuple[int, int, float]] = {}
    for layer in layers:
        if layer.row not in shapes:
            shapes[layer.row] = _scalesim(layer.row)
            print(f"{layer.name}: {shapes[layer.row]}", file=sys.stderr, flush=True)
    theirs = [shapes[layer.row][:2] for layer in layers]
    their_seconds = sum(seconds for _, _, seconds in shapes.values())
    rows = [
        "| layer | MACs / 256 | SCALE-Sim 3.0.0 | of these stalls | without | npukit | without / npukit |",
        "|---|---|---|---|---|---|---|",
    ]
    numbers: list[tuple[int, ...]] = [
        (layer.macs, *found, mine[layer.name]) for layer, found in zip(layers, theirs, strict=True)
    ]
    names = [layer.name for layer in layers]
    numbers.append(tuple(sum(column) for column in zip(*numbers, strict=True)))
    for name, (macs, cycles, stalls, own) in zip([*names, "these layers"], numbers, strict=True):
        busy = cycles - stalls
        rows.append(f"| {name} | {macs // 256} | {cycles} | {stalls} | {busy} | {own} | {busy / own:.2f} |")
    text = (
        f"Machine: {machine('npukit', 'numpy')}\n\nResNet-18, int8, batch 1, 16x16, weight stationary, 8 B/cycle. "
        "Cycles of npukit are those in the foreground of a whole network that also pools, adds and averages: "
        f"{profile.cycles} in all, which the RTL confirms. Time: SCALE-Sim {their_seconds:.0f} s for the {len(shapes)} "
        f"different shapes, npukit {seconds:.1f} s for the whole network, compilation included "
        f"({their_seconds / seconds:.0f} times as fast).\n\n"
    ) + "\n".join([*rows, ""])
    print(text)
    if options.layers is None:
        write_section(DOCUMENT, "bench/scalesim.py", _TITLE, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
