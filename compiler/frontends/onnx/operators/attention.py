"""Attention as one node, of operator sets 23 and 24: its products, softmax and changes of order."""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Match,
    match_of_several,
    produced,
    source,
    sources_of,
)
from npukit.compiler.frontends.onnx.operators.quantisation import constant
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import (
    Add,
    Elementwise,
    MatrixProduct,
    Multiply,
    Rearrange,
    Softmax,
    SourceNode,
    TensorOperation,
)
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.isa.formats import FLOAT32
from npukit.sim.bfloat16 import widen
from numpy.typing import NDArray

__all__ = ["match_attention"]

_LOWEST = float(widen(np.array(0xFF7F, np.uint16)))
"""The lowest finite bfloat16: what is masked has a probability of 0 with it, and a row of nothing else is no NaN."""
_CACHE = ("past_key", "past_value", "nonpad_kv_seqlen")
"""Inputs behind the mask."""
_ATTRIBUTES = frozenset(
    "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision".split()
)
"""Those of operator sets 23 and 24; later ones have more, as of windows, and would be computed wrongly without them."""


def match_attention(context: Context, node: ir.Node) -> Match:
    """An Attention in bf16, of three or four dimensions, with any grouping of its heads, with a mask or causal, and
    without a cache of keys and values."""
    if not context.floats:
        raise Refused(
            "ONNX Runtime computes it in float; in int8 its products and its softmax run as nodes of their own"
        )
    for attribute in node.attributes:
        if attribute not in _ATTRIBUTES:
            raise Refused(f"its attribute {attribute} is not supported")
    for position, value in enumerate(node.inputs[4:]):
        if value is not None:
            name = _CACHE[position] if position < len(_CACHE) else value.name
            raise Refused(f"it reads {name}, and attention without a cache is supported")
    for value in node.outputs[1:]:
        if value.name and (value.name in context.graph_outputs or [*value.uses()]):
            raise Refused(f"its output {value.name} is used; the first output alone is supported")
    softcap = node.attributes.get_float("softcap", 0.0)
    if softcap:
        raise Refused(f"softcap is {softcap}; 0 is supported")
    return _Attention(context, node).match(node.inputs[3] if len(node.inputs) > 3 else None)


