"""Graphs of PT2E before they are annotated: operators in the place of others that the int8 machine does not run."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from npukit.compiler.frontends.pytorch.operators import operator_name

__all__ = ["is_float", "plain_name", "rewrite"]

_ATEN: Any = torch.ops.aten


def rewrite(model: fx.GraphModule, limiters: Collection[str]) -> None:
    """Rewrite a graph in place.

    Args:
        model: a graph of ATen operators, of an export.
        limiters: names of operators that limit numbers, and may be part of a product before them.
    """
    for node in [one for one in model.graph.nodes if one.op == "call_function" and is_float(one)]:
        _make_functional(node)
        make = _flat_limiter if plain_name(node) in limiters else _REWRITES.get(plain_name(node))
        if make is None or not all(isinstance(size, int) for size in node.meta["val"].shape):
            continue
        with model.graph.inserting_before(node):
            result = make(node, *node.args, **node.kwargs)
        if result is not None:
            node.replace_all_uses_with(result)
            model.graph.erase_node(node)
    model.graph.eliminate_dead_code()
    model.recompile()


def plain_name(node: fx.Node) -> str:
    """An operator's name; of one that changes its argument, that of the one that does not."""
    return operator_name(node.target).replace("_.", ".")


def is_float(node: fx.Node) -> bool:
    """Whether a node makes one tensor of float32."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _make_functional(node: fx.Node) -> None:
    """Let an operator that changes its argument make another tensor; who reads the argument later, reads that."""
    argument = node.args[0] if node.args else None
    if not isinstance(argument, fx.Node) or not plain_name(node) != operator_name(node.target):
        return
    made = argument.target._schema.returns if isinstance(argument.target, torch._ops.OpOverload) else ()
    if len(made) != 1 or made[0].alias_info is not None:
        return  # others may see the change through another tensor
    packet, overload = str(node.target).removeprefix("aten.").split(".")
    node.target = getattr(getattr(_ATEN, packet.removesuffix("_")), overload)
    argument.replace_all_uses_with(node, lambda user: user is not node and node < user)


def _call(node: fx.Node, target: Any, *arguments: Any) -> fx.Node:
    """A new node of the graph of another one, with its result's shape."""
    made = node.graph.call_function(target, arguments)
    made.meta = {key: value for key, value in node.meta.items() if key != Q_ANNOTATION_KEY}
    with node.meta["val"].fake_mode:
        made.meta["val"] = target(*fx.map_arg(arguments, lambda one: one.meta["val"]))
    return made


def _flat_linear(node: fx.Node, x: Any, weight: Any, bias: Any = None) -> fx.Node | None:
    """A product with a bias is one of matrices."""
    shape = [*node.meta["val"].shape]
    if len(shape) < 3 or bias is None:
        return None
    rows = _call(node, _ATEN.reshape.default, x, [math.prod(shape[:-1]), x.meta["val"].shape[-1]])
    return _call(node, _ATEN.reshape.default, _call(node, _ATEN.linear.default, rows, weight, bias), shape)


def _flat_limiter(node: fx.Node, x: Any, *limits: Any) -> fx.Node | None:
    """Limits stand right behind the product."""
    if plain_name(x) != "aten.reshape.default" or plain_name(x.args[0]) != "aten.linear.default" or len(x.users) != 1:
        return None
    return _call(node, _ATEN.reshape.default, _call(node, node.target, x.args[0], *limits), x.args[1])


def _subtraction(node: fx.Node, x: Any, y: Any, *, alpha: float = 1) -> fx.Node | None:
    tensors = isinstance(x, fx.Node) and isinstance(y, fx.Node) and y.meta["val"].numel() > 1
    return _call(node, _ATEN.add.Tensor, x, _call(node, _ATEN.neg.default, y)) if tensors and alpha == 1 else None


def _selection(node: fx.Node, x: Any, axis: int, index: int) -> fx.Node:
    index %= x.meta["val"].shape[axis]
    return _call(node, _ATEN.squeeze.dim, _call(node, _ATEN.slice.Tensor, x, axis, index, index + 1), axis)


def _attention(
    node: fx.Node, query: Any, key: Any, value: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> fx.Node | None:  # fmt: skip
    """An attention without a mask is two products and a softmax."""
    if mask is not None or dropout or is_causal or enable_gqa:
        return None
    scaled = _call(node, _ATEN.mul.Tensor, query, scale or query.meta["val"].shape[-1] ** -0.5)
    scores = _call(node, _ATEN.matmul.default, scaled, _call(node, _ATEN.transpose.int, key, -2, -1))
    return _call(node, _ATEN.matmul.default, _call(node, _ATEN.softmax.int, scores, -1), value)


def _padding(node: fx.Node, x: Any, pads: Sequence[int], *unused: Any) -> fx.Node | None:
    return None if any(pads) else x


def _nothing(node: fx.Node, x: Any, *rest: Any, **unused: Any) -> fx.Node | None:
    """What a dropout of an inference does, or a copy."""
    return None if True in rest else x


_REWRITES: dict[str, Callable[..., fx.Node | None]] = {
    **{f"aten.{name}.default": _nothing for name in ("clone", "contiguous", "detach", "dropout", "feature_dropout")},
    "aten.constant_pad_nd.default": _padding,
    "aten.linear.default": _flat_linear,
    "aten.pad.default": _padding,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.select.int": _selection,
    "aten.sub.Tensor": _subtraction,
}
