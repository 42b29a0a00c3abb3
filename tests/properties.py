"""Random quantised convolutions and graphs: the simulated machine against ONNX Runtime, bit for bit.

`make properties SEED=n CASES=2000`; a failure prints the case.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from npukit.isa.config import PRESETS, NpuConfig
from onnx import TensorProto, helper, numpy_helper

from npukit.compare import Oracle, compare
from npukit.session import Session

if TYPE_CHECKING:
    from random_graphs import GraphReport

__all__ = ["TIGHT", "Case", "Report", "build", "random_case", "run", "run_staying"]

LIMITS = {
    "kernel_height": (1, 7),
    "kernel_width": (1, 7),
    "stride_y": (1, 4),
    "stride_x": (1, 4),
    "dilation_y": (1, 3),
    "dilation_x": (1, 3),
    "channels_in": (1, 70),
    "channels_out": (1, 70),
    "height": (1, 40),
    "width": (1, 40),
    "batch": (1, 3),
}
FLAGS = ("unsigned", "per_channel", "bias", "relu")
SMALL = replace(
    PRESETS["int8-8x8"], act_depth=997, act_banks=3, wgt_depth=1031, acc_depth=61, acc_banks=2,
    par_depth=67, vector_lanes=2, bus_bytes=4, max_burst=9, queue_depth=2,
)  # fmt: skip
CONFIGS: dict[str, NpuConfig] = {
    **{name: config for name, config in PRESETS.items() if config.dtype == "int8"},
    "small-8x8": SMALL,
    "small-12x12": replace(SMALL, array=12, vector_lanes=4, fma_lanes=2),
    "small-8x24": replace(SMALL, array=24, array_rows=8, bus_bytes=8, vector_lanes=6, fma_lanes=4, softmax_cycles=6),
    "one-bank-4x4": replace(PRESETS["int8-4x4"], act_banks=1, acc_banks=1, queue_depth=1, bus_bytes=16),
}
_LEAST = NpuConfig(
    array=4, act_depth=64, act_banks=1, wgt_depth=8, acc_depth=16, acc_banks=1, par_depth=32, vector_lanes=1,
    fma_lanes=1, vector_taps=1, max_window=2, bus_bytes=4, max_burst=8, queue_depth=1,
)  # fmt: skip
TIGHT: dict[str, NpuConfig] = {
    "least": _LEAST,
    "few weights": replace(_LEAST, act_depth=512, acc_depth=64, par_depth=64, max_window=7, wgt_depth=12),
    "few activations": replace(_LEAST, wgt_depth=256, max_window=3),
    "small windows": replace(_LEAST, act_depth=512, wgt_depth=256, acc_depth=64),
    "few parameters": replace(PRESETS["int8-8x8"], par_depth=32),
    "few weights 16x16": replace(PRESETS["int8-16x16"], wgt_depth=32),
}
"""Machines so small that of most graphs parts stay in ONNX Runtime that it fuses."""


@dataclass(frozen=True)
class Case:
    """One convolution; `pads` is top, left, bottom, right."""

    seed: int
    config: str
    kernel_height: int
    kernel_width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    pads: tuple[int, int, int, int]
    channels_in: int
    channels_out: int
    height: int
    width: int
    batch: int
    unsigned: bool
    per_channel: bool
    bias: bool
    relu: bool

    @property
    def output_size(self) -> tuple[int, int]:
        """Output height and width; not positive for an impossible case."""
        reach_y = (self.kernel_height - 1) * self.dilation_y + 1
        reach_x = (self.kernel_width - 1) * self.dilation_x + 1
        return (
            (self.height + self.pads[0] + self.pads[2] - reach_y) // self.stride_y + 1,
            (self.width + self.pads[1] + self.pads[3] - reach_x) // self.stride_x + 1,
        )


def random_case(seed: int) -> Case:
    """The case of a seed: each dimension at an extreme with probability 1/4, and the output not empty."""
    generator = np.random.default_rng(seed)
    while True:
        sizes = {}
        for name, (low, high) in LIMITS.items():
            at_extreme = generator.random() < 0.25
            value = generator.choice([low, high]) if at_extreme else generator.integers(low, high + 1)
            sizes[name] = int(value)
        if sizes["batch"] > 1 and generator.random() < 0.7:
            sizes["batch"] = 1
        kernel = sizes["kernel_height"], sizes["kernel_width"]
        pads = [int(generator.integers(0, kernel[axis % 2] + 1)) for axis in range(4)]
        case = Case(
            seed=seed,
            config=str(generator.choice(list(CONFIGS))),
            pads=(pads[0], pads[1], pads[2], pads[3]),
            **sizes,
            **{flag: bool(generator.random() < 0.5) for flag in FLAGS},
        )
        if min(case.output_size) >= 1:
            return case


def build(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The QDQ model of a case, and an input that reaches both ends of the range."""
    generator = np.random.default_rng([case.seed, 1])
    low, high = (0, 255) if case.unsigned else (-128, 127)
    dtype = np.uint8 if case.unsigned else np.int8
    shape = (case.batch, case.channels_in, case.height, case.width)
    x = generator.integers(low, high + 1, shape).astype(dtype)
    x.reshape(-1)[: min(2, x.size)] = [low, high][: min(2, x.size)]
    weights = generator.integers(
        -128, 128, (case.channels_out, case.channels_in, case.kernel_height, case.kernel_width)
    ).astype(np.int8)
    scales = case.channels_out if case.per_channel else 1
    w_scale = (generator.uniform(0.5, 2.0, scales) * 0.01).astype(np.float32)
    x_scale, x_zero = np.float32(generator.uniform(0.01, 0.1)), dtype(generator.integers(low, high + 1))
    depth = case.channels_in * case.kernel_height * case.kernel_width
    spread = float(x_scale) * 0.01 * 74 * 90 * np.sqrt(depth)
    y_scale = np.float32(spread / generator.uniform(20, 120))
    y_zero = dtype(low if case.relu else generator.integers(low, high + 1))
    b_scale = (x_scale * w_scale).astype(np.float32)
    bias = generator.integers(-(2**15), 2**15, case.channels_out).astype(np.int32)

    initializers = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in {
            "x_scale": x_scale, "x_zero": x_zero, "y_scale": y_scale, "y_zero": y_zero, "w": weights,
            "w_scale": w_scale if case.per_channel else w_scale[0],
            "w_zero": np.zeros(scales, np.int8) if case.per_channel else np.int8(0),
        }.items()
    ]  # fmt: skip
    axis: dict[str, Any] = {"axis": 0} if case.per_channel else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["xf"], "x_dequantize"),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], "w_dequantize", **axis),
    ]
    names = ["xf", "wf"]
    if case.bias:
        initializers += [
            numpy_helper.from_array(bias, "b"),
            numpy_helper.from_array(b_scale if case.per_channel else b_scale[0], "b_scale"),
        ]
        nodes.append(helper.make_node("DequantizeLinear", ["b", "b_scale"], ["bf"], "b_dequantize", **axis))
        names.append("bf")
    nodes.append(
        helper.make_node(
            "Conv", names, ["cf"], "conv", pads=case.pads, strides=[case.stride_y, case.stride_x],
            dilations=[case.dilation_y, case.dilation_x], kernel_shape=weights.shape[2:],
        )
    )  # fmt: skip
    result = "cf"
    if case.relu:
        nodes.append(helper.make_node("Relu", ["cf"], ["rf"], "relu"))
        result = "rf"
    nodes.append(helper.make_node("QuantizeLinear", [result, "y_scale", "y_zero"], ["y"], "y_quantize"))
    element = TensorProto.UINT8 if case.unsigned else TensorProto.INT8
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, (case.batch, case.channels_out, *case.output_size))],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": x}


