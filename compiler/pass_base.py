"""What a pass is, and what runs passes."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.verify import verify_graph

__all__ = ["GraphsPass", "Pass", "PassRunner"]

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class Pass(ABC, Generic[_Given, _Made]):
    """A step of the compiler, which makes one thing of another: a frozen dataclass of its options."""

    name: ClassVar[str]
    """What the command line calls it."""

    @abstractmethod
    def run(self, given: _Given, /) -> _Made:
        """What it makes of what is given."""

    def check(self, made: _Made, /) -> None:
        """Raise what is wrong with what it made, a fault of the compiler and never of the model: nothing, unless a pass
        says otherwise."""


class GraphsPass(Pass[_Given, tuple[Graph, ...]]):
    """A pass that makes a graph of each part of a model that is accelerated."""

    def check(self, made: tuple[Graph, ...], /) -> None:
        """Raise InvalidGraph for a graph that the IR's rules do not allow."""
        for graph in made:
            verify_graph(graph)


@dataclass
class PassRunner:
    """Runs passes, and checks what they made.

    Attributes:
        progress: gets the name of each pass when it begins for the first time.
        seconds: how long each pass took, with its checks, in all of its runs.
    """

    progress: Callable[[str], None] = lambda _: None
    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, one: Pass[_Given, _Made], given: _Given) -> _Made:
        """What the pass makes of what is given. Raises what the pass and its check raise."""
        with self.timed(one.name):
            made = one.run(given)
            one.check(made)
        return made

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """What happens meanwhile belongs to the pass of that name."""
        if name not in self.seconds:
            self.progress(name)
            self.seconds[name] = 0.0
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begun
