"""Random graphs of the compiler's IR: every operation, odd shapes, names of any characters."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    Clamp,
    Concatenation,
    Convolution,
    Depth,
    DepthwiseConvolution,
    Dilate,
    FullyConnected,
    GlobalAveragePool,
    Lookup,
    MatrixProduct,
    MaxPool,
    Multiply,
    Normalization,
    Pad,
    PiecewiseLinear,
    Rearrange,
    Reinterpret,
    Repeat,
    Reshape,
    Rounding,
    Slice,
    Softmax,
    SourceNode,
    TensorOperation,
    TransposedConvolution,
)
from npukit.compiler.ir.tensor import Constant, MemoryLayout, Quantization, Tensor
from npukit.isa.formats import BFLOAT16, FLOAT32, INT8, INT32, UINT8, NumberFormat
from npukit.isa.layout import blocked

__all__ = ["random_graph"]

_CHARACTERS = "abcXYZ019_-./: \"'\\\n\tµ→{}[](),="


def random_graph(seed: int) -> Graph:
    """A graph that `verify_graph` accepts."""
    return _Maker(Random(seed)).graph()


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.numbers = np.random.default_rng(random.getrandbits(32))
        self.floating = random.random() < 0.3
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Constant] = {}
        self.operations: list[TensorOperation] = []

    def graph(self) -> Graph:
        inputs = [self._activation(self._image()) for _ in range(self.random.randint(1, 2))]
        for tensor in inputs:
            if self.random.random() < 0.2 and not self.floating:
                view = tensor.view
                order = view[0], view[1], view[2] * view[3]
                folded = blocked(view, 4, self.random.randint(-128, 127))
                layout = MemoryLayout(tensor.name, view, order, folded)
                self.tensors[tensor.name] = replace(tensor, layout=layout)
        makers = [
            self._convolution, self._depthwise, self._elementwise, self._clamp, self._pad, self._slice,
            self._concatenation, self._repeat, self._dilate, self._transposed, self._pool,
            self._global_average, self._flatten, self._rearrange, self._softmax, self._normalization,
        ]  # fmt: skip
        makers += [self._piecewise_linear] if self.floating else [self._lookup, self._reinterpret]
        for _ in range(self.random.randint(1, 12)):
            make: Callable[[Tensor], None] = self.random.choice(makers)
            images = [one for one in self.tensors.values() if len(one.shape) == 4 and one.channel_axis == 1]
            make(self.random.choice(images))
        for flat in [one for one in self.tensors.values() if len(one.shape) == 2]:
            self._fully_connected(flat)
        if self.random.random() < 0.5:
            inputs += self._matrix_product()
        made = [operation.output for operation in self.operations]
        if self.random.random() < 0.3:
            self._alias(self.tensors[self.random.choice(made)])
        return Graph(
            self._name(), tuple(self.operations), self.tensors, self.constants,
            tuple(tensor.name for tensor in inputs), tuple(self.random.sample(made, self.random.randint(1, len(made)))),
        )  # fmt: skip

    # ---- tensors

    def _name(self) -> str:
        while True:
            name = "".join(self.random.choice(_CHARACTERS) for _ in range(self.random.randint(1, 12)))
            if name not in self.tensors and name not in self.constants:
                return name

    def _image(self) -> tuple[int, int, int, int]:
        return (
            self.random.randint(1, 2),
            self.random.randint(1, 9),
            self.random.randint(3, 9),
            self.random.randint(3, 9),
        )

    def _format(self) -> NumberFormat:
        return BFLOAT16 if self.floating else self.random.choice([INT8, UINT8])

    def _quantization(self, form: NumberFormat, count: int = 1, axis: int | None = None) -> Quantization:
        scales = tuple(float(np.float32(2.0 ** self.random.uniform(-20, 4))) for _ in range(count))
        stored = form.stored
        return Quantization(scales, tuple(self.random.choice(stored) for _ in range(count)), axis)

    def _activation(self, shape: tuple[int, ...], like: Tensor | None = None) -> Tensor:
        form = self._format() if like is None else like.format
        quantization = None if self.floating else self._quantization(form) if like is None else like.quantization
        tensor = Tensor(self._name(), shape, form, quantization)
        self.tensors[tensor.name] = tensor
        return tensor

    def _constant(self, shape: tuple[int, ...], form: NumberFormat, quantization: Quantization | None = None) -> str:
        if form.floating:
            data = self.numbers.normal(size=shape).astype(form.storage)
        else:
            low, high = form.stored.start, form.stored.stop
            data = self.numbers.integers(low, high, shape).astype(form.storage)
        tensor = Tensor(self._name(), shape, form, quantization)
        self.constants[tensor.name] = Constant(tensor, data)
        return tensor.name

    def _weights(self, shape: tuple[int, ...], axis: int) -> str:
        if self.floating:
            return self._constant(shape, FLOAT32)
        form = self.random.choice([INT8, UINT8])
        if self.random.random() < 0.5:
            return self._constant(shape, form, self._quantization(form))
        return self._constant(shape, form, self._quantization(form, shape[axis], axis))

    def _bias(self, outputs: int) -> str | None:
        return self._constant((outputs,), FLOAT32 if self.floating else INT32) if self.random.random() < 0.7 else None

    def _alias(self, source: Tensor) -> None:
        tensor = self._activation(source.shape, source)
        layout = MemoryLayout(source.storage, source.view, source.order)
        self.tensors[tensor.name] = Tensor(tensor.name, tensor.shape, tensor.format, tensor.quantization, layout)

    # ---- operations

    def _add(self, kind: type[TensorOperation], result: Tensor, **fields: Any) -> None:
        names = [SourceNode(self._name(), kind.__name__) for _ in range(self.random.randint(1, 3))]
        self.operations.append(kind(output=result.name, sources=tuple(names), **fields))

    def _rounded(self) -> dict[str, Any]:
        limits: Any = None
        if self.random.random() < 0.3:
            limits = self.random.choice([(0.0, np.inf), (-6.5, 6.0)]) if self.floating else (-100, 90)
        return {"limits": limits, "rounding": self.random.choice([*Rounding])}

    def _window(self, x: Tensor, most: int = 3) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int]]:
        """Attributes, kernel, and size of the result."""
        kernel = self.random.randint(1, min(most, x.shape[2])), self.random.randint(1, min(most, x.shape[3]))
        strides = self.random.randint(1, 3), self.random.randint(1, 3)
        pads = tuple(self.random.randint(0, 2) for _ in range(4))
        size = [
            (x.shape[2 + axis] + pads[axis] + pads[2 + axis] - kernel[axis]) // strides[axis] + 1 for axis in (0, 1)
        ]
        return {"input": x.name, "strides": strides, "pads": pads}, kernel, (max(1, size[0]), max(1, size[1]))

    def _convolution(self, x: Tensor) -> None:
        attributes, kernel, size = self._window(x)
        groups = self.random.choice([one for one in range(1, x.shape[1] + 1) if x.shape[1] % one == 0])
        images, inner = x.shape[0], x.shape[1]
        if images > 1 and self.random.random() < 0.5:
            depth = Depth(images=images, results=images - 1, kernel=2)
            attributes["depth"], images, inner, groups = depth, images - 1, 2 * inner, 1
        outputs = groups * self.random.randint(1, 3)
        result = self._activation((images, outputs, *size))
        weights = self._weights((outputs, inner // groups, *kernel), 0)
        self._add(
            Convolution, result, weights=weights, bias=self._bias(outputs), groups=groups,
            alpha=self.random.choice([1.0, 0.3]), **attributes, **self._rounded(),
        )  # fmt: skip

    def _depthwise(self, x: Tensor) -> None:
        attributes, kernel, size = self._window(x)
        result = self._activation((*x.shape[:2], *size))
        weights = self._weights((x.shape[1], 1, *kernel), 0)
        bias = self._bias(x.shape[1])
        self._add(DepthwiseConvolution, result, weights=weights, bias=bias, **attributes, **self._rounded())

    def _fully_connected(self, x: Tensor) -> None:
        outputs, transposed = self.random.randint(1, 7), self.random.random() < 0.5
        result = self._activation((x.shape[0], outputs))
        shape = (outputs, x.shape[1]) if transposed else (x.shape[1], outputs)
        weights = self._weights(shape, 0 if transposed else 1)
        self._add(
            FullyConnected, result, input=x.name, weights=weights, bias=self._bias(outputs), transposed=transposed,
            **self._rounded(),
        )  # fmt: skip

    def _matrix_product(self) -> list[Tensor]:
        """Of two inputs, which are returned."""
        rows, inner, columns = (self.random.randint(1, 20) for _ in range(3))
        left, right = self._activation((rows, inner)), self._activation((inner, columns))
        if self.random.random() < 0.5:
            right = self.tensors[right.name] = replace(right, channel_axis=0)
        result = self._activation((rows, columns))
        bias = self._bias(columns)
        self._add(MatrixProduct, result, left=left.name, right=right.name, bias=bias, **self._rounded())
        return [left, right]

    def _elementwise(self, x: Tensor) -> None:
        shape = tuple(self.random.choice([1, size]) for size in x.shape)
        same = [one.name for one in self.tensors.values() if (one.shape, one.order) == (x.shape, x.order)]
        form = FLOAT32 if self.floating else self.random.choice([INT8, UINT8])
        constant = self._constant(shape, form, None if self.floating else self._quantization(form))
        other = self.random.choice([*same, constant])
        left, right = self.random.sample([x.name, other], 2)
        kind = self.random.choice([Add, Multiply])
        self._add(kind, self._activation(x.shape), left=left, right=right, **self._rounded())

    def _clamp(self, x: Tensor) -> None:
        self._add(Clamp, self._activation(x.shape, x), input=x.name, limits=(-1.5, float("inf")))

    def _table(self, y: Tensor) -> str:
        return self._constant((256,), y.format, y.quantization)

    def _lookup(self, x: Tensor) -> None:
        y = self._activation(x.shape)
        self._add(Lookup, y, input=x.name, table=self._table(y))

    def _softmax(self, x: Tensor) -> None:
        y = self._activation(x.shape, x)
        if not self.floating:
            self.tensors[y.name] = replace(y, quantization=self._quantization(y.format))
        self._add(Softmax, y, input=x.name)

    def _piecewise_linear(self, x: Tensor) -> None:
        self._add(
            PiecewiseLinear, self._activation(x.shape), input=x.name, table=self._constant((256, 2), FLOAT32),
            step=self.random.randrange(-16, 16), offset=self.random.randrange(-512, 512),
        )  # fmt: skip

    def _normalization(self, x: Tensor) -> None:
        scale, bias = (self._constant(x.shape[1:2], FLOAT32) for _ in range(2))
        self._add(
            Normalization, self._activation(x.shape), input=x.name, scale=scale,
            bias=self.random.choice([bias, None]), epsilon=self.random.choice([0.0, 1e-5, 0.1]),
            centred=self.random.random() < 0.5,
        )  # fmt: skip

    def _reinterpret(self, x: Tensor) -> None:
        y = Tensor(self._name(), x.shape, x.format, self._quantization(x.format))
        self.tensors[y.name] = y
        self._add(Reinterpret, y, input=x.name)

    def _pad(self, x: Tensor) -> None:
        before, after = ((0, 0, self.random.randint(-1, 2), self.random.randint(-1, 2)) for _ in range(2))
        shape = tuple(sum(one) for one in zip(before, x.shape, after, strict=True))
        if min(shape) >= 1:
            value = 0.5 if self.floating else self.random.choice(x.format.stored)
            self._add(Pad, self._activation(shape, x), input=x.name, before=before, after=after, value=value)

    def _slice(self, x: Tensor) -> None:
        starts = tuple(self.random.randrange(size) for size in x.shape)
        shape = tuple(self.random.randint(1, size - start) for start, size in zip(starts, x.shape, strict=True))
        self._add(Slice, self._activation(shape, x), input=x.name, starts=starts)

    def _concatenation(self, x: Tensor) -> None:
        axis = self.random.randrange(4)
        inputs = [x.name] * self.random.randint(1, 3)
        shape = tuple(size * (len(inputs) if at == axis else 1) for at, size in enumerate(x.shape))
        if self.floating or self.random.random() < 0.5:
            y, tables = self._activation(shape, x), [None] * len(inputs)
        else:
            y = self._activation(shape)
            tables = [self._table(y) for _ in inputs]
        self._add(Concatenation, y, inputs=tuple(inputs), tables=tuple(tables), axis=axis)

    def _repeat(self, x: Tensor) -> None:
        factors = self.random.randint(1, 3), self.random.randint(1, 3)
        shape = (*x.shape[:2], x.shape[2] * factors[0], x.shape[3] * factors[1])
        self._add(Repeat, self._activation(shape, x), input=x.name, factors=factors)

    def _dilate(self, x: Tensor) -> None:
        factors = self.random.randint(1, 3), self.random.randint(1, 3)
        size = tuple((x.shape[2 + axis] - 1) * factors[axis] + 1 for axis in (0, 1))
        if max(size) < 40:
            self._add(Dilate, self._activation((*x.shape[:2], *size), x), input=x.name, factors=factors)

    def _transposed(self, x: Tensor) -> None:
        groups = self.random.choice([one for one in range(1, x.shape[1] + 1) if x.shape[1] % one == 0])
        of_group, kernel = self.random.randint(1, 3), (self.random.randint(1, 3), self.random.randint(1, 3))
        result = self._activation((x.shape[0], of_group * groups, self.random.randint(1, 9), self.random.randint(1, 9)))
        self._add(
            TransposedConvolution, result, input=x.name, weights=self._weights((x.shape[1], of_group, *kernel), 1),
            bias=self._bias(of_group * groups), groups=groups, strides=(2, 1), pads=(0, 1, 1, 0), **self._rounded(),
        )  # fmt: skip

    def _pool(self, x: Tensor) -> None:
        attributes, kernel, size = self._window(x)
        shape = (*x.shape[:2], *size)
        if self.random.random() < 0.5:
            self._add(MaxPool, self._activation(shape, x), kernel=kernel, **attributes)
            return
        padding = self.random.random() < 0.5
        self._add(
            AveragePool, self._activation(shape), kernel=kernel, count_padding=padding, **attributes, **self._rounded()
        )

    def _global_average(self, x: Tensor) -> None:
        self._add(GlobalAveragePool, self._activation((*x.shape[:2], 1, 1)), input=x.name, **self._rounded())

    def _rearrange(self, x: Tensor) -> None:
        order = self.random.sample(range(4), 4)
        y = self._activation(tuple(x.shape[axis] for axis in order), x)
        self.tensors[y.name] = replace(y, channel_axis=self.random.randrange(4))
        self._add(Rearrange, y, input=x.name, sizes=x.shape, permutation=tuple(order))

    def _flatten(self, x: Tensor) -> None:
        shape = x.shape[0], int(np.prod(x.shape[1:]))
        self._add(Reshape, self._activation(shape, x), input=x.name)
