"""Small QDQ graphs, made node by node with quantisation parameters of the test's choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from npukit.isa.config import NpuConfig
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npukit.compare import Comparison, Oracle, compare
from npukit.session import Session

__all__ = ["EDGES", "Graph", "Quantized", "agree", "inputs_of", "rename_value"]

EDGES = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators that stay at the accelerator's edge even where everything is taken over."""

_SPREAD = 73.0  # standard deviation of uniform int8


@dataclass(frozen=True)
class Quantized:
    """A quantised tensor of a graph."""

    name: str
    scale: float
    zero_point: int
    dtype: type


@dataclass
class Graph:
    """A QDQ graph in the making. Weights are random from `seed`; activations have the type `dtype`.

    ties: weights are small, and a result's scale is a power of two times what its operands' scales make of a product or
    sum, so that many results lie halfway between two numbers, and a rounding more or fewer on the way shows.
    """

    seed: int = 0
    dtype: type = np.int8
    opset: int = 21
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    domains: list[onnx.OperatorSetIdProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    ties: bool = False

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self._count = 0

    def name(self, stem: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}_{self._count}"

    def constant(self, value: NDArray | np.generic, stem: str = "constant") -> str:
        """An initializer."""
        name = self.name(stem)
        self.initializers.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """A node of any kind with one output."""
        output = output or self.name(op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"{op}:{output}", **attributes))
        return output

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value, inferred from the graph as it is so far."""
        known = {value.name: value for value in self.inputs}
        if name not in known:
            graph = helper.make_graph(self.nodes, "part", self.inputs, [], self.initializers)
            part = self._model(graph)
            known = {value.name: value for value in onnx.shape_inference.infer_shapes(part).graph.value_info}
        return tuple(dim.dim_value for dim in known[name].type.tensor_type.shape.dim)

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        opsets = [helper.make_opsetid("", self.opset), *self.domains]
        return helper.make_model(graph, opset_imports=opsets, functions=self.functions, ir_version=10)

    # ---- quantisation

    def _zero_point(self, zero_point: int | None, dtype: type) -> int:
        if zero_point is None:
            zero_point = int(self.random.integers(-40, 40)) + (128 if dtype is np.uint8 else 0)
        return zero_point

    def quantize(
        self,
        value: str,
        scale: float,
        zero_point: int | None = None,
        dtype: type | None = None,
        output: str | None = None,
    ) -> Quantized:
        """A QuantizeLinear behind a float value; a zero point that is not given is random."""
        dtype = dtype or self.dtype
        zero = self._zero_point(zero_point, dtype)
        parameters = [self.constant(np.float32(scale), "scale"), self.constant(dtype(zero), "zero_point")]
        name = self.node("QuantizeLinear", [value, *parameters], output or self.name("q"))
        return Quantized(name, scale, zero, dtype)

    def dequantize(self, tensor: Quantized) -> str:
        """A DequantizeLinear of its own behind a quantised tensor."""
        parameters = [
            self.constant(np.float32(tensor.scale), "scale"),
            self.constant(tensor.dtype(tensor.zero_point), "zero_point"),
        ]
        return self.node("DequantizeLinear", [tensor.name, *parameters])

    def weights(self, values: NDArray, scale: NDArray | float, zero_point: int = 0, axis: int = 0) -> str:
        """Constant int8 or uint8 weights behind a DequantizeLinear."""
        scales = np.asarray(scale, np.float32)
        zeros = np.full(scales.shape, zero_point, values.dtype)
        names = [
            self.constant(values, "weights"),
            self.constant(scales, "scale"),
            self.constant(zeros, "zero_point"),
        ]
        return self.node("DequantizeLinear", names, axis=axis if scales.ndim else 0)

    def bias(self, values: NDArray[np.int32], scale: NDArray | float) -> str:
        """Constant int32 bias behind a DequantizeLinear."""
        scales = np.asarray(scale, np.float32)
        names = [self.constant(values, "bias"), self.constant(scales, "scale")]
        zero = self.constant(np.zeros(scales.shape, np.int32), "zero_point")
        return self.node("DequantizeLinear", [*names, zero], axis=0)

    def random_weights(self, shape: Sequence[int]) -> NDArray[np.int8]:
        """Random int8 weights."""
        most = 3 if self.ties else 127
        return self.random.integers(-most, most + 1, tuple(shape)).astype(np.int8)

    @property
    def _weight_spread(self) -> float:
        return 2.0 if self.ties else _SPREAD

    def tied(self, wanted: float, *units: float) -> float:
        """About the scale that is wanted; with `ties` a power of two times the product of the units, each fp32."""
        if not self.ties:
            return wanted
        unit = np.float32(1)
        for one in units:
            unit *= np.float32(one)
        return float(unit * np.float32(2.0 ** np.round(np.log2(wanted / float(unit)))))

    # ---- edges

    def input(
        self, shape: Sequence[int], scale: float = 0.02, zero_point: int | None = None, name: str | None = None,
        integer: bool = False, dtype: type | None = None,
    ) -> Quantized:  # fmt: skip
        """A graph input: float behind a QuantizeLinear, or itself quantised."""
        dtype = dtype or self.dtype
        name = name or self.name("input")
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if integer else onnx.TensorProto.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        if integer:
            return Quantized(name, scale, self._zero_point(zero_point, dtype), dtype)
        return self.quantize(name, scale, zero_point, dtype)

    def output(self, tensor: Quantized, integer: bool = False) -> None:
        """A graph output: quantised, or dequantised to float."""
        name = tensor.name if integer else self.dequantize(tensor)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)) if integer else onnx.TensorProto.FLOAT
        self.outputs.append(helper.make_tensor_value_info(name, kind, None))

    def output_value(self, name: str, kind: int = onnx.TensorProto.FLOAT) -> None:
        """A graph output that is a value of any kind."""
        self.outputs.append(helper.make_tensor_value_info(name, kind, None))

    # ---- operators

    def conv(
        self, x: Quantized, channels: int, kernel: int | tuple[int, ...] = 3, *, bias: bool = True,
        relu: bool = False, zero_point: int | None = None, per_channel: bool = True, value: str | None = None,
        scale: float | None = None, weight_zero: int | None = None, rare: bool = False,
        clip: tuple[float, float] | None = None, **attributes: Any,
    ) -> Quantized:  # fmt: skip
        """A quantised convolution; `value` is the float input where x is dequantised already.

        `weight_zero`: uint8 weights with that zero point; `rare`: few of them are 128 or more from it.
        """
        size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        inner = self.shape(x.name)[1] // attributes.get("group", 1)
        shape = channels, inner, *size
        if weight_zero is None:
            values = self.random_weights(shape)
        else:
            values = self.random.integers(0, 256, shape).astype(np.uint8)
            if rare:
                near = np.clip(weight_zero + self.random.integers(-100, 101, shape), 0, 255)
                values = np.where(self.random.random(shape) < 0.01, values, near).astype(np.uint8)
        scales = self.random.uniform(0.002, 0.02, channels if per_channel else ()).astype(np.float32)
        names = [value or self.dequantize(x), self.weights(values, scales, weight_zero or 0)]
        if bias:
            terms = self.random.integers(-3000, 3000, channels).astype(np.int32)
            names.append(self.bias(terms, np.broadcast_to(np.float32(x.scale) * scales, channels)))
        result = self.node("Conv", names, **attributes)
        if relu:
            result = self.node("Relu", [result])
            zero_point = -128 if self.dtype is np.int8 else 0
        if clip is not None:
            result = self.node("Clip", [result, *(self.constant(np.float32(limit), "limit") for limit in clip)])
        spread = x.scale * float(np.mean(scales)) * _SPREAD * self._weight_spread * np.sqrt(inner * np.prod(size))
        unit = float(np.asarray(scales).reshape(-1)[0])
        return self.quantize(result, self.tied(scale or spread / 60, x.scale, unit), zero_point)

    def add(self, a: Quantized, b: Quantized, *, relu: bool = False, zero_point: int | None = None) -> Quantized:
        """A quantised sum."""
        result = self.node("Add", [self.dequantize(a), self.dequantize(b)])
        if relu:
            result = self.node("Relu", [result])
            zero_point = -128 if self.dtype is np.int8 else 0
        wanted = 0.9 * max(a.scale, b.scale) + 0.4 * min(a.scale, b.scale)
        return self.quantize(result, self.tied(wanted, a.scale), zero_point)

    def mul(self, a: Quantized, b: Quantized) -> Quantized:
        """A quantised product."""
        result = self.node("Mul", [self.dequantize(a), self.dequantize(b)])
        wanted = a.scale * b.scale * _SPREAD * float(self.random.uniform(0.3, 2))
        return self.quantize(result, self.tied(wanted, a.scale, b.scale))

    def constant_operand(self, op: str, x: Quantized, shape: Sequence[int], first: bool = False) -> Quantized:
        """A sum or product of a tensor and an int8 or uint8 constant."""
        limits = np.iinfo(x.dtype)
        values = self.random.integers(limits.min, limits.max, tuple(shape), endpoint=True).astype(x.dtype)
        scale = float(self.random.uniform(0.2, 3)) * x.scale
        other = self.weights(values, scale, self._zero_point(None, x.dtype))
        names = [self.dequantize(x), other]
        result = self.node(op, names[::-1] if first else names)
        if op == "Add":
            return self.quantize(result, self.tied(1.2 * (x.scale + scale), x.scale))
        return self.quantize(result, self.tied(x.scale * scale * 60, x.scale, scale))

    def unary(self, op: str, x: Quantized, scale: float = 0.02, **attributes: Any) -> Quantized:
        """A quantised function of each element."""
        return self.quantize(self.node(op, [self.dequantize(x)], **attributes), scale)

    def average(self, x: Quantized, kernel: tuple[int, ...], scale: float, **attributes: Any) -> Quantized:
        """A quantised average pooling."""
        result = self.node("AveragePool", [self.dequantize(x)], kernel_shape=list(kernel), **attributes)
        return self.quantize(result, scale)

    def concat(self, parts: Sequence[Quantized], axis: int, same: bool = False) -> Quantized:
        """A concatenation, with `same` in the first part's quantisation."""
        result = self.node("Concat", [self.dequantize(part) for part in parts], axis=axis)
        if same:
            return self.quantize(result, parts[0].scale, parts[0].zero_point)
        return self.quantize(result, float(np.mean([part.scale for part in parts])))

    def moved(self, op: str, x: Quantized, constants: Sequence[NDArray | None], **attributes: Any) -> Quantized:
        """An operator with constant inputs that keeps the quantisation (Pad, Slice, Resize, Unsqueeze)."""
        names = ["" if value is None else self.constant(value) for value in constants]
        result = self.node(op, [self.dequantize(x), *names], **attributes)
        return self.quantize(result, x.scale, x.zero_point, x.dtype)

    def split(self, x: Quantized, sizes: Sequence[int], axis: int = 1) -> list[Quantized]:
        """Parts of a tensor along an axis, in its quantisation."""
        results = [self.name("part") for _ in sizes]
        inputs = [self.dequantize(x), self.constant(np.array(sizes, np.int64))]
        self.nodes.append(helper.make_node("Split", inputs, results, name=self.name("split"), axis=axis))
        return [self.quantize(result, x.scale, x.zero_point, x.dtype) for result in results]

    def matmul(self, x: Quantized, features: int) -> Quantized:
        """A quantised MatMul with constant weights."""
        inner = self.shape(x.name)[-1]
        values = self.random_weights((inner, features))
        result = self.node("MatMul", [self.dequantize(x), self.weights(values, 0.01)])
        wanted = x.scale * 0.01 * _SPREAD * self._weight_spread * np.sqrt(inner) / 60
        return self.quantize(result, self.tied(wanted, x.scale, 0.01))

    def maxpool(self, x: Quantized, kernel: int | tuple[int, ...], **attributes: Any) -> Quantized:
        """A max pooling between equal quantisers."""
        size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        result = self.node("MaxPool", [self.dequantize(x)], kernel_shape=list(size), **attributes)
        return self.quantize(result, x.scale, x.zero_point, x.dtype)

    def global_average(self, x: Quantized, scale: float | None = None) -> Quantized:
        """A quantised global average pooling."""
        area = int(np.prod(self.shape(x.name)[2:]))
        result = self.node("GlobalAveragePool", [self.dequantize(x)])
        return self.quantize(result, scale or 1.3 * x.scale / np.sqrt(area))

    def flatten(self, x: Quantized, op: str = "Flatten") -> Quantized:
        """NCHW to [batch, everything], as Flatten or as Reshape."""
        names = [self.dequantize(x)]
        if op == "Reshape":
            names.append(self.constant(np.array([self.shape(x.name)[0], -1], np.int64), "shape"))
        return self.quantize(self.node(op, names), x.scale, x.zero_point, x.dtype)

    def gemm(
        self,
        x: Quantized,
        features: int,
        *,
        transposed: bool = True,
        bias: bool = True,
        per_channel: bool = False,
        beta: float = 1.0,
    ) -> Quantized:
        """A quantised Gemm with constant weights, whose bias counts `beta` times."""
        inner = self.shape(x.name)[1]
        shape, axis = ((features, inner), 0) if transposed else ((inner, features), 1)
        values = self.random_weights(shape)
        scales = self.random.uniform(0.002, 0.02, features if per_channel else ()).astype(np.float32)
        names = [self.dequantize(x), self.weights(values, scales, axis=axis)]
        if bias:
            terms = self.random.integers(-3000, 3000, features).astype(np.int32)
            names.append(self.bias(terms, np.float32(x.scale) * scales))
        more: dict[str, Any] = {} if beta == 1 else {"beta": beta}
        result = self.node("Gemm", names, transB=int(transposed), **more)
        wanted = x.scale * float(np.mean(scales)) * _SPREAD * self._weight_spread * np.sqrt(inner) / 60
        return self.quantize(result, self.tied(wanted, x.scale, float(np.asarray(scales).reshape(-1)[0])))

    def model(self) -> onnx.ModelProto:
        """The graph as a model."""
        graph = helper.make_graph(self.nodes, "graph", self.inputs, self.outputs, self.initializers)
        model = self._model(graph)
        inferred = onnx.shape_inference.infer_shapes(model).graph.output
        for value, found in zip(model.graph.output, inferred, strict=True):
            value.CopyFrom(found)
        return model


