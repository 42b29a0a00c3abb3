"""Random quantised graphs of all supported operators: the simulated machine against ONNX Runtime, bit for bit.

Some of a graph's nodes break a constraint, so that they stay in ONNX Runtime, and cut it into several programs.
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from graphs import Graph, Quantized, inputs_of
from npukit.driver.first_look import optimise
from npukit.isa.config import NpuConfig
from onnx import helper

from npukit.compare import Oracle, compare
from npukit.session import Session

__all__ = ["INTEGER_OPERATORS", "OPERATORS", "GraphReport", "build_graph", "in_integer_operators", "run_graphs"]

UNARY = (
    "Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Exp", "Abs", "Neg", "Softplus", "Erf",
    "Sqrt", "Round", "Softsign",
)  # fmt: skip


class _Maker:
    """A graph in the making; `tensors` are those that further nodes may take."""

    def __init__(self, seed: int, ties: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = Graph(seed=seed, dtype=np.uint8 if self.random.random() < 0.4 else np.int8, ties=ties)
        self.tensors: list[Quantized] = []
        self.used: set[str] = set()

    def pick(self, *among: int) -> int:
        return int(self.random.choice(among))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def shape(self, tensor: Quantized) -> tuple[int, ...]:
        return self.graph.shape(tensor.name)

    def images(self, least: int = 1) -> list[Quantized]:
        return [one for one in self.tensors if len(self.shape(one)) == 4 and min(self.shape(one)[2:]) >= least]

    def image(self, least: int = 1) -> Quantized:
        found = self.images(least) or self.images()
        return found[self.pick(*range(len(found)))]

    def keep(self, tensor: Quantized, *sources: Quantized) -> None:
        self.used.update(source.name for source in sources)
        self.tensors.append(tensor)
        if self.chance(0.02):  # then its node stays in ONNX Runtime
            self.graph.output_value(self.graph.nodes[-1].input[0])


def _conv(make: _Maker) -> None:
    x = make.image()
    channels, height, width = make.shape(x)[1:]
    kind = make.pick(0, 0, 1, 1, 2)
    kernel = make.pick(1, 2, 3, 3, 5), make.pick(1, 3, 3, 4)
    dilation = make.pick(1, 1, 2)
    attributes: dict = {"dilations": [dilation, dilation], "strides": [make.pick(1, 1, 2, 3), make.pick(1, 1, 2)]}
    reach = [(size - 1) * dilation + 1 for size in kernel]
    attributes["pads"] = [make.pick(0, (one - 1) // 2) for one in reach] * 2
    padded = [size + 2 * pad for size, pad in zip((height, width), attributes["pads"][:2], strict=True)]
    if any(size < need for size, need in zip(padded, reach, strict=True)):
        return
    out, group = make.pick(1, 3, 4, 8, 17, 33), 1
    if kind == 1:
        out = group = channels
    elif kind == 2:
        divisors = [one for one in range(1, channels + 1) if channels % one == 0]
        group = make.pick(*divisors)
        out = group * make.pick(1, 2, 3)
    options: dict = {"bias": make.chance(0.7), "per_channel": make.chance(0.6), "relu": make.chance(0.3)}
    if make.graph.dtype is np.uint8 and make.chance(0.4):
        options |= {"weight_zero": make.pick(0, 1, 120, 128, 255), "rare": make.chance(0.6)}
        options["per_channel"] = False
    make.keep(make.graph.conv(x, out, kernel, group=group, **options, **attributes), x)


def _transposed(make: _Maker) -> None:
    """A ConvTranspose of a tensor that is read with a scale that is a power of two, whatever its own is."""
    x, graph = make.image(), make.graph
    channels, height, width = make.shape(x)[1:]
    if max(height, width) > 14:
        return
    group = make.pick(*[one for one in range(1, channels + 1) if channels % one == 0])
    of_group, kernel = make.pick(1, 2, 3, 5), (make.pick(1, 2, 3, 4), make.pick(1, 2, 3))
    strides, dilations = (make.pick(1, 2, 3), make.pick(1, 2, 2)), (make.pick(1, 1, 2), make.pick(1, 1, 2))
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    pads = make.pick(0, reach[0]), make.pick(0, reach[1]), make.pick(0, 1, reach[0]), make.pick(0, 1)
    more = [make.pick(0, stride - 1) for stride in strides]
    size = [
        (own - 1) * strides[axis] + reach[axis] + 1 + more[axis] - pads[axis] - pads[2 + axis]
        for axis, own in enumerate((height, width))
    ]
    if min(size) < 1 or max(size) > 40:
        return
    scales = np.array(2.0 ** -make.pick(5, 6, 7), np.float32)
    if make.chance(0.5):
        scales = (2.0 ** -make.random.integers(5, 8, of_group)).astype(np.float32)
    values = make.random.integers(-50, 51, (channels, of_group, *kernel)).astype(np.int8)
    inputs = [graph.dequantize(replace(x, scale=2.0**-5)), graph.weights(values, scales, axis=1)]
    if make.chance(0.6):
        units = np.float32(2.0**-5) * scales
        terms = make.random.integers(-900, 900, of_group * group).astype(np.int32)
        inputs.append(graph.bias(terms, np.tile(units, group) if units.ndim else units))
    if make.chance(0.2):  # then it stays
        inputs[0] = graph.dequantize(replace(x, scale=0.03))
    result = graph.node(
        "ConvTranspose", inputs, group=group, strides=strides, dilations=dilations, pads=pads, output_padding=more
    )
    make.keep(graph.quantize(result, 2.0 ** -make.pick(0, 1, 2)), x)


def _again(make: _Maker) -> None:
    """Another reading of a tensor's numbers, which further nodes may take."""
    x = make.image()
    make.tensors.append(replace(x, scale=x.scale * float(make.random.uniform(0.3, 3)), zero_point=make.pick(0, 3, 9)))


