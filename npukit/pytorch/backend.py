"""The backend of `torch.compile`, which PyTorch finds by the entry point `npukit`."""

import sys
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from npukit.compiler.errors import CompileError
from npukit.errors import UsageError
from npukit.pytorch.gradients import refuse_gradients, wants_gradients
from npukit.pytorch.graph import AcceleratedGraph
from npukit.pytorch.module import export_module, ordinary
from npukit.pytorch.target import Target, target_of
from npukit.pytorch.variants import Variants, kind_of

__all__ = ["graphs_of", "npukit_backend"]


def npukit_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph that `torch.compile` has captured.

    Args:
        graph: of PyTorch's functions.
        example_inputs: tensors, and numbers where shapes are dynamic.
        mode: there is none.
        options: those of `Target`, by name, as in `torch.compile(model, backend="npukit", options={"config": ...})`.

    Raises:
        ConfigError, UsageError: an option that is not known, or not possible.
    """
    if mode is not None:
        raise UsageError(f'the backend npukit has no mode {mode!r}: give options={{"optimize": 0, 1 or 2}} instead')
    return _CapturedGraph(graph, example_inputs, target_of(options or {}))


class _CapturedGraph:
    """A captured graph, compiled for the shapes with which it is called, when it is called with them first.

    Its inputs are the module's parameters and buffers as well, which become part of what is compiled.
    """

    def __init__(self, graph: fx.GraphModule, example_inputs: Sequence[Any], target: Target) -> None:
        self._graph = _without_modes(graph)
        self._refused = False
        self._held = [place for place, value in enumerate(example_inputs) if _belongs_to_module(value)]
        self._free = [place for place in range(len(example_inputs)) if place not in {*self._held}]
        self._variants = Variants(target, "a graph of torch.compile")

    def __call__(self, *arguments: Any) -> Any:
        held = {f"input_{place}": arguments[place] for place in self._held}
        free = tuple(arguments[place] for place in self._free)
        kind = tuple(map(id, held.values())), tuple(map(kind_of, free))
        try:
            compiled = self._variants.get(kind, held, lambda: self._exported(held, free))
        except CompileError as error:
            self._notice(error)
            return self._graph(*arguments)
        copied = next((name for name in compiled.changed if name in held and held[name].is_inference()), None)
        if copied is not None:
            raise UsageError(
                "the module changes a buffer that was made in inference mode: make it outside of torch.inference_mode()"
            )
        results = compiled(*free)
        anchor = wants_gradients(arguments)
        return results if anchor is None else refuse_gradients(results, anchor, arguments)

    def _notice(self, error: Exception) -> None:
        if not self._refused:
            self._refused = True
            warnings.warn(f"npukit leaves a graph of torch.compile to PyTorch: {error}", stacklevel=4)

    def _exported(self, held: Mapping[str, torch.Tensor], free: tuple[Any, ...]) -> torch.export.ExportedProgram:
        _note_callers(self._variants)
        with torch.inference_mode(False):
            return export_module(_Bound(self._graph, held), free, {})


def _without_modes(graph: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph that does not turn gradients off or on: nothing of it has any."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    for node in [one for one in copy.nodes if one.target is torch._C._set_grad_enabled]:
        copy.erase_node(node)
    return fx.GraphModule(graph, copy)


class _Bound(torch.nn.Module):
    """A graph with some of its inputs given, by the names `input_` and their places."""

    def __init__(self, graph: fx.GraphModule, given: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.graph, self._given = graph, {*given}
        for name, value in given.items():
            if isinstance(value, torch.nn.Parameter) and not value.is_inference():
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, ordinary(value.detach()) if value.is_inference() else value)

    def forward(self, *free: Any) -> Any:
        """The graph's results."""
        rest = iter(free)
        names = (f"input_{place}" for place in range(len(self._given) + len(free)))
        return self.graph(*(getattr(self, name) if name in self._given else next(rest) for name in names))


def _belongs_to_module(value: Any) -> bool:
    """Whether a graph's input is a parameter or buffer of a module, which PyTorch marks."""
    marked = isinstance(value, torch.Tensor) and getattr(value, "_dynamo_static_input_type", None) is not None
    return isinstance(value, torch.nn.Parameter) or marked


_CALLERS: "list[tuple[weakref.ref[Any], weakref.ref[Variants]]]" = []
"""Modules within whose call a graph was first run, and functions' codes, with the graph's compiled forms."""


def _note_callers(variants: Variants) -> None:
    """Remember within the calls of which modules and functions a graph runs, so that a report on them finds it:
    `torch.compile` does not tell its backend for whom a graph is."""
    seen: set[int] = set()
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name in ("_wrapped_call_impl", "_call_impl") else None
        for one in (owner, frame.f_code):
            if one is not None and id(one) not in seen:
                seen.add(id(one))
                _CALLERS.append((weakref.ref(one), weakref.ref(variants)))
        frame = frame.f_back
    _CALLERS[:] = [pair for pair in _CALLERS if pair[0]() is not None and pair[1]() is not None]


def graphs_of(compiled: Any) -> tuple[AcceleratedGraph, ...]:
    """What ran last of each graph of a module or function of `torch.compile`, in the order of compilation."""
    module = getattr(compiled, "_orig_mod", None)
    function = getattr(compiled, "_torchdynamo_orig_callable", compiled)
    code = None if module is not None else getattr(function, "__code__", None)  # modules of a class share theirs
    found: dict[int, Variants] = {}
    for owner, reference in _CALLERS:
        one, variants = owner(), reference()
        if variants is None or one is None:
            continue
        same_code = code is not None and _place(one) == _place(code)
        if one is compiled or (module is not None and one is module) or same_code:
            found.setdefault(id(variants), variants)
    return tuple(variants.latest for variants in found.values() if variants.latest is not None)


def _place(code: Any) -> Any:
    """Where the source of a code lies: `torch.compile` runs another code of the same source."""
    return (code.co_filename, code.co_firstlineno, code.co_name) if hasattr(code, "co_code") else code