def rename_value(model: onnx.ModelProto, old: str, new: str) -> None:
    """Give a value of a model another name, where nodes make and read it."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                names[position] = new if name == old else name


def inputs_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray]:
    """Random inputs: floats over and beyond what int8 at scale 0.02 holds, integers over all values."""
    random = np.random.default_rng(seed)
    arrays: dict[str, NDArray] = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        if np.issubdtype(dtype, np.integer):
            limits = np.iinfo(dtype)
            arrays[value.name] = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        else:
            arrays[value.name] = random.normal(0, 1.3, shape).astype(dtype)
    return arrays


def agree(
    model: onnx.ModelProto,
    config: NpuConfig | str | None = None,
    *,
    stays: frozenset[str] | set[str] = EDGES,
    subgraphs: int | None = 1,
    runs: int = 1,
    inputs: Mapping[str, NDArray] | None = None,
) -> tuple[Session, Comparison]:
    """Compile (the validator examines each program), run, and compare every quantised tensor with ONNX Runtime.

    `stays`: operators that may stay in ONNX Runtime.
    """
    session = Session(model, config, capture=True)
    assert session.compilation is not None
    partition = session.compilation.partition
    left = [f"{reason.op} {reason.node}: {reason.reason}" for reason in partition.reasons if reason.op not in stays]
    assert not left, left
    if subgraphs is not None:
        assert len(session.programs) == subgraphs, list(session.programs)
    oracle = Oracle(model)
    total: Comparison | None = None
    for seed in range(runs):
        given = inputs if inputs is not None else inputs_of(model, seed)
        total = compare(session, oracle, given, session.run(given), total)
    assert total is not None
    assert total.mismatches == 0, total.first_mismatch
    assert total.tensors == total.tensors_total, (total.tensors, total.tensors_total)
    return session, total
