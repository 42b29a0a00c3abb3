"""Whether the operators of a program that was read make what its file says that they make.

Whoever goes on with the program relies on the shapes in it, and on steps that are as many as their sizes. They are
computed here, one operator after the other, without numbers.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.pytorch.archive_check import MOST_ELEMENTS
from npukit.compiler.frontends.pytorch.archive_operators import CALLED_ONCE_PER_ELEMENT
from npukit.compiler.frontends.pytorch.operators import operator_name
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

__all__ = ["check_results"]

_CONSTANT_ELEMENTS, _GROWTH, _DEGREE = 1 << 26, 16, 64
_UNKNOWN = frozenset({"item", "_local_scalar_dense"})
"""Operators whose results depend on numbers."""


def check_results(program: ExportedProgram) -> None:
    """Compute the shapes of a program.

    Raises:
        ModelError: an operator cannot be called like that or makes something else, or constants grow too large.
    """
    given = {one.arg.name for one in program.graph_signature.input_specs if one.kind == InputKind.USER_INPUT}
    stored = sum(one.numel() for one in [*program.state_dict.values(), *program.constants.values()])
    budget = _CONSTANT_ELEMENTS + _GROWTH * stored
    computed: set[fx.Node] = set()
    degrees: dict[fx.Node, int] = {}
    with _shapes_only(program):
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in given:
                computed.add(node)
            if node.op != "call_function":
                continue
            _check_degree(node, degrees)
            constant = computed.isdisjoint(node.all_input_nodes)
            if constant:
                budget -= sum(math.prod(one.shape) for one in _tensors(node.meta.get("val")))
                _check_division(node)
            else:
                computed.add(node)
            if budget < 0:
                raise ModelError(
                    f"{node.name} and what is computed before it of constants alone have more than "
                    f"{_CONSTANT_ELEMENTS + _GROWTH * stored} elements: let the module hold the result as a buffer"
                )
            _check_result(node)


@contextlib.contextmanager
def _shapes_only(program: ExportedProgram) -> Iterator[None]:
    first = next((one for node in program.graph.nodes for one in _tensors(node.meta.get("val"))), None)
    if not isinstance(first, FakeTensor):
        raise ModelError("the program has no tensor")
    mode = first.fake_mode
    with torch.no_grad(), mode, contextlib.ExitStack() as stack:
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.suppress_guards())
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        yield


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


def _name(node: fx.Node) -> str:
    """Of an operator of PyTorch, without its overload; none of a function of Python."""
    return node.target._schema.name.partition("::")[2] if isinstance(node.target, torch._ops.OpOverload) else ""


def _check_degree(node: fx.Node, degrees: dict[fx.Node, int]) -> None:
    """Refuse products of sizes that are squared again and again: as integers of Python they have no bound."""
    inner = [degrees.get(one, 1) for one in node.args if isinstance(one, fx.Node)]
    name = getattr(node.target, "__name__", "")
    power = node.args[1] if name == "pow" and len(node.args) > 1 else 1
    degree = sum(inner) if name == "mul" and not _name(node) else max(inner, default=1)
    degree *= max(1, math.ceil(power)) if isinstance(power, int | float) and math.isfinite(power) else _DEGREE
    if _name(node):
        degree = 1
    degrees[node] = degree
    if degree > _DEGREE:
        raise ModelError(
            f"{node.name} is a product of more than {_DEGREE} sizes: compute it once, and export its value"
        )


def _check_division(node: fx.Node) -> None:
    """Divisions of constants are computed, and one of integers that overflows ends the process."""
    if _name(node).removesuffix("_") in ("div", "divide") and "trunc" in (*node.args, *node.kwargs.values()):
        if not any(one.dtype.is_floating_point for one in _tensors(node.meta.get("val"))):
            raise ModelError(
                f"{node.name} divides constant integers and rounds towards 0: let the module hold the result"
            )


def _check_result(node: fx.Node) -> None:
    name = _name(node)
    if name in _UNKNOWN or name.startswith(("_assert", "sym_constrain")):
        return
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    most = CALLED_ONCE_PER_ELEMENT.get(name, MOST_ELEMENTS)
    for one in _tensors((args, kwargs)):
        for size in one.shape:
            if isinstance(size, int) and size > most:
                raise ModelError(
                    f"{operator_name(node.target)} {node.name} has a dimension of {size}; up to {most} are read"
                )
    if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
        # what is said of the arguments stays
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
    try:
        made = node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception as error:  # of whatever class an operator likes
        text = " ".join(str(error).split())[:200]
        raise ModelError(f"{operator_name(node.target)} {node.name} cannot be called like that: {text}") from None
    stated = node.meta.get("val")
    if not _same(made, stated):
        raise ModelError(
            f"{operator_name(node.target)} {node.name} makes {_shown(made)}, where the file states {_shown(stated)}"
        )


def _same(made: Any, stated: Any) -> bool:
    if isinstance(made, list | tuple) and isinstance(stated, list | tuple):
        return len(made) == len(stated) and all(map(_same, made, stated))
    if isinstance(made, torch.Tensor) and isinstance(stated, torch.Tensor):
        sizes = zip(made.shape, stated.shape, strict=False)
        return made.dtype == stated.dtype and made.dim() == stated.dim() and all(_same(*pair) for pair in sizes)
    if isinstance(made, torch.Tensor) or isinstance(stated, torch.Tensor):
        return False
    known = isinstance(made, int | float) and isinstance(stated, int | float)
    return not known or made == stated or made != made  # sizes that are open are whatever they come to


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
    return f"{len(value)} results" if isinstance(value, list | tuple) else str(value)[:100]
