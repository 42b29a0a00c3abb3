"""PyTorch's tracing, by one thread at a time, and without what it says of itself."""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["tracing"]

_LOCK = threading.RLock()
"""`torch.export` keeps what it is about in variables of its modules."""
_LOGGERS = ("torch.export", "torch._subclasses.fake_tensor")


@contextmanager
def tracing() -> Iterator[None]:
    """Without other threads that trace, without PyTorch's warnings about its own code, and without what it logs of an
    error that it raises then."""
    with _LOCK:
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        levels = [one.level for one in loggers]
        for one in loggers:
            one.setLevel(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", category=FutureWarning)
                warnings.filterwarnings("ignore", category=DeprecationWarning)
                # of caches, as LSTM has one of its weights
                warnings.filterwarnings("ignore", message=".*were assigned during export", category=UserWarning)
                yield
        finally:
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)
