"""Transformers with synthetic weights: as exporters write them, layer normalisation by layer normalisation.

Weights are normal numbers with a variance of one over their inputs, so that every product has about the variance of
what it reads, and attention's scores differ enough for a softmax that prefers some places to others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npukit.zoo.build import IR_VERSION, OPSET, images

__all__ = ["TRANSFORMERS", "Transformer"]

_SAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A network's sizes.

    Attributes:
        layers, width, heads: of the encoder.
        steps: words, or patches and the place of the class before them.
        classes: of its logits.
        tokens: words that it knows, or 0 where it reads an image.
        causal: whether a place sees none behind it.
        image: channels, height and width; patch: of a step, in pixels.
        each_step: whether logits are of each step, or of the first one.
    """

    layers: int
    width: int
    heads: int
    steps: int
    classes: int
    tokens: int = 0
    causal: bool = False
    image: tuple[int, int, int] = (3, 224, 224)
    patch: int = 16
    each_step: bool = False

    def build(self, name: str, seed: int) -> tuple[onnx.ModelProto, list[Mapping[str, NDArray]]]:
        """The float model, and inputs for its calibration."""
        net = _Network(seed)
        x = self._tokens(net) if self.tokens else self._patches(net)
        for _ in range(self.layers):
            x = self._layer(net, x)
        x = net.norm(x, self.width)
        if not self.each_step:
            first = (net.constant(np.array([number])) for number in (0, 1, 1))
            x = net.reshape(net.op("Slice", x, *first), 1, self.width)
        logits = net.linear(x, self.width, self.classes, matrix=not self.each_step)
        net.op("Identity", logits, name="logits")
        model = net.model(name, self._input(), [1, self.steps, self.classes] if self.each_step else [1, self.classes])
        return model, self._samples(seed + 1)

    def _input(self) -> onnx.ValueInfoProto:
        if self.tokens:
            return helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, self.steps])
        return helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, *self.image])

    def _samples(self, seed: int) -> list[Mapping[str, NDArray]]:
        if not self.tokens:
            return [{"image": one[None]} for one in images(_SAMPLES, self.image, seed)]
        random = np.random.default_rng(seed)
        return [{"tokens": random.integers(0, self.tokens, (1, self.steps))} for _ in range(_SAMPLES)]

    def _tokens(self, net: "_Network") -> str:
        words = net.op("Gather", net.weights(self.tokens, self.width, fan=1), "tokens")
        return net.norm(net.op("Add", words, net.weights(1, self.steps, self.width, fan=4)), self.width)

    def _patches(self, net: "_Network") -> str:
        channels = self.image[0]
        kernel = net.weights(self.width, channels, self.patch, self.patch, fan=channels * self.patch**2 // 4)
        size = [self.patch, self.patch]
        x = net.op("Conv", "image", kernel, net.bias(self.width), kernel_shape=size, strides=size)
        x = net.op("Transpose", net.reshape(x, 1, self.width, self.steps - 1), perm=[0, 2, 1])
        x = net.op("Concat", net.weights(1, 1, self.width, fan=1), x, axis=1)
        return net.op("Add", x, net.weights(1, self.steps, self.width, fan=4))

    def _layer(self, net: "_Network", x: str) -> str:
        y = net.norm(x, self.width)
        size = self.width // self.heads

        def heads(order: list[int]) -> str:
            apart = net.reshape(net.linear(y, self.width, self.width), 1, self.steps, self.heads, size)
            return net.op("Transpose", apart, perm=order)

        query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
        scores = net.op("Mul", net.op("MatMul", query, key), net.constant(np.float32(2 * size**-0.5)))
        if self.causal:
            scores = net.op("Add", scores, net.constant(np.triu(np.full((self.steps,) * 2, -16.0, np.float32), 1)))
        mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
        mixed = net.reshape(net.op("Transpose", mixed, perm=[0, 2, 1, 3]), 1, self.steps, self.width)
        x = net.op("Add", x, net.linear(mixed, self.width, self.width))
        inner = net.op("Gelu", net.linear(net.norm(x, self.width), self.width, 4 * self.width))
        return net.op("Add", x, net.linear(inner, 4 * self.width, self.width))


class _Network:
    """Nodes and constants under construction; methods return the name of a node's output."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def op(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, value: NDArray | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(self, *shape: int, fan: int) -> str:
        return self.constant(self._random.standard_normal(shape, np.float32) * np.float32(fan**-0.5))

    def bias(self, count: int) -> str:
        return self.constant(self._random.normal(0, 0.1, count).astype(np.float32))

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.constant(np.array(shape)))

    def norm(self, x: str, width: int) -> str:
        scale = self._random.uniform(0.7, 1.3, width).astype(np.float32)
        return self.op("LayerNormalization", x, self.constant(scale), self.bias(width), axis=-1, epsilon=1e-5)

    def linear(self, x: str, inner: int, outer: int, matrix: bool = False) -> str:
        if matrix:
            return self.op("Gemm", x, self.weights(inner, outer, fan=inner), self.bias(outer))
        return self.op("Add", self.op("MatMul", x, self.weights(inner, outer, fan=inner)), self.bias(outer))

    def model(self, name: str, source: onnx.ValueInfoProto, shape: list[int]) -> onnx.ModelProto:
        result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, name, [source], [result], self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        model.producer_name = "npukit"
        onnx.checker.check_model(model)
        return model


TRANSFORMERS: Mapping[str, Transformer] = {
    "bert-tiny": Transformer(layers=2, width=128, heads=2, steps=128, classes=2, tokens=1000),
    "bert-base-128": Transformer(layers=12, width=768, heads=12, steps=128, classes=2, tokens=1000),
    "vit-tiny": Transformer(layers=12, width=192, heads=3, steps=197, classes=1000),
    "gpt2-block-128": Transformer(
        layers=1, width=768, heads=12, steps=128, classes=1000, tokens=1000, causal=True, each_step=True
    ),
}
"""Devlin et al., "BERT", 2018, and Turc et al., "Well-Read Students Learn Better", 2019, for the tiny one, all with
layer normalisation before attention; Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020; Radford et al.,
"Language Models are Unsupervised Multitask Learners", 2019, one block of the small one."""
