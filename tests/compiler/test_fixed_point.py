"""TensorFlow Lite's arithmetic in compiled programs, against its published formulas element by element."""

import math
import secrets
from fractions import Fraction

import numpy as np
import pytest
from npukit.compiler.cost import CostModel
from npukit.compiler.errors import Refused
from npukit.compiler.fixed_point import average_factor, quantize_multiplier
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    Convolution,
    FullyConnected,
    GlobalAveragePool,
    Multiply,
    Rounding,
    SourceNode,
    TensorOperation,
)
from npukit.compiler.ir.tensor import Constant, Quantization, Tensor
from npukit.compiler.legality import check_operation
from npukit.compiler.pass_base import PassRunner
from npukit.compiler.passes.eliminate import EliminatePass
from npukit.compiler.passes.fold import FoldPass
from npukit.compiler.passes.join import JoinPass
from npukit.compiler.passes.legalise import LegalisePass
from npukit.compiler.strategy import first_that_fits
from npukit.driver.loader import LoadedProgram
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.formats import INT8, INT32, UINT8
from numpy.typing import NDArray

from tests.sim.oracles import multiply_by_quantized_multiplier

CONFIG = PRESETS["int8-4x4"]
SEEDS = [pytest.param(21, id="fixed"), pytest.param(secrets.randbelow(1 << 31), id="fresh")]


def _multiplier(factor: float) -> tuple[int, int]:
    """TensorFlow Lite's QuantizeMultiplier, one number at a time."""
    if factor == 0:
        return 0, 0
    fraction, exponent = math.frexp(factor)
    whole = math.floor(Fraction(fraction) * 2**31 + Fraction(1, 2))
    if whole == 1 << 31:
        whole, exponent = whole // 2, exponent + 1
    return (0, 0) if exponent < -31 else (whole, exponent)


def _scaled(value: int, factor: float) -> int:
    return multiply_by_quantized_multiplier(int(value), *_multiplier(factor))


def _limited(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(limits[1], value))


