"""Common architectures, quantised by `npukit quantize`, on the machine: every tensor is ONNX Runtime's.

`make wild`: minutes. Prints a line for each; exit code 1 when anything differs or does not compile.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

sys.path.insert(0, str(Path(__file__).parents[1]))
from npukit.isa.config import PRESETS  # noqa: E402
from wild.architectures import ARCHITECTURES  # noqa: E402

from npukit import Session, quantize  # noqa: E402
from npukit.compare import Oracle, compare  # noqa: E402
from npukit.quantisation import FORMATS, TYPES, QuantiserOptions  # noqa: E402
from npukit.sample_inputs import random_inputs  # noqa: E402

__all__ = ["Outcome", "run"]


@dataclass(frozen=True)
class Outcome:
    """What became of a network on a machine."""

    name: str
    macs: int
    share: float
    """Of all multiply-accumulates, on the machine."""
    subgraphs: int
    utilization: float
    cycles: int
    mismatches: int
    elements: int
    seconds: float
    """To compile."""
    stays: str
    """Operators that stay in ONNX Runtime, by how many nodes."""

    def line(self) -> str:
        """A row of a table."""
        cells = (
            self.name, f"{self.macs / 1e6:.1f}", f"{100 * self.share:.1f}", str(self.subgraphs),
            f"{100 * self.utilization:.1f}", f"{self.cycles / 1e5:.2f}", str(self.mismatches), f"{self.seconds:.1f}",
            self.stays,
        )  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def _dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as ONNX Runtime's other quantiser makes it: activations are quantised while it runs."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "float.onnx", Path(folder) / "dynamic.onnx"
        onnx.save(model, source)
        quantize_dynamic(source, result, weight_type=QuantType.QInt8)
        return onnx.load(result)


def run(name: str, size: int, config: str, options: QuantiserOptions | None) -> Outcome:
    """Build a network, quantise it, run it on one random input and compare every quantised tensor and output.

    options: None for a model that is quantised while it runs.
    """
    model = ARCHITECTURES[name](size)
    model = _dynamic(model) if options is None else quantize(model, options=options).model
    start = perf_counter()
    session = Session(model, PRESETS[config], capture=True)
    seconds = perf_counter() - start
    inputs = random_inputs(session.artifact, session.inputs, 1)
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    offload = session.offload
    counts: dict[str, int] = {}
    for reason in offload.fallback:
        counts[reason.op] = counts.get(reason.op, 0) + 1
    return Outcome(
        name=name,
        macs=offload.macs_total,
        share=offload.macs / offload.macs_total if offload.macs_total else 0.0,
        subgraphs=len(session.programs),
        utilization=session.profile.utilization,
        cycles=session.profile.cycles,
        mismatches=found.mismatches,
        elements=found.elements,
        seconds=seconds,
        stays=", ".join(f"{count} {op}" for op, count in sorted(counts.items(), key=lambda one: -one[1])),
    )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks (default: all)")
    parser.add_argument("--size", type=int, default=224, help="of images (default: 224)")
    parser.add_argument("--config", default="int8-16x16", choices=PRESETS)
    parser.add_argument("--format", default="qdq", choices=(*FORMATS, "dynamic"))
    parser.add_argument("--weights", default="int8", choices=TYPES)
    parser.add_argument("--activations", default="int8", choices=TYPES)
    options = parser.parse_args()
    chosen = None
    if options.format != "dynamic":
        chosen = QuantiserOptions(
            format=options.format, weights=options.weights, activations=options.activations,
            per_channel=options.weights == "int8",
        )  # fmt: skip
    columns = ("network", "MMAC", "on the machine, %", "subgraphs", "array, %", "ms at 100 MHz", "mismatches")
    print("| " + " | ".join((*columns, "s to compile", "stays")) + " |")
    print("|---|---|---|---|---|---|---|---|---|")
    good = True
    for name in options.names or ARCHITECTURES:
        try:
            outcome = run(name, options.size, options.config, chosen)
        except Exception as error:
            good = False
            print(f"| {name} | {type(error).__name__}: {error} |", flush=True)
            continue
        good = good and not outcome.mismatches and outcome.subgraphs > 0
        print(outcome.line(), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
