"""Graphs of ATen operators before they are translated: what is known beforehand, computed beforehand."""

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from npukit.compiler.frontends.pytorch.decompositions import decompositions
from npukit.compiler.frontends.pytorch.masks import HiddenRowError, attention_mask
from npukit.compiler.frontends.pytorch.tracing import tracing
from torch import fx
from torch.export import ExportedProgram

__all__ = ["FOLDED", "Simplified", "simplified"]

FOLDED = "_folded_"
"""How names of tensors begin that were computed beforehand."""

_LARGEST, _GROWTH = 1 << 20, 2
"""Elements of a constant that may be made of others: so many in any case, or so many times theirs."""
_CHECKS = frozenset(
    {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default"}
)
_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
_PADS = frozenset({"aten.pad.default", "aten.constant_pad_nd.default"})
_CONVOLUTIONS = frozenset(f"aten.conv{n}d.{form}" for n in (1, 2, 3) for form in ("default", "padding"))


@dataclass(frozen=True)
class Simplified:
    """A program as a module that runs, in which what depends on no input is a constant, and batch normalisations are
    part of the convolution before them.

    Attributes:
        module: of ATen operators. Those without side effects, where the program has none.
        constants: the tensors that it holds and does not change, by the nodes that read them.
        changed: names of buffers and arguments that it changes.
    """

    module: fx.GraphModule
    constants: Mapping[fx.Node, torch.Tensor]
    changed: tuple[str, ...]


def simplified(program: ExportedProgram) -> Simplified:
    """Simplify a program."""
    with tracing():
        program = program.run_decompositions(decompositions())
    signature = program.graph_signature  # which says what is changed from here on
    changed = {*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()}
    module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    for node in [*module.graph.nodes]:
        if str(node.target) in _CHECKS:
            module.graph.erase_node(node)
    _drop_empty_pads(module.graph)
    _add_masks(module.graph)
    _fold_constants(module, changed)
    _fold_batch_norms(module, changed)
    module.graph.eliminate_dead_code()
    module.recompile()
    return Simplified(module, _constants(module, changed), tuple(sorted(changed)))


def _constants(module: fx.GraphModule, changed: Collection[str]) -> dict[fx.Node, torch.Tensor]:
    """The tensors that a module holds and that its graph does not change, by the nodes that read them."""
    written = {
        argument
        for node in module.graph.nodes
        if node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        for argument in node.all_input_nodes
    }
    return {
        node: value
        for node in module.graph.nodes
        if node.op == "get_attr" and node.target not in changed and node not in written
        if isinstance(value := _attribute(module, str(node.target)), torch.Tensor)
    }


def _attribute(module: fx.GraphModule, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _drop_empty_pads(graph: fx.Graph) -> None:
    """A padding of nothing would stand between a quantised tensor and its reader."""
    for node in [one for one in graph.nodes if str(one.target) in _PADS]:
        if not any(node.args[1]):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _add_masks(graph: fx.Graph) -> None:
    """Masks of attention become numbers to add, once for all layers that share one: then the machine can run the
    attention."""
    added: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}
    for node in [one for one in graph.nodes if str(one.target) == "aten.scaled_dot_product_attention.default"]:
        mask = node.args[3] if len(node.args) > 3 else None
        if not isinstance(mask, fx.Node):
            continue
        kind = node.meta["val"].dtype
        if (mask, kind) not in added:
            with graph.inserting_after(mask):
                added[mask, kind] = graph.call_function(attention_mask, (mask, kind))
            added[mask, kind].meta["val"] = mask.meta["val"].to(kind)
        node.args = (*node.args[:3], added[mask, kind], *node.args[4:])


def _fold_constants(module: fx.GraphModule, changed: Collection[str]) -> None:
    known: dict[fx.Node, Any] = {**_constants(module, changed)}
    for node in module.graph.nodes:
        if node.op == "call_function" and _is_known(node, known):
            value = _computed(node, known)
            if value is not None:
                known[node] = value
    numbers = itertools.count()
    for node in [one for one in module.graph.nodes if one.op == "call_function"]:
        value = known.get(node)
        if isinstance(value, torch.Tensor) and any(user not in known for user in node.users):
            _replace(module, node, value, f"{FOLDED}constant_{next(numbers)}")


def _is_known(node: fx.Node, known: Mapping[fx.Node, Any]) -> bool:
    """Whether a node makes the same of the same, and of nothing that is known too late."""
    if any(one not in known for one in node.all_input_nodes):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        if node.target.namespace == "quantized_decomposed":  # quantised weights stay what they are
            return False
        impure = node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags
        return not impure
    return node.target is attention_mask or getattr(node.target, "__name__", "") == "getitem"


def _computed(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    result = node.meta.get("val")
    size = math.prod(result.shape) if isinstance(result, torch.Tensor) else 0
    given = sum(one.numel() for one in map(known.__getitem__, node.all_input_nodes) if isinstance(one, torch.Tensor))
    if size > max(_LARGEST, _GROWTH * given):
        return None
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    try:
        with torch.no_grad():
            return node.target(*args, **kwargs)  # type: ignore[operator]
    except HiddenRowError:  # which whoever runs the graph has to deal with
        return None


def _replace(module: fx.GraphModule, node: fx.Node, value: torch.Tensor, name: str) -> fx.Node:
    """Put a constant in a node's place."""
    module.register_buffer(name, value.detach(), persistent=False)
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    constant.meta = {**node.meta}
    node.replace_all_uses_with(constant)
    return constant


def _fold_batch_norms(module: fx.GraphModule, changed: Collection[str]) -> None:
    """Convolutions of constant weights whose result goes to a batch normalisation alone take its numbers over, in
    double precision, rounded once."""
    constants = _constants(module, changed)
    numbers = itertools.count()
    for norm in [one for one in module.graph.nodes if str(one.target) == _BATCH_NORM]:
        conv = norm.args[0]
        result = _only_result(norm)
        if result is None or str(conv.target) not in _CONVOLUTIONS or len(conv.users) != 1:
            continue
        given = [*conv.args, None][1:3]
        statistics = norm.args[1:5]
        if any(one is not None and one not in constants for one in (*given, *statistics)) or None in statistics[2:]:
            continue
        epsilon = norm.args[6]
        weight, bias, scale, shift, mean, variance = (
            None if one is None else constants[one].detach().double() for one in (*given, *statistics)
        )
        assert weight is not None and mean is not None and variance is not None
        factor = (1 if scale is None else scale) / torch.sqrt(variance + epsilon)
        kind = constants[given[0]].dtype
        folded = weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
        moved = ((0 if bias is None else bias) - mean) * factor + (0 if shift is None else shift)
        fake = conv.meta["val"].fake_mode
        nodes = []
        for value in (folded.to(kind), moved.to(kind)):
            name = f"{FOLDED}weights_{next(numbers)}"
            module.register_buffer(name, value, persistent=False)
            with module.graph.inserting_before(conv):
                node = module.graph.get_attr(name)
            node.meta["val"] = fake.from_tensor(value, static_shapes=True) if fake is not None else value
            nodes.append(node)
        conv.args = (conv.args[0], *nodes, *conv.args[3:])
        result.replace_all_uses_with(conv)
        module.graph.erase_node(result)
        module.graph.erase_node(norm)


def _only_result(norm: fx.Node) -> fx.Node | None:
    """The node that stands for what a batch normalisation makes of its input, where its statistics are not read."""
    users = [*norm.users]
    return users[0] if len(users) == 1 and users[0].args[1] == 0 else None
