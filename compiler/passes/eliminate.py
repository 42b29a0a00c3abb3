"""eliminate: layers that repeat an earlier one are computed once, and those that nobody reads never.

Among layers, not among the graph's nodes: what stays in ONNX Runtime is fused there, and rounded, by who reads what, so
that a node fewer on the host could change its results.
"""

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from npukit.compiler.layers import ConstantSource, Layer, QuantizedTensor, Subgraph

__all__ = ["EliminatePass"]


@dataclass(frozen=True)
class EliminatePass:
    """Common subexpressions and dead code of each subgraph."""

    name = "eliminate"

    def run(self, subgraphs: tuple[Subgraph, ...]) -> tuple[Subgraph, ...]:
        """The same outputs, of layers that are all needed. A tensor that is not computed becomes an alias."""
        return tuple(_without_dead(_without_repeats(subgraph)) for subgraph in subgraphs)


def _without_repeats(subgraph: Subgraph) -> Subgraph:
    tensors = dict(subgraph.tensors)
    first: dict[Hashable, str] = {}
    layers = []
    for layer in subgraph.layers:
        result = tensors[layer.output]
        kept = first.setdefault(_key(layer, tensors), layer.output)
        if kept == layer.output:
            layers.append(layer)
            continue
        for name, tensor in tensors.items():
            if tensor.storage == result.name:
                tensors[name] = replace(tensor, storage=kept)
    return replace(subgraph, layers=tuple(layers), tensors=tensors)


def _key(layer: Layer, tensors: Mapping[str, QuantizedTensor]) -> Hashable:
    """What two layers share that compute the same: all but the node, and the names of what is read and written."""
    result = tensors[layer.output]
    sources = tuple((tensors[name].storage, tensors[name].view) for name in layer.inputs)
    rest = tuple(
        _content(getattr(layer, field.name), tensors)
        for field in fields(layer)  # type: ignore[arg-type]
        if field.name not in ("node", "op", "inputs", "output")
    )
    return type(layer), result.view, result.unsigned, result.floating, sources, rest


def _content(value: Any, tensors: Mapping[str, QuantizedTensor]) -> Hashable:
    """A field's contents: numbers by their bits, arrays by a digest, names by where the tensor lies."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    if isinstance(value, ConstantSource):
        return _content(value.data, tensors)
    if isinstance(value, Mapping):
        return tuple((name, _content(one, tensors)) for name, one in sorted(value.items()))
    if isinstance(value, tuple):
        return tuple(_content(one, tensors) for one in value)
    if isinstance(value, str):
        return tensors[value].storage if value in tensors else value
    return value if callable(value) else repr(value)


def _without_dead(subgraph: Subgraph) -> Subgraph:
    needed = subgraph.outside()
    layers = []
    for layer in reversed(subgraph.layers):
        if layer.output in needed:
            layers.append(layer)
            needed.update(subgraph.tensors[name].storage for name in layer.inputs)
    if not layers:  # nobody reads any of it; a program has to compute something
        return subgraph
    inputs = tuple(name for name in subgraph.inputs if name in needed)
    made = {*inputs, *(layer.output for layer in layers)}
    tensors = {name: tensor for name, tensor in subgraph.tensors.items() if tensor.storage in made}
    return replace(subgraph, layers=tuple(reversed(layers)), tensors=tensors, inputs=inputs)
