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
from npukit.compare_floats import compare_floats
from tests.tflite_models import FLOAT_OPERATORS, OPERATORS, random_inputs, random_model

__all__ = ["Outcome", "run_cases"]

CONFIGS = (
    PRESETS["int8-4x4"],
    PRESETS["int8-8x8"],
    NpuConfig(array=4, vector_lanes=4, fma_lanes=2, transpose=0, softmax_cycles=0, normalize_cycles=0, acc_banks=1),
)
FLOAT_CONFIGS = (PRESETS["bf16-4x4"], PRESETS["bf16-8x8"])


@dataclass
class Outcome:
    """Of some models of an operator: how many ran on the machine, and on the host, for which reasons; elements that
    were compared, and models that differ, by seed."""

    accelerated: int = 0
    host: Counter[str] = field(default_factory=Counter)
    elements: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    error: float = 0.0
    """Of floats, the largest difference from TensorFlow Lite Micro's, as a share of a tensor's range."""


def run_cases(op: str, seeds: range, floats: bool = False) -> Outcome:
    """Run models of an operator, and compare all tensors: int8 with TensorFlow Lite Micro, floats with ordered sums."""
    found = Outcome()
    for seed in seeds:
        model = random_model(op, seed, floats)
        configs = FLOAT_CONFIGS if floats else CONFIGS
        session = Session(write_model(model), configs[seed % len(configs)], capture=True)
        assert session.compilation is not None
        names = [model.tensors[index].name for index in model.inputs]
        inputs = dict(zip(names, random_inputs(model, seed), strict=True))
        outputs = session.run(inputs)
        if floats:
            compared = compare_floats(session, inputs, outputs)
            found.error = max(found.error, *compared.errors.values(), 0.0)
        else:
            compared = compare(session, oracle_of(session.compilation.source), inputs, outputs)
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
    for op, floats in (*((op, False) for op in OPERATORS), *((op, True) for op in FLOAT_OPERATORS)):
        found = run_cases(op, range(options.seed, options.seed + each), floats)
        reasons = "".join(f"\n    {count} on the host: {reason}" for reason, count in found.host.most_common(3))
        near = f", at most {100 * found.error:.2f} % of the range from fp32" if floats else ""
        print(
            f"{op}{' in bf16' if floats else ''}: {found.accelerated} of {each} on the accelerator, {len(found.wrong)} "
            f"differ in {found.elements} elements{near}{reasons}",
            flush=True,
        )
        for seed, problem in found.wrong.items():
            good = False
            print(f"    seed {seed}: {problem}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
