"""Operations whose tasks are emitted when what they store is loaded: of attention, one head's projections after the
other's, in place of all before the first head."""

from collections.abc import Iterator

import numpy as np
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.tasks import Box
from numpy.typing import NDArray

__all__ = ["Postponed"]


class Postponed:
    """An operation that is put off.

    Args:
        result: which it makes.
        steps: emit its tasks, some with each step.
        lanes: channels of a word.
    """

    def __init__(self, result: Tensor, steps: Iterator[None], lanes: int) -> None:
        self._steps = steps
        images, channels, height, width = result.view
        self._stored = np.zeros((-(-channels // lanes), images * height * width), bool)

    def store(self, box: Box) -> None:
        """Take note of a part that is stored."""
        self._part(box)[...] = True

    def need(self, box: Box) -> None:
        """Have tasks emitted until all of a part is stored."""
        while not self._part(box).all():
            next(self._steps)

    def finish(self) -> None:
        """Have all tasks emitted that are left."""
        for _ in self._steps:
            pass

    def _part(self, box: Box) -> NDArray[np.bool_]:
        rows = self._stored.reshape(len(self._stored), -1, box.width)
        return rows[slice(*box.block), slice(*box.y), slice(*box.x)]