def _binary(op: str) -> Callable[[_Maker], None]:
    def build(make: _Maker) -> None:
        a = make.image()
        shape = make.shape(a)
        others = [one for one in make.tensors if make.shape(one) == shape]
        kind = make.pick(0, 0, 1, 2)
        if kind == 1:
            sizes = [(1,), shape[1:], (1, shape[1], 1, 1), (shape[1], 1, 1), (1, 1, *shape[2:])]
            size = sizes[make.pick(*range(len(sizes)))]
            make.keep(make.graph.constant_operand(op, a, size, make.chance(0.5)), a)
            return
        b = others[make.pick(*range(len(others)))]
        if kind == 2:  # repeated along the image, or along channels, which is refused
            b = make.graph.global_average(a, a.scale)
            if make.chance(0.3):
                b = make.graph.conv(a, 1, 1)
        pair = (a, b) if make.chance(0.5) else (b, a)
        make.keep(make.graph.add(*pair) if op == "Add" else make.graph.mul(*pair), a, b)

    return build


def _unary(make: _Maker) -> None:
    x = make.tensors[make.pick(*range(len(make.tensors)))]
    op = UNARY[make.pick(*range(len(UNARY)))]
    if make.chance(0.3):  # a chain: x * sigmoid(x)
        value = make.graph.dequantize(x)
        product = make.graph.node("Mul", [value, make.graph.node("Sigmoid", [value])])
        make.keep(make.graph.quantize(product, 0.02), x)
    else:
        make.keep(make.graph.unary(op, x, float(make.random.uniform(0.005, 0.05))), x)


def _maxpool(make: _Maker) -> None:
    x = make.image(3)
    if min(make.shape(x)[2:]) < 3:
        return
    kernel = make.pick(2, 3), make.pick(1, 2, 3)
    attributes = {"strides": [make.pick(1, 2), make.pick(1, 2)], "pads": [make.pick(0, 1), 0] * 2}
    make.keep(make.graph.maxpool(x, kernel, **attributes), x)


def _average(make: _Maker) -> None:
    x = make.image(3)
    if min(make.shape(x)[2:]) < 3:
        return
    kernel = make.pick(2, 3), make.pick(2, 3)
    scale = x.scale * (1 if make.chance(0.5) else float(make.random.uniform(0.4, 1.3)))
    attributes: dict = {"strides": [make.pick(1, 2), make.pick(1, 2)]}
    if make.chance(0.5):
        attributes |= {"pads": [1, 1, 1, 1], "count_include_pad": make.pick(0, 1)}
    make.keep(make.graph.average(x, kernel, scale, **attributes), x)


def _global_average(make: _Maker) -> None:
    x = make.image(2)
    make.keep(make.graph.global_average(x), x)


def _concat(make: _Maker) -> None:
    x = make.image()
    shape = make.shape(x)
    axis = make.pick(1, 1, 1, 2, 3)

    def rest(tensor: Quantized) -> list[int]:
        return [size for position, size in enumerate(make.shape(tensor)) if position != axis]

    fitting = [one for one in make.tensors if len(make.shape(one)) == len(shape) and rest(one) == rest(x)]
    parts = [fitting[make.pick(*range(len(fitting)))] for _ in range(make.pick(1, 2))]
    make.keep(make.graph.concat([x, *parts], axis, same=make.chance(0.4)), x, *parts)