@dataclass
class Report:
    """What a run of cases found."""

    cases: int = 0
    mismatches: int = 0
    elements: int = 0
    macs: int = 0
    macs_total: int = 0
    failures: list[str] = field(default_factory=list)
    seen: dict[str, set] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of the MACs that ran on the accelerator."""
        return self.macs / self.macs_total if self.macs_total else 0.0

    def missing_extremes(self) -> list[str]:
        """Dimensions, flags and configurations that were not seen at every end."""
        missing = [f"{name}={end}" for name, ends in LIMITS.items() for end in ends if end not in self.seen[name]]
        missing += [f"{flag}={value}" for flag in FLAGS for value in (True, False) if value not in self.seen[flag]]
        return missing + [f"config={name}" for name in CONFIGS if name not in self.seen["config"]]


def run(seed: int, cases: int, progress: bool = False) -> Report:
    """Run the cases `seed * 1000003 + 0, 1, ...`."""
    report = Report(seen={name: set() for name in (*LIMITS, *FLAGS, "config")})
    for index in range(cases):
        case = random_case(seed * 1_000_003 + index)
        for name in report.seen:
            report.seen[name].add(asdict(case)[name])
        try:
            _run_case(case, report)
        except Exception as error:
            report.failures.append(f"{type(error).__name__}: {error}\n  {case}")
        if progress and (index + 1) % 100 == 0 and sys.stderr.isatty():
            print(f"\r{index + 1}/{cases}", end="", file=sys.stderr, flush=True)
    if progress and sys.stderr.isatty():
        print(file=sys.stderr)
    return report


def _run_case(case: Case, report: Report) -> None:
    model, inputs = build(case)
    session = Session(model, CONFIGS[case.config], capture=True)
    outputs = session.run(inputs)
    found = compare(session, Oracle(model), inputs, outputs)
    assert session.compilation is not None
    partition = session.compilation.partition
    report.cases += 1
    report.elements += found.elements
    report.mismatches += found.mismatches
    report.macs += partition.macs
    report.macs_total += partition.macs_total
    if found.mismatches:
        report.failures.append(f"{found.first_mismatch}\n  {case}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Random quantised convolutions and graphs against ONNX Runtime.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2000, help="of each kind (default: 2000)")
    options = parser.parse_args()
    good = [
        _convolutions(options.seed, options.cases),
        _graphs(options.seed, options.cases),
        _integer(options.seed, options.cases // 2),
        _staying(options.seed, options.cases),
    ]
    return 0 if all(good) else 1


def _graphs(seed: int, cases: int) -> bool:
    """Random graphs; what they showed, on one line."""
    from random_graphs import run_graphs

    def progress(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done}/{cases}", end="" if done < cases else "\n", file=sys.stderr, flush=True)

    report = run_graphs(seed, cases, CONFIGS, progress)
    for failure in report.failures[:10]:
        print(failure)
    print(
        f"seed {seed}: {report.cases} of {cases} graphs, {report.mismatches} mismatches in {report.elements} elements, "
        f"{100 * report.share:.2f} % of {report.macs_total} MACs on the accelerator"
    )
    missing = report.missing() if cases >= 500 else []
    if missing:
        print(f"never seen: {', '.join(missing)}")
    print("accepted: " + ", ".join(f"{name} {count}" for name, count in sorted(report.accepted.items())))
    print("refused: " + ", ".join(f"{name} {count}" for name, count in sorted(report.refused.items())))
    return not report.failures and report.share >= 0.9 and not missing


def run_integer(seed: int, cases: int, progress: Callable[[int], None] = lambda _: None) -> "GraphReport":
    """Random graphs in the QOperator form."""
    from random_graphs import build_graph, in_integer_operators, run_graphs

    return run_graphs(seed, cases, CONFIGS, progress, lambda number: in_integer_operators(build_graph(number)))


def _integer(seed: int, cases: int) -> bool:
    """Graphs of integer operators; what they showed, on one line."""
    from random_graphs import INTEGER_OPERATORS

    report = run_integer(seed, cases)
    for failure in report.failures[:10]:
        print(failure)
    print(
        f"seed {seed}: {report.cases} of {cases} graphs of integer operators, {report.mismatches} mismatches in "
        f"{report.elements} elements, {100 * report.share:.2f} % of {report.macs_total} MACs on the accelerator"
    )
    missing = sorted(INTEGER_OPERATORS - set(report.accepted)) if cases >= 500 else []
    if missing:
        print(f"never seen: {', '.join(missing)}")
    return not report.failures and report.share >= 0.9 and not missing


def run_staying(seed: int, cases: int, progress: Callable[[int], None] = lambda _: None) -> "list[GraphReport]":
    """Graphs that the `TIGHT` machines cannot hold, half of them of two kinds each, with results on ties."""
    from random_graphs import build_graph, run_graphs
    from staying_graphs import build_staying_graph

    half = cases // 2
    return [
        run_graphs(seed, half, TIGHT, progress, lambda number: build_graph(number, ties=True, small=True)),
        run_graphs(seed, cases - half, TIGHT, lambda done: progress(half + done), build_staying_graph),
    ]


def _staying(seed: int, cases: int) -> bool:
    """Graphs of which much stays; what they showed, on a line for each kind."""
    good = True
    for report in run_staying(seed, cases):
        for failure in report.failures[:10]:
            print(failure)
        print(
            f"seed {seed}: {report.cases} graphs that do not fit, {report.parts} of them in several parts, "
            f"{report.mismatches} mismatches in {report.elements} elements, "
            f"{100 * report.share:.2f} % of {report.macs_total} MACs on the accelerator"
        )
        good = good and not report.failures and report.parts > 0
    return good


def _convolutions(seed: int, cases: int) -> bool:
    """Random convolutions at the limits of their parameters."""
    report = run(seed, cases, progress=True)
    for failure in report.failures[:10]:
        print(failure)
    print(
        f"seed {seed}: {report.cases} of {cases} convolutions, {report.mismatches} mismatches in "
        f"{report.elements} elements, {100 * report.share:.2f} % of {report.macs_total} MACs on the accelerator"
    )
    missing = report.missing_extremes()
    if missing:
        print(f"never seen: {', '.join(missing)}")
    return not report.failures and report.share >= 0.95 and not missing


if __name__ == "__main__":
    sys.exit(main())
