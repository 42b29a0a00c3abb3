"""TFLite's operators, each as random models by itself, held to TensorFlow Lite Micro.

`make tflite N=2000`: so many models, spread over the operators and over configurations. Exit code 1 when one differs.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field

from npukit.compiler.frontends.tflite.writer import write_model
from npukit.isa.config import PRESETS, NpuConfig

from npukit import Session
from npukit.compare import compare, oracle_of
from tests.tflite_models import OPERATORS, random_inputs, random_model

__all__ = ["Outcome", "run_cases"]

CONFIGS = (
    PRESETS["int8-4x4"],
    PRESETS["int8-8x8"],
    NpuConfig(array=4, vector_lanes=4, fma_lanes=2, transpose=0, softmax_cycles=0, normalize_cycles=0, acc_banks=1),
)


@dataclass
class Outcome:
    """Of some models of an operator: how many ran on the machine, and on the host, for which reasons; elements that
    were compared, and models that differ, by seed."""

    accelerated: int = 0
    host: Counter[str] = field(default_factory=Counter)
    elements: int = 0
    wrong: dict[int, str] = field(default_factory=dict)


def run_cases(op: str, seeds: range) -> Outcome:
    """Run models of an operator, and compare every tensor."""
    found = Outcome()
    for seed in seeds:
        model = random_model(op, seed)
        session = Session(write_model(model), CONFIGS[seed % len(CONFIGS)], capture=True)
        assert session.compilation is not None
        names = [model.tensors[index].name for index in model.inputs]
        inputs = dict(zip(names, random_inputs(model, seed), strict=True))
        compared = compare(session, oracle_of(session.compilation.source), inputs, session.run(inputs))
        if not session.programs:
            found.host[session.offload.reasons[0].reason] += 1
            continue
        found.accelerated += 1
        found.elements += compared.elements
        if compared.mismatches:
            found.wrong[seed] = str(compared.first_mismatch)
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--models", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first (default: 1)")
    options = parser.parse_args()
    each = -(-options.models // len(OPERATORS))
    good = True
    for op in OPERATORS:
        found = run_cases(op, range(options.seed, options.seed + each))
        reasons = "".join(f"\n    {count} on the host: {reason}" for reason, count in found.host.most_common(3))
        print(
            f"{op}: {found.accelerated} of {each} on the accelerator, {len(found.wrong)} differ in {found.elements} "
            f"elements{reasons}",
            flush=True,
        )
        for seed, problem in found.wrong.items():
            good = False
            print(f"    seed {seed}: {problem}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
