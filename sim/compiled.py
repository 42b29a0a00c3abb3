"""numba, set up once: kernels are kept in the user's cache folder, never in the package folder.

numba's own cache stops with an error where a file is cut short, damaged or cannot be written, and loads machine code
that was altered; so only what numba makes of a kernel is its own here, and how that is kept is the kit's.
"""

import hashlib
import os
import pickle
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching
from numba.core.compiler import CompileResult
from numba.core.options import DefaultOptions
from numba.core.serialize import dumps

from npukit.cache import cache_path, keep, read_kept

__all__ = ["njit", "njit_of_parts", "njit_part"]


_STAMPS = sorted((str(path), path.stat().st_mtime_ns) for path in Path(__file__).parent.rglob("*.py"))
"""When this folder's sources were changed last, as they are loaded: later changes are not in this process's kernels."""


@cache
def _folder() -> Path | None:
    """Where kernels are kept, by the state of this folder's sources: a kernel holds the functions that it calls."""
    state = hashlib.sha256(repr(_STAMPS).encode()).hexdigest()[:16]
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen, "npukit", state).absolute() if chosen else cache_path("kernels", state)


class _KernelCache(caching.FunctionCache):
    """One file for each kernel, types of its arguments, and processor."""

    def __init__(self, py_func: Callable) -> None:
        self._py_func = py_func
        # now, as the code is loaded: what the file holds at the first call may be another code
        self._stamp = os.stat(py_func.__code__.co_filename).st_mtime_ns
        self.enable()

    @property
    def cache_path(self) -> Path | None:
        """Its folder."""
        return _folder()

    def flush(self) -> None:
        """Nothing is to be forgotten: what is kept is right."""

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        code = self._py_func.__code__
        source = code.co_filename, code.co_firstlineno, self._stamp
        versions = numba.__version__, platform.python_version()
        key = hashlib.sha256(repr((source, versions, self._index_key(signature, codegen))).encode()).hexdigest()[:32]
        folder = _folder()
        return None if folder is None else folder / f"{self._py_func.__qualname__}-{key}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for arguments of these types; None where it is to be compiled."""
        target_context.refresh()
        kept = read_kept(self._path(sig, target_context.codegen())) if self._enabled else None
        if kept is None:
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(kept))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel, if that can be."""
        if self._enabled and not data.library.has_dynamic_globals:
            keep(self._path(sig, data.codegen), dumps(data._reduce()))


def _compiled(function: Callable, **options: Any) -> Any:
    compiled: Any = numba.njit(function, **options)
    if compiled is not function:
        compiled._cache = _KernelCache(function)  # pyright: ignore[reportAttributeAccessIssue]
    return compiled


def njit(function: Callable) -> Any:
    """`numba.njit` with that cache; the function itself under `NUMBA_DISABLE_JIT=1`."""
    return _compiled(function)


# Without it numba counts references to an array in each function that the array is given to, which took three quarters
# of the timing kernel's time. The option is internal: where a numba has it no more, the kernel is slower, not wrong.
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def njit_part(function: Callable) -> Any:
    """`njit` for a function of a kernel that is made of many: compiled into its callers, which Python is not among.

    It makes no arrays.
    """
    return _compiled(function, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_UNCOUNTED)


def njit_of_parts(function: Callable) -> Any:
    """`njit` for the function of such a kernel that Python calls."""
    return _compiled(function, **_UNCOUNTED)