class _Case:
    """Random tensors, NHWC, and what is computed of them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Constant] = {}
        self.values: dict[str, NDArray] = {}
        self.operations: list[TensorOperation] = []

    def scale(self, low: float = 1e-3, high: float = 1.0) -> float:
        return float(np.float32(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def tensor(self, name: str, shape: tuple[int, ...], scale: float = 0.0, zero: int | None = None) -> Tensor:
        zero = int(self.random.integers(-128, 128)) if zero is None else zero
        quantization = Quantization((scale or self.scale(),), (zero,))
        self.tensors[name] = Tensor(name, shape, INT8, quantization, channel_axis=len(shape) - 1)
        return self.tensors[name]

    def input(self, name: str, shape: tuple[int, ...], **given: float) -> Tensor:
        self.values[name] = self.random.integers(-128, 128, shape, np.int8)
        return self.tensor(name, shape, **given)  # type: ignore[arg-type]

    def weights(self, name: str, values: NDArray, scales: list[float]) -> None:
        axis = 0 if len(scales) > 1 else None
        quantization = Quantization(tuple(scales), (0,) * len(scales), axis)
        self.constants[name] = Constant(Tensor(name, values.shape, INT8, quantization), values)

    def bias(self, name: str, count: int) -> NDArray:
        values = self.random.integers(-(1 << 14), 1 << 14, count, np.int32)
        self.constants[name] = Constant(Tensor(name, (count,), INT32), values)
        return values

    def limits(self) -> tuple[int, int]:
        low, high = sorted(self.random.integers(-128, 128, 2))
        return (-128, 127) if self.random.random() < 0.5 or low == high else (int(low), int(high))

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        inputs = tuple(name for name in self.values if name in self.tensors)
        return Graph("case", tuple(self.operations), self.tensors, self.constants, inputs, outputs)


def _run(graph: Graph, inputs: dict[str, NDArray], config: NpuConfig = CONFIG) -> dict[str, NDArray]:
    for operation in graph.operations:
        check_operation(config, graph, operation)
    for one in (LegalisePass(config), EliminatePass(), FoldPass(config), JoinPass(config)):
        (graph,) = one.run((graph,))
    fitted = first_that_fits(CostModel(config), graph, 1, PassRunner())
    outputs, _ = LoadedProgram(SimDevice(config), fitted.program, 0).run(inputs)
    return outputs


def _node(op: str) -> tuple[SourceNode, ...]:
    return (SourceNode(op.lower(), op),)


def _windows(x: NDArray, place: tuple[int, int], kernel: tuple[int, int], strides: int, pads: tuple[int, ...]):  # noqa: ANN202
    """Rows and columns of a window within an image, and those of the kernel."""
    found = []
    for axis in (0, 1):
        first = place[axis] * strides - pads[axis]
        inside = [one for one in range(kernel[axis]) if 0 <= first + one < x.shape[1 + axis]]
        found.append(([first + one for one in inside], inside))
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["dense", "depthwise", "pointwise"])
def test_convolutions(kind: str, seed: int) -> None:
    """A factor and a shift for each channel; sums of the two kinds of arrays, and of VECTOR's windows."""
    print(f"seed {seed}")
    case = _Case(seed)
    random = case.random
    channels = int(random.integers(2, 11))
    outputs = channels if kind == "depthwise" else int(random.integers(1, 11))
    size = 1 if kind == "pointwise" else int(random.integers(2, 4))
    strides, pads = int(random.integers(1, 3)), (0, 0, 0, 0) if size == 1 else (1, 0, 1, 1)
    x = case.input("x", (1, *(int(one) for one in random.integers(4, 9, 2)), channels))
    shape = tuple((x.shape[1 + axis] + pads[axis] + pads[2 + axis] - size) // strides + 1 for axis in (0, 1))
    groups = channels if kind == "depthwise" else 1
    weights = random.integers(-127, 128, (outputs, channels // groups, size, size), np.int8)
    case.weights("w", weights, [case.scale() for _ in range(outputs)])
    bias, y, limits = case.bias("b", outputs), case.tensor("y", (1, *shape, outputs)), case.limits()
    case.operations.append(
        Convolution(
            output="y", sources=_node("CONV_2D"), input="x", weights="w", bias="b", strides=(strides, strides),
            pads=pads, groups=groups, limits=limits, rounding=Rounding.TFLITE,
        )
    )  # fmt: skip
    image, scales = case.values["x"].astype(int) - x.zero_point, case.constants["w"].tensor.quantization
    assert scales is not None
    wanted = np.zeros(y.shape, np.int8)
    for place in np.ndindex(*shape):
        (rows, tall), (columns, wide) = _windows(image, place, (size, size), strides, pads)
        part = image[0][np.ix_(rows, columns)]
        for out in range(outputs):
            seen = part[:, :, out : out + 1] if groups > 1 else part
            total = int((seen * weights[out].transpose(1, 2, 0)[np.ix_(tall, wide)].astype(int)).sum()) + int(bias[out])
            found = _scaled(total, x.scale * scales.scale[out] / y.scale) + y.zero_point
            wanted[0, *place, out] = _limited(found, limits)
    assert (_run(case.graph(("y",)), case.values)["y"] == wanted).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rounding", [Rounding.TFLITE, Rounding.TFLITE_SINGLE])
def test_products(rounding: Rounding, seed: int) -> None:
    print(f"seed {seed}")
    case = _Case(seed)
    inputs, outputs = (int(one) for one in case.random.integers(3, 60, 2))
    x = case.input("x", (3, inputs))
    weights = case.random.integers(-127, 128, (outputs, inputs), np.int8)
    case.weights("w", weights, [case.scale(1e-4)])
    bias, y, limits = case.bias("b", outputs), case.tensor("y", (3, outputs)), case.limits()
    case.operations.append(
        FullyConnected(
            output="y", sources=_node("FULLY_CONNECTED"), input="x", weights="w", bias="b", transposed=True,
            limits=limits, rounding=rounding,
        )
    )  # fmt: skip
    above = x.scale * case.constants["w"].tensor.scale
    if rounding is Rounding.TFLITE_SINGLE:
        above = float(np.float32(x.scale) * np.float32(case.constants["w"].tensor.scale))
    totals = (case.values["x"].astype(int) - x.zero_point) @ weights.T.astype(int) + bias
    wanted = [[_limited(_scaled(one, above / y.scale) + y.zero_point, limits) for one in row] for row in totals]
    assert (_run(case.graph(("y",)), case.values)["y"] == np.array(wanted)).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", [Add, Multiply])
def test_two_sources(kind: type[Add] | type[Multiply], constant: bool, seed: int) -> None:
    print(f"seed {seed}")
    case = _Case(seed)
    shape = (1, 5, 3, 7)
    a, b, y = case.input("a", shape), case.input("b", shape), case.tensor("y", shape)
    values = dict(case.values)
    if constant:
        values["b"] = values["b"][:, :1, :1]
        case.constants["b"] = Constant(Tensor("b", (1, 1, 1, 7), INT8, b.quantization, channel_axis=3), values["b"])
        del case.tensors["b"], case.values["b"]
    limits = case.limits()
    operation = kind(
        output="y", sources=_node(kind.__name__), left="a", right="b", limits=limits, rounding=Rounding.TFLITE
    )
    case.operations.append(operation)
    twice = 2 * max(a.scale, b.scale)

    def element(first: int, second: int) -> int:
        first, second = first - a.zero_point, second - b.zero_point
        if kind is Multiply:
            found = _scaled(first * second, a.scale * b.scale / y.scale)
        else:
            total = _scaled(first << 20, a.scale / twice) + _scaled(second << 20, b.scale / twice)
            found = _scaled(total, twice / ((1 << 20) * y.scale))
        return _limited(found + y.zero_point, limits)

    pairs = zip(*(one.reshape(-1).tolist() for one in np.broadcast_arrays(values["a"], values["b"])), strict=True)
    wanted = np.array([element(*pair) for pair in pairs]).reshape(shape)
    assert (_run(case.graph(("y",)), case.values)["y"] == wanted).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("whole", [False, True])
def test_averages(whole: bool, seed: int) -> None:
    """Half away from zero, of the numbers as they are stored; windows at the border count what is inside."""
    print(f"seed {seed}")
    case = _Case(seed)
    x = case.input("x", (1, 9, 8, 6))
    kernel, strides, pads = ((9, 8), 1, (0, 0, 0, 0)) if whole else ((2, 4), 2, (1, 1, 0, 1))
    shape = tuple((x.shape[1 + axis] + pads[axis] + pads[2 + axis] - kernel[axis]) // strides + 1 for axis in (0, 1))
    y, limits = case.tensor("y", (1, *shape, 6), x.scale, x.zero_point), case.limits()
    common = {"output": "y", "sources": _node("AVERAGE_POOL_2D"), "input": "x", "limits": limits}
    case.operations.append(
        GlobalAveragePool(**common, rounding=Rounding.TFLITE)  # type: ignore[arg-type]
        if whole
        else AveragePool(
            **common, kernel=kernel, strides=(2, 2), pads=pads, count_padding=False, rounding=Rounding.TFLITE
        )  # type: ignore[arg-type]
    )
    wanted = np.zeros(y.shape, np.int8)
    for place in np.ndindex(*shape):
        (rows, _), (columns, _) = _windows(case.values["x"], place, kernel, strides, pads)
        count = len(rows) * len(columns)
        for channel, total in enumerate(case.values["x"][0][np.ix_(rows, columns)].astype(int).sum(axis=(0, 1))):
            half = count // 2
            found = (int(total) + half) // count if total > 0 else -((half - int(total)) // count)
            wanted[0, *place, channel] = _limited(found, limits)
    assert (_run(case.graph(("y",)), case.values)["y"] == wanted).all()


def test_multipliers() -> None:
    numbers = np.exp(np.random.default_rng(5).uniform(-30, 20, 2000))
    numbers = np.concatenate([numbers, [0.0, 1.0, 0.5, 2.0**-31, 2.0**-32, 2.0**-33, 1 - 2.0**-53, 2**29 * 1.5]])
    found = quantize_multiplier(numbers)
    assert [(int(m), int(s)) for m, s in zip(*found, strict=True)] == [_multiplier(one) for one in numbers]
    for wrong in (float("inf"), float("nan"), -1.0, 2.0**30):
        with pytest.raises(Refused, match="factor"):
            quantize_multiplier(wrong)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 12, 49, 64, 100, 125, 196, 1000, 3136, 12544])
def test_average_factors(count: int) -> None:
    sums = np.arange(-128 * count, 127 * count + 1)
    found = np.rint((sums.astype(np.float32) * average_factor(count)).astype(np.float64))
    assert (found == np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))).all()


def test_what_is_refused() -> None:
    case = _Case(1)
    case.input("a", (1, 4))
    case.input("b", (1, 4))
    case.tensor("y", (1, 4))
    add = Add(output="y", sources=_node("ADD"), left="a", right="b", rounding=Rounding.TFLITE)
    case.operations.append(add)
    graph = case.graph(("y",))
    with pytest.raises(Refused, match="ADD_FIXED, which is not there with fma_fixed = 0"):
        check_operation(NpuConfig(fma_fixed=0), graph, add)
    case.tensors["a"] = Tensor("a", (1, 4), UINT8, Quantization((0.5,), (3,)))
    with pytest.raises(Refused, match="a is uint8; in TensorFlow Lite's arithmetic int8"):
        check_operation(CONFIG, graph, add)
    pool = AveragePool(
        output="p", sources=_node("POOL"), input="x", kernel=(3, 3), strides=(1, 1), pads=(0, 0, 0, 0),
        count_padding=False, rounding=Rounding.TFLITE,
    )  # fmt: skip
    case.input("x", (1, 3, 3, 4))
    case.tensor("p", (1, 1, 1, 4))
    with pytest.raises(Refused, match="their input's scale"):
        check_operation(CONFIG, graph, pool)
