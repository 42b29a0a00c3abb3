"""One function compiled for each kind of arguments that it is called with, with the numbers that it holds."""

import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npukit.pytorch.graph import AcceleratedGraph
from npukit.pytorch.target import Target

__all__ = ["Variants", "kind_of", "state_of"]

_MOST = 16
"""Compiled forms that are kept, the latest used ones."""


def kind_of(value: Any) -> Hashable:
    """What a graph is compiled for: of a tensor its shape, strides, dtype and device, of anything else its value."""
    if isinstance(value, torch.Tensor):
        strides = None if value.layout != torch.strided or value.is_contiguous() else value.stride()
        return torch.Tensor, tuple(value.shape), strides, value.dtype, value.device
    if isinstance(value, float):
        return float, value.hex()  # 0.0 and -0.0 are equal, and NaN is not itself
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value


def state_of(tensor: torch.Tensor) -> Hashable:
    """What changes when somebody writes to a tensor: its memory, and PyTorch's count of writes to it, which inference
    tensors do not have. What is written behind PyTorch's back, through `.data` or numpy, does not show."""
    return tensor.data_ptr(), None if tensor.is_inference() else tensor._version


@dataclass(frozen=True)
class _Compiled:
    """A graph, and what the tensors were that belong to it; of those that it changes itself, their state is nothing."""

    states: Mapping[str, tuple["weakref.ref[torch.Tensor]", Hashable]]
    graph: AcceleratedGraph

    def holds(self, held: Mapping[str, torch.Tensor]) -> bool:
        """Whether these are the tensors, and have not changed."""
        return held.keys() == self.states.keys() and all(
            reference() is held[name] and state in (None, state_of(held[name]))
            for name, (reference, state) in self.states.items()
        )


class Variants:
    """Compiled forms by what they were compiled for.

    Args:
        target: of all of them.
        name: of what is compiled, for notices.

    Attributes:
        latest: the graph that ran last, in any thread.
    """

    def __init__(self, target: Target, name: str) -> None:
        self.latest: AcceleratedGraph | None = None
        self._target, self._name = target, name
        self._graphs: OrderedDict[Hashable, _Compiled] = OrderedDict()
        self._lock = threading.RLock()
        self._noticed: set[str] = set()

    def get(
        self, kind: Hashable, held: Mapping[str, torch.Tensor], export: Callable[[], torch.export.ExportedProgram]
    ) -> AcceleratedGraph:
        """The graph for arguments of a kind.

        Args:
            kind: of the arguments.
            held: parameters and buffers by the names that the program gives them. When one changes that is part of the
                compiled graph, and not changed by it, it is compiled again.
            export: makes the program of which it is compiled.
        """
        with self._lock:
            found = self._graphs.get(kind)
            if found is None or not found.holds(held):
                if found is not None:
                    self._notice("weights", "its weights have changed")
                elif self._graphs:
                    self._notice("shapes", "it was called with arguments of other shapes or types")
                # what is written while it is compiled counts as a change
                states: dict[str, Any] = {name: (weakref.ref(one), state_of(one)) for name, one in held.items()}
                graph = AcceleratedGraph(export(), self._target)
                for name in states.keys() & {*graph.changed}:
                    states[name] = states[name][0], None
                found = _Compiled(states, graph)
                self._graphs[kind] = found
                while len(self._graphs) > _MOST:
                    _, oldest = self._graphs.popitem(last=False)
                    oldest.graph.close()
            self._graphs.move_to_end(kind)
            self.latest = found.graph
            return found.graph

    def _notice(self, why: str, text: str) -> None:
        if why not in self._noticed:
            self._noticed.add(why)
            warnings.warn(
                f"npukit compiles {self._name} again, because {text}; further times pass without a notice", stacklevel=5
            )
