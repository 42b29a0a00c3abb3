"""What a call of a compiled PyTorch module takes beyond the simulated device's own time, beside the eager call."""

import argparse
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

try:
    import torch  # pyright: ignore[reportMissingImports]
    import transformers  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise SystemExit(f"bench/torch_calls.py: {error.name} is missing: make torch") from None
from sections import machine, write_section

import npukit

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
_NOTE = """`compiled(x)` of `torch.compile(model, backend="npukit")` on `bf16-16x16`, and `model(x)`, in turns, on one
image, in one process, PyTorch with one thread; medians. What is beyond the device is the call's time without what the
simulator takes in the device's place: dispatching, copies of tensors, laying them out for the machine and back, and
writing programs and weights into the device's memory. The first call compiles.
"""


def _digits() -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("digits_pytorch", ROOT / "examples" / "digits_pytorch.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example.trained()


def _resnet() -> torch.nn.Module:
    sizes = {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes)).eval()


def _timed(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _row(name: str, model: torch.nn.Module, image: torch.Tensor, repetitions: int) -> str:
    compiled = torch.compile(model, backend="npukit")
    first = _timed(lambda: compiled(image))
    eager, calls, beyond = [], [], []
    for _ in range(repetitions):
        eager.append(_timed(lambda: model(image)))
        calls.append(_timed(lambda: compiled(image)))
        beyond.append(calls[-1] - npukit.report(compiled).profile.seconds["simulate"])
    return (
        f"| {name} | {first:.2f} s | {1e3 * median(eager):.2f} ms | {1e3 * median(calls):.1f} ms | "
        f"{1e3 * median(beyond):.2f} ms | {median(beyond) / median(eager):.2f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the section of the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20, help="calls of each (default: 20)")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lines = [
        machine("npukit", "torch", "transformers", "numpy", "numba"),
        "",
        "## PyTorch: beyond the device",
        "",
        _NOTE,
        "| | first call | eager call | compiled call | beyond the device | beyond the device / eager |",
        "|---|---|---|---|---|---|",
    ]
    with torch.no_grad():
        lines.append(_row("digits CNN, 8x8", _digits(), torch.randn(1, 1, 8, 8), options.repetitions))
        fewer = max(3, options.repetitions // 4)
        lines.append(_row("ResNet-18, 224x224", _resnet(), torch.randn(1, 3, 224, 224), fewer))
    write_section(DOCUMENT, "bench/torch_calls.py", "# Benchmarks\n\n", "\n".join(lines))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
