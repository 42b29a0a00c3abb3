"""Small trained networks that come with npukit, as ONNX files.

Each network is stored once per precision: ``int8`` is a QDQ model (QuantizeLinear and DequantizeLinear
around float operators, int8 activations and per-channel int8 weights), ``fp32`` the float model it was
quantised from. ``examples/train_digits.py`` makes the digits files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

__all__ = ["ZOO", "ZooEntry", "digits_heldout", "load", "names", "write"]


@dataclass(frozen=True, kw_only=True)
class ZooEntry:
    """One network of the zoo.

    Attributes:
        name: what :func:`load` takes.
        description: one line on the network, with the shapes of its input and output.
        precisions: the stored versions, the preferred one first.
    """

    name: str
    description: str
    precisions: tuple[str, ...]

    def filename(self, precision: str) -> str:
        """Name of the ONNX file that holds ``precision``.

        Raises:
            ValueError: the network is not stored in that precision.
        """
        if precision not in self.precisions:
            choices = ", ".join(self.precisions)
            raise ValueError(f"precision of {self.name} must be one of {choices}, not {precision!r}")
        return f"{self.name}.onnx" if precision == "int8" else f"{self.name}_{precision}.onnx"


ZOO: Mapping[str, ZooEntry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            ZooEntry(
                name="digits",
                description=(
                    "handwritten digits: residual CNN with 24 and 40 channels; "
                    "image float32 [1, 1, 8, 8] in 0..1, logits float32 [1, 10]"
                ),
                precisions=("int8", "fp32"),
            ),
        )
    }
)
"""Every network of the zoo by name."""


def names() -> tuple[str, ...]:
    """Names of the networks, sorted."""
    return tuple(sorted(ZOO))


def load(name: str, precision: str = "int8") -> bytes:
    """Serialised ONNX model of a network.

    Args:
        name: one of :func:`names`.
        precision: one of the network's ``precisions``.

    Returns:
        The bytes of the ``.onnx`` file.

    Raises:
        ValueError: no such network, or it is not stored in that precision.
    """
    if name not in ZOO:
        raise ValueError(f"zoo network must be one of {', '.join(names())}, not {name!r}")
    return resources.files(__name__).joinpath(ZOO[name].filename(precision)).read_bytes()


def write(name: str, path: str | PathLike[str], precision: str = "int8") -> Path:
    """Write a network to ``path`` as an ONNX file and return the path.

    Raises:
        ValueError: as :func:`load`; then nothing is written.
        OSError: the file cannot be written.
    """
    model = load(name, precision)
    target = Path(path)
    target.write_bytes(model)
    return target


def digits_heldout() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Digits that the ``digits`` network was neither trained, calibrated nor tuned on.

    Returns:
        ``(images, labels, numbers)``. ``images`` is float32 ``[360, 1, 1, 8, 8]``, grey level / 16, so that
        ``images[i]`` is one input of the network; ``labels`` is int64 ``[360]``, the digit 0..9; ``numbers``
        is int64 ``[360]``, each image's index in ``sklearn.datasets.load_digits``, ascending.

    Raises:
        ImportError: scikit-learn, which carries the images, is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "the digits images come with scikit-learn, which is missing: pip install 'npukit[demo]'",
            name="sklearn",
        ) from error

    record = json.loads(resources.files(__name__).joinpath("digits.json").read_text(encoding="utf-8"))
    numbers = np.asarray(record["heldout"], dtype=np.int64)
    pixels, targets = load_digits(return_X_y=True)
    images = (pixels[numbers] / 16).astype(np.float32).reshape(-1, 1, 1, 8, 8)
    return images, targets[numbers].astype(np.int64), numbers
