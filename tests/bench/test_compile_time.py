"""The network whose compile time is measured is what it is said to be."""

import importlib.util
import sys
from pathlib import Path

from npukit.compiler.pipeline import check_model
from npukit.isa.config import PRESETS

_path = Path(__file__).parents[2] / "bench" / "compile_time.py"
_spec = importlib.util.spec_from_file_location("npukit_bench_compile_time", _path)
assert _spec is not None and _spec.loader is not None
bench = importlib.util.module_from_spec(_spec)
sys.path.insert(0, str(_path.parent))  # as when it runs as a script
_spec.loader.exec_module(bench)


def test_the_detector() -> None:
    """64 convolutions; all of it is on the accelerator, quantised and in fp32."""
    floats, quantised = bench.detector(64)
    assert sum(node.op_type == "Conv" for node in floats.graph.node) == 64
    whole = check_model(quantised, PRESETS["int8-16x16"]).partition
    assert whole.fallback == () and len(whole.subgraphs) == 1 and whole.macs == whole.macs_total > 0
    cut = check_model(floats, PRESETS["bf16-16x16"]).partition
    assert cut.fallback == () and len(cut.subgraphs) == 1 and cut.macs == cut.macs_total == whole.macs
