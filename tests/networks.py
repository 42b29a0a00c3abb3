"""Whole networks: simulator against ONNX Runtime in every quantised tensor, or, in bf16, against ordered sums in every
layer, and RTL against simulator.

`make networks`; minutes, most of them Verilator's. Exit code 1 when anything differs.
"""

import argparse
import sys
import time

import numpy as np
from npukit.sim.dram import AnyDram, SdramDram

from npukit import Session, zoo
from npukit.compare import Oracle, compare
from npukit.compare_floats import compare_floats
from npukit.sample_inputs import random_inputs
from npukit.zoo.build import images

__all__ = ["main"]

NETWORKS = ("resnet18", "resnet50", "mobilenetv2")
FLOAT_NETWORKS = ("digits", "resnet18", "mobilenetv2")
TRANSFORMERS = ("bert-tiny", "bert-base-128", "vit-tiny", "gpt2-block-128")
"""Of whose nodes some stay in ONNX Runtime: those that look rows of a table up, and at the edges."""
ON_RTL = ("digits-vit", "bert-tiny", "mobilenetv2", "resnet18")
BOARD = "ulx3s-int8-8x8"
SEEDS = 3


def against_onnx_runtime(name: str, seed: int, config: str) -> bool:
    """A network of that seed on one input of its own."""
    fallback = "cpu" if name in TRANSFORMERS else "none"
    session = Session(zoo.load(name, seed=seed), config, capture=True, fallback=fallback)
    assert session.compilation is not None
    inputs = _input(session, name, 1000 + seed)
    found = compare(session, Oracle(session.compilation.source), inputs, session.run(inputs))
    print(
        f"{name}, seed {seed}: {found.mismatches} mismatches in {found.elements} elements of {found.tensors} of "
        f"{found.tensors_total} tensors; {session.profile.cycles} cycles, "
        f"{100 * session.profile.utilization:.1f} % of the MACs",
        flush=True,
    )
    return found.mismatches == 0 and found.tensors == found.tensors_total


def _input(session: Session, name: str, seed: int) -> dict[str, np.ndarray]:
    if "tokens" in (value.name for value in session.inputs):
        return random_inputs(session.artifact, session.inputs, seed)
    return {
        "image": zoo.digits_heldout()[0][seed % 100] if name.startswith("digits") else images(1, (3, 224, 224), seed)
    }


def against_ordered_sums(name: str, seed: int, config: str) -> bool:
    """An fp32 network, rounded to bfloat16, on one image of its own."""
    # digits is trained: only its images differ
    model = zoo.load(name, "fp32", seed=0 if name == "digits" else seed)
    session = Session(model, config, capture=True, fallback="none")
    inputs = _input(session, name, 1000 + seed)
    found = compare_floats(session, inputs, session.run(inputs))
    tensor, error = found.worst
    print(
        f"{name} in bf16, seed {seed}: {found.mismatches} mismatches in {found.elements} elements of {found.tensors} "
        f"of {found.tensors_total} layers; at most {100 * error:.1f} % of the range from fp32, in {tensor}; "
        f"{session.profile.cycles} cycles, {100 * session.profile.utilization:.1f} % of the MACs",
        flush=True,
    )
    return found.mismatches == 0 and found.tensors == found.tensors_total


def on_rtl(name: str, precision: str, config: str, dram: AnyDram | None = None) -> bool:
    """A network on both devices: outputs, cycles, counters, and the cycles of every layer."""
    runs = []
    for device in ("sim", "rtl"):
        session = Session(zoo.load(name, precision), config, device, dram=dram)
        inputs = _input(session, name, 2000)
        start = time.perf_counter()
        outputs = session.run(inputs)
        runs.append((session.profile, outputs, time.perf_counter() - start))
    (mine, expected, _), (theirs, actual, seconds) = runs
    same = {
        "outputs": all(np.array_equal(actual[key], value) for key, value in expected.items()),
        "cycles": mine.cycles == theirs.cycles,
        "counters": mine.counters == theirs.counters,
        "layers": mine.layers == theirs.layers,
    }
    wrong = [key for key, equal in same.items() if not equal]
    verdict = f"{', '.join(wrong)} differ" if wrong else "outputs, cycles, counters and layers equal"
    memory = " with an SDRAM" if isinstance(dram, SdramDram) else ""
    print(f"{name} {precision} on the RTL{memory}: {verdict}; {theirs.cycles} cycles in {seconds:.0f} s", flush=True)
    return not wrong


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="int8-16x16", help="preset or TOML file (default: int8-16x16)")
    parser.add_argument("--floats", default="bf16-16x16", help="the same for fp32 models (default: bf16-16x16)")
    parser.add_argument("--no-rtl", action="store_true", help="simulator against ONNX Runtime alone")
    options = parser.parse_args()
    good = [against_onnx_runtime(name, seed, options.config) for name in NETWORKS for seed in range(SEEDS)]
    good += [against_onnx_runtime(name, 0, options.config) for name in TRANSFORMERS]
    good += [against_ordered_sums(name, seed, options.floats) for name in FLOAT_NETWORKS for seed in range(SEEDS)]
    if not options.no_rtl:
        good += [on_rtl(name, "int8", options.config) for name in ON_RTL]
        good += [on_rtl(name, "fp32", options.floats) for name in ("digits", "digits-vit")]
        good.append(on_rtl("digits", "int8", BOARD, SdramDram()))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
