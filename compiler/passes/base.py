"""What a pass is, and what runs passes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

__all__ = ["Pass", "PassRunner"]

_Given = TypeVar("_Given", contravariant=True)
_Made = TypeVar("_Made", covariant=True)
_G = TypeVar("_G")
_M = TypeVar("_M")


class Pass(Protocol[_Given, _Made]):
    """A step of the compiler, which makes one thing of another: a frozen dataclass of its options, and of what it looks
    at besides."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    def run(self, given: _Given, /) -> _Made:
        """What it makes of what is given."""
        ...


@dataclass
class PassRunner:
    """Runs passes, and checks what they made.

    Attributes:
        progress: gets the name of each pass when it begins for the first time.
        seconds: how long each pass took, with its checks, in all of its runs.
    """

    progress: Callable[[str], None] = lambda _: None
    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, one: Pass[_G, _M], given: _G, check: Callable[[_M], object] = lambda _: None) -> _M:
        """What the pass makes of what is given. Raises what the pass and the check raise."""
        with self.timed(one.name):
            made = one.run(given)
            check(made)
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
