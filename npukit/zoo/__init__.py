"""Networks that come with npukit, as ONNX files, and one of them as a TFLite file as well.

``int8`` is a QDQ model (QuantizeLinear and DequantizeLinear around float operators, int8 activations and per-channel
int8 weights), ``fp32`` the float model it was quantised from. The trained networks ``digits`` and ``digits-vit`` are
stored; ``examples/train_digits.py`` and ``examples/train_digits_vit.py`` make their files. ``tflite`` is ``digits`` in
TensorFlow Lite's int8, whose file ``examples/digits_tflite.py`` makes. The others have synthetic
weights: they are made on first use, from a seed, without a download, and kept in the cache folder.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from npukit.files import write_file
from npukit.zoo.layers import VTA_LAYERS

__all__ = ["ZOO", "ZooEntry", "digits_heldout", "load", "names", "write"]


@dataclass(frozen=True, kw_only=True)
class ZooEntry:
    """One network of the zoo.

    Attributes:
        name: what :func:`load` takes.
        description: one line on the network, with the shapes of its input and output.
        precisions: its versions, the preferred one first.
        trained: its files are stored; otherwise it is made with synthetic weights.
    """

    name: str
    description: str
    precisions: tuple[str, ...] = ("int8", "fp32")
    trained: bool = False

    def filename(self, precision: str) -> str:
        """Name of the file that holds ``precision``.

        Raises:
            ValueError: the network is not stored in that precision.
        """
        if precision not in self.precisions:
            choices = ", ".join(self.precisions)
            raise ValueError(f"precision of {self.name} must be one of {choices}, not {precision!r}")
        if precision == "tflite":
            return f"{self.name}.tflite"
        return f"{self.name}.onnx" if precision == "int8" else f"{self.name}_{precision}.onnx"


ZOO: Mapping[str, ZooEntry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            ZooEntry(
                name="digits",
                description=(
                    "handwritten digits: residual CNN with 24 and 40 channels; "
                    "image float32 [1, 1, 8, 8] in 0..1, logits float32 [1, 10]; tflite: int8, [1, 8, 8, 1]"
                ),
                precisions=("int8", "fp32", "tflite"),
                trained=True,
            ),
            ZooEntry(
                name="digits-vit",
                description=(
                    "handwritten digits: vision transformer with 2 layers of 40 and 4 heads; "
                    "image float32 [1, 1, 8, 8] in 0..1, logits float32 [1, 10]"
                ),
                trained=True,
            ),
            *(
                ZooEntry(name=name, description=f"{what}; image float32 [1, 3, 224, 224], logits float32 [1, 1000]")
                for name, what in (
                    ("resnet18", "ResNet-18, synthetic weights"),
                    ("resnet50", "ResNet-50, synthetic weights"),
                    ("mobilenetv2", "MobileNetV2, synthetic weights"),
                )
            ),
            *(
                ZooEntry(name=name, description=f"{what}, synthetic weights; {shapes}")
                for name, what, shapes in (
                    (
                        "bert-tiny",
                        "BERT with 2 layers of 128 and 2 heads",
                        "tokens int64 [1, 128] below 1000, logits float32 [1, 2]",
                    ),
                    (
                        "bert-base-128",
                        "BERT with 12 layers of 768 and 12 heads",
                        "tokens int64 [1, 128] below 1000, logits float32 [1, 2]",
                    ),
                    (
                        "vit-tiny",
                        "vision transformer with 12 layers of 192 and 3 heads",
                        "image float32 [1, 3, 224, 224], logits float32 [1, 1000]",
                    ),
                    (
                        "gpt2-block-128",
                        "GPT-2's block of 768 with 12 heads and a causal mask",
                        "tokens int64 [1, 128] below 1000, logits float32 [1, 128, 1000]",
                    ),
                )
            ),
            *(
                ZooEntry(
                    name=name,
                    description=(
                        f"a convolution of ResNet-18: {kernel}x{kernel}, stride {stride}, {inner} to {outer} channels; "
                        f"image float32 [1, {inner}, {size}, {size}]"
                    ),
                )
                for name, (size, inner, outer, kernel, _, stride) in VTA_LAYERS.items()
            ),
        )
    }
)
"""Every network of the zoo by name."""


def names() -> tuple[str, ...]:
    """Names of the networks, in the order of `ZOO`."""
    return tuple(ZOO)


def load(name: str, precision: str = "int8", seed: int = 0, progress: Callable[[str], None] = lambda _: None) -> bytes:
    """Serialised model of a network.

    Args:
        name: one of :func:`names`.
        precision: one of the network's ``precisions``.
        seed: of synthetic weights; a trained network has but one set.
        progress: gets a line of text when a network has to be made.

    Returns:
        The bytes of the ``.onnx`` or ``.tflite`` file.

    Raises:
        ValueError: no such network, or no such version of it.
    """
    if name not in ZOO:
        raise ValueError(f"zoo network must be one of {', '.join(names())}, not {name!r}")
    entry = ZOO[name]
    filename = entry.filename(precision)
    if entry.trained:
        if seed:
            raise ValueError(f"{name} is trained, so it has no seed to choose")
        return resources.files(__name__).joinpath(filename).read_bytes()
    from npukit.zoo.synthetic import synthetic

    return synthetic(name, precision, seed, progress)


def write(name: str, path: str | PathLike[str], precision: str = "int8", seed: int = 0) -> Path:
    """Write a network's file to ``path`` and return the path.

    Raises:
        ValueError: as :func:`load`; then nothing is written.
        OSError: the file cannot be written.
    """
    target = Path(path)
    write_file(target, load(name, precision, seed))
    return target


def digits_heldout() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Digits that ``digits`` and ``digits-vit`` were neither trained, calibrated nor tuned on.

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
    return images, np.asarray(targets)[numbers].astype(np.int64), numbers
