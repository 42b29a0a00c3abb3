"""Random TFLite models of one operator, for comparison with TensorFlow Lite Micro."""

from collections.abc import Callable, Mapping
from random import Random

import numpy as np
from npukit.compiler.frontends.tflite.model import Option, TfliteModel, TfliteOperator, TfliteQuantization, TfliteTensor
from numpy.typing import NDArray

__all__ = ["FLOAT_OPERATORS", "OPERATORS", "random_inputs", "random_model"]

_SAME = 0
_ACTIVATIONS = (0, 1, 2, 3)
"""None, RELU, RELU_N1_TO_1, RELU6."""


def random_model(op: str, seed: int, floats: bool = False) -> TfliteModel:
    """A model of one operator, int8 or float."""
    return _Maker(Random(f"{op} {seed}"), floats).model(op)


def random_inputs(model: TfliteModel, seed: int) -> list[NDArray]:
    """Numbers over the whole range of each input; normal ones of floats."""
    generator = np.random.default_rng(seed)
    found: list[NDArray] = []
    for index in model.inputs:
        tensor = model.tensors[index]
        if tensor.type == "FLOAT32":
            found.append(generator.normal(0, 2, tensor.shape).astype(np.float32))
        else:
            limits = np.iinfo(np.int8 if tensor.type == "INT8" else np.uint8)
            found.append(generator.integers(limits.min, limits.max, tensor.shape, limits.dtype, endpoint=True))
    return found


