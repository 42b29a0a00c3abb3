"""What convolutions and pools share."""

from collections.abc import Sequence
from typing import Any

__all__ = ["spread"]


def spread(value: Any, dimensions: int) -> list[int]:
    """A number for each dimension, of one for all or one for each."""
    values = list(value) if isinstance(value, Sequence) else [value]
    return [int(one) for one in (values * dimensions if len(values) == 1 else values)]
