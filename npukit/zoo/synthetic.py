"""Networks with synthetic weights: made once, then cached by what makes them."""

import hashlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from npukit.cache import cache_path, keep, read_kept
from npukit.hw.toolchain import source_digest

__all__ = ["synthetic"]


def _sources() -> str:
    return source_digest([Path(__file__).parent])


_SOURCES = _sources()
"""Of what makes the networks, as it is loaded: files that are edited later are not what this process runs."""


def synthetic(name: str, precision: str, seed: int, progress: Callable[[str], None]) -> bytes:
    """The ONNX file of a network of `ARCHITECTURES`."""
    path = cache_path("zoo", f"{name}-{precision}-{seed}-{_key()}.onnx")
    kept = read_kept(path)
    if kept is not None:
        return kept
    # slow to import, and not needed for what is kept
    from npukit.zoo.architectures import ARCHITECTURES
    from npukit.zoo.quantise import quantise
    from npukit.zoo.transformers import TRANSFORMERS

    progress(f"making {name} with synthetic weights, once: some seconds, or a minute")
    if name in TRANSFORMERS:
        model, samples = TRANSFORMERS[name].build(name, seed)
    else:
        builder, model = ARCHITECTURES[name](seed)
        samples = [{"image": one[None]} for one in builder.calibration]
    if precision == "int8":
        model = quantise(model, samples)
    data = model.SerializeToString(deterministic=True)
    if _sources() == _SOURCES:  # what makes the networks is loaded late, and may be another than the key says
        keep(path, data)
    return data


def _key() -> str:
    """What a model depends on besides its name and seed."""
    # the modules' own versions: a package may have another name, as that of ONNX Runtime with CUDA has
    versions = "".join(import_module(name).__version__ for name in ("numpy", "onnx", "onnxruntime"))
    return hashlib.sha256((_SOURCES + versions).encode()).hexdigest()[:16]
