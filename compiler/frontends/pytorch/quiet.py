"""PyTorch without what it says of itself."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's warnings about its own code, and without what `torch.export` logs before it raises it."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            # of caches, as LSTM has one of its weights
            warnings.filterwarnings("ignore", message=".*were assigned during export", category=UserWarning)
            yield
    finally:
        logger.setLevel(level)