def _pad(make: _Maker) -> None:
    x = make.image()
    pads = [0, 0, make.pick(0, 1, 5), make.pick(0, 2), 0, 0, make.pick(0, 3), make.pick(0, 1)]
    mode = "constant" if make.chance(0.8) else "edge"
    value = np.array(make.pick(0, 1), np.float32)
    make.keep(make.graph.moved("Pad", x, [np.array(pads, np.int64), value], mode=mode), x)


def _slice(make: _Maker) -> None:
    x = make.image(3)
    if min(make.shape(x)[2:]) < 3:
        return
    channels = make.shape(x)[1]
    constants = [
        np.array([make.pick(0, 0, channels // 2), make.pick(0, 1), make.pick(-2, 0)], np.int64),
        np.array([channels, make.shape(x)[2] - make.pick(0, 1), 1000], np.int64),
        np.array([1, 2, 3], np.int64),
        np.array([1, 1, make.pick(1, 1, 1, 2)], np.int64),
    ]
    make.keep(make.graph.moved("Slice", x, constants), x)


def _split(make: _Maker) -> None:
    x = make.image()
    axis = make.pick(0, 1, 1, 1, 2, 3)
    total = make.shape(x)[axis]
    if total < 2:
        return
    first = make.pick(*range(1, total))
    for part in make.graph.split(x, [first, total - first], axis):
        make.keep(part, x)


def _resize(make: _Maker) -> None:
    x = make.image()
    if max(make.shape(x)) > 24:
        return
    scales = np.array([1, 1, make.pick(1, 2), make.pick(2, 3)], np.float32)
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    if make.chance(0.2):
        attributes = {"mode": "linear"}
    make.keep(make.graph.moved("Resize", x, [None, scales], **attributes), x)


def _product(make: _Maker) -> None:
    x = make.image()
    if np.prod(make.shape(x)[1:]) > 3000:
        return
    flat = make.graph.flatten(x, "Flatten" if make.chance(0.5) else "Reshape")
    features = make.pick(3, 10, 40)
    if make.chance(0.5):
        make.keep(make.graph.matmul(flat, features), x)
    else:
        transposed, bias = make.chance(0.5), make.chance(0.7)
        beta = 0.5 if make.chance(0.15) else 1.0  # with a bias, then it stays
        make.keep(make.graph.gemm(flat, features, transposed=transposed, bias=bias, beta=beta), x)


def _block(make: _Maker) -> None:
    """Layers that the compiler computes together: a convolution, windows over it, a 1x1 convolution, an addition."""
    graph = make.graph
    source = make.image()
    x, (_, channels, height, width) = source, make.shape(source)
    if make.chance(0.8):
        kernel = make.pick(1, 1, 3)
        inner = make.pick(3, 9, 24, 40, 70)
        x = graph.conv(x, inner, (kernel, kernel), pads=[kernel // 2] * 4, relu=make.chance(0.5))
        if make.chance(0.15):
            make.keep(x)
        channels = inner
    kernel, stride = make.pick(2, 3, 3, 5), make.pick(1, 1, 2)
    if min(height, width) >= kernel:
        pad = make.pick(kernel // 2, kernel // 2, 0)
        if make.chance(0.8):
            x = graph.conv(x, channels, (kernel, kernel), group=channels, strides=[stride] * 2, pads=[pad] * 4)
        else:
            x = graph.maxpool(x, kernel, strides=[stride] * 2, pads=[min(pad, kernel // 2)] * 4)
    if make.chance(0.8):
        x = graph.conv(x, make.pick(make.shape(source)[1], 5, 33), 1, per_channel=make.chance(0.5))
    if make.shape(x) == make.shape(source) and make.chance(0.8):
        x = graph.add(*((x, source) if make.chance(0.5) else (source, x)))
    if x is not source:
        make.keep(x, source)


OPERATORS: dict[str, Callable[[_Maker], None]] = {
    "Conv": _conv, "Add": _binary("Add"), "Mul": _binary("Mul"), "table": _unary, "MaxPool": _maxpool,
    "AveragePool": _average, "GlobalAveragePool": _global_average, "Concat": _concat, "Pad": _pad, "Slice": _slice,
    "Split": _split, "ConvTranspose": _transposed, "again": _again, "Resize": _resize, "Gemm": _product,
    "block": _block,
}  # fmt: skip
INTEGER_OPERATORS = {
    "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool",
    "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid",
}  # fmt: skip
"""Those of ONNX Runtime that the machine runs."""
_WEIGHTS = {"block": 4, "Conv": 4, "Add": 2, "Mul": 2, "table": 2, "Concat": 2}


def build_graph(seed: int, ties: bool = False, small: bool = False) -> onnx.ModelProto:
    """The graph of a seed: 2 to 7 random nodes behind one or two (`small`) inputs; `ties`: see `Graph`."""
    make = _Maker(seed, ties)
    channels = make.pick(1, 3, 4, 8, 12, 17, 40)
    shape = make.pick(1, 1, 2, 4), channels, make.pick(1, 3, 6, 9, 14, 31), make.pick(1, 3, 7, 12, 20)
    if small:
        shape = make.pick(1, 1, 2), make.pick(1, 3, 4, 8), make.pick(1, 3, 6, 9), make.pick(1, 3, 7)
    for _ in range(make.pick(1, 1, 2)):
        make.tensors.append(make.graph.input(shape, float(make.random.uniform(0.01, 0.04))))
    weights = np.array([_WEIGHTS.get(name, 1) for name in OPERATORS], float)
    for _ in range(make.pick(2, 3, 4, 5, 6, 7)):
        name = str(make.random.choice(list(OPERATORS), p=weights / weights.sum()))
        OPERATORS[name](make)
    for tensor in make.tensors:
        if tensor.name not in make.used:
            make.graph.output(tensor)
    return make.graph.model()


def in_integer_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """A QDQ model in the QOperator form, as ONNX Runtime makes it of it: QLinearConv, QLinearAdd, ..., and operators
    that move integers, with what stays float between a DequantizeLinear and a QuantizeLinear."""
    with tempfile.TemporaryDirectory() as folder:
        optimise(model, Path(folder))
        graph = onnx.load(Path(folder) / "optimised.onnx").graph
    opsets = [*model.opset_import, helper.make_opsetid("com.microsoft", 1)]
    versions = {entry.domain: entry for entry in opsets}
    return helper.make_model(graph, opset_imports=list(versions.values()), ir_version=model.ir_version)


@dataclass
class GraphReport:
    """What a run of random graphs found."""

    cases: int = 0
    mismatches: int = 0
    elements: int = 0
    macs: int = 0
    macs_total: int = 0
    parts: int = 0
    """Graphs that became several programs."""
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the MACs that ran on the accelerator."""
        return self.macs / self.macs_total if self.macs_total else 1.0

    def missing(self) -> list[str]:
        """Operators that were not seen as they must be."""
        names = [*(name for name in OPERATORS if name not in ("table", "block", "again")), "MatMul"]
        return [f"{name} accepted" for name in (*names, *UNARY) if not self.accepted[name]] + [
            f"{name} refused" for name in names if not self.refused[name]
        ]


def run_graphs(
    seed: int, cases: int, configs: dict[str, NpuConfig], progress: Callable[[int], None],
    build: Callable[[int], onnx.ModelProto] = build_graph,
) -> GraphReport:  # fmt: skip
    """Run the graphs `seed * 1000003 + 0, 1, ...`."""
    report = GraphReport()
    names = list(configs)
    for index in range(cases):
        number = seed * 1_000_003 + index
        name = names[number % len(names)]
        try:
            _run(number, build(number), configs[name], report)
        except Exception as error:
            report.failures.append(f"graph {number} on {name}: {type(error).__name__}: {error}")
        progress(index + 1)
    return report


def _run(number: int, model: onnx.ModelProto, config: NpuConfig, report: GraphReport) -> None:
    session = Session(model, config, capture=True)
    inputs = inputs_of(model, number)
    found = compare(session, Oracle(model), inputs, session.run(inputs))
    assert session.compilation is not None
    partition = session.compilation.partition
    report.cases += 1
    report.elements += found.elements
    report.mismatches += found.mismatches
    report.macs += partition.macs
    report.macs_total += partition.macs_total
    report.parts += len(session.programs) > 1
    report.accepted.update(node.op for program in session.programs.values() for node in program.nodes)
    report.refused.update(reason.op for reason in partition.reasons)
    if found.mismatches or found.tensors != found.tensors_total:
        seen = found.first_mismatch or f"{found.tensors} of {found.tensors_total} tensors compared"
        report.failures.append(f"graph {number}: {seen}")
