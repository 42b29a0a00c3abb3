"""numba, set up once: kernels are cached in the user's cache folder, never in the package folder."""

import hashlib
import os
from pathlib import Path

import numba

__all__ = ["cache_folder", "njit"]


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/npukit`, by default `~/.cache/npukit`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "npukit"


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    except OSError:
        return False


def _state() -> str:
    """Of this folder's sources: numba looks at a kernel's own file, and not at those whose functions it calls."""
    stamps = sorted((path.name, path.stat().st_mtime_ns) for path in Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]


_kernels = cache_folder() / "kernels" / _state()
_cached = "NUMBA_CACHE_DIR" in os.environ
if not _cached and _usable(_kernels):
    numba.config.CACHE_DIR = str(_kernels)  # type: ignore[attr-defined]
    _cached = True

njit = numba.njit(cache=_cached)