@dataclass(frozen=True)
class _Side:
    """Query, keys or values: of each head, some rows of so many numbers.

    Attributes:
        value, tensor: what the node reads.
        sizes: batch, heads, rows and numbers, in the order in which the tensor has them.
        batch, heads, rows, numbers: the same by name.
    """

    value: ir.Value
    tensor: Tensor
    sizes: tuple[int, int, int, int]
    batch: int
    heads: int
    rows: int
    numbers: int

    @classmethod
    def of(cls, value: ir.Value, tensor: Tensor, heads: int) -> "_Side":
        """heads: the attribute, which a tensor of three dimensions needs."""
        if len(tensor.shape) == 4:
            batch, heads, rows, numbers = tensor.shape
            return cls(value, tensor, (batch, heads, rows, numbers), batch, heads, rows, numbers)
        if len(tensor.shape) != 3 or not heads or tensor.shape[-1] % heads:
            raise Refused(f"{tensor.name} is {list(tensor.shape)}, which does not divide into {heads} heads")
        batch, rows, width = tensor.shape
        return cls(value, tensor, (batch, rows, heads, width // heads), batch, heads, rows, width // heads)

    @property
    def apart(self) -> bool:
        """Whether heads come before rows."""
        return len(self.tensor.shape) == 4

    @property
    def order(self) -> tuple[int, ...]:
        """The permutation of `sizes` that puts heads before rows; it is its own inverse."""
        return (0, 1, 2, 3) if self.apart else (0, 2, 1, 3)


class _Attention:
    def __init__(self, context: Context, node: ir.Node) -> None:
        self._context, self._node = context, node
        self._result = produced(context, node, clamp=False)
        heads = [node.attributes.get_int(name, 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
        names = ("Q", "K", "V")
        read = [source(context, value, name) for value, name in zip(node.inputs[:3], names, strict=True)]
        self._sides = [_Side.of(*one, count) for one, count in zip(read, heads, strict=True)]
        query, key, value = self._sides
        if (key.batch, key.heads, key.rows) != (value.batch, value.heads, value.rows) or query.numbers != key.numbers:
            raise Refused(f"{query.tensor.name}, {key.tensor.name} and {value.tensor.name} do not go together")
        if query.heads % key.heads or query.batch != key.batch:
            raise Refused(f"{query.heads} heads are not shared evenly among {key.heads} of keys and values")
        group = query.heads // key.heads
        # one head of keys and values repeats as it is; several do in a dimension of their own
        self._lead: tuple[int, ...] = (query.batch, query.heads)
        self._lead_of_keys: tuple[int, ...] = (key.batch, key.heads)
        if group > 1 and key.heads > 1:
            self._lead = query.batch, key.heads, group
            self._lead_of_keys = key.batch, key.heads, 1
        self._taken = {value.name or "" for value in (*node.inputs, *node.outputs) if value is not None}
        self._operations: list[TensorOperation] = []
        self._tensors: list[Tensor] = []
        self._constants: list[Constant] = []

    def match(self, mask: ir.Value | None) -> Match:
        """What the node is, with that mask."""
        query, key, value = self._sides
        left = self._rearranged("query", query, (*self._lead, query.rows, query.numbers))
        turned = (*self._lead_of_keys, key.numbers, key.rows)
        right = self._rearranged("key", key, turned, axis=len(turned) - 2)
        values = self._rearranged("value", value, (*self._lead_of_keys, value.rows, value.numbers))
        read = [(one.value, one.tensor) for one in self._sides]
        seen: Tensor | None = None
        if mask is not None and constant(mask) is None:
            read.append(source(self._context, mask, "attn_mask"))
            seen = self._seen_mask(read[-1][1])
        scores = self._product("scores", left, right, (*self._lead, query.rows, key.rows))
        factor = self._node.attributes.get_float("scale", 1 / sqrt(query.numbers))
        if factor != 1:
            scores = self._with("scaled", Multiply, scores, self._constant("scale", np.array(factor, np.float32)))
        hidden = self._constant_mask(mask, scores.shape)
        if hidden is not None:
            scores = self._with("masked", Add, scores, self._constant("mask", hidden))
        if seen is not None:
            scores = self._with("with mask", Add, scores, seen)
        weights = self._made("weights", scores.shape)
        self._operations.append(Softmax(output=weights.name, sources=self._sources, input=scores.name))
        self._leave(weights, values)
        return match_of_several(
            self._node, [self._result], [one for one, _ in read], [tensor for _, tensor in read],
            self._operations, self._constants, self._tensors,
        )  # fmt: skip

    @property
    def _sources(self) -> tuple[SourceNode, ...]:
        return sources_of(self._result.nodes)

    def _made(self, what: str, shape: tuple[int, ...], axis: int | None = None) -> Tensor:
        """A tensor between the operations."""
        y = self._result.tensor
        axis = len(shape) - 1 if axis is None else axis
        found = replace(y, name=self._free(what), shape=shape, channel_axis=axis)
        self._tensors.append(found)
        return found

    def _free(self, what: str) -> str:
        """A name for something of the node's own."""
        name = free_name(f"{self._result.tensor.name} {what}", self._taken)
        self._taken.add(name)
        return name

    def _rearranged(self, what: str, side: _Side, shape: tuple[int, ...], axis: int | None = None) -> Tensor:
        """A side as matrices of heads; of `axis`, words hold what lies along it."""
        found = self._made(what, shape, axis)
        order = side.order
        if found.channel_axis != len(shape) - 1:
            order = (*order[:2], order[3], order[2])
        self._operations.append(
            Rearrange(
                output=found.name, sources=self._sources, input=side.tensor.name, sizes=side.sizes, permutation=order
            )
        )
        return found

    def _product(self, what: str, left: Tensor, right: Tensor, shape: tuple[int, ...]) -> Tensor:
        found = self._made(what, shape)
        self._operations.append(
            MatrixProduct(output=found.name, sources=self._sources, left=left.name, right=right.name)
        )
        return found

    def _with(self, what: str, kind: type[Elementwise], left: Tensor, right: Tensor) -> Tensor:
        found = self._made(what, left.shape)
        self._operations.append(kind(output=found.name, sources=self._sources, left=left.name, right=right.name))
        return found

    def _constant(self, what: str, data: NDArray[np.float32]) -> Tensor:
        tensor = Tensor(self._free(what), data.shape, FLOAT32)
        self._constants.append(Constant(tensor, data))
        return tensor

    def _constant_mask(self, mask: ir.Value | None, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
        """What is added to the scores, because of a constant mask or of what comes later; None for nothing."""
        rows, keys = shape[-2:]
        data = constant(mask) if mask is not None else None
        found = None
        if data is not None:
            if data.dtype == np.bool_:
                data = np.where(data, 0, _LOWEST)
            elif data.dtype != np.float32:
                raise Refused(f"attn_mask is {data.dtype}; float32 and bool are supported")
            found = np.maximum(data.astype(np.float32), _LOWEST).reshape(self._mask_shape(data.shape))
        if self._node.attributes.get_int("is_causal", 0):
            later = np.where(np.tri(rows, keys, dtype=bool), 0, _LOWEST).astype(np.float32)
            found = later if found is None else np.maximum(np.where(later < 0, later, found), _LOWEST)
        return found

    def _mask_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A mask's shape, with the dimensions of the scores."""
        query, key, _ = self._sides
        scores = query.batch, query.heads, query.rows, key.rows
        aligned = (1,) * (4 - len(shape)) + tuple(shape)
        repeats = len(aligned) == 4 and all(size in (1, wanted) for size, wanted in zip(aligned, scores, strict=True))
        if not repeats or len(shape) < 2 or shape[-1] != key.rows:
            raise Refused(
                f"attn_mask is {list(shape)}, and scores are {list(scores)}; it must have their last dimension, "
                "and may repeat along others"
            )
        batch, heads, *rest = aligned
        if len(self._lead) == 2:
            return aligned
        return batch, *((1, 1) if heads == 1 else self._lead[1:]), *rest

    def _seen_mask(self, given: Tensor) -> Tensor:
        """A mask that is computed, with the dimensions of the scores."""
        shape = self._mask_shape(given.shape)
        if shape == given.shape:
            return given
        found = self._made("mask of heads", shape)
        axes = tuple(range(len(given.shape)))
        self._operations.append(
            Rearrange(output=found.name, sources=self._sources, input=given.name, sizes=given.shape, permutation=axes)
        )
        return found

    def _leave(self, weights: Tensor, values: Tensor) -> None:
        """The second product, in the order that the node's result has."""
        query, _, value = self._sides
        result = self._result
        shape = (*self._lead, query.rows, value.numbers)
        if query.apart and len(self._lead) == 2 and result.tensor.channel_axis == len(shape) - 1:
            self._operations.append(
                MatrixProduct(output=result.tensor.name, sources=self._sources, left=weights.name, right=values.name)
            )
            return
        mixed = self._product("context", weights, values, shape)
        sizes = query.batch, query.heads, query.rows, value.numbers
        self._operations.append(
            Rearrange(
                output=result.tensor.name, sources=self._sources, input=mixed.name, sizes=sizes, permutation=query.order
            )
        )