class _Maker:
    def __init__(self, random: Random, floats: bool) -> None:
        self.random, self.floats = random, floats
        self.numbers = np.random.default_rng(random.getrandbits(32))
        self.tensors: list[TfliteTensor] = []

    def model(self, op: str) -> TfliteModel:
        kind, options, inputs = (FLOAT_OPERATORS if self.floats else OPERATORS)[op](self)
        *given, output = inputs
        operator = TfliteOperator(op, tuple(given), (output,), kind, options)
        activations = dict.fromkeys(index for index in given if index != -1 and self.tensors[index].data is None)
        return TfliteModel(tuple(self.tensors), (operator,), tuple(activations), (output,))

    # ---- parts

    def scale(self, low: float = -7.0, high: float = 1.0) -> float:
        if self.random.random() < 0.15:
            return 2.0 ** self.random.randint(-8, 0)
        return float(np.float32(np.exp(self.random.uniform(low, high))))

    def zero(self) -> int:
        return self.random.choice([-128, 127, 0, self.random.randint(-128, 127)])

    def add(self, tensor: TfliteTensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def activation(
        self, shape: tuple[int, ...], scale: float = 0.0, zero: int | None = None, type: str = "INT8"
    ) -> int:
        zero = self.zero() if zero is None else zero
        if self.floats:
            return self.add(TfliteTensor(f"t{len(self.tensors)}", shape, "FLOAT32"))
        quantization = TfliteQuantization((scale or self.scale(),), (zero + (128 if type == "UINT8" else 0),))
        return self.add(TfliteTensor(f"t{len(self.tensors)}", shape, type, quantization))

    def alike(self, index: int, shape: tuple[int, ...]) -> int:
        """A tensor with the scale and zero point of another."""
        other = self.tensors[index]
        return self.add(TfliteTensor(f"t{len(self.tensors)}", shape, other.type, other.quantization))

    def constant(self, values: NDArray, type: str, quantization: TfliteQuantization | None = None) -> int:
        return self.add(TfliteTensor(f"t{len(self.tensors)}", values.shape, type, quantization, values))

    def weights(self, shape: tuple[int, ...], axis: int, several: bool) -> int:
        if self.floats:
            return self.constant(self.normal(shape), "FLOAT32")
        count = shape[axis] if several else 1
        scales = tuple(self.scale(-8, -2) for _ in range(count))
        values = self.numbers.integers(-127, 128, shape, np.int8)
        return self.constant(values, "INT8", TfliteQuantization(scales, (0,) * count, axis if several else 0))

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return self.numbers.normal(0, 1, shape).astype(np.float32)

    def bias(self, x: int, weights: int, outputs: int, optional: bool = True) -> int:
        if optional and self.random.random() < 0.2:
            return -1
        if self.floats:
            return self.constant(self.normal((outputs,)), "FLOAT32")
        values = self.numbers.integers(-(1 << 13), 1 << 13, outputs).astype(np.int32)
        first, second = self.tensors[x].quantization, self.tensors[weights].quantization
        assert first is not None and second is not None
        scales = tuple(float(np.float32(first.scale[0] * one)) for one in second.scale)
        return self.constant(values, "INT32", TfliteQuantization(scales, (0,) * len(scales)))

    def size(self, most: int) -> int:
        return self.random.randint(1, most)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.size(6) for _ in range(self.random.randint(1, 3))) + (self.size(20),)

    def image(self) -> tuple[int, int, int, int]:
        return self.random.choice([1, 1, 2]), self.size(9), self.size(9), self.size(20)

    def windows(self, x: tuple[int, ...], dilated: bool) -> tuple[dict[str, Option], tuple[int, int], tuple[int, int]]:
        """Options, kernel, and height and width of the result."""
        kernel, strides, dilations, made = [], [], [], []
        padding = self.random.choice([0, 1])
        for size in x[1:3]:
            dilation = self.random.choice([1, 1, 1, 2]) if dilated else 1
            most = size if padding == _SAME else (size - 1) // dilation + 1
            kernel.append(self.random.randint(1, min(most, 5)))
            strides.append(self.random.choice([1, 1, 2, 3]))
            dilations.append(dilation if kernel[-1] > 1 else 1)
            reach = (kernel[-1] - 1) * dilations[-1] + 1
            made.append(-(-size // strides[-1]) if padding == _SAME else (size - reach) // strides[-1] + 1)
        options: dict[str, Option] = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}
        if dilated:
            options |= {"DilationHFactor": dilations[0], "DilationWFactor": dilations[1]}
        return options, (kernel[0], kernel[1]), (made[0], made[1])

    def fused(self) -> dict[str, Option]:
        return {"FusedActivationFunction": self.random.choice(_ACTIVATIONS)}

    # ---- operators: the options' table, the options, and the numbers of the inputs and of the output

    def conv(self) -> "_Made":
        x = self.image()
        options, kernel, made = self.windows(x, dilated=True)
        outputs = self.size(20)
        inputs = self.activation(x), self.weights((outputs, *kernel, x[3]), 0, self.random.random() < 0.7)
        bias = self.bias(*inputs, outputs)
        return "Conv2DOptions", options | self.fused(), (*inputs, bias, self.result(x, made, outputs))

    def depthwise(self) -> "_Made":
        x = self.image()
        options, kernel, made = self.windows(x, dilated=True)
        times = self.random.choice([1, 1, 1, 2, 3])
        outputs = x[3] * times
        inputs = self.activation(x), self.weights((1, *kernel, outputs), 3, self.random.random() < 0.7)
        options |= {"DepthMultiplier": times, **self.fused()}
        bias = self.bias(*inputs, outputs, optional=False)  # without one, the interpreter crashes
        return "DepthwiseConv2DOptions", options, (*inputs, bias, self.result(x, made, outputs))

    def result(self, x: tuple[int, ...], made: tuple[int, int], channels: int) -> int:
        return self.activation((x[0], *made, channels), self.scale(-4, 3))

    def fully_connected(self) -> "_Made":
        rows, inputs, outputs = self.size(4), self.size(40), self.size(20)
        shape = self.random.choice([(rows, inputs), (1, rows, inputs), (rows, 1, 1, inputs)])
        keep = self.random.random() < 0.3
        made = (*shape[:-1], outputs) if keep else (rows, outputs)
        given = self.activation(shape), self.weights((outputs, inputs), 0, self.random.random() < 0.2)
        tensors = *given, self.bias(*given, outputs), self.activation(made, self.scale(-3, 2))
        return "FullyConnectedOptions", {"KeepNumDims": keep, **self.fused()}, tensors

    def two(self, kind: str) -> "_Made":
        shape = self.shape()
        first, second = shape, shape
        if self.random.random() < 0.5:
            second = tuple(1 if self.random.random() < 0.5 else size for size in shape)
        if self.random.random() < 0.3:
            first, second = second, first
        tensors = [self.activation(first), self.activation(second)]
        if self.random.random() < 0.3:
            place = self.random.randrange(2)
            given = self.tensors[tensors[place]]
            whole = self.numbers.integers(-128, 128, given.shape, np.int8)
            values = self.normal(given.shape) if self.floats else whole
            self.tensors[tensors[place]] = TfliteTensor(given.name, given.shape, given.type, given.quantization, values)
        options = self.fused() | ({"PotScaleInt16": False} if kind != "MulOptions" else {})
        return kind, options, (*tensors, self.activation(shape, self.scale(-4, 2)))

    def pool(self) -> "_Made":
        x = self.image()
        options, kernel, made = self.windows(x, dilated=False)
        if self.random.random() < 0.3:
            options, kernel, made = {"Padding": 1, "StrideH": 1, "StrideW": 1}, (x[1], x[2]), (1, 1)
        options |= {"FilterHeight": kernel[0], "FilterWidth": kernel[1], **self.fused()}
        given = self.activation(x)
        return "Pool2DOptions", options, (given, self.alike(given, (x[0], *made, x[3])))

    def mean(self) -> "_Made":
        x = self.image()
        keep = self.random.random() < 0.5
        axes = self.random.choice([[1, 2], [2, 1], [-3, -2]])
        made = (x[0], 1, 1, x[3]) if keep else (x[0], x[3])
        tensors = self.activation(x), self.constant(np.array(axes, np.int32), "INT32"), self.activation(made)
        return "ReducerOptions", {"KeepDims": keep}, tensors

    def pad(self) -> "_Made":
        x = self.image()
        pairs = np.zeros((4, 2), np.int32)
        pairs[1:3] = self.numbers.integers(0, 4, (2, 2))
        given = self.activation(x)
        made = tuple(int(size + low + high) for size, (low, high) in zip(x, pairs, strict=True))
        return "PadOptions", {}, (given, self.constant(pairs, "INT32"), self.alike(given, made))

    def pad_with(self) -> "_Made":
        _, options, (given, pairs, made) = self.pad()
        whole, quantization = self.numbers.integers(-128, 128, (1,), np.int8), self.tensors[given].quantization
        number = self.normal((1,)) if self.floats else whole
        value = self.constant(number, self.tensors[given].type, quantization)
        return "PadV2Options", options, (given, pairs, value, made)

    def reshape(self) -> "_Made":
        shape = self.shape()
        given = self.activation(shape)
        whole = int(np.prod(shape))
        factor = self.random.choice([one for one in range(1, whole + 1) if whole % one == 0])
        made = self.random.choice([(whole,), (1, whole), (factor, whole // factor), shape[::-1], (1, *shape)])
        return "ReshapeOptions", {"NewShape": made}, (
            given, self.constant(np.array(made, np.int32), "INT32"), self.alike(given, made)
        )  # fmt: skip

    def transpose(self) -> "_Made":
        shape = self.shape()
        order = self.random.sample(range(len(shape)), len(shape))
        given = self.activation(shape)
        made = tuple(shape[axis] for axis in order)
        return "TransposeOptions", {}, (
            given, self.constant(np.array(order, np.int32), "INT32"), self.alike(given, made)
        )  # fmt: skip

    def concatenation(self) -> "_Made":
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        sizes = [self.size(6) for _ in range(self.random.randint(2, 4))]
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        first = self.activation(shapes[0])
        others = [self.alike(first, one) for one in shapes[1:]]
        made = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
        chosen = axis - len(shape) if self.random.random() < 0.3 else axis
        return "ConcatenationOptions", {"Axis": chosen}, (first, *others, self.alike(first, made))

    def function(self, kind: str, same: bool = False) -> "_Made":
        shape = self.shape()
        given = self.activation(shape)
        return kind, {}, (given, self.alike(given, shape) if same else self.activation(shape, self.scale(-5, 2)))

    def leaky(self) -> "_Made":
        kind, _, tensors = self.function("LeakyReluOptions")
        return kind, {"Alpha": float(np.float32(self.random.uniform(-0.5, 1.5)))}, tensors

    def logistic(self) -> "_Made":
        shape = self.shape()
        return "", {}, (self.activation(shape, self.scale(-6, 0)), self.activation(shape, 1 / 256, -128))

    def tanh(self) -> "_Made":
        shape = self.shape()
        return "", {}, (self.activation(shape, self.scale(-6, 0)), self.activation(shape, 1 / 128, 0))

    def hard_swish(self) -> "_Made":
        shape = self.shape()
        scale = self.scale(-6, -1)
        made = scale * self.random.uniform(0.05, 2.0)
        return "HardSwishOptions", {}, (self.activation(shape, scale), self.activation(shape, float(np.float32(made))))

    def quantize(self) -> "_Made":
        shape = self.shape()
        given = self.activation(shape, type=self.random.choice(["INT8", "UINT8"]))
        return "QuantizeOptions", {}, (given, self.activation(shape))

    def softmax(self) -> "_Made":
        shape = self.shape()
        return "SoftmaxOptions", {"Beta": 1.0}, (self.activation(shape), self.activation(shape))


_Made = tuple[str, dict[str, Option], tuple[int, ...]]

OPERATORS: Mapping[str, Callable[[_Maker], _Made]] = {
    "CONV_2D": _Maker.conv,
    "DEPTHWISE_CONV_2D": _Maker.depthwise,
    "FULLY_CONNECTED": _Maker.fully_connected,
    "ADD": lambda maker: maker.two("AddOptions"),
    "SUB": lambda maker: maker.two("SubOptions"),
    "MUL": lambda maker: maker.two("MulOptions"),
    "AVERAGE_POOL_2D": _Maker.pool,
    "MAX_POOL_2D": _Maker.pool,
    "MEAN": _Maker.mean,
    "PAD": _Maker.pad,
    "PADV2": _Maker.pad_with,
    "RESHAPE": _Maker.reshape,
    "TRANSPOSE": _Maker.transpose,
    "CONCATENATION": _Maker.concatenation,
    "RELU": lambda maker: maker.function(""),
    "RELU6": lambda maker: maker.function("", same=True),
    "LEAKY_RELU": _Maker.leaky,
    "LOGISTIC": _Maker.logistic,
    "TANH": _Maker.tanh,
    "HARD_SWISH": _Maker.hard_swish,
    "QUANTIZE": _Maker.quantize,
}
"""What makes a random operator of each kind."""

FLOAT_OPERATORS: Mapping[str, Callable[[_Maker], _Made]] = {
    **{name: make for name, make in OPERATORS.items() if name != "QUANTIZE"},
    "SOFTMAX": _Maker.softmax,
}
"""The same of float models."""
