"""Networks with synthetic weights: made once, then cached by what makes them."""

import hashlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from npukit.hw.toolchain import cache_folder, source_digest, write_atomically

__all__ = ["synthetic"]


def synthetic(name: str, precision: str, seed: int, progress: Callable[[str], None]) -> bytes:
    """The ONNX file of a network of `ARCHITECTURES`."""
    folder = cache_folder("zoo")
    path = folder / f"{name}-{precision}-{seed}-{_key()}.onnx"
    if not path.exists():
        # slow to import, and not needed for what is cached
        from npukit.zoo.architectures import ARCHITECTURES
        from npukit.zoo.quantise import quantise

        progress(f"making {name} with synthetic weights, once: some seconds")
        builder, model = ARCHITECTURES[name](seed)
        if precision == "int8":
            model = quantise(model, builder.calibration)
        write_atomically(path, model.SerializeToString(deterministic=True))
    return path.read_bytes()


def _key() -> str:
    """What a model depends on besides its name and seed."""
    versions = "".join(version(package) for package in ("numpy", "onnx", "onnxruntime"))
    return hashlib.sha256((source_digest([Path(__file__).parent]) + versions).encode()).hexdigest()[:16]
