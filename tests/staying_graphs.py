"""Random graphs of which much stays in ONNX Runtime: DequantizeLinears with several readers, floats that several nodes
read and that leave the graph, quantisers of one float, operators that move elements between quantisers.

Results lie on ties (see `Graph`), so that ONNX Runtime computing a part in float and not in integers, or the other way
round, shows.
"""

import numpy as np
import onnx
from graphs import Graph, Quantized

__all__ = ["build_staying_graph"]

_WEIGHT_SCALE = 0.007


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = Graph(seed=seed, dtype=np.uint8 if self.random.random() < 0.4 else np.int8, ties=True)
        self.quantised: list[Quantized] = []
        self.floats: list[tuple[str, float]] = []
        self.origin: dict[str, Quantized] = {}
        """What a DequantizeLinear's result is of."""

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, *among: int) -> int:
        return int(self.random.choice(among))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.shape(name)

    def dequantised(self) -> tuple[str, float]:
        """A quantised tensor's float value: one that others read, or one of its own."""
        tensor = self.quantised[int(self.random.integers(len(self.quantised)))]
        known = [name for name, origin in self.origin.items() if origin == tensor]
        if known and self.chance(0.7):
            return known[0], tensor.scale
        name = self.graph.dequantize(tensor)
        self.origin[name] = tensor
        self.floats.append((name, tensor.scale))
        return name, tensor.scale

    def float_value(self) -> tuple[str, float]:
        if self.floats and self.chance(0.6):
            return self.floats[int(self.random.integers(len(self.floats)))]
        return self.dequantised()

    def keep(self, name: str, scale: float, quantised: float) -> None:
        """Quantise a result in that share of cases; else others may read it as it is."""
        if self.chance(quantised):
            self.quantised.append(self.graph.quantize(name, scale))
        else:
            self.floats.append((name, scale))

    # ---- nodes

    def conv(self) -> None:
        name, scale = self.float_value() if self.chance(0.3) else self.dequantised()
        shape = self.shape(name)
        if len(shape) != 4:
            return
        channels, kernel = self.pick(4, 6, 8), self.pick(1, 3)
        values = self.graph.random_weights((channels, shape[1], kernel, kernel))
        names = [name, self.graph.weights(values, _WEIGHT_SCALE)]
        if self.chance(0.5):
            terms = self.graph.random.integers(-300, 300, channels).astype(np.int32)
            names.append(self.graph.bias(terms, float(np.float32(scale) * np.float32(_WEIGHT_SCALE))))
        result = self.graph.node("Conv", names, pads=[kernel // 2] * 4)
        if self.chance(0.3):
            result = self.graph.node("Relu", [result])
        wanted = scale * _WEIGHT_SCALE * 2 * float(np.sqrt(shape[1] * kernel * kernel))
        self.keep(result, self.graph.tied(wanted, scale, _WEIGHT_SCALE), 0.85)

    def binary(self) -> None:
        (a, a_scale), (b, b_scale) = self.float_value(), self.float_value()
        if self.shape(a) == self.shape(b):
            result = self.graph.node("Add" if self.chance(0.7) else "Mul", [a, b])
            self.keep(result, self.graph.tied(a_scale + b_scale, a_scale), 0.7)

    def move(self) -> None:
        name, scale = self.float_value()
        shape = self.shape(name)
        if len(shape) != 4:
            return
        graph = self.graph

        def integers(*values: int) -> str:
            return graph.constant(np.array(values, np.int64))

        kind = int(self.random.integers(6))
        if kind == 0:
            result = graph.node("Transpose", [name], perm=[0, 1, 3, 2])
        elif kind == 1:
            result = graph.node("Reshape", [name, integers(shape[0], shape[2], shape[1], shape[3])])
        elif kind == 2:
            result = graph.node("MaxPool", [name], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif kind == 3:
            result = graph.node("Slice", [name, integers(0), integers(max(1, shape[1] - 1)), integers(1)])
        elif kind == 4:
            result = graph.node("Unsqueeze", [name, integers(0)])
            result = graph.node("Squeeze", [result, integers(0)])
        else:
            result = graph.node("Flatten", [name])
        origin = self.origin.get(name)
        if origin is not None and self.chance(0.4):
            self.quantised.append(graph.quantize(result, origin.scale, origin.zero_point, origin.dtype))
        else:
            self.keep(result, scale, 0.3)

    def function(self) -> None:
        name, _ = self.float_value()
        kind = int(self.random.integers(8))
        if kind == 0 and len(self.shape(name)) == 4:
            result = self.graph.node("LpPool", [name], kernel_shape=[3, 3], pads=[1] * 4)
        elif kind == 1:  # which ONNX Runtime makes one Gelu of
            half, one, root = (self.graph.constant(np.float32(value)) for value in (0.5, 1, 2**0.5))
            error = self.graph.node("Erf", [self.graph.node("Div", [name, root])])
            product = self.graph.node("Mul", [name, self.graph.node("Add", [error, one])])
            result = self.graph.node("Mul", [product, half])
        else:
            result = self.graph.node(
                ("Softmax", "Sigmoid", "Erf", "Relu", "Exp", "Softmax", "Tanh", "Abs")[kind], [name]
            )
        self.keep(result, 0.01, 0.5)

    def quantise(self) -> None:
        name, scale = self.float_value()
        self.quantised.append(self.graph.quantize(name, scale))
        if self.chance(0.5):
            self.quantised.append(self.graph.quantize(name, 2 * scale))

    def average(self) -> None:
        name, scale = self.dequantised()
        if len(self.shape(name)) == 4:
            self.keep(self.graph.node("GlobalAveragePool", [name]), scale / 2, 0.9)


def build_staying_graph(seed: int) -> onnx.ModelProto:
    """The graph of a seed: 8 to 19 nodes behind one input."""
    make = _Maker(seed)
    shape = make.pick(1, 2), make.pick(4, 6, 8), make.pick(4, 6), make.pick(4, 6)
    make.quantised.append(make.graph.input(shape, float(make.random.uniform(0.01, 0.04)), integer=make.chance(0.4)))
    nodes = (make.conv, make.binary, make.move, make.function, make.quantise, make.average)
    for _ in range(int(make.random.integers(8, 20))):
        nodes[int(make.random.choice(len(nodes), p=(0.25, 0.17, 0.17, 0.17, 0.08, 0.16)))]()
    graph = make.graph
    read = {name for node in graph.nodes for name in node.input}
    for tensor in make.quantised:
        if tensor.name not in read:
            graph.output(tensor, integer=make.chance(0.3))
    read = {name for node in graph.nodes for name in node.input}
    given = {value.name for value in graph.outputs}
    for name, _ in make.floats:
        if name not in given and (name not in read or make.chance(0.07)):
            graph.output_value(name)
            given.add(name)
    return graph.model()
