"""The main job on real input: a trained network on the simulated machine, equal to ONNX Runtime.

Classifies the 360 handwritten digits that training never saw, compares every quantised tensor of every
image with ONNX Runtime, and shows where the cycles went.
"""

import argparse
import sys
import time

import onnx
from rich.progress import track

from npukit import Session, zoo
from npukit.cli.common import config_label
from npukit.cli.run import comparison_text
from npukit.compare import Oracle, compare
from npukit.profiling.text import layer_table, offload_text


def main() -> int:
    """Run the demo; 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="int8-16x16", help="preset or TOML file (default: int8-16x16)")
    parser.add_argument("--images", type=int, default=360, help="how many held-out images (default: all 360)")
    options = parser.parse_args()
    start = time.perf_counter()
    images, labels, _ = zoo.digits_heldout()
    images, labels = images[: options.images], labels[: options.images]
    model = onnx.load_from_string(zoo.load("digits"))
    session = Session(model, config=options.config, capture=True)
    oracle = Oracle(model)
    print(f"network digits on {config_label(session.config)}, {len(images)} held-out images")
    assert session.compilation is not None
    print(offload_text(session.compilation.partition))
    right = right_reference = 0
    comparison = None
    for image, label in track(list(zip(images, labels, strict=True)), "simulating", disable=not sys.stdout.isatty()):
        inputs = {"image": image}
        outputs = session.run(inputs)
        comparison = compare(session, oracle, inputs, outputs, comparison)
        right += int(outputs["logits"].argmax() == label)
        right_reference += int(oracle.last["logits"].argmax() == label)
    print()
    print(layer_table(session.profile))
    print()
    assert comparison is not None
    count = len(images)
    print(f"accuracy: ONNX Runtime {100 * right_reference / count:.2f} %, accelerator {100 * right / count:.2f} %")
    print(comparison_text(comparison))
    profile = session.profile
    print(
        f"per image: {profile.cycles} cycles, utilisation {100 * profile.utilization:.1f} % of "
        f"{session.config.size} MACs a cycle"
    )
    print(f"total time: {time.perf_counter() - start:.1f} s")
    return 1 if comparison.mismatches or right != right_reference else 0


if __name__ == "__main__":
    sys.exit(main())
